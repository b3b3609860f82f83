//! Predictions of a trained run for single inputs.

use super::arrays::input;
use super::batch::{SampleInput, TaskBatch, TaskCollate, TaskSample};
use super::choice::{Choice, number_of};
use super::known;
use super::modality::EncodedBatch;
use super::model::{Tapped, TaskModel};
use super::newest::newest_routed;
use super::setup::Setup;
use super::spec::Layout;
use crate::backbone::{Architecture, SpeechBackbone, TextBackbone};
use crate::config::TaskConfig;
use crate::{Experiment, RunError, SampleAudio, SpeechSample};
use burn::tensor::Tensor;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use undertone_data::loader::Collate;
use undertone_data::reader::Piece;
use undertone_data::{audio, cut};
use undertone_model::adapters::Gates;
use undertone_model::known_inputs::KnownInputs;
use undertone_model::router::Routing;
use undertone_tasks::{Answer, ContextUse, Framer, TextSample, UserInput, UserInputError, UserSamples};
use undertone_transcribe::{Reading, TranscribeError};

/// Trained model of a run for predictions: with all tasks and the router that chooses among them, or with one task.
pub struct Predictor {
    pub(super) setup: Setup,
    pub(super) model: TaskModel,
    collate: TaskCollate,
    /// Tasks of the run.
    tasks: Vec<TaskConfig>,
    /// Indices of those that the router chooses among.
    among: Vec<usize>,
    /// What the inputs of all tasks are like.
    pub(super) known: Option<KnownInputs>,
}

/// Answer, with its task and routing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Start of the passage in the audio, in seconds.
    pub start: f64,
    /// Name of the task whose head answered; empty in a run without tasks.
    pub task: String,
    /// Answer: a text, a label, a part of the context, or words with their tags.
    pub text: String,
    /// What else there is of the answer, by its names in JSON ([`TaskKind::answer_details`](undertone_tasks::TaskKind::answer_details)).
    pub details: Map<String, Value>,
    /// Number of tokens at the end of the text that were not read, because it is too long for the task.
    pub cut: usize,
    /// Decision of the router, if there is a router.
    pub routing: Option<Routed>,
}

impl Prediction {
    /// Returns the prediction as an object of JSON, with the gates by the names of `tasks`.
    pub fn to_json(&self, tasks: &[String]) -> Value {
        let mut object = json!({"start": self.start, "task": self.task, "text": self.text});
        for (name, value) in &self.details {
            object[name] = value.clone();
        }
        if self.cut > 0 {
            object["cut"] = self.cut.into();
        }
        if let Some(Routed { gates, confidence, own_share, is_none }) = &self.routing {
            object["gates"] = tasks.iter().cloned().zip(gates.iter().map(|gate| Value::from(*gate))).collect();
            object["confidence"] = (*confidence).into();
            object["own_share"] = (*own_share).into();
            object["none"] = (*is_none).into();
        }
        object
    }
}

/// Decision of the router.
#[derive(Clone, Debug, PartialEq)]
pub struct Routed {
    /// Gates of the adapters, in the order of the tasks.
    pub gates: Vec<f32>,
    /// Confidence of the router in its choice.
    pub confidence: f32,
    /// Share of the tasks' own inputs that are at least as unlike them all as this one; `None` for runs of earlier versions,
    /// which did not record what their inputs are like.
    pub own_share: Option<f64>,
    /// Whether the input belongs to none of the tasks: `own_share` is below `router.reject`.
    pub is_none: bool,
}

/// Task that answers an input, and the gates of the adapters.
#[derive(Clone)]
struct Decision {
    task: usize,
    /// Gates of the router, `[1, adapters]`, its confidence, and the share of own inputs that are as unlike the tasks.
    routed: Option<(Tensor<2>, f32, Option<f64>)>,
}

