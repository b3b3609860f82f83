//! A metric of one's own that YAML can name: `cargo run -p undertone --example own_metric`.
//!
//! A type that implements [`TextMetric`], and one line that registers it. From then on tasks whose answers are texts are
//! judged by it where `metrics` names it, and it may decide which checkpoint is the best.

use undertone::metrics::Direction;
use undertone::metrics::registry::{self, TextMetric};
use undertone::phases::run::train;
use undertone::phases::{Experiment, Session};

/// The share of texts whose first word is right: in a contest that is where the callsign stands.
#[derive(Clone, Debug, Default)]
struct FirstWord {
    right: usize,
    texts: usize,
}

impl TextMetric for FirstWord {
    const NAME: &str = "first_word";
    const DIRECTION: Direction = Direction::Higher;

    fn add(&mut self, reference: &str, hypothesis: &str) {
        self.right += usize::from(reference.split_whitespace().next() == hypothesis.split_whitespace().next());
        self.texts += 1;
    }

    fn value(&self) -> Option<f64> {
        (self.texts > 0).then(|| self.right as f64 / self.texts as f64)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    undertone::register()?;
    registry::register::<FirstWord>()?;

    let dir = tempfile::tempdir()?;
    let yaml = "
device: cpu
data: {batch_size: 8, train: {samples: 64, cw: {text: {callsigns: 1}, duration_s: [4, 6]}}}
train:
  max_steps: 4
  optimizer: {lr: 1.0e-5, warmup_steps: 1}
  evaluate: {metrics: [cer, first_word]}
  checkpoint: {metric: first_word}
";
    std::fs::write(dir.path().join("first_word.yaml"), yaml)?;
    let mut experiment = Experiment::load(Some(&dir.path().join("first_word.yaml")), &[])?;
    experiment.at(&dir.path().join("run"));
    let outcomes = train(&experiment, &Session::default())?;

    let summary = outcomes[0].summary.as_ref().ok_or("the run has no summary")?;
    let (best, step) = summary.best.ok_or("nothing was judged")?;
    println!(
        "first word right: {:.3} of texts after step 4; best {best:.3} at step {step}",
        summary.after["first_word"]
    );
    assert!(summary.after["first_word"] > 0.2 && summary.directions["first_word"] == Direction::Higher);
    Ok(())
}
