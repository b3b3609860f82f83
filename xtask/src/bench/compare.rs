//! `cargo xtask bench compare`: `bench step` and a peer alternately, because a machine's speed drifts.

use super::names::name;
use super::numbers::{median, rounded};
use super::step::{Dtype, Workload};
use crate::process::{output, this_program};
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use undertone_cli::{Failure, say};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    workload: Workload,
    /// The Python that has torch and transformers
    #[arg(long, value_name = "PATH")]
    peer_python: PathBuf,
    /// The peer's script: it takes the options of `bench step` and prints a JSON line like it
    #[arg(long, value_name = "PATH")]
    peer: PathBuf,
    /// What the peer computes in; the same as here, if not given
    #[arg(long)]
    peer_dtype: Option<Dtype>,
    /// How often each of the two runs
    #[arg(long, default_value = "3", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
}

/// Each side once, one after the other.
struct Round {
    ours: Measurement,
    peer: Measurement,
}

/// Result printed by a child process.
#[derive(Debug)]
pub struct Measurement {
    pub seconds: f64,
    /// Not a number where the child does not know it, which JSON writes as null.
    pub peak_mib: f64,
    pub line: Value,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.peer.is_file() {
        return Err(Failure::BadInput(format!("there is no script `{}`: give one as --peer", args.peer.display())));
    }
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let ours = measure(&mut our_command(&args.workload)?)?;
        let peer = measure(&mut peer_command(args, &ours.line))?;
        rounds.push(Round { ours, peer });
    }
    say!("{}", summary(&rounds))
}

/// `bench step` in a process of its own.
pub fn our_command(workload: &Workload) -> Result<Command, Failure> {
    let mut command = this_program()?;
    command.args(["bench", "step", "--kernels", &name(workload.kernels)]);
    command.args(["--checkpointing", &workload.checkpointing.to_string()]);
    command.args(["--accumulation", &workload.accumulation.to_string()]);
    command.args(workload.options(workload.dtype, &workload.device));
    Ok(command)
}

/// The peer, on the device that we ran on: it has one way to each and does not know `auto`.
fn peer_command(args: &Args, ours: &Value) -> Command {
    let device = ours["device"].as_str().unwrap_or(&args.workload.device);
    let device = device.strip_prefix("tch:").unwrap_or(device);
    let dtype = args.peer_dtype.unwrap_or(args.workload.dtype);
    let mut command = Command::new(&args.peer_python);
    command.arg(&args.peer).args(args.workload.options(dtype, device));
    command
}

/// Runs a child to its end and repeats its line.
pub fn measure(command: &mut Command) -> Result<Measurement, Failure> {
    let measurement = parse(&output(command)?).ok_or_else(|| {
        Failure::BadInput(format!(
            "{command:?} did not end with a JSON line that has `seconds_per_step`: is it a peer?"
        ))
    })?;
    say!("{}", measurement.line)?;
    Ok(measurement)
}

/// The measurement in the last line of a child's output.
pub fn parse(stdout: &str) -> Option<Measurement> {
    let line: Value = serde_json::from_str(stdout.trim_end().lines().last()?).ok()?;
    let peak_mib = line["peak_mib"].as_f64().unwrap_or(f64::NAN);
    Some(Measurement { seconds: line["seconds_per_step"].as_f64()?, peak_mib, line })
}

