//! PTX through NVIDIA's assembler, as a driver does it when it loads a module, and what the machine code has.

use crate::cuda::Toolkit;
use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use undertone_cli::Failure;

/// A kernel as the assembler made it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assembled {
    pub name: String,
    /// Like `sm_90a`.
    pub architecture: String,
    /// Bytes of its PTX.
    pub ptx_bytes: u64,
    /// Registers of a thread.
    pub registers: u64,
    /// Bytes that a thread writes to memory for want of registers.
    pub spilled: u64,
    /// Bytes of shared memory of its own.
    pub shared_memory: u64,
    /// Instructions of matrix units.
    pub matrix_units: u64,
    /// Loads of 128 bits.
    pub wide_loads: u64,
    /// Why it was refused.
    pub refused: Option<String>,
}

/// Every module in `folder`.
pub fn assembled(toolkit: &Toolkit, folder: &Path) -> Result<Vec<Assembled>, Failure> {
    let unreadable = |e: std::io::Error| Failure::Machine(format!("cannot list `{}`: {e}", folder.display()));
    let entries = fs::read_dir(folder).map_err(unreadable)?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "ptx"));
    files.sort();
    files.par_iter().map(|file| assemble(toolkit, file)).collect()
}

fn assemble(toolkit: &Toolkit, file: &Path) -> Result<Assembled, Failure> {
    let failed = |what: &str, e: std::io::Error| Failure::Machine(format!("cannot {what}: {e}"));
    let text = fs::read_to_string(file).map_err(|e| failed("read PTX", e))?;
    let architecture = word_after(&text, ".target ").unwrap_or_default();
    let machine_code = file.with_extension("cubin");
    let mut command = Command::new(toolkit.assembler());
    command.arg("-v").arg(format!("-arch={architecture}")).arg(file).arg("-o").arg(&machine_code);
    let output = command.output().map_err(|e| failed("start ptxas, which comes with NVIDIA's toolkit", e))?;
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let mut kernel = Assembled {
        name: word_after(&text, ".entry ").unwrap_or_default(),
        architecture,
        ptx_bytes: text.len() as u64,
        ..of_log(&said)
    };
    if !output.status.success() {
        kernel.refused = Some(said.lines().next().unwrap_or("no reason was given").to_owned());
        return Ok(kernel);
    }
    let disassembled = Command::new(toolkit.disassembler()).arg(&machine_code).output();
    let disassembled = disassembled.map_err(|e| failed("start nvdisasm, which comes with NVIDIA's toolkit", e))?;
    let code = String::from_utf8_lossy(&disassembled.stdout);
    kernel.matrix_units = code.lines().filter(|line| is_of_matrix_units(line)).count() as u64;
    kernel.wide_loads = code.lines().filter(|line| line.contains("LDG.E") && line.contains(".128")).count() as u64;
    fs::remove_file(machine_code).map_err(|e| failed("remove machine code", e))?;
    Ok(kernel)
}

/// What `ptxas -v` says.
fn of_log(said: &str) -> Assembled {
    let number_before = |unit: &str| {
        let before = said.split_once(unit)?.0;
        before.rsplit([' ', ',']).find(|word| !word.is_empty())?.parse::<u64>().ok()
    };
    let registers = said.split_once("Used ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    Assembled {
        registers: registers.unwrap_or_default(),
        spilled: number_before(" bytes spill stores").unwrap_or_default(),
        shared_memory: number_before(" bytes smem").unwrap_or_default(),
        ..Assembled::default()
    }
}

fn is_of_matrix_units(line: &str) -> bool {
    ["HMMA", "HGMMA", "IMMA", "QMMA", "OMMA"].iter().any(|name| line.contains(name))
}

fn word_after(text: &str, start: &str) -> Option<String> {
    let rest = text.split_once(start)?.1;
    rest.split(|letter: char| letter.is_whitespace() || "(,;".contains(letter)).next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assemblers_words_are_read() {
        let said = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'a' for 'sm_90a'\nptxas info    : Function \
                    properties for a\n    96 bytes stack frame, 44 bytes spill stores, 52 bytes spill loads\nptxas info    : Used 255 \
                    registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]\n";
        let found = of_log(said);
        assert_eq!([found.registers, found.spilled, found.shared_memory], [255, 44, 1024]);
        assert_eq!(
            of_log("ptxas info    : Used 12 registers, used 0 barriers"),
            Assembled { registers: 12, ..Assembled::default() }
        );
    }

    #[test]
    fn kernels_are_read_from_their_text() {
        let text = ".version 8.7\n.target sm_90a, debug\n.visible .entry sum_f32(\n)\n.maxntid 32, 8, 1\n{";
        assert_eq!(
            (word_after(text, ".target "), word_after(text, ".entry ")),
            (Some("sm_90a".into()), Some("sum_f32".into()))
        );
    }
}
