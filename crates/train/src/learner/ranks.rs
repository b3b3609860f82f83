//! What ranks that train together have in common: the run that they begin, and of each optimizer step the whole, which they
//! make of their parts.

use super::Learner;
use super::step_report::{ComputedStep, StepReport};
use crate::objective::{Batches, Objective};
use crate::tally::StepTerm;
use crate::{TrainError, Work};
use burn::module::Module;
use serde::{Deserialize, Serialize};
use undertone_store::frozen_checksum;

/// What a rank says of its part of a step, but for the numbers that are added up.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    /// The names of the loss terms and what they are divided by; none without batches.
    terms: Vec<(String, f64)>,
    audio_seconds: Option<f64>,
    tokens: Option<f64>,
    flops: Option<f64>,
}

/// What a run is on each of its ranks.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    version: String,
    configuration: Option<String>,
    /// Batches of the first epoch, and of a step.
    batching: (usize, usize),
    step: u64,
    /// Of all parameters.
    checksum: u32,
}

impl<O: Objective> Learner<O> {
    /// Refuses ranks that would not train the same.
    pub(super) fn compare_ranks<B: Batches<Batch = O::Batch>>(&self, batches: &B) -> Result<(), TrainError> {
        if self.team.is_alone() {
            return Ok(());
        }
        let own = Run {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: self.configuration.clone(),
            batching: self.batching(batches),
            step: self.state.step,
            checksum: frozen_checksum(&self.model().clone().no_grad()),
        };
        let runs = self.team.hear(own)?;
        for (rank, run) in runs.iter().enumerate() {
            if let Some(what) = runs[0].differs_from(run) {
                return Err(TrainError::RanksDiffer { rank, what });
            }
        }
        Ok(())
    }

    /// The step of all ranks from the parts that each computed. An error of any is one of all.
    pub(super) fn share_out(&self, part: Result<ComputedStep, TrainError>) -> Result<ComputedStep, TrainError> {
        if self.team.is_alone() {
            return part;
        }
        let mut computed = self.team.agree(part)?;
        let report = &mut computed.report;
        let parts = self.team.hear(Part::of(report))?;
        report.work = parts.iter().map(Part::work).fold(Work::default(), |mut sum, work| {
            sum += work;
            sum
        });
        if let Some(named) = parts.iter().find(|part| !part.terms.is_empty()).filter(|_| report.terms.is_empty()) {
            report.terms = named.named();
        }
        let own = [report.loss, report.samples as f64].into_iter();
        let own: Vec<f64> = own.chain(report.terms.iter().flat_map(|term| [term.mean, term.weighted])).collect();
        let totals = self.team.totals(&own)?;
        (report.loss, report.samples) = (totals[0], totals[1] as usize);
        for (term, sums) in report.terms.iter_mut().zip(totals[2..].chunks_exact(2)) {
            (term.mean, term.weighted) = (sums[0], sums[1]);
        }
        self.team.sum(&mut computed.gradients, &self.device.clone().inner())?;
        Ok(computed)
    }
}

impl Run {
    fn differs_from(&self, other: &Self) -> Option<&'static str> {
        let parts = [
            (self.version == other.version, "another version of Undertone"),
            (self.configuration == other.configuration, "another configuration"),
            (self.batching == other.batching, "other training data"),
            (self.step == other.step, "another checkpoint: do all ranks see the run's directory?"),
            (self.checksum == other.checksum, "other weights"),
        ];
        parts.iter().find(|(same, _)| !same).map(|(_, what)| *what)
    }
}

impl Part {
    fn of(report: &StepReport) -> Self {
        let Work { audio_seconds, tokens, flops } = report.work;
        let terms = report.terms.iter().map(|term| (term.name.to_string(), term.count)).collect();
        Self { terms, audio_seconds, tokens, flops }
    }

    fn work(&self) -> Work {
        Work { audio_seconds: self.audio_seconds, tokens: self.tokens, flops: self.flops }
    }

    fn named(&self) -> Vec<StepTerm> {
        let term = |(name, count): &(String, f64)| StepTerm {
            name: name.clone().into(),
            mean: 0.0,
            weighted: 0.0,
            count: *count,
        };
        self.terms.iter().map(term).collect()
    }
}
