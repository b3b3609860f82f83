//! A trained set of adapters on disk: PEFT's layout for each adapter, safetensors for heads and router, and their
//! description in `dynamo.json`.

use super::checksum::BackboneChecksum;
use super::model::{TaskModel, is_shared};
use crate::RunError;
use crate::config::{DESCRIPTION, adapter_of, keys_of};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use undertone_model::adapters::AdapterConfig;
use undertone_model::adapters::lora::LoraConfig;
use undertone_model::peft::{CONFIG, WEIGHTS, read_adapter, write_adapter};
use undertone_model::router::RouterConfig;
use undertone_store::{
    Dtype, StoreError, TensorFile, load_parameters, parameters, write_directory, write_json, write_tensors,
};
use undertone_tasks::{BoxedHead, HeadConfig};

/// Description of a folder: the content of `dynamo.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    /// Adapters, in the order of the gates.
    pub adapters: Vec<AdapterDescription>,
    /// Heads, in the order of the router's outputs if there is a router.
    pub heads: Vec<HeadDescription>,
    /// Shape of the router, and its tap.
    #[serde(deserialize_with = "router_of_any_version")]
    pub router: RouterConfig,
    /// Backbone that the adapters were trained on.
    pub backbone: String,
    /// Checksum of that backbone; folders of earlier versions have none, and those with a trained backbone need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backbone_checksum: Option<BackboneChecksum>,
    /// Whether the backbone was trained, too, and is in the folder.
    pub trained_backbone: bool,
}

/// Reads the router of a folder. In those of earlier versions `top_k` stands beside `gates`.
fn router_of_any_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RouterConfig, D::Error> {
    let mut keys = serde_json::Map::deserialize(deserializer)?;
    if let Some(k) = keys.shift_remove("top_k")
        && keys.get("gates").is_some_and(|gates| gates == "top_k")
    {
        keys.insert("gates".into(), serde_json::json!({"type": "top_k", "k": k}));
    }
    serde_json::from_value(keys.into()).map_err(serde::de::Error::custom)
}

/// An adapter of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdapterDescription {
    pub name: String,
    /// Its configuration, if it is a LoRA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lora: Option<LoraConfig>,
    /// Its configuration, if it is of another type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adapter: Option<AdapterConfig>,
}

impl AdapterDescription {
    pub fn new(name: &str, adapter: AdapterConfig) -> Self {
        let (lora, adapter) = keys_of(adapter);
        Self { name: name.to_owned(), lora, adapter }
    }

    /// Returns its configuration.
    pub fn adapter(&self) -> AdapterConfig {
        adapter_of(self.lora.as_ref(), self.adapter.as_ref())
    }
}

/// A head of a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeadDescription {
    pub name: String,
    pub head: HeadConfig,
}

const HEADS: &str = "heads.safetensors";
const ROUTER: &str = "router.safetensors";
const BACKBONE: &str = "backbone.safetensors";

impl Description {
    /// Returns the description with the adapter and the head of one task alone. An only adapter or head is for every
    /// task.
    pub fn only(&self, task: usize) -> Self {
        fn one<T: Clone>(of: &[T], task: usize) -> Vec<T> {
            if of.len() > 1 { vec![of[task].clone()] } else { of.to_vec() }
        }
        Self { adapters: one(&self.adapters, task), heads: one(&self.heads, task), ..self.clone() }
    }

    /// Whether there is an adapter or a head of a task's own.
    pub fn has(&self, task: &str) -> bool {
        let mut adapters = self.adapters.iter().map(|adapter| &adapter.name);
        adapters.any(|name| name == task) || self.heads.iter().any(|head| head.name == task)
    }

    /// Returns backbone and tap for a message.
    fn ground(&self) -> String {
        format!("{} above block {}", self.backbone, self.router.tap)
    }
}

/// Writes adapters, heads and router of `model` atomically.
pub(super) fn save(model: &TaskModel, description: &Description, dir: &Path) -> Result<(), StoreError> {
    let mut model = model.clone();
    write_directory(dir, |dir| {
        for (index, adapter) in description.adapters.iter().enumerate() {
            let dir = dir.join("adapters").join(&adapter.name);
            write_adapter(&mut *model.backbone, index, &adapter.adapter(), &description.backbone, &dir)?;
        }
        let mut heads = BTreeMap::new();
        for (head, HeadDescription { name, .. }) in model.heads.iter().zip(&description.heads) {
            let own = parameters(head).into_iter().filter(|(path, _)| !is_shared(path));
            heads.extend(own.map(|(path, value)| (head_name(name, &path), value)));
        }
        write_tensors(&dir.join(HEADS), &heads, Dtype::F32)?;
        if let Some(router) = &model.router {
            write_tensors(&dir.join(ROUTER), &parameters(router), Dtype::F32)?;
        }
        if description.trained_backbone {
            write_tensors(&dir.join(BACKBONE), &parameters(&model.backbone), Dtype::F32)?;
        }
        write_json(&dir.join(DESCRIPTION), description)
    })
}

