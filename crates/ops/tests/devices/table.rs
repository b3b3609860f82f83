//! The table of `docs/devices.md`: what runs where, and in which types.
//!
//! `WRITE_DOCS=1 BURN_DEVICE=… cargo nextest run … -E 'test(table)'` writes the part of one device.

use super::cases::{CASES, Case, NOTHING};
use super::{difference, supports};
use burn::tensor::Device;
use undertone_ops::{Compute, LaunchCounter, runs_on_host};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/devices.md");
const TYPES: [Compute; 3] = [Compute::F32, Compute::F16, Compute::Bf16];

#[test]
fn the_table_says_what_is_measured() {
    let device = Device::default();
    let Some(kind) = kind(&device) else { return };
    let rows = rows(kind, &device);
    let text = std::fs::read_to_string(FILE).expect("docs/devices.md");
    let (begin, end) = (format!("<!-- {kind} -->\n"), format!("<!-- end of {kind} -->\n"));
    let before = text.find(&begin).expect("a place for the device's table") + begin.len();
    let after = text.find(&end).expect("the end of the device's table");
    if std::env::var_os("WRITE_DOCS").is_some() {
        let lines: String = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
        let head = "| operation | runs as | f32 | f16 | bf16 |\n|---|---|---|---|---|\n";
        std::fs::write(FILE, format!("{}{head}{lines}{}", &text[..before], &text[after..])).expect("written");
        return;
    }
    let like_the_tables = runs_on_host(&device) && !cfg!(feature = "autotune");
    for found in rows {
        let begins = format!("| {} |", found[0]);
        let line = text[before..after].lines().find(|line| line.starts_with(&begins));
        let line = line.unwrap_or_else(|| panic!("docs/devices.md has no {} for {kind}", found[0]));
        let stated: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(stated.len(), found.len(), "{line}");
        for (stated, found) in stated.iter().zip(&found) {
            assert!(
                agrees(stated, found, like_the_tables),
                "docs/devices.md says `{stated}` in `{line}`: it is `{found}`"
            );
        }
    }
}

/// For each operation its name, what it runs as, and the difference from the CPU's kernels in each type.
fn rows(kind: &str, device: &Device) -> Vec<[String; 5]> {
    let mut counter = Counter::start(kind);
    CASES
        .iter()
        .map(|case| {
            let differences = TYPES.map(|compute| match supports(device, compute) {
                true => rounded(difference(case, device, compute)),
                false => "refused".to_owned(),
            });
            let runs_as = match kind {
                "cpu" => case.cpu.to_owned(),
                "tch" => on_libtorch(case).to_owned(),
                _ => counter.kernels(case, device),
            };
            let [f32, f16, bf16] = differences;
            [case.name.to_owned(), runs_as, f32, f16, bf16]
        })
        .collect()
}

/// What an operation is on LibTorch, which counts nothing.
fn on_libtorch(case: &Case) -> &'static str {
    match case.name {
        "`gelu`" | "`layer_norm`" | "`attention`" | "`attention`, causal" | "`attention`, padded" => {
            "LibTorch's operation"
        }
        "`linear`" | "`linear_cross_entropy`" | "`cross_entropy`" | "`AdamWRule`" | "`adamw` for 40 parameters" => {
            "a few of LibTorch's operations"
        }
        _ => "Burn's operations",
    }
}

/// Counts launches where CubeCL runs the device.
struct Counter(Option<LaunchCounter>);

impl Counter {
    fn start(kind: &str) -> Self {
        Self(["cuda", "wgpu"].contains(&kind).then(LaunchCounter::start).flatten())
    }

    /// In f32, without those that take a sum of the results, and its gradient.
    fn kernels(&mut self, case: &Case, device: &Device) -> String {
        let [nothing, found] = [&NOTHING, case].map(|case| self.launches(case, device));
        let (Some(nothing), Some(found)) = (nothing, found) else { return "not counted".to_owned() };
        match found.1 {
            0 => kernels(found.0),
            backward => {
                let forward = kernels(found.0.saturating_sub(nothing.0));
                format!("{forward}, {} back", backward.saturating_sub(nothing.1))
            }
        }
    }

    /// How many kernels forward and backward pass launch.
    fn launches(&mut self, case: &Case, device: &Device) -> Option<(usize, usize)> {
        let counter = self.0.as_mut()?;
        counter.count(device);
        let run = (case.run)(device);
        // What was asked for is done when it is read.
        run.loss.iter().for_each(|loss| drop(loss.clone().inner().into_data()));
        let forward = counter.count(device);
        run.backward();
        Some((forward, counter.count(device)))
    }
}

fn kernels(count: usize) -> String {
    if count == 1 { "1 kernel".to_owned() } else { format!("{count} kernels") }
}

/// One digit, as a power of ten where it is small.
fn rounded(difference: f32) -> String {
    if difference == 0.0 { "0".to_owned() } else { format!("{difference:.0e}") }
}

/// Differences vary with the machine. Which kernels and types there are is compared on a device like the table's.
fn agrees(stated: &str, found: &str, like_the_tables: bool) -> bool {
    match (stated.parse::<f32>(), found.parse::<f32>()) {
        (Ok(stated), Ok(found)) => found <= 10.0 * stated.max(1e-7),
        _ => stated == found || found == "not counted" || stated == "not measured" || !like_the_tables,
    }
}

/// The part of the table for a device, nothing for one that has none.
fn kind(device: &Device) -> Option<&'static str> {
    match format!("{device:?}") {
        name if name.contains("Flex") => Some("cpu"),
        name if name.contains("Cuda") => Some("cuda"),
        name if name.contains("Wgpu") => Some("wgpu"),
        name if name.contains("LibTorch") => Some("tch"),
        _ => None,
    }
}
