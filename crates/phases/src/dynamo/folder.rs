//! A trained set of adapters on disk: PEFT's layout for each adapter, safetensors for heads and router, and
//! `dynamo.json`, which says what they are.

use super::config::TaskConfig;
use super::model::Dynamo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use undertone_model::lora::{LoraConfig, adapter_parameters, load_adapter};
use undertone_model::router::RouterConfig;
use undertone_store::{
    Dtype, HostTensor, StoreError, TensorFile, load_parameters, parameters, write_atomically, write_directory,
    write_tensors,
};

/// What a folder holds: `dynamo.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    /// The tasks, in the order of heads and gates.
    pub tasks: Vec<TaskDescription>,
    /// The router's shape and the blocks below it.
    pub router: RouterConfig,
    /// What the adapters were trained on.
    pub backbone: String,
    /// Whether the backbone was trained too, and lies here.
    pub trained_backbone: bool,
}

/// A task of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskDescription {
    pub name: String,
    pub lora: LoraConfig,
}

/// Why a folder of adapters cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It does not say what it is.
    #[error("`{}` cannot be read ({reason}): it is written by a finished phase", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// It was trained for something else.
    #[error("`{}` holds an adapter for task `{task}` with {found}, the configuration says {expected}: train phase 1 again, or set the configuration back", path.display())]
    Adapter {
        /// The folder.
        path: PathBuf,
        /// The task.
        task: String,
        /// Its adapter there.
        found: String,
        /// Its adapter here.
        expected: String,
    },
    /// It has no such task.
    #[error("`{}` holds no adapter for task `{task}`: train phase 1 for it", path.display())]
    NoTask {
        /// The folder.
        path: PathBuf,
        /// The task.
        task: String,
    },
    /// It was trained below another tap, or on another backbone.
    #[error("`{}` was trained on {found}, the configuration says {expected}: train phase 1 again, or set the configuration back", path.display())]
    Ground {
        /// The folder.
        path: PathBuf,
        /// Backbone and tap there.
        found: String,
        /// Backbone and tap here.
        expected: String,
    },
    /// It has a router of another shape, or over other tasks.
    #[error("`{}` holds another router than the configuration describes: train phase 2 again, or set the configuration back", .0.display())]
    Router(PathBuf),
    /// A file is missing, damaged, or cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

const DESCRIPTION: &str = "dynamo.json";
const HEADS: &str = "heads.safetensors";
const ROUTER: &str = "router.safetensors";
const BACKBONE: &str = "backbone.safetensors";
/// PEFT's prefix before the paths of transformers' `WhisperForConditionalGeneration`.
const PEFT: &str = "base_model.model.model.";

impl Description {
    pub fn new(tasks: &[TaskConfig], router: &RouterConfig, backbone: String) -> Self {
        let tasks = tasks.iter().map(|t| TaskDescription { name: t.name.clone(), lora: t.lora.clone() }).collect();
        Self { tasks, router: router.clone(), backbone, trained_backbone: false }
    }
}

impl Description {
    /// What adapters stand on, in words.
    fn ground(&self) -> String {
        format!("{} above block {}", self.backbone, self.router.tap)
    }
}

/// Writes adapters, heads and router of `model`, whole or not at all.
pub(super) fn save(model: &Dynamo, description: &Description, dir: &Path) -> Result<(), FolderError> {
    let mut model = model.clone();
    write_directory(dir, |dir| {
        for (index, task) in description.tasks.iter().enumerate().take(model.adapters()) {
            write_adapter(&mut model, index, task, &description.backbone, &dir.join("adapters").join(&task.name))?;
        }
        write_tensors(&dir.join(HEADS), &parameters(&model.heads), Dtype::F32)?;
        if let Some(router) = &model.router {
            write_tensors(&dir.join(ROUTER), &parameters(router), Dtype::F32)?;
        }
        if description.trained_backbone {
            write_tensors(&dir.join(BACKBONE), &parameters(&model.whisper), Dtype::F32)?;
        }
        write_json(&dir.join(DESCRIPTION), description)
    })?;
    Ok(())
}

