//! The page, and whether what is on it may be.

use super::assembled::Assembled;
use super::measured::Measured;
use std::collections::BTreeMap;
use std::fmt::Write;
use undertone_cli::Failure;

/// What was measured, in its order.
pub struct Page {
    size: String,
    spill: Spill,
    measured: Vec<Measured>,
}

/// Bytes that kernels may spill from registers to memory.
#[derive(Clone, Copy)]
pub struct Spill {
    pub kernel: u64,
    /// Of a product that tuning tries beside others.
    pub candidate: u64,
}

impl Spill {
    fn allows(self, kernel: &Assembled) -> bool {
        kernel.spilled <= if kernel.name.starts_with(CANDIDATE) { self.candidate } else { self.kernel }
    }
}

/// How the names of CubeK's products begin.
const CANDIDATE: &str = "matmul_entry";

/// A kernel's variants on one architecture: the worst of each number.
#[derive(Default)]
struct Family {
    variants: u64,
    worst: Assembled,
}

impl Page {
    pub fn new(size: String, spill: Spill) -> Self {
        Self { size, spill, measured: Vec::new() }
    }

    pub fn add(&mut self, measured: Measured) {
        self.measured.push(measured);
    }

    /// As Markdown.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# Kernels of training steps, compiled\n\nSteps of Whisper {} (batch 2) by `cargo xtask bench kernels`, with NVIDIA's own \
             compilers and on a driver without a GPU. **Nothing was computed**: this shows what is compiled, what it takes of a card and \
             what is launched, and no time of a device. Caches were empty.\n\n## Steps\n\nLaunches, waits and copies are those of the \
             whole process: tuning, three steps to warm up and one more.\n\n| card | type | step | kernels compiled | NVRTC, s | longest, s | \
             process, s | launches | waits | to the device, MB | most memory, GB | problems |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
            self.size
        );
        for measured in &self.measured {
            text.push_str(&step_row(measured));
        }
        text.push_str(
            "\n## Kernels\n\nOf kernels with several variants the worst of each number. Registers are a thread's; spilled is what a \
             thread keeps in memory for want of registers.\n\n| kernel | architecture | variants | PTX, KB | registers | spilled, bytes | \
             shared, bytes | matrix units | 128-bit loads |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for ((name, architecture), family) in self.families() {
            let worst = &family.worst;
            let _ = writeln!(
                text,
                "| `{name}` | {architecture} | {} | {} | {} | {} | {} | {} | {} |",
                family.variants,
                worst.ptx_bytes / 1000,
                worst.registers,
                worst.spilled,
                worst.shared_memory,
                worst.matrix_units,
                worst.wide_loads
            );
        }
        text
    }

    /// Refuses kernels that do not assemble or spill too much, and steps with problems.
    pub fn verdict(&self) -> Result<(), Failure> {
        let kernels = self.measured.iter().flat_map(|measured| &measured.kernels);
        let spills = kernels.clone().filter(|kernel| !self.spill.allows(kernel));
        let spills = spills
            .map(|kernel| format!("`{}` spills {} bytes on {}", kernel.name, kernel.spilled, kernel.architecture));
        let refused = kernels.filter_map(|kernel| {
            let reason = kernel.refused.as_ref()?;
            Some(format!("`{}` does not assemble for {}: {reason}", kernel.name, kernel.architecture))
        });
        let problems = self.measured.iter().flat_map(|measured| {
            let found = measured.report["problems"].as_object();
            found
                .into_iter()
                .flatten()
                .map(|(problem, times)| format!("{} {}: {problem} ({times} times)", measured.card, measured.compute))
        });
        let mut found: Vec<String> = refused.chain(problems).chain(spills).collect();
        found.sort();
        found.dedup();
        if found.is_empty() { Ok(()) } else { Err(Failure::Machine(found.join("\n"))) }
    }

    fn families(&self) -> BTreeMap<(String, String), Family> {
        let mut families = BTreeMap::<_, Family>::new();
        for kernel in self.measured.iter().flat_map(|measured| &measured.kernels) {
            let family = families.entry((family_of(&kernel.name).to_owned(), kernel.architecture.clone())).or_default();
            family.variants += 1;
            let worst = &mut family.worst;
            worst.ptx_bytes = worst.ptx_bytes.max(kernel.ptx_bytes);
            worst.registers = worst.registers.max(kernel.registers);
            worst.spilled = worst.spilled.max(kernel.spilled);
            worst.shared_memory = worst.shared_memory.max(kernel.shared_memory);
            worst.matrix_units = worst.matrix_units.max(kernel.matrix_units);
            worst.wide_loads = worst.wide_loads.max(kernel.wide_loads);
        }
        families
    }
}

/// The kernel's name without the hash of what it was generated for.
fn family_of(name: &str) -> &str {
    let is_hash = |hash: &str| hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.rsplit_once('_').filter(|(_, hash)| is_hash(hash)).map_or(name, |(family, _)| family)
}

fn step_row(measured: &Measured) -> String {
    let number =
        |path: &[&str]| path.iter().fold(&measured.report, |value, key| &value[key]).as_f64().unwrap_or_default();
    let waits = number(&["waits", "streams"]) + number(&["waits", "events"]) + number(&["waits", "contexts"]);
    let problems = measured.report["problems"].as_object().map_or(0, serde_json::Map::len);
    format!(
        "| {} | {} | {} | {} | {:.0} | {:.1} | {:.0} | {} | {waits} | {:.1} | {:.2} | {problems} |\n",
        measured.card,
        measured.compute,
        measured.step,
        number(&["nvrtc", "programs"]),
        number(&["nvrtc", "seconds"]),
        number(&["nvrtc", "longest"]),
        measured.seconds,
        number(&["launches"]),
        number(&["to_device", "bytes"]) / 1e6,
        number(&["memory", "peak"]) / 1e9
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_that_is_one_of_several_may_spill_more() {
        let spill = Spill { kernel: 16, candidate: 640 };
        let kernel = |name: &str, spilled| Assembled { name: name.into(), spilled, ..Assembled::default() };
        assert!(spill.allows(&kernel("adamw_kernel", 16)) && !spill.allows(&kernel("adamw_kernel", 20)));
        let product = "matmul_entry_lhs_bf16_0123abcd";
        assert!(spill.allows(&kernel(product, 624)) && !spill.allows(&kernel(product, 648)));
    }

    #[test]
    fn variants_of_a_kernel_differ_by_a_hash() {
        assert_eq!(family_of("layer_norm_forward_6883ad41"), "layer_norm_forward");
        assert_eq!(family_of("attention_forward"), "attention_forward");
    }
}
