//! A kind of task of one's own: a number for a text, judged by its mean absolute error. This file is all there is to it:
//! the kind, its network, its score, and one line that registers it, after which YAML can name it.
//!
//! `cargo run --example task_kind` trains it for a few steps on a tiny BERT with random weights.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;
use undertone::data::records::{FieldsRecord, RecordsConfig, RecordsError};
use undertone::model::layers::{Embedding, mean_pool};
use undertone::model::text::{PretrainedText, TextEncoderConfig, TextTokenizer};
use undertone::phases::run::{Phase, train_phases};
use undertone::phases::{Experiment, Session};
use undertone::store::Dtype;
use undertone::tasks::{
    self, Answer, AnswerContext, BoxError, BoxedHead, Cut, Framer, HeadInput, HostArrays, KindMetric, ReadError,
    ScoredText, Target, TaskHead, TaskKind, TaskScore, TextDataset, TextSample, UserInput, UserInputError, UserSamples,
    user_input_origin,
};

/// What YAML says: `head: {type: regression, max_length: 64}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Regression {
    max_length: usize,
}

impl Default for Regression {
    fn default() -> Self {
        Self { max_length: 64 }
    }
}

/// The network: the mean of the states, times a vector.
#[derive(Module, Debug)]
struct RegressionHead {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

impl RegressionHead {
    /// `[rows]`.
    fn forward(&self, input: &HeadInput) -> Tensor<1> {
        let pooled = mean_pool(input.states.clone(), Some(&input.padding));
        (pooled.matmul(self.weight.val()) + self.bias.val().unsqueeze()).squeeze_dim(1)
    }
}

impl TaskHead for RegressionHead {
    fn loss(&self, input: HeadInput) -> Result<Tensor<1>, BoxError> {
        Ok((self.forward(&input) - input.arrays.floats::<1>("numbers")?).square().sum())
    }

    fn answer(&self, input: HeadInput, _: &AnswerContext) -> Result<Vec<Answer>, BoxError> {
        Ok(self.forward(&input).into_data().iter::<f32>().map(Answer::value).collect())
    }
}

/// The metric.
#[derive(Debug, Default)]
struct AbsoluteError {
    sum: f64,
    samples: usize,
}

impl TaskScore for AbsoluteError {
    fn add(&mut self, sample: &TextSample, answer: Option<&Answer>) -> Result<Option<ScoredText>, BoxError> {
        let due = *sample.target.get::<f32>()?;
        let said = answer.and_then(Answer::get::<f32>).copied().unwrap_or(0.0);
        self.sum += f64::from((due - said).abs());
        self.samples += 1;
        Ok(Some(ScoredText { name: sample.name.clone(), reference: due.to_string(), hypothesis: said.to_string() }))
    }

    fn metric(&self, _: &str) -> Option<f64> {
        (self.samples > 0).then(|| self.sum / self.samples as f64)
    }
}

/// The kind.
impl TaskKind for Regression {
    fn name(&self) -> &'static str {
        "regression"
    }

    fn metrics(&self) -> &'static [KindMetric] {
        const { &[KindMetric::lower("mean_absolute_error")] }
    }

    fn max_input(&self) -> usize {
        self.max_length
    }

    fn validate(&self) -> Result<(), String> {
        if self.max_length < 3 { Err("`max_length` is below 3".into()) } else { Ok(()) }
    }

    fn read(&self, records: &RecordsConfig, framer: &Framer) -> Result<TextDataset, ReadError> {
        let (mut samples, mut cut) = (Vec::new(), Cut::default());
        for record in FieldsRecord::read(records, &["text", "number"], &[])? {
            let (name, text) = (record.origin.to_string(), record.text("text")?);
            let (sample, lost) = TextSample::plain(name, text, None, self.max_length, framer)?;
            cut.inputs += usize::from(lost > 0);
            samples.push(TextSample { target: Target::new(record.number("number")? as f32, 1), ..sample });
        }
        Ok(TextDataset::new(samples, cut))
    }

    fn texts(&self, records: &RecordsConfig) -> Result<Vec<(String, String)>, RecordsError> {
        let read = FieldsRecord::read(records, &["text", "number"], &[])?.into_iter();
        read.map(|record| Ok((record.origin.to_string(), record.text("text")?.to_owned()))).collect()
    }

    fn labels(&self, samples: &[&TextSample], _: usize) -> Result<HostArrays, BoxError> {
        let numbers = samples.iter().map(|sample| Ok(*sample.target.get::<f32>()?));
        Ok(HostArrays::default().with_floats("numbers", [samples.len()], numbers.collect::<Result<_, BoxError>>()?))
    }

    fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead {
        let width = embeddings.weight.dims()[1];
        let (weight, bias) = (Tensor::zeros([width, 1], device), Tensor::zeros([1], device));
        let head = RegressionHead { weight: Param::from_tensor(weight), bias: Param::from_tensor(bias) };
        BoxedHead::new("Regression", head)
    }

    fn score(&self, _: &[String]) -> Box<dyn TaskScore> {
        Box::new(AbsoluteError::default())
    }

    fn user_samples(&self, text: &UserInput, framer: &Framer) -> Result<UserSamples, UserInputError> {
        let name = user_input_origin().to_string();
        let (sample, cut) = TextSample::plain(name, text.text, text.context, self.max_length, framer)?;
        Ok(UserSamples { samples: vec![sample], cut })
    }

    fn answer_text(&self, _: &UserInput, _: &[TextSample], answers: &[Answer]) -> Result<String, BoxError> {
        Ok(answers.first().and_then(Answer::get::<f32>).ok_or("nothing was answered")?.to_string())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tasks::register::<Regression>()?;

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
    let config = TextEncoderConfig {
        hidden_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 32,
        max_position_embeddings: 16,
        ..Default::default()
    };
    undertone::ops::seed(1);
    PretrainedText::init(config, tokenizer, &Device::default()).expect("a model")
}