/// Medians over the rounds, and the peer's by ours: above 1 is in our favour.
fn summary(rounds: &[Round]) -> Value {
    let Some(Round { ours, peer }) = rounds.last() else { return Value::Null };
    let (ours, peer) = (&ours.line, &peer.line);
    let of_rounds = |value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
    let ratios = of_rounds(|r| r.peer.seconds / r.ours.seconds);
    let seconds = median(&of_rounds(|r| r.ours.seconds));
    let peer_seconds = median(&of_rounds(|r| r.peer.seconds));
    let peak_mib = median(&of_rounds(|r| r.ours.peak_mib));
    let peer_peak_mib = median(&of_rounds(|r| r.peer.peak_mib));
    json!({
        "ours": ours["peer"],
        "peer": peer["peer"],
        "size": ours["size"],
        "batch": ours["batch"],
        "tokens": ours["tokens"],
        "dtype": ours["dtype"],
        "peer_dtype": peer["dtype"],
        "device": ours["device"],
        "threads": ours["threads"],
        "frozen": ours["frozen"],
        "kernels": ours["kernels"],
        "rounds": rounds.len(),
        "seconds_per_step": rounded(seconds, 4),
        "peer_seconds_per_step": rounded(peer_seconds, 4),
        "speedup": rounded(peer_seconds / seconds, 3),
        "speedup_min": rounded(ratios.iter().copied().fold(f64::INFINITY, f64::min), 3),
        "speedup_max": rounded(ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max), 3),
        "peak_mib": rounded(peak_mib, 0),
        "peer_peak_mib": rounded(peer_peak_mib, 0),
        "peak_ratio": rounded(peer_peak_mib / peak_mib, 3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(more: &str) -> Args {
        let line = format!("compare --peer-python python3 --peer peer.py {more}");
        Cli::try_parse_from(line.split_whitespace()).expect("valid options").args
    }

    fn round(ours: f64, peer: f64, peak: Value) -> Round {
        let measurement = |seconds: f64, peak: Value| {
            let line = json!({"peer": "x", "size": "tiny", "seconds_per_step": seconds, "peak_mib": peak});
            parse(&line.to_string()).expect("a measurement")
        };
        Round { ours: measurement(ours, peak), peer: measurement(peer, json!(3000)) }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_summary_takes_medians_and_the_peers_by_ours() {
        let rounds = [round(1.0, 2.0, json!(1000)), round(2.0, 6.0, json!(1500)), round(4.0, 5.0, json!(1400))];
        let summary = summary(&rounds);
        assert_eq!(summary["seconds_per_step"], 2.0);
        assert_eq!(summary["peer_seconds_per_step"], 5.0);
        assert_eq!((&summary["speedup"], &summary["speedup_min"]), (&json!(2.5), &json!(1.25)));
        assert_eq!(summary["speedup_max"], 3.0);
        assert_eq!((&summary["peak_mib"], &summary["peak_ratio"]), (&json!(1400.0), &json!(2.143)));
        assert_eq!(summary["rounds"], 3);
    }

    #[test]
    fn an_unknown_peak_stays_unknown() {
        let summary = summary(&[round(1.0, 2.0, Value::Null)]);
        assert_eq!((&summary["peak_mib"], &summary["peak_ratio"]), (&Value::Null, &Value::Null));
        assert_eq!(summary["peer_peak_mib"], 3000.0);
    }

    #[test]
    fn the_last_line_of_the_output_counts() {
        let measurement = parse("loading\n{\"seconds_per_step\": 0.5, \"peak_mib\": 7}\n\n").expect("a measurement");
        assert_eq!((measurement.seconds, measurement.peak_mib), (0.5, 7.0));
        for output in ["", "no JSON", "{\"seconds_per_step\": 1}\ndone", "{\"seconds\": 1}", "[1]"] {
            assert!(parse(output).is_none(), "{output}");
        }
    }

    #[test]
    fn a_failing_child_is_quoted() {
        let script = "for i in 1 2 3 4 5 6; do echo line $i >&2; done; exit";
        let Err(Failure::Machine(text)) = measure(&mut shell(&format!("{script} 3"))) else {
            panic!("no such failure")
        };
        assert!(text.contains("status: 3") && text.contains("line 2") && text.ends_with("line 6"), "{text}");
        assert!(!text.contains("line 1\n"), "{text}");
        assert!(matches!(measure(&mut shell(&format!("{script} 2"))), Err(Failure::BadInput(_))));
        assert!(matches!(measure(&mut shell("echo done")), Err(Failure::BadInput(_))));
        assert!(matches!(measure(&mut Command::new("/no/such/python")), Err(Failure::BadInput(_))));
    }

    #[test]
    fn both_are_told_the_same_but_for_device_and_type() {
        let args = args(
            "--size large-v3 --batch 2 --tokens 8 --steps 1 --freeze encoder --kernels composed --peer-dtype bf16",
        );
        let peer = peer_command(&args, &json!({"device": "tch:cuda:1"}));
        let peer: Vec<String> = peer.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        assert_eq!(
            peer.join(" "),
            "peer.py --size large-v3 --batch 2 --tokens 8 --steps 1 --dtype bf16 --device cuda:1 --freeze encoder"
        );
        let ours = our_command(&args.workload).ok().expect("a command");
        let ours: Vec<String> = ours.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        assert_eq!(
            ours.join(" "),
            "bench step --kernels composed --checkpointing 0 --accumulation 1 --size large-v3 --batch 2 --tokens 8 --steps 1 --dtype f32 --device auto \
             --freeze encoder"
        );
    }
}
