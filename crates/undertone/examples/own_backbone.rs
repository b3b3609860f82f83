//! DYNAMO on a backbone of one's own: the network, a function that reads it from a folder, and one line that registers it,
//! after which YAML can name it. Adapters, heads, router and all three phases are as on BERT.
//!
//! `cargo run -p undertone --example own_backbone` trains two tasks on two blocks that mix neighbouring words.

use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor};
use serde_json::json;
use std::ops::Range;
use std::path::Path;
use undertone::model::adaptable::{Adaptable, Site};
use undertone::model::adapters::Gates;
use undertone::model::backbone::{Backbone, BackboneInput, BoxedBackbone, WrongInput};
use undertone::model::layers::{Embedding, Linear};
use undertone::model::text::TextTokenizer;
use undertone::ops::gelu;
use undertone::phases::backbone::{self, TextBackbone};
use undertone::phases::run::{Phase, RouterKind, evaluate_run, train_phases};
use undertone::phases::{Experiment, Session, Split};
use undertone::store::{Dtype, TensorFile, load_parameters, parameters, write_tensors};
use undertone::train::BoxError;

/// Vectors of words, and blocks.
#[derive(Module, Debug)]
struct Mixer {
    words: Embedding,
    blocks: Vec<Block>,
}

/// `x + outer(gelu(inner(x and its neighbours)))`.
#[derive(Module, Debug)]
struct Block {
    inner: Linear,
    outer: Linear,
}

const WIDTH: usize = 16;
const MOST_TOKENS: usize = 16;

impl Mixer {
    fn new(vocabulary: usize, device: &Device) -> Self {
        let linear = || Linear::init(WIDTH, WIDTH, true, 0.3, device);
        let blocks = (0..2).map(|_| Block { inner: linear(), outer: linear() }).collect();
        Self { words: Embedding::init(vocabulary, WIDTH, 0.5, device), blocks }
    }

    /// Reads the model that `model: {backbone: mixer, path: folder}` names.
    fn load(folder: &Path, device: &Device) -> Result<TextBackbone, BoxError> {
        let tokenizer = TextTokenizer::from_bytes(std::fs::read(folder.join("tokenizer.json"))?, &[])?;
        let weights = TensorFile::open(&folder.join("model.safetensors"))?;
        let mixer = load_parameters(Self::new(tokenizer.vocab_size(), device), |name| weights.read(name))?;
        Ok(TextBackbone::new(BoxedBackbone::new("Mixer", mixer), tokenizer, MOST_TOKENS)?)
    }
}

impl Block {
    /// `x`: `[batch, time, d_model]`, 0 where an input has ended.
    fn forward(&self, x: Tensor<3>, gates: Option<&Gates>) -> Tensor<3> {
        let [batch, time, width] = x.dims();
        let edge = Tensor::zeros([batch, 1, width], &x.device());
        let left = Tensor::cat(vec![edge.clone(), x.clone().narrow(1, 0, time - 1)], 1);
        let right = Tensor::cat(vec![x.clone().narrow(1, 1, time - 1), edge], 1);
        let h = gelu(self.inner.forward_gated(x.clone() + left + right, gates));
        x + self.outer.forward_gated(h, gates)
    }
}

impl Backbone for Mixer {
    fn token_embedding(&self) -> &Embedding {
        &self.words
    }

    fn block_count(&self) -> usize {
        self.blocks.len()
    }

    fn embed(&self, input: BackboneInput, _: &Tensor<2, Bool>) -> Result<Tensor<3>, WrongInput> {
        let (ids, _types) = input.tokens()?;
        Ok(self.words.forward(ids))
    }

    fn forward_blocks(
        &self,
        x: Tensor<3>,
        blocks: Range<usize>,
        padding: &Tensor<2, Bool>,
        gates: Option<&Gates>,
    ) -> Tensor<3> {
        let ended = padding.clone().unsqueeze_dim::<3>(2).expand(x.dims());
        self.blocks[blocks].iter().fold(x, |x, block| block.forward(x.mask_fill(ended.clone(), 0.0), gates))
    }
}

