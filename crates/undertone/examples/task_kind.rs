//! A kind of task of your own: a number for a text, evaluated by its mean absolute error. The module `regression` is all
//! of it: the kind and its network. One line registers it, and YAML can name it.
//!
//! `cargo run --example task_kind` trains it for a few steps on a tiny BERT with random weights.

mod regression {
    use burn::module::Module;
    use burn::tensor::{Device, Tensor};
    use serde::{Deserialize, Serialize};
    use undertone::data::records::{FieldsRecord, RecordsConfig, RecordsError};
    use undertone::model::layers::{Embedding, Linear, mean_pool};
    use undertone::tasks::{
        Answer, AnswerContext, BoxError, BoxedHead, HeadInput, KindMetric, MeanScore, Target, TaskHead, TaskKind,
        TaskRecord, TaskScore,
    };

    /// Configuration: `head: {type: regression, max_length: 64}`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Regression {
        max_length: Option<usize>,
    }

    impl TaskKind for Regression {
        fn name(&self) -> &'static str {
            "regression"
        }

        fn metrics(&self) -> &'static [KindMetric] {
            const { &[KindMetric::lower("mean_absolute_error")] }
        }

        fn records(&self, records: &RecordsConfig) -> Result<Vec<TaskRecord>, RecordsError> {
            let read = FieldsRecord::read(records, &["text", "number"], &[])?.into_iter().map(|record| {
                let target = Target::new(record.number("number")? as f32, 1);
                Ok(TaskRecord::new(record.text("text")?, target, record.origin.clone()))
            });
            read.collect()
        }

        fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead {
            let d_model = embeddings.weight.dims()[1];
            BoxedHead::new("Regression", RegressionHead { linear: Linear::init(d_model, 1, true, 0.02, device) })
        }

        fn score(&self, _: &[String]) -> Box<dyn TaskScore> {
            Box::new(MeanScore::new("mean_absolute_error", |target: &f32, answer: Option<&f32>| {
                f64::from((target - answer.unwrap_or(&0.0)).abs())
            }))
        }
    }

    /// The network: a linear map of the mean of the states.
    #[derive(Module, Debug)]
    struct RegressionHead {
        linear: Linear,
    }

    impl RegressionHead {
        /// `[rows]`.
        fn forward(&self, input: HeadInput) -> Tensor<1> {
            self.linear.forward(mean_pool(input.states, Some(&input.padding))).squeeze_dim(1)
        }
    }

    impl TaskHead for RegressionHead {
        fn loss(&self, input: HeadInput) -> Result<Tensor<1>, BoxError> {
            let numbers = input.arrays.floats::<1>("labels")?;
            Ok((self.forward(input) - numbers).square().sum())
        }

        fn answer(&self, input: HeadInput, _: &AnswerContext) -> Result<Vec<Answer>, BoxError> {
            Ok(self.forward(input).into_data().iter::<f32>().map(Answer::value).collect())
        }
    }
}

use burn::tensor::Device;
use serde_json::json;
use std::path::Path;
use undertone::model::text::{PretrainedText, TextEncoderConfig, TextTokenizer};
use undertone::phases::run::{Phase, train_phases};
use undertone::phases::{Experiment, Session};
use undertone::store::Dtype;
use undertone::tasks;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tasks::register::<regression::Regression>()?;

    let dir = tempfile::tempdir()?;
    tiny_bert().save(&dir.path().join("bert"), Dtype::F32)?;
    std::fs::write(dir.path().join("numbers.jsonl"), records())?;
    std::fs::write(dir.path().join("numbers.yaml"), yaml(dir.path()))?;
    let experiment = Experiment::load(Some(&dir.path().join("numbers.yaml")), &[])?;
    train_phases(&experiment, &[Phase::Adapters], &Session::default())?;

    let metrics = std::fs::read_to_string(dir.path().join("runs/numbers/phase1/share/metrics.jsonl"))?;
    let lines = metrics.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>()?;
    let errors: Vec<f64> = lines.iter().filter_map(|line| line["share.mean_absolute_error"].as_f64()).collect();
    let (first, last) = (errors[0], errors[errors.len() - 1]);
    println!("mean absolute error: {first:.3} before the first step, {last:.3} after 60");
    assert!(last < 0.1 && last < first, "nothing was learned: {errors:?}");
    Ok(())
}

/// Texts of `yes` and `no`, and the share of `yes`.
fn records() -> String {
    let record = |i: usize| {
        let word = |at: usize| if (i * 37 + at * at * 11) % 9 < i % 9 { "yes" } else { "no" };
        let words: Vec<&str> = (0..8).map(word).collect();
        let share = words.iter().filter(|word| **word == "yes").count() as f64 / 8.0;
        json!({"text": words.join(" "), "number": share}).to_string()
    };
    (0..64).map(record).collect::<Vec<_>>().join("\n")
}

fn yaml(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "run: {{name: numbers, dir: '{dir}/runs'}}
device: cpu
model: {{backbone: bert, path: '{dir}/bert'}}
data: {{batch_size: 16, workers: 1}}
tasks:
  - name: share
    head: {{type: regression, max_length: 16}}
    lora: {{r: 2, target_modules: [query, value]}}
    data: {{train: {{path: '{dir}/numbers.jsonl'}}, valid: {{path: '{dir}/numbers.jsonl'}}}}
router: {{tap: 0}}
phases: {{1: {{train: {{max_steps: 60, optimizer: {{lr: 3.0e-2, warmup_steps: 1}}, evaluate: {{every: 10}}}}}}}}
"
    )
}

/// Two blocks of width 16 with random weights, and a vocabulary of two words.
fn tiny_bert() -> PretrainedText {
    let vocabulary = json!({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "yes": 4, "no": 5});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
        "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": vocabulary},
    });
    let tokenizer = TextTokenizer::from_bytes(tokenizer.to_string().into_bytes(), &[]).expect("a tokenizer");
    let config = TextEncoderConfig { max_position_embeddings: 16, ..TextEncoderConfig::new(16, 32, 2, 2) };
    undertone::ops::seed(1);
    PretrainedText::init(config, tokenizer, &Device::default()).expect("a model")
}