impl Predictor {
    /// Loads the newest finished phase with a router.
    ///
    /// # Errors
    /// When there is none, or its parts cannot be loaded.
    pub fn load(experiment: &Experiment) -> Result<Self, RunError> {
        let setup = Setup::new(experiment)?;
        let (_, model) = super::newest::newest(&setup)?;
        let routed = newest_routed(experiment).filter(|_| model.router.is_some());
        let (_, stage) = routed.ok_or_else(|| RunError::NoRouter(experiment.directory()))?;
        let known = known::read(&known::path(&stage), model.backbone.d_model())?;
        if known.is_none() && experiment.router.reject > 0.0 {
            return Err(RunError::NotRecorded { key: "router.reject", stage: stage.directory });
        }
        let (reject, least) = (experiment.router.reject, known.as_ref().map(KnownInputs::least_share));
        if let Some(least) = least.filter(|least| reject > 0.0 && reject <= *least) {
            return Err(RunError::Reject(reject, least));
        }
        Ok(Self { known, ..Self::of(setup, model, experiment.tasks.clone())? })
    }

    /// Loads the model of a stage for one task, without routing.
    ///
    /// # Errors
    /// When its parts cannot be loaded, or the run fine-tuned a whole Whisper, which is for transcription.
    pub fn of_choice(choice: &Choice) -> Result<Self, RunError> {
        if choice.stage.layout == Layout::Model && choice.experiment.model.backbone == Architecture::WHISPER {
            let directory = choice.experiment.directory();
            let instead = format!("`cargo xtask transcribe --model {} AUDIO` reads audio with it", directory.display());
            return Err(RunError::OtherKind { directory, instead });
        }
        let setup = Setup::new(&choice.backbone())?;
        let model = choice.model(&setup)?;
        Self::of(setup, model, choice.tasks())
    }

    fn of(setup: Setup, model: TaskModel, tasks: Vec<TaskConfig>) -> Result<Self, RunError> {
        // Padding as in the evaluation of the adapters.
        let collate = setup.collate(false)?;
        let among = (0..tasks.len()).collect();
        Ok(Self { setup, model, collate, tasks, among, known: None })
    }

