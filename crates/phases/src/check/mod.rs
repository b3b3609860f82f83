//! Checks an experiment's data before training.
//!
//! [`check`] reads the data that training would read, on the CPU and with the model's own vocabulary. It reports
//! amounts, problems, and samples that splits have in common. Whether training would start is determined by training's
//! own code, so the two always agree.

mod found;
mod leak;
mod listen;
mod place;
mod report;
mod speech;
mod table;
mod written;

pub use place::CheckOptions;
pub use report::{
    DataCheck, Leak, LeakKind, Long, Problem, ProblemKind, Severity, SourceCheck, SplitCheck, Spread, Unspellable,
};

use crate::backbone::SpeechBackbone;
use crate::run::{Pretrained, Setup, StageSpec, load_speech};
use crate::{Experiment, LongAudio, RunError, SourceConfig};
use found::Found;
use leak::{Print, leaks, repeats};
use place::Look;
pub(crate) use place::{Place, places};
use speech::Speech;
use undertone_data::cache::CacheConfig;
use undertone_ops::DeviceSpec;
use undertone_report::{AnalysisError, Panel, panels};
use undertone_train::BoxError;
use written::Written;

/// Checks all data of an experiment. Nothing is trained and no accelerator is used, whatever `device` says.
///
/// # Errors
/// If there is no model to check the data for. Problems of the data itself are in the report.
pub fn check(experiment: &Experiment, options: &CheckOptions) -> Result<DataCheck, RunError> {
    let experiment = &on_host(experiment);
    let device = experiment.device.resolve()?;
    let (tasks, mut collected) = (experiment.all_tasks(), Collected::default());
    let mut window = None;
    if experiment.model.backbone.is_text() {
        let text = experiment.model.load_text(&device)?;
        let written = Written { data: &experiment.data, backbone: &text };
        for place in places(experiment, &tasks) {
            collected.split(&place, |look, source| written.source(look, source));
        }
    } else {
        let backbone = load_speech(experiment, &device)?;
        let speech = Speech::new(experiment, &backbone, options);
        window = Some(speech.seconds());
        for place in places(experiment, &tasks) {
            collected.split(&place, |look, source| speech.source(look, source));
            if !collected.found.fails_at(&place.name())
                && let Err(error) = rehearse(experiment, &backbone, &place, &collected)
            {
                let sentence = [error.to_string()];
                collected.found.add(Severity::Failure, ProblemKind::Refused, &place.name(), 1, sentence);
            }
        }
    }
    Ok(collected.finish(experiment.model.to_string(), window))
}

/// Returns the experiment without settings that do not affect its data: accelerators, and the cache of earlier runs.
fn on_host(experiment: &Experiment) -> Experiment {
    let mut experiment = experiment.clone();
    experiment.device = DeviceSpec::Cpu;
    experiment.data.cache = CacheConfig::default();
    experiment
}

/// Prepares a split as training does.
///
/// # Errors
/// Those with which training would not start.
fn rehearse(
    experiment: &Experiment,
    backbone: &SpeechBackbone,
    place: &Place,
    collected: &Collected,
) -> Result<(), BoxError> {
    if collected.waits_for_model(place) && experiment.data.long_audio == LongAudio::Align {
        return Ok(());
    }
    let setup = Setup::of(experiment, experiment.device.resolve()?, Pretrained::new(backbone.clone()));
    let task = std::slice::from_ref(place.task);
    let begun = match (place.training(), place.task_name()) {
        (true, None) => StageSpec::first(experiment).batches(&setup, &experiment.train).map(|_| ()),
        (true, Some(_)) => setup.dataset(task, place.split).map(|_| ()),
        (false, _) => setup.evaluation_batches(task, place.split).map(|_| ()),
    };
    begun.map_err(|error| match error {
        // The caller names the split already.
        RunError::Speech { source, .. } => source.into(),
        error => error.into(),
    })
}

/// Results so far.
#[derive(Default)]
struct Collected {
    splits: Vec<SplitCheck>,
    found: Found,
    leaks: Vec<Leak>,
    /// Samples of the splits of one task.
    prints: Vec<(&'static str, Vec<Print>)>,
    task: Option<String>,
}

impl Collected {
    /// Checks each source of a split.
    fn split(&mut self, place: &Place, mut examine: impl FnMut(&mut Look, &SourceConfig) -> (SourceCheck, Vec<Print>)) {
        let task = place.task_name().map(str::to_owned);
        if task != self.task {
            self.compare();
        }
        self.task = task.clone();
        let (mut sources, mut prints) = (Vec::new(), Vec::new());
        for (at, source) in place.named() {
            let (check, more) = examine(&mut Look { place, at: &at, found: &mut self.found }, source);
            sources.push(check);
            prints.extend(more);
        }
        repeats(&place.name(), &prints, &mut self.found);
        self.prints.push((place.split.name(), prints));
        self.splits.push(SplitCheck { task, split: place.split.name().to_owned(), sources });
    }

    /// Whether a split has recordings that the model must transcribe for their alignment.
    fn waits_for_model(&self, place: &Place) -> bool {
        let same =
            |check: &&SplitCheck| check.split == place.split.name() && check.task.as_deref() == place.task_name();
        self.splits.iter().find(same).is_some_and(|split| split.sources.iter().any(|s| s.long.without_times > 0))
    }

    /// Compares the splits so far for common samples.
    fn compare(&mut self) {
        let prints = std::mem::take(&mut self.prints);
        self.leaks.extend(leaks(self.task.as_deref(), &prints));
    }

    fn finish(mut self, model: String, window: Option<f64>) -> DataCheck {
        self.compare();
        DataCheck { model, window, splits: self.splits, leaks: self.leaks, problems: self.found.into_problems() }
    }
}

impl DataCheck {
    /// Draws durations and text lengths as SVG, one row per source.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn picture(&self) -> Result<String, AnalysisError> {
        let panel = |title: String, axis, spread: Option<&Spread>, limit: Option<f64>| {
            let (bin, counts) = spread.map_or((1.0, Vec::new()), |spread| (spread.bin, spread.histogram.clone()));
            Panel { title, axis, bin, counts, limit }
        };
        let rows = self.splits.iter().flat_map(|split| {
            split.sources.iter().map(move |source| {
                let title = format!("{}: {}", split.name(), source.source);
                let tokens = (source.tokens.as_ref(), Some(source.token_limit as f64));
                match self.window {
                    Some(window) => [
                        panel(title, "Seconds", source.seconds.as_ref(), Some(window)),
                        panel(String::new(), "Tokens of the text", tokens.0, tokens.1),
                    ],
                    None => {
                        let limit = source.target_limit.map(|limit| limit as f64);
                        [
                            panel(title, "Tokens read", tokens.0, tokens.1),
                            panel(String::new(), "Tokens written", source.target_tokens.as_ref(), limit),
                        ]
                    }
                }
            })
        });
        panels(&format!("Data for {}", self.model), &rows.collect::<Vec<_>>())
    }
}

impl SplitCheck {
    /// Returns the name in messages.
    pub fn name(&self) -> String {
        self.task.as_ref().map_or(String::new(), |task| format!("{task}/")) + &self.split
    }
}