/// Where adapters can go, and what `lora.target_modules` calls it.
impl Adaptable for Mixer {
    fn linears(&mut self) -> Vec<(Site, &mut Linear)> {
        let blocks = self.blocks.iter_mut().enumerate();
        let maps = blocks.flat_map(|(block, Block { inner, outer })| {
            [("inner", inner), ("outer", outer)]
                .map(|(name, linear)| (Site { path: format!("blocks.{block}.{name}"), block }, linear))
        });
        maps.collect()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    backbone::register("mixer", Mixer::load)?;

    let dir = tempfile::tempdir()?;
    write_mixer(&dir.path().join("mixer"))?;
    std::fs::write(dir.path().join("answers.tsv"), records(["yes", "no"]))?;
    std::fs::write(dir.path().join("colours.tsv"), records(["red", "blue"]))?;
    std::fs::write(dir.path().join("mixer.yaml"), yaml(dir.path()))?;
    let experiment = Experiment::load(Some(&dir.path().join("mixer.yaml")), &[])?;
    train_phases(&experiment, &[Phase::Adapters, Phase::Router, Phase::Joint], &Session::default())?;

    let judged = evaluate_run(&experiment, Split::Valid, RouterKind::Learned)?;
    let accuracy = |task: &str| judged.tasks[task]["accuracy"];
    let routed = judged.routing_accuracy().unwrap_or_default();
    println!(
        "accuracy: answers {:.2}, colours {:.2}; {routed:.2} of the texts reach their adapter",
        accuracy("answers"),
        accuracy("colours")
    );
    assert!(accuracy("answers") > 0.9 && accuracy("colours") > 0.9 && routed > 0.9);
    Ok(())
}

/// Texts of two words, and which of the words is more frequent.
fn records(words: [&str; 2]) -> String {
    let record = |i: usize| {
        let word = |at: usize| if (i * 37 + at * at * 11) % 9 < i % 9 { words[0] } else { words[1] };
        let text: Vec<&str> = (0..7).map(word).collect();
        let first = text.iter().filter(|word| **word == words[0]).count();
        format!("{}\t{}\n", text.join(" "), if first > 3 { "first" } else { "second" })
    };
    (0..64).map(record).collect()
}

fn yaml(dir: &Path) -> String {
    let dir = dir.display();
    let task = |name: &str| {
        format!(
            "  - name: {name}
    head: {{type: classify, labels: [first, second], max_length: 16}}
    lora: {{r: 4, target_modules: [inner, outer]}}
    data: {{train: {{path: '{dir}/{name}.tsv'}}, valid: {{path: '{dir}/{name}.tsv'}}}}
"
        )
    };
    let (answers, colours) = (task("answers"), task("colours"));
    format!(
        "run: {{name: mixer, dir: '{dir}/runs'}}
device: cpu
model: {{backbone: mixer, path: '{dir}/mixer'}}
data: {{batch_size: 16, workers: 1}}
tasks:
{answers}{colours}router: {{tap: 1}}
phases:
  1: {{train: {{max_steps: 200, optimizer: {{lr: 1.0e-2, warmup_steps: 5}}, evaluate: {{every: 50}}}}}}
  2: {{train: {{max_steps: 40, optimizer: {{lr: 1.0e-2, warmup_steps: 1}}, evaluate: {{every: 20}}}}}}
  3: {{train: {{max_steps: 20, optimizer: {{lr: 1.0e-3, warmup_steps: 1}}, evaluate: {{every: 20}}}}}}
"
    )
}

/// Random weights and a vocabulary of four words.
fn write_mixer(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let vocabulary = json!({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "yes": 4, "no": 5, "red": 6, "blue": 7});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
        "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": vocabulary},
    });
    std::fs::create_dir(dir)?;
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string())?;
    undertone::ops::seed(1);
    write_tensors(&dir.join("model.safetensors"), &parameters(&Mixer::new(8, &Device::default())), Dtype::F32)?;
    Ok(())
}