    /// Lets the router choose among these tasks alone.
    ///
    /// # Errors
    /// When there is no task of a name.
    pub fn among<N: AsRef<str>>(mut self, names: &[N]) -> Result<Self, RunError> {
        let numbers = names.iter().map(|name| number_of(&self.tasks, name.as_ref()));
        self.among = numbers.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Answers an audio file. Audio longer than the window is cut at its quietest places, and each piece is routed
    /// separately.
    ///
    /// # Errors
    /// When the file cannot be read, or the backbone reads text.
    pub fn audio(&self, path: &Path) -> Result<Vec<Prediction>, RunError> {
        self.speech()?;
        self.samples(&path.display().to_string(), &audio::load(path).map_err(TranscribeError::from)?)
    }

    /// As [`audio`](Self::audio), for 16 kHz mono audio; `name` is for messages.
    ///
    /// # Errors
    /// When the backbone reads text.
    pub fn samples(&self, name: &str, samples: &[f32]) -> Result<Vec<Prediction>, RunError> {
        let answers = self.pieces(name, samples)?.into_iter().map(|(start, sample)| {
            let start = start as f64 / f64::from(audio::SAMPLE_RATE);
            let mut batch = self.batch(vec![SampleInput::Speech(sample)])?;
            let tapped = self.tap(&mut batch)?;
            let decision = self.decide(&tapped, &batch, &[false]).remove(0);
            let text = self.answers(&tapped, &[&decision], &batch)?.remove(0).as_str().to_owned();
            Ok(Prediction { start, ..self.prediction(decision, text) })
        });
        answers.collect()
    }

    /// Answers a text, or a text with a context, such as a question about it. The router reads as much of the text as the
    /// longest inputs of the tasks have, and decides once. The chosen task then reads it like its records, truncated to its own length or in windows, all
    /// with the adapters of that decision.
    ///
    /// # Errors
    /// When the backbone takes speech, or the router chooses a task that needs a context and there is none.
    pub fn text(&self, text: &str, context: Option<&str>) -> Result<Prediction, RunError> {
        Ok(self.texts(&[UserInput { text, context, origin: None }])?.remove(0))
    }

    /// As [`text`](Self::text), for several texts: in batches of `data.eval_batch_size` texts of similar length.
    ///
    /// # Errors
    /// As [`text`](Self::text).
    pub fn texts(&self, inputs: &[UserInput]) -> Result<Vec<Prediction>, RunError> {
        let mut by_length: Vec<usize> = (0..inputs.len()).collect();
        by_length.sort_by_key(|index| inputs[*index].text.len() + inputs[*index].context.map_or(0, str::len));
        let mut predictions = Vec::with_capacity(inputs.len());
        for indices in by_length.chunks(self.setup.experiment.data.eval_batch_size) {
            let batch: Vec<UserInput> = indices.iter().map(|index| inputs[*index]).collect();
            predictions.extend(indices.iter().copied().zip(self.batch_of_texts(&batch)?));
        }
        predictions.sort_by_key(|(index, _)| *index);
        let predictions: Vec<Prediction> = predictions.into_iter().map(|(_, prediction)| prediction).collect();
        self.warn_of_unread_contexts(inputs, &predictions);
        Ok(predictions)
    }

    fn batch_of_texts(&self, inputs: &[UserInput]) -> Result<Vec<Prediction>, RunError> {
        let no_text = RunError::Modality("audio: give a file with --audio");
        let backbone = self.setup.pretrained.text().ok_or(no_text)?;
        let decisions = self.decide_texts(inputs, backbone)?;
        let read =
            inputs.iter().zip(&decisions).map(|(input, decision)| self.samples_of(input, decision, &backbone.framer));
        let read: Vec<UserSamples> = read.collect::<Result<_, _>>()?;
        let mut rows: Vec<(&Decision, &TextSample)> = Vec::new();
        for (read, decision) in read.iter().zip(&decisions) {
            rows.extend(read.samples.iter().map(|sample| (decision, sample)));
        }
        let mut answers = Vec::with_capacity(rows.len());
        for rows in rows.chunks(self.setup.experiment.data.eval_batch_size) {
            let (decisions, samples): (Vec<&Decision>, Vec<&TextSample>) = rows.iter().copied().unzip();
            let mut batch = self.batch(samples.into_iter().cloned().map(SampleInput::Text).collect())?;
            answers.extend(self.answers(&self.tap(&mut batch)?, &decisions, &batch)?);
        }
        let mut answers = answers.into_iter();
        let predictions = inputs.iter().zip(decisions).zip(&read).map(|((input, decision), read)| {
            let answers: Vec<Answer> = answers.by_ref().take(read.samples.len()).collect();
            let head = &self.tasks[decision.task].head;
            let said = head.answer_text(input, &read.samples, &answers).map_err(RunError::Evaluate)?;
            let details = head.answer_details(input, &read.samples, &answers).map_err(RunError::Evaluate)?;
            Ok(Prediction { details, cut: read.cut, ..self.prediction(decision, said) })
        });
        predictions.collect()
    }

    fn decide_texts(&self, inputs: &[UserInput], backbone: &TextBackbone) -> Result<Vec<Decision>, RunError> {
        if self.model.router.is_none() {
            return Ok(vec![Decision { task: 0, routed: None }; inputs.len()]);
        }
        let longest = self.longest_routed(backbone.max_tokens);
        let rows = inputs.iter().map(|input| {
            let name = input.origin().to_string();
            let (row, _) = TextSample::plain(name, input.text, input.context, longest, &backbone.framer)?;
            Ok(SampleInput::Text(row))
        });
        let mut batch = self.batch(rows.collect::<Result<_, RunError>>()?)?;
        let has_context: Vec<bool> = inputs.iter().map(|input| input.context.is_some()).collect();
        Ok(self.decide(&self.tap(&mut batch)?, &batch, &has_context))
    }

    fn warn_of_unread_contexts(&self, inputs: &[UserInput], predictions: &[Prediction]) {
        for task in self.tasks.iter().filter(|task| task.head.context_use() == ContextUse::Unused) {
            let is_unread = |(input, prediction): (&UserInput, &Prediction)| {
                input.context.is_some() && prediction.task == task.name
            };
            if inputs.iter().zip(predictions).any(is_unread) {
                tracing::warn!("the task `{}` reads one text: its context is not read", task.name);
            }
        }
    }

    /// Makes a text's samples for the task that answers it.
    fn samples_of(&self, input: &UserInput, decision: &Decision, framer: &Framer) -> Result<UserSamples, RunError> {
        let config = &self.tasks[decision.task];
        let context = input.context.filter(|_| config.head.context_use() != ContextUse::Unused);
        let read = config.head.user_samples(&UserInput { context, ..*input }, framer).map_err(|error| match error {
            UserInputError::NoContext => RunError::NoContext(config.name.clone()),
            UserInputError::Text(source) => RunError::Records { task: config.name.clone(), source: source.into() },
        })?;
        if read.samples.is_empty() {
            return Err(RunError::Evaluate("the text has nothing to be read".into()));
        }
        Ok(read)
    }

    /// Number of tokens of a text that the router reads: as many as in training, where it reads the tasks' inputs, and no more than the
    /// backbone has positions for.
    pub(super) fn longest_routed(&self, positions: usize) -> usize {
        self.tasks.iter().map(|task| task.head.max_input()).max().map_or(positions, |longest| longest.min(positions))
    }

    /// Cuts audio into samples that fit the window, each with the index of its first value.
    pub(super) fn pieces(&self, name: &str, samples: &[f32]) -> Result<Vec<(usize, SpeechSample)>, RunError> {
        let speech = self.speech()?;
        let prompt = speech.tokenizer.prompt(None, None).map_err(TranscribeError::from)?;
        let mut tokens = prompt.clone();
        tokens.extend(speech.tokenizer.end());
        let sample = |(start, audio): (usize, Vec<f32>)| {
            let sample = SpeechSample {
                name: name.to_owned(),
                audio: SampleAudio::Audio(audio),
                states: None,
                text: String::new(),
                prompt: prompt.len(),
                tokens: tokens.clone(),
                alignment: None,
                columns: BTreeMap::new(),
                draw: 0,
            };
            (start, sample)
        };
        Ok(pieces(speech, samples)?.into_iter().map(sample).collect())
    }

    fn speech(&self) -> Result<&SpeechBackbone, RunError> {
        self.setup.pretrained.speech().ok_or(RunError::Modality("text: give it with --text"))
    }

    pub(super) fn batch(&self, inputs: Vec<SampleInput>) -> Result<TaskBatch, RunError> {
        let items = inputs.into_iter().map(|input| TaskSample { task: 0, input }).collect();
        self.collate.collate(items).map_err(RunError::Evaluate)
    }

    pub(super) fn tap(&self, batch: &mut TaskBatch) -> Result<Tapped, RunError> {
        let (input, padding) = input(batch, 0, &self.setup.device);
        let input = input.ok_or_else(|| RunError::Evaluate("a batch without rows was asked for".into()))?;
        self.model.tap(input, padding).map_err(|error| RunError::Evaluate(error.into()))
    }

    /// Returns the task for each row of a batch, and its gates. Where the router would choose a task that requires a context
    /// for a row without one, it chooses among the others.
    fn decide(&self, tapped: &Tapped, batch: &TaskBatch, has_context: &[bool]) -> Vec<Decision> {
        let Some(routing) = self.model.routing(tapped, batch) else {
            return vec![Decision { task: 0, routed: None }; batch.tasks.len()];
        };
        let routing = routing.among(&self.among);
        let mut decisions = self.decisions(tapped, &routing);
        let requires = |task: usize| self.tasks[task].head.context_use() == ContextUse::Required;
        let others: Vec<usize> = self.among.iter().copied().filter(|task| !requires(*task)).collect();
        let lacks = |(decision, has_context): (&Decision, &bool)| !has_context && requires(decision.task);
        if !others.is_empty() && decisions.iter().zip(has_context).any(lacks) {
            let instead = self.decisions(tapped, &routing.among(&others));
            for ((decision, has_context), instead) in decisions.iter_mut().zip(has_context).zip(instead) {
                if lacks((decision, has_context)) {
                    *decision = instead;
                }
            }
        }
        decisions
    }

    fn decisions(&self, tapped: &Tapped, routing: &Routing) -> Vec<Decision> {
        let pooled: Option<Vec<f32>> = self.known.as_ref().map(|_| undertone_ops::read(tapped.pooled()));
        let gates = routing.inference_gates(&self.setup.experiment.router);
        let confidences: Vec<f32> = undertone_ops::read(routing.confidences());
        let choices = routing.choices();
        let decisions = choices.iter().zip(confidences).enumerate().map(|(row, (task, confidence))| {
            let own_share = self.known.as_ref().zip(pooled.as_ref()).map(|(known, pooled)| {
                let d_model = pooled.len() / choices.len();
                known.own_share(&pooled[row * d_model..][..d_model])
            });
            Decision { task: *task, routed: Some((gates.clone().narrow(0, row, 1), confidence, own_share)) }
        });
        decisions.collect()
    }

    /// Computes the chosen heads' answers to the rows of a batch, each with the adapters of its decision.
    fn answers(&self, tapped: &Tapped, decisions: &[&Decision], batch: &TaskBatch) -> Result<Vec<Answer>, RunError> {
        let chosen: Vec<usize> = decisions.iter().map(|decision| decision.task).collect();
        let routed: Option<Vec<_>> =
            decisions.iter().map(|decision| Some(decision.routed.as_ref()?.0.clone())).collect();
        let gates = match routed {
            Some(gates) => Some(Gates::Each(Tensor::cat(gates, 0))),
            None => self.model.oracle(&chosen, &self.setup.device),
        };
        let states = self.model.encode(tapped, gates.as_ref()).states;
        let (model, tasks, padding) = (&self.model, &*self.tasks, &tapped.padding);
        let encoded = EncodedBatch { model, tasks, batch, states, padding, gates };
        self.setup.pretrained.answers(encoded, &chosen).map_err(RunError::Evaluate)
    }

    fn prediction(&self, decision: Decision, text: String) -> Prediction {
        let reject = self.setup.experiment.router.reject;
        let routing = decision.routed.map(|(gates, confidence, own_share)| Routed {
            gates: gates.into_data().iter::<f32>().collect(),
            confidence,
            own_share,
            is_none: own_share.is_some_and(|share| share < reject),
        });
        let task = self.tasks[decision.task].name.clone();
        Prediction { start: 0.0, task, text, details: Map::new(), cut: 0, routing }
    }
}

/// Cuts audio into pieces that fit the backbone's window, each with the index of its first value in all of it.
fn pieces(speech: &SpeechBackbone, samples: &[f32]) -> Result<Vec<(usize, Vec<f32>)>, TranscribeError> {
    let of = |piece: &Range<usize>| samples[piece.clone()].to_vec();
    let Some(whisper) = speech.whisper() else {
        return Ok(cut::pieces(samples, speech.window()).iter().map(|piece| (piece.start, of(piece))).collect());
    };
    let reading = Reading::of(whisper)?;
    let prepared = |piece: Piece| {
        let audio = of(&piece.samples);
        (piece.samples.start, reading.prepared(&audio).unwrap_or(audio))
    };
    Ok(reading.pieces(samples).into_iter().map(prepared).collect())
}
