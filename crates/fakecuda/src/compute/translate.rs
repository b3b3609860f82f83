//! Translation of CubeCL's CUDA C++ to C++ for the CPU.

use std::fmt::Write;

/// Returns the kernel's source with a function `fakecuda_launch` that runs it.
pub fn to_cpp(source: &str, kernel: &str) -> String {
    let mut text = String::from("#include \"cuda.hpp\"\n");
    for line in source.lines().filter(|line| !line.trim_start().starts_with("#include")) {
        text.push_str(line);
        text.push('\n');
    }
    let mut text = assembly_as_calls(&shared_memory_as_a_pointer(&text));
    let _ = write!(
        text,
        "\nextern \"C\" const char *fakecuda_launch(const unsigned *grid, const unsigned *block, unsigned shared, void **values) {{\n    \
         return fakecuda::launch([](void **values) {{ fakecuda::call({kernel}, values); }}, values, grid, block, shared);\n}}\n"
    );
    text
}

/// Whether no thread waits for another one.
pub fn is_alone(text: &str) -> bool {
    const TOGETHER: [&str; 6] = ["__sync", "_sync(", "ptx_", "nvcuda", "cooperative_groups", "cuda::"];
    !TOGETHER.iter().any(|name| text.contains(name))
}

/// Replaces `extern __shared__ __align__(16) char v7[];` by memory that the launch provides.
fn shared_memory_as_a_pointer(text: &str) -> String {
    const BEFORE: &str = "extern __shared__ ";
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEFORE) {
        let declared = &rest[at..];
        let end = declared.find("[];").unwrap_or(declared.len() - 3);
        let name = declared[..end].rsplit([' ', ')']).next().unwrap_or_default();
        found.push_str(&rest[..at]);
        let _ = write!(found, "char *const {name} = fakecuda::shared_memory();");
        rest = &declared[end + 3..];
    }
    found + rest
}

/// Replaces `asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(b), "f"(c));` by `ptx_max_NaN_f32(a, b, c);`.
fn assembly_as_calls(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("asm") {
        let (before, statement) = rest.split_at(at);
        found.push_str(before);
        let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        match is_word.then(|| call(statement)).flatten() {
            Some((call, bytes)) => {
                found.push_str(&call);
                rest = &statement[bytes..];
            }
            None => {
                found.push_str("asm");
                rest = &statement[3..];
            }
        }
    }
    found + rest
}

/// Returns the call that replaces the statement at the start of `text`, and the length of the statement in bytes.
fn call(text: &str) -> Option<(String, usize)> {
    let open = text.find('(')?;
    if !matches!(text[3..open].trim(), "" | "volatile") {
        return None;
    }
    let quoted = text[open..].find('"')? + open + 1;
    let closed = text[quoted..].find('"')? + quoted;
    let instruction = main_instruction(&text[quoted..closed]).split([';', ' ', '\t']).next()?;
    let name: String = instruction.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let (operands, end) = operands(&text[closed + 1..])?;
    Some((format!("ptx_{name}({})", operands.join(", ")), closed + 1 + end))
}

/// Returns assembly from its first instruction on that does more than prepare a predicate: `{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma…`.
fn main_instruction(text: &str) -> &str {
    let mut rest = text.trim_start_matches(['{', ' ']);
    while [".reg", "setp"].iter().any(|start| rest.starts_with(start)) {
        rest = rest.split_once(';').map_or("", |(_, rest)| rest.trim_start());
    }
    rest
}

/// Returns the expressions in `: "=f"(a) : "f"(b), "f"(c) : "memory")`, and the length up to the end in bytes.
fn operands(text: &str) -> Option<(Vec<&str>, usize)> {
    let (mut found, mut quoted, mut depth, mut begin) = (Vec::new(), false, 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => {
                if depth == 0 {
                    begin = at + 1;
                }
                depth += 1;
            }
            ')' if !quoted && depth == 0 => return Some((found, at + 1)),
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    found.push(&text[begin..at]);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{assembly_as_calls, is_alone, shared_memory_as_a_pointer};

    #[test]
    fn assembly_becomes_calls() {
        let text = "asm volatile(\"mma.sync.aligned.k16 {%0}, {%1};\" : \"=f\"(r.i_0) : \"r\"(a[0]), \"f\"(f(b)) : \"memory\");x";
        assert_eq!(assembly_as_calls(text), "ptx_mma_sync_aligned_k16(r.i_0, a[0], f(b));x");
        assert_eq!(assembly_as_calls("int plasma = asm_1;"), "int plasma = asm_1;");
        let text = "asm volatile(\"{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.k16 {%0, \"\n\"%1}, %2, p;}\" : \"+f\"(s[0]) : \"n\"(!A));";
        assert_eq!(assembly_as_calls(text), "ptx_wgmma_k16(s[0], !A);");
    }

    #[test]
    fn shared_memory_becomes_a_pointer() {
        let text = "a; extern __shared__ __align__(16) char v7[];uint32_t b;";
        assert_eq!(shared_memory_as_a_pointer(text), "a; char *const v7 = fakecuda::shared_memory();uint32_t b;");
    }

    #[test]
    fn threads_that_wait_are_not_alone() {
        assert!(is_alone("v[0] = 1;") && !is_alone("__syncthreads();") && !is_alone("__shfl_xor_sync(m, v, 1);"));
    }
}
