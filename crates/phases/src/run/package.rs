//! A run with tasks as one folder: what it learned, its backbone, its configuration, and a script that answers in Python.
//!
//! The folder is a run without its training, so that every command that takes a run takes it, too.

use super::card::{METRICS, card_of_tasks};
use super::checksum::BackboneChecksum;
use super::folder::{self, copy_file};
use super::known::INPUTS;
use super::newest::newest_routed;
use super::phase::Phase;
use super::pretrained::Pretrained;
use super::spec::{StageSpec, stages};
use super::words::WORDS;
use crate::config::{BACKBONE, CONFIG, ModelSource};
use crate::{Experiment, ModelConfig, RunError};
use burn::tensor::Device;
use std::path::Path;
use undertone_model::frozen::FrozenDtype;
use undertone_model::is_model_file;
use undertone_model::text::{PretrainedText, TextEncoder};
use undertone_store::{Dtype, StoreError, TensorFile, write_atomically, write_directory, write_json};

/// Script that loads the folder with torch and safetensors.
const SCRIPT: (&str, &str) = ("predict.py", include_str!("predict.py"));

/// Writes what a run with tasks has learned as one folder, atomically: that of the latest finished phase. With
/// `with_backbone` the folder is complete; without, the backbone is loaded from where the run has it. `license` is an
/// identifier of the hub for the model card.
///
/// # Errors
/// When the run has no tasks or no finished phase, when a part of it is missing, and when the folder cannot be written.
pub fn package(
    experiment: &Experiment,
    with_backbone: bool,
    license: Option<&str>,
    out: &Path,
    device: &Device,
) -> Result<(), RunError> {
    if experiment.tasks.is_empty() {
        return Err(RunError::WithoutTasks(experiment.directory()));
    }
    let stages = finished(experiment)?;
    let backbone = Pretrained::load(experiment, device)?;
    let checksum = BackboneChecksum::of(experiment, backbone.network());
    let mut packaged = experiment.clone();
    if with_backbone {
        let source = ModelSource { path: Some(BACKBONE.into()), ..ModelSource::default() };
        packaged.model = ModelConfig { source, path: None, tokenizer: None, ..packaged.model };
    }
    write_directory(out, |out| {
        if with_backbone {
            write_backbone(experiment, &backbone, &out.join(BACKBONE), device)?;
        }
        for stage in &stages {
            copy_stage(stage, experiment, &packaged, checksum, out)?;
        }
        write_atomically(&out.join(CONFIG), packaged.to_yaml().as_bytes())?;
        write_json(&out.join("experiment.json"), &packaged)?;
        write_atomically(&out.join("README.md"), card_of_tasks(experiment, &stages, license).as_bytes())?;
        Ok(write_atomically(&out.join(SCRIPT.0), SCRIPT.1.as_bytes())?)
    })
}

/// Returns the stages that together are a model for all tasks: the latest phase with a router, or all of phase 1.
fn finished(experiment: &Experiment) -> Result<Vec<StageSpec>, RunError> {
    if let Some((_, stage)) = newest_routed(experiment) {
        return Ok(vec![stage]);
    }
    let adapters = stages(experiment, Phase::Adapters);
    match adapters.iter().all(StageSpec::is_complete) {
        true => {
            if stages(experiment, Phase::Router).iter().any(StageSpec::is_complete) {
                tracing::warn!(
                    "the router is left out, because a task was added after it was trained: train it again with `--phase 2 \
                     --set run.overwrite=true`"
                );
            }
            Ok(adapters)
        }
        false => Err(RunError::NothingTrained(experiment.directory())),
    }
}

/// Copies the model of a stage, its scores, and the file that says that it is complete.
fn copy_stage(
    stage: &StageSpec,
    run: &Experiment,
    packaged: &Experiment,
    checksum: BackboneChecksum,
    out: &Path,
) -> Result<(), RunError> {
    let place = stage.directory.strip_prefix(run.directory()).unwrap_or(&stage.directory);
    let place = out.join(place);
    folder::copy(&stage.best(), &place.join("best"), &packaged.model.to_string(), checksum)?;
    // Runs of earlier versions have no score beside their model.
    let scores = [METRICS, "best/score.json"].into_iter().filter(|file| stage.directory.join(file).exists());
    let inputs = [INPUTS, WORDS].into_iter().filter(|file| stage.directory.join(file).exists());
    let mut files = std::iter::once("summary.json").chain(scores).chain(inputs);
    files.try_for_each(|file| copy_file(&stage.directory.join(file), &place.join(file)))
}

/// Writes the backbone as a folder in the Hugging Face layout. That of a text encoder is copied, unless the script could not read
/// it, or the run computes with rounded matrices.
fn write_backbone(experiment: &Experiment, backbone: &Pretrained, out: &Path, device: &Device) -> Result<(), RunError> {
    if let Some(speech) = backbone.speech() {
        return speech.save(&backbone.network(), out).map_err(RunError::Evaluate);
    }
    let folder = experiment.model.folder()?.ok_or_else(|| RunError::WithoutTasks(experiment.directory()))?;
    let is_rounded = experiment.model.frozen_dtype != FrozenDtype::F32;
    if (is_rounded || !is_plain(&folder))
        && let Ok(mut text) = PretrainedText::load(&folder, device)
    {
        if let Some(encoder) = backbone.network().downcast_ref::<TextEncoder>() {
            text.model = encoder.clone();
        }
        return text.save(out, Dtype::F32).map_err(|error| RunError::Evaluate(error.into()));
    }
    let io = |source| StoreError::Io { action: "read", path: folder.clone(), source };
    for entry in std::fs::read_dir(&folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if name.to_str().is_some_and(is_model_file) {
            copy_file(&folder.join(&name), &out.join(&name))?;
        }
    }
    Ok(())
}

/// Whether a folder has its weights in one file of safetensors, under the names of today: the first checkpoints of BERT call the scale
/// of a norm `gamma`.
fn is_plain(folder: &Path) -> bool {
    TensorFile::open(&folder.join("model.safetensors"))
        .is_ok_and(|file| !file.names().iter().any(|name| name.ends_with(".gamma")))
}
