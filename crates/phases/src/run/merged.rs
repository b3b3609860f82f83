//! A trained model as an ordinary one, a Whisper or an encoder with a head: adapter and task prompt are merged into the weights.

use super::choice::{Choice, root_of};
use super::model::{PromptHead, TaskModel};
use super::setup::Setup;
use crate::backbone::SpeechBackbone;
use crate::config::{CONFIG, is_adapter};
use crate::run_directory::recorded;
use crate::{ModelConfig, RunError, SourceError};
use burn::tensor::{Device, Tensor};
use std::path::Path;
use undertone_model::adaptable::merge_and_unload;
use undertone_model::frozen::in_f32;
use undertone_model::text::{PretrainedText, TextEncoder, TextHead};
use undertone_model::whisper::{GenerationConfig, PretrainedWhisper, Whisper};
use undertone_tasks::GenerationSettings;

/// Loads the Whisper `name` onto a device: a bundled model, a folder in the Hugging Face layout, or the directory of a
/// run or of one of its stages, whose adapter, if it has one, is merged. `task` selects the task of a run with several.
///
/// # Errors
/// When there is no such model, or no task with that name.
pub fn load_whisper(name: &Path, task: Option<&str>, device: &Device) -> Result<PretrainedWhisper, RunError> {
    match root_of(name) {
        Some(_) if is_stage(name) => merged(&Choice::of(name, task, &[])?, device),
        _ if task.is_some() => Err(RunError::NoRun(name.to_owned())),
        _ => Ok(ModelConfig::named(name).load(device, 0)?),
    }
}

/// Whether this may be the directory of a run or a stage: it is none of a model, and none of an adapter by itself.
pub(super) fn is_stage(name: &Path) -> bool {
    name.is_dir() && !name.join("config.json").exists() && !is_adapter(name)
}

/// Whether `name` is the directory of a run with tasks, or of one of its stages.
pub fn has_tasks(name: &Path) -> bool {
    let root = root_of(name).filter(|_| is_stage(name));
    root.and_then(|root| recorded(&root.join(CONFIG)).ok()?).is_some_and(|experiment| !experiment.tasks.is_empty())
}

/// Returns a stage's model for a task as a complete Whisper, which computes the same texts without gates or heads.
///
/// The learned vector of a task's head is added to the embedding of the start token. This is equivalent as long as the
/// token comes first and is never generated, so it is suppressed.
///
/// # Errors
/// When its parts cannot be loaded, or the backbone is no Whisper.
pub fn merged(choice: &Choice, device: &Device) -> Result<PretrainedWhisper, RunError> {
    let setup = Setup::on_device(&choice.backbone(), device)?;
    let Some(whisper) = setup.pretrained.speech().and_then(SpeechBackbone::whisper) else {
        return Err(RunError::Modality(match setup.pretrained.text() {
            Some(_) => "text, and has no decoder of its own to merge an adapter into",
            None => "speech, and is not a Whisper: `predict` reads audio with it",
        }));
    };
    let (mut model, mut whisper) = (choice.model(&setup)?, whisper.clone());
    if !model.heads.is_empty() && whisper.config.is_factorised() {
        return Err(RunError::NarrowEmbeddings);
    }
    // Of weights that are held in half precision, it has the rounded ones, on which the adapter was trained.
    model.backbone = in_f32(model.backbone);
    whisper.model =
        whole(&model, whisper.tokenizer.start()).ok_or(RunError::Modality("something else than a Whisper"))?;
    if !model.heads.is_empty() {
        let start = whisper.tokenizer.start();
        let GenerationConfig { suppress_tokens, .. } = &mut whisper.generation;
        if !suppress_tokens.contains(&start) {
            suppress_tokens.push(start);
        }
        let settings = match choice.for_all {
            true => GenerationSettings::common(choice.experiment.tasks.iter().map(|task| task.generation)),
            false => choice.tasks()[0].generation,
        };
        decode_as(&settings, &mut whisper);
    }
    Ok(whisper)
}

/// Returns a stage's model for a task on text as an encoder with a head that transformers has, too; its adapter is merged.
///
/// # Errors
/// When its parts cannot be loaded, and when transformers has no such encoder or head.
pub fn merged_text(choice: &Choice, device: &Device) -> Result<(PretrainedText, TextHead), RunError> {
    let setup = Setup::on_device(&choice.backbone(), device)?;
    let (model, task) = (choice.model(&setup)?, choice.tasks().swap_remove(0));
    let refused = |reason: String| {
        let way_out = "--format dynamo writes all tasks with a script that answers in Python";
        RunError::Setting(format!("task `{}`: {reason}; {way_out}", task.name))
    };
    let head = model.heads.first().ok_or_else(|| refused("the run has trained no head".into()))?;
    let head = task.head.text_head(head).map_err(refused)?;
    // Of weights that are held in half precision, it has the rounded ones, on which the adapter was trained.
    let network = in_f32(model.backbone.clone());
    let network = network.downcast_ref::<TextEncoder>();
    let mut network = network.ok_or_else(|| refused("the encoder is none that transformers has".into()))?.clone();
    if model.adapters() > 0 {
        merge_and_unload(&mut network, 0);
    }
    let folder = setup.experiment.model.folder()?.ok_or_else(|| refused("its encoder has no folder".into()))?;
    let mut text = PretrainedText::load(&folder, device).map_err(SourceError::from)?;
    text.model = network;
    Ok((text, head))
}

/// Returns the network with its only adapter and its only head merged; `None` if it is no Whisper.
fn whole(model: &TaskModel, start_token: u32) -> Option<Whisper> {
    let mut network = model.backbone.downcast_ref::<Whisper>()?.clone();
    if model.adapters() > 0 {
        merge_and_unload(&mut network, 0);
    }
    if let Some(prompt) = model.heads.first().and_then(|head| head.downcast_ref::<PromptHead>()) {
        let embedding = &mut network.decoder.embed_tokens.weight;
        let (row, start) = (start_token as usize, prompt.start.val().detach());
        *embedding = embedding.clone().map(|weights| {
            let tracked = weights.is_require_grad();
            let weights = weights.detach();
            let moved: Tensor<2> = weights.clone().narrow(0, row, 1) + start.unsqueeze_dim(0);
            let width = weights.dims()[1];
            weights.slice_assign([row..row + 1, 0..width], moved).set_require_grad(tracked)
        });
    }
    Some(network)
}

/// Sets the model's generation settings to those of a task.
fn decode_as(settings: &GenerationSettings, whisper: &mut PretrainedWhisper) {
    let prompt = whisper.tokenizer.prompt(&whisper.generation, None, None).map_or(1, |prompt| prompt.len());
    let options = settings.applied(whisper.generate_options(), whisper.config.max_target_positions, prompt);
    let GenerationConfig { max_length, num_beams, length_penalty, no_repeat_ngram_size, .. } = &mut whisper.generation;
    (*max_length, *num_beams) = (Some(options.max_length), Some(options.beams));
    (*length_penalty, *no_repeat_ngram_size) = (Some(options.length_penalty), Some(options.no_repeat_ngram));
}
