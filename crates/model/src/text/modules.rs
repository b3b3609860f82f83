//! Classification as modules of sentence-transformers, where transformers has no class for it.

use crate::heads::{ClassifyHead, Pooling};
use crate::layers::Linear;
use burn::module::Module;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use undertone_store::{Dtype, StoreError, parameters, write_json, write_tensors};

/// Modules after an encoder: the first of its states or their mean, a dense layer with tanh, and one that gives the logits.
pub(super) struct Modules<'a> {
    /// Head.
    pub head: &'a ClassifyHead,
    /// Maximum number of tokens of a text.
    pub max_tokens: usize,
}

impl Modules<'_> {
    /// Writes the files and folders of the modules into the folder of the encoder.
    pub fn write(&self, dir: &Path) -> Result<(), StoreError> {
        let module = |idx: usize, path: &str, kind: &str| json!({"idx": idx, "name": idx.to_string(), "path": path, "type": format!("sentence_transformers.models.{kind}")});
        let modules: [Value; 4] = [
            module(0, "", "Transformer"),
            module(1, "1_Pooling", "Pooling"),
            module(2, "2_Dense", "Dense"),
            module(3, "3_Dense", "Dense"),
        ];
        write_json(&dir.join("modules.json"), &modules)?;
        write_json(
            &dir.join("sentence_bert_config.json"),
            &json!({"max_seq_length": self.max_tokens, "do_lower_case": false}),
        )?;
        let width = self.head.dense.weight.dims()[0];
        let pooling = json!({
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": self.head.pooling() == Pooling::Cls,
            "pooling_mode_mean_tokens": self.head.pooling() == Pooling::Mean,
            "pooling_mode_max_tokens": false,
            "pooling_mode_mean_sqrt_len_tokens": false,
        });
        write_json(&subfolder(dir, "1_Pooling")?.join("config.json"), &pooling)?;
        dense(&self.head.dense, "activation.Tanh", &subfolder(dir, "2_Dense")?)?;
        dense(&self.head.out_proj, "linear.Identity", &subfolder(dir, "3_Dense")?)
    }
}

/// Writes a dense layer with one of torch's activations.
fn dense(map: &Linear, activation: &str, dir: &Path) -> Result<(), StoreError> {
    let [out, into] = map.weight.dims();
    let config = json!({
        "in_features": into,
        "out_features": out,
        "bias": true,
        "activation_function": format!("torch.nn.modules.{activation}"),
    });
    write_json(&dir.join("config.json"), &config)?;
    let tensors =
        parameters(&map.valid()).into_iter().map(|(name, tensor)| (format!("linear.{name}"), tensor)).collect();
    write_tensors(&dir.join("model.safetensors"), &tensors, Dtype::F32)
}

fn subfolder(dir: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let path = dir.join(name);
    match std::fs::create_dir(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(StoreError::Io { action: "make", path, source }),
    }
}