/// One adapter as PEFT's `PeftModel.from_pretrained` loads it.
fn write_adapter(
    model: &mut Dynamo,
    index: usize,
    task: &TaskDescription,
    backbone: &str,
    dir: &Path,
) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { action: "create", path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(io)?;
    let matrices = adapter_parameters(&mut model.whisper, index);
    // Whole paths: adapters lie above the tap only, which names like `q_proj` would not say.
    let targets: Vec<&str> = matrices.keys().filter_map(|name| name.strip_suffix(".lora_A.weight")).collect();
    let config = serde_json::json!({
        "peft_type": "LORA", "task_type": null, "base_model_name_or_path": backbone, "r": task.lora.r,
        "lora_alpha": task.lora.lora_alpha, "lora_dropout": task.lora.lora_dropout, "use_rslora": task.lora.use_rslora,
        "target_modules": targets, "bias": "none", "fan_in_fan_out": false, "inference_mode": true,
    });
    write_json(&dir.join("adapter_config.json"), &config)?;
    let named: BTreeMap<String, HostTensor> =
        matrices.into_iter().map(|(name, value)| (format!("{PEFT}{name}"), value)).collect();
    write_tensors(&dir.join("adapter_model.safetensors"), &named, Dtype::F32)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    write_atomically(path, serde_json::to_string_pretty(value).unwrap_or_default().as_bytes())
}

/// Reads the head of a task, and its adapter where the model has any, into `slot` of `model`.
pub(super) fn load_task(
    model: &mut Dynamo,
    slot: usize,
    task: &TaskConfig,
    expected: &Description,
    dir: &Path,
) -> Result<(), FolderError> {
    let description = describe(dir)?;
    let [found, expected] = [&description, expected].map(Description::ground);
    if found != expected {
        return Err(FolderError::Ground { path: dir.to_owned(), found, expected });
    }
    let index = description.tasks.iter().position(|t| t.name == task.name);
    let index = index.ok_or_else(|| FolderError::NoTask { path: dir.to_owned(), task: task.name.clone() })?;
    let found = &description.tasks[index].lora;
    if *found != task.lora {
        let [found, expected] = [found, &task.lora].map(|lora| serde_json::to_string(lora).unwrap_or_default());
        return Err(FolderError::Adapter { path: dir.to_owned(), task: task.name.clone(), found, expected });
    }
    if model.adapters() > 0 {
        let file = TensorFile::open(&dir.join("adapters").join(&task.name).join("adapter_model.safetensors"))?;
        load_adapter(&mut model.whisper, slot, |name| file.read(&format!("{PEFT}{name}")))?;
    }
    let heads = TensorFile::open(&dir.join(HEADS))?;
    let head = model.heads[slot].clone();
    model.heads[slot] = load_parameters(head, |name| heads.read(&format!("{index}.{name}")))?;
    Ok(())
}

/// Reads a backbone that was trained.
pub(super) fn load_backbone(model: &mut Dynamo, dir: &Path) -> Result<(), FolderError> {
    let file = TensorFile::open(&dir.join(BACKBONE))?;
    model.whisper = load_parameters(model.whisper.clone(), |name| file.read(name))?;
    Ok(())
}

/// Reads the router, where the model has one.
pub(super) fn load_router(model: &mut Dynamo, expected: &Description, dir: &Path) -> Result<(), FolderError> {
    let Some(router) = model.router.take() else { return Ok(()) };
    let found = describe(dir)?;
    let shape = |r: &RouterConfig| (r.hidden.clone(), r.layer_norm, r.activation);
    // Its outputs are in the order of the tasks.
    let names = |of: &Description| of.tasks.iter().map(|task| task.name.clone()).collect::<Vec<_>>();
    if shape(&found.router) != shape(&expected.router) || names(&found) != names(expected) {
        return Err(FolderError::Router(dir.to_owned()));
    }
    let file = TensorFile::open(&dir.join(ROUTER))?;
    model.router = Some(load_parameters(router, |name| file.read(name))?);
    Ok(())
}

fn describe(dir: &Path) -> Result<Description, FolderError> {
    let path = dir.join(DESCRIPTION);
    let error = |reason: String| FolderError::Description { path: path.clone(), reason };
    let text = std::fs::read_to_string(&path).map_err(|e| error(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| error(e.to_string()))
}