/// Copies a folder, with another name for the backbone in its description, and with its checksum if it has none.
pub(super) fn copy(from: &Path, to: &Path, backbone: &str, checksum: BackboneChecksum) -> Result<(), RunError> {
    let mut description = describe(from)?;
    let adapters = description.adapters.iter().map(|adapter| Path::new("adapters").join(&adapter.name));
    let mut files: Vec<PathBuf> = adapters.flat_map(|dir| [dir.join(CONFIG), dir.join(WEIGHTS)]).collect();
    files.push(HEADS.into());
    // A stage without router, or with a frozen backbone, has none of these.
    files.extend([ROUTER, BACKBONE].map(PathBuf::from).into_iter().filter(|name| from.join(name).exists()));
    for name in files {
        copy_file(&from.join(&name), &to.join(&name))?;
    }
    if !description.trained_backbone {
        let recorded = *description.backbone_checksum.get_or_insert(checksum);
        if recorded.differs(checksum) {
            return Err(RunError::OtherBackbone { path: from.to_owned(), backbone: description.backbone });
        }
    }
    description.backbone = backbone.to_owned();
    Ok(write_json(&to.join(DESCRIPTION), &description)?)
}

/// Copies a file into a directory that may not exist yet.
pub(super) fn copy_file(from: &Path, to: &Path) -> Result<(), RunError> {
    let io = |source| StoreError::Io { action: "copy", path: from.to_owned(), source };
    to.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(io)?;
    std::fs::copy(from, to).map_err(io)?;
    Ok(())
}

/// Returns the name of a head's parameter in the file: the task's name replaces the kind of head.
fn head_name(task: &str, path: &str) -> String {
    format!("{task}.{}", path.split_once('.').map_or(path, |(_, rest)| rest))
}

/// Loads the adapters and heads that `expected` describes into `model`, starting at index `slot`. `checksum` is that of
/// the backbone in `model`.
pub(super) fn load_parts(
    model: &mut TaskModel,
    expected: &Description,
    slot: usize,
    dir: &Path,
    checksum: impl FnOnce() -> BackboneChecksum,
) -> Result<(), RunError> {
    let found = describe(dir)?;
    if found.ground() != expected.ground() {
        let [found, expected] = [&found, expected].map(Description::ground);
        return Err(RunError::OtherGround { path: dir.to_owned(), found, expected });
    }
    if found.backbone_checksum.is_some_and(|found| found.differs(checksum())) {
        return Err(RunError::OtherBackbone { path: dir.to_owned(), backbone: expected.backbone.clone() });
    }
    let missing = |task: &str| RunError::NoPart(dir.to_owned(), task.to_owned());
    let part = |part: &'static str, task: &String, [found, expected]: [String; 2]| RunError::OtherPart {
        path: dir.to_owned(),
        part,
        task: task.clone(),
        found,
        expected,
    };
    for (index, adapter) in expected.adapters.iter().enumerate() {
        let name = &adapter.name;
        let there = found.adapters.iter().find(|adapter| adapter.name == *name).ok_or_else(|| missing(name))?;
        if there.adapter() != adapter.adapter() {
            let configs = [there, adapter].map(|of| match &of.lora {
                Some(lora) => serde_json::to_string(lora).unwrap_or_default(),
                None => serde_json::to_string(&of.adapter).unwrap_or_default(),
            });
            return Err(part("an adapter", name, configs));
        }
        read_adapter(&mut *model.backbone, slot + index, &dir.join("adapters").join(name))?;
    }
    let file = TensorFile::open(&dir.join(HEADS))?;
    for (index, HeadDescription { name, head }) in expected.heads.iter().enumerate() {
        let there = found.heads.iter().find(|head| head.name == *name).ok_or_else(|| missing(name))?;
        if there.head.trained() != head.trained() {
            let configs = [&there.head, head].map(|head| serde_json::to_string(head).unwrap_or_default());
            return Err(part("a head", name, configs));
        }
        model.heads[slot + index] = load_head(&model.heads[slot + index], name, &file)?;
    }
    Ok(())
}

fn load_head(head: &BoxedHead, task: &str, file: &TensorFile) -> Result<BoxedHead, StoreError> {
    let mut shared = parameters(head);
    shared.retain(|path, _| is_shared(path));
    load_parameters(head.clone(), |path| match shared.remove(path) {
        Some(value) => Ok(value),
        None => file.read(&head_name(task, path)),
    })
}

/// Loads a trained backbone.
pub(super) fn load_backbone(model: &mut TaskModel, dir: &Path) -> Result<(), RunError> {
    let file = TensorFile::open(&dir.join(BACKBONE))?;
    model.backbone = load_parameters(model.backbone.clone(), |name| file.read(name))?;
    Ok(())
}

/// Loads the router, if the model has one.
pub(super) fn load_router(model: &mut TaskModel, expected: &Description, dir: &Path) -> Result<(), RunError> {
    let Some(router) = model.router.take() else { return Ok(()) };
    let found = describe(dir)?;
    let shape = |r: &RouterConfig| (r.hidden.clone(), r.layer_norm, r.activation);
    // Its outputs are in the order of the tasks.
    let names = |of: &Description| of.heads.iter().map(|head| head.name.clone()).collect::<Vec<_>>();
    if shape(&found.router) != shape(&expected.router) || names(&found) != names(expected) {
        return Err(RunError::OtherRouter(dir.to_owned()));
    }
    let file = TensorFile::open(&dir.join(ROUTER))?;
    model.router = Some(load_parameters(router, |name| file.read(name))?);
    Ok(())
}

/// Reads the description of a folder.
pub(super) fn describe(dir: &Path) -> Result<Description, RunError> {
    let path = dir.join(DESCRIPTION);
    let error = |reason: String| RunError::Description { path: path.clone(), reason };
    let text = std::fs::read_to_string(&path).map_err(|e| error(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| error(e.to_string()))
}
