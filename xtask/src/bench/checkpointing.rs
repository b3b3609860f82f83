//! `cargo xtask bench checkpointing`: `bench step` with everything kept and with blocks run again, in turn.

use super::compare::{Measurement, measure, our_command};
use super::numbers::{median, rounded};
use super::step::Workload;
use clap::builder::RangedU64ValueParser;
use serde_json::{Value, json};
use undertone_cli::{Failure, say};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    workload: Workload,
    /// How many blocks run again together; several numbers are measured one after the other
    #[arg(long, default_value = "1", value_delimiter = ',', value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    every: Vec<usize>,
    /// How often each of them runs
    #[arg(long, default_value = "3", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let sides: Vec<usize> = [0].into_iter().chain(args.every.iter().copied()).collect();
    let mut rounds: Vec<Vec<Measurement>> = Vec::new();
    for _ in 0..args.rounds {
        let measured = sides.iter().map(|every| measure(&mut our_command(&args.workload.checkpointed(*every))?));
        rounds.push(measured.collect::<Result<_, _>>()?);
    }
    for (side, every) in sides.iter().enumerate().skip(1) {
        say!("{}", summary(&rounds, side, *every))?;
    }
    Ok(())
}

/// One way of running blocks again by the plain way: seconds are more, memory is less.
fn summary(rounds: &[Vec<Measurement>], side: usize, every: usize) -> Value {
    let of_rounds = |value: &dyn Fn(&[Measurement]) -> f64| rounds.iter().map(|r| value(r)).collect::<Vec<f64>>();
    let ratios = of_rounds(&|r| r[side].seconds / r[0].seconds);
    let [plain, again] = [0, side].map(|at| median(&of_rounds(&|r| r[at].peak_mib)));
    let [plain_seconds, seconds] = [0, side].map(|at| median(&of_rounds(&|r| r[at].seconds)));
    let line = rounds.last().map(|round| &round[side].line).unwrap_or(&Value::Null);
    json!({
        "checkpointing": every,
        "size": line["size"],
        "batch": line["batch"],
        "tokens": line["tokens"],
        "dtype": line["dtype"],
        "lora": line["lora"],
        "device": line["device"],
        "rounds": rounds.len(),
        "same_loss": rounds.iter().all(|r| r[side].line["loss"] == r[0].line["loss"]),
        "plain_seconds_per_step": rounded(plain_seconds, 4),
        "seconds_per_step": rounded(seconds, 4),
        "time_ratio": rounded(median(&ratios), 3),
        "time_ratio_min": rounded(ratios.iter().copied().fold(f64::INFINITY, f64::min), 3),
        "time_ratio_max": rounded(ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max), 3),
        "plain_peak_mib": rounded(plain, 0),
        "peak_mib": rounded(again, 0),
        "peak_ratio": rounded(again / plain, 3),
    })
}

#[cfg(test)]
mod tests {
    use super::super::compare::parse;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn measurement(seconds: f64, peak: f64, loss: f64) -> Measurement {
        let line = json!({"seconds_per_step": seconds, "peak_mib": peak, "loss": loss, "size": "tiny"});
        parse(&line.to_string()).expect("a measurement")
    }

    #[test]
    fn the_summary_takes_medians_by_the_plain_way() {
        let round = |plain, again| vec![measurement(plain, 1000.0, 2.0), measurement(again, 400.0, 2.0)];
        let summary = summary(&[round(1.0, 1.5), round(2.0, 2.5), round(1.0, 1.3)], 1, 4);
        assert_eq!((&summary["checkpointing"], &summary["size"]), (&json!(4), &json!("tiny")));
        assert_eq!((&summary["time_ratio"], &summary["time_ratio_max"]), (&json!(1.3), &json!(1.5)));
        assert_eq!((&summary["peak_ratio"], &summary["same_loss"]), (&json!(0.4), &json!(true)));
        let other = vec![measurement(1.0, 1.0, 2.0), measurement(1.0, 1.0, 2.5)];
        assert_eq!(super::summary(&[other], 1, 1)["same_loss"], false);
    }

    #[test]
    fn children_are_told_how_many_blocks_run_again() {
        let line = "checkpointing --size small --every 1,3";
        let args = Cli::try_parse_from(line.split_whitespace()).expect("valid options").args;
        assert_eq!(args.every, [1, 3]);
        let command = our_command(&args.workload.checkpointed(3)).ok().expect("a command");
        let given: Vec<String> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        assert!(
            given.join(" ").starts_with("bench step --kernels auto --checkpointing 3 --accumulation 1 --size small"),
            "{given:?}"
        );
    }
}
