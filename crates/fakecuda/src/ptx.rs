//! Parser for the parts of PTX that a driver needs: the target card, and the kernels with their parameters. NVRTC's
//! layout is regular, so it reads line by line.

/// A module of PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx {
    /// Version of the language: major and minor.
    pub version: (u32, u32),
    /// Target architecture: 90 for `sm_90a`.
    pub target: u32,
    /// Whether it runs on that architecture alone, as with `sm_90a`.
    pub is_specific: bool,
    /// Kernels of the module.
    pub entries: Vec<Entry>,
}

/// Kernel of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Name of the kernel.
    pub name: String,
    /// Parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Maximum threads of a block, if the kernel declares it.
    pub max_threads: Option<u64>,
    /// Bytes of static shared memory.
    pub shared_memory: u64,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Size in bytes.
    pub size: u64,
    /// Whether it is an address: eight bytes that are not an array.
    pub is_pointer: bool,
}

impl Ptx {
    /// Parses a module; `None` if it has no version, no target or no kernel.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = after(text, ".version ")?.split_once('.')?;
        let target = after(text, ".target sm_")?;
        let digits = target.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let ptx = Self {
            version: (major.parse().ok()?, minor.parse().ok()?),
            target: digits.parse().ok()?,
            is_specific: digits != target,
            entries: text.split(".entry ").skip(1).filter_map(Entry::parse).collect(),
        };
        (!ptx.entries.is_empty()).then_some(ptx)
    }
}

impl Entry {
    /// Parses a kernel, from its name to the next kernel's.
    fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once('{')?;
        let name = head.split(|letter: char| letter == '(' || letter.is_whitespace()).next()?.to_owned();
        let parameters = head.split(".param ").skip(1).map(Parameter::parse).collect::<Option<Vec<_>>>()?;
        let bounds = [".maxntid ", ".reqntid "].iter().find_map(|directive| line_after(head, directive));
        let max_threads = bounds.and_then(|bounds| bounds.split(',').map(|n| n.trim().parse::<u64>().ok()).product());
        let shared_memory = body.split(".shared ").skip(1).filter_map(shared_bytes).sum();
        Some(Self { name, parameters, max_threads, shared_memory })
    }

    /// Total bytes of its parameters.
    pub fn parameter_bytes(&self) -> u64 {
        self.parameters.iter().map(|parameter| parameter.size).sum()
    }
}

impl Parameter {
    /// Parses a parameter, from `.param` to its end: `.u64 .ptr .align 1 name`, or `.align 8 .b8 name[48]`.
    fn parse(text: &str) -> Option<Self> {
        let declared = text.split([',', ')']).next()?;
        if let Some((_, array)) = declared.split_once('[') {
            return Some(Self { size: array.split(']').next()?.parse().ok()?, is_pointer: false });
        }
        let kind = declared.split_whitespace().find(|word| type_bytes(word).is_some())?;
        Some(Self { size: type_bytes(kind)?, is_pointer: kind == ".u64" || declared.contains(".ptr") })
    }
}

/// Size in bytes of a type such as `.u64`.
fn type_bytes(word: &str) -> Option<u64> {
    let bits = word.strip_prefix('.')?.strip_prefix(['b', 'u', 's', 'f'])?;
    bits.parse::<u64>().ok().filter(|bits| bits.is_power_of_two()).map(|bits| bits / 8)
}

/// Size in bytes of `.align 16 .b8 name[1024];`.
fn shared_bytes(text: &str) -> Option<u64> {
    let declared = text.split([';', '\n']).next()?;
    let kind = declared.split_whitespace().find_map(type_bytes)?;
    let count = declared.split_once('[').and_then(|(_, count)| count.split(']').next()?.parse().ok());
    Some(kind * count.unwrap_or(1))
}

/// Returns the word after `start`.
fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    line_after(text, start)?.split([',', ' ']).next()
}

fn line_after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.split_once(start)?.1.lines().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//\n.version 8.7\n.target sm_90a\n.address_size 64\n\n.visible .entry sum_f32(\n\t.param .u64 .ptr .align 1 sum_f32_param_0,\n\t\
        .param .align 8 .b8 sum_f32_param_1[48],\n\t.param .u32 sum_f32_param_2\n)\n.maxntid 32, 8, 1\n{\n\t.reg .pred %p<4>;\n\
        \t// demoted\n\t.shared .align 16 .b8 tile[1024];\n\t.shared .align 4 .f32 rest[3];\n\tret;\n}\n.visible .entry none()\n{\n\tret;\n}\n";

    #[test]
    fn kernels_are_read_with_what_they_take() {
        let ptx = Ptx::parse(TEXT).expect("PTX");
        assert_eq!((ptx.version, ptx.target, ptx.is_specific), ((8, 7), 90, true));
        let parameter = |size, is_pointer| Parameter { size, is_pointer };
        let sum = Entry {
            name: "sum_f32".into(),
            parameters: vec![parameter(8, true), parameter(48, false), parameter(4, false)],
            max_threads: Some(256),
            shared_memory: 1036,
        };
        assert_eq!((sum.parameter_bytes(), &ptx.entries[0]), (60, &sum));
        assert_eq!(ptx.entries[1], Entry { name: "none".into(), ..Entry::default() });
    }

    #[test]
    fn what_is_no_ptx_is_none() {
        for odd in ["", "\u{7f}ELF", ".version 8.7\n.target sm_90\n", ".version x\n.target sm_90\n.entry a(\n)\n{\n}\n"]
        {
            assert_eq!(Ptx::parse(odd), None, "{odd}");
        }
    }
}
