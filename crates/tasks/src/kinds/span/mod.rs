//! Question answering: a span of the context that answers a question.

mod best;
mod config;
mod score;
mod windows;

pub use best::{WindowLogits, best_span};
pub use config::SpanConfig;
pub use score::{SpanAnswer, SpanTarget};
pub use windows::{SpanWindow, span_windows};

use crate::kind::own_head;
use crate::packed::{packed_numbers, unpacked_numbers};
use crate::sample::joined;
use crate::{
    Answer, AnswerContext, BaselineAnswer, BoxError, BoxedHead, ContextUse, Cut, Framer, HeadConfig, HeadInput,
    HostArrays, KindMetric, ReadError, Target, TaskHead, TaskKind, TaskRecord, TaskScore, TextDataset, TextError,
    TextSample, TrivialBaseline, UserInput, UserInputError, UserSamples, first_sentence,
};
use burn::tensor::{Device, Tensor};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::sync::Arc;
use undertone_data::records::{RecordsConfig, RecordsError, SpanRecord};
use undertone_model::heads::{SpanHead, SpanLogits};
use undertone_model::layers::Embedding;
use undertone_model::text::TextHead;
use undertone_ops::cross_entropy;

impl SpanConfig {
    /// Makes the samples of questions: one per window.
    fn samples(&self, records: Vec<SpanRecord>, framer: &Framer) -> Result<Vec<TextSample>, TextError> {
        let windows = span_windows(framer, &records, self)?;
        let texts: Vec<Arc<str>> = records.iter().map(|r| joined(&r.question, Some(&r.context))).collect();
        let records: Vec<Arc<SpanRecord>> = records.into_iter().map(Arc::new).collect();
        let samples = windows.into_iter().map(|window| {
            let record = records[window.record].clone();
            TextSample {
                name: record.origin.to_string(),
                text: texts[window.record].clone(),
                ids: window.ids.clone(),
                type_ids: window.type_ids.clone(),
                target: Target::new(SpanTarget { window, record }, 1),
            }
        });
        Ok(samples.collect())
    }
}

/// Number of questions whose answer is whole in none of their windows.
fn unreachable_answers(samples: &[TextSample]) -> usize {
    let targets: Vec<&SpanTarget> = samples.iter().filter_map(|sample| sample.target.get().ok()).collect();
    let of_one = targets.chunk_by(|a, b| Arc::ptr_eq(&a.record, &b.record));
    of_one.filter(|of| !of[0].record.answers.is_empty() && of.iter().all(|target| target.window.start == 0)).count()
}

impl TaskKind for SpanConfig {
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Self::json_schema(generator)
    }

    fn name(&self) -> &'static str {
        "span"
    }

    fn metrics(&self) -> &'static [KindMetric] {
        const { &[KindMetric::higher("f1"), KindMetric::higher("exact_match")] }
    }

    fn validate(&self) -> Result<(), String> {
        self.head_config().validate().map_err(|e| e.to_string())?;
        self.check_windows().and_then(|()| self.check_answers()).map_err(|e| e.to_string())
    }

    fn trained(&self) -> HeadConfig {
        let Self { n_best, max_answer_length, null_score_diff_threshold, .. } = Self::default();
        HeadConfig::new(Self { n_best, max_answer_length, null_score_diff_threshold, ..self.clone() })
    }

    fn read(&self, records: &RecordsConfig, framer: &Framer) -> Result<TextDataset, ReadError> {
        let path = records.path.clone();
        let records = SpanRecord::read(records)?;
        let unanswered = records.iter().filter(|record| record.answers.is_empty()).count();
        if unanswered > 0 && self.null_score_diff_threshold.is_none() {
            tracing::warn!(
                "{}: {unanswered} of {} questions have no answer, which counts as wrong whatever is answered: give the head \
                 `null_score_diff_threshold: 0`, and it may answer that there is none",
                path,
                records.len()
            );
        }
        let samples = self.samples(records, framer)?;
        let cut = Cut { inputs: 0, targets: unreachable_answers(&samples) };
        Ok(TextDataset::new(samples, cut))
    }

    fn records(&self, records: &RecordsConfig) -> Result<Vec<TaskRecord>, RecordsError> {
        let record = |SpanRecord { question, context, origin, .. }| {
            let question = TaskRecord::new(question, Target::unknown(), origin);
            TaskRecord { pair: Some(context), ..question }
        };
        Ok(SpanRecord::read(records)?.into_iter().map(record).collect())
    }

    fn passages(&self, records: &RecordsConfig) -> Result<Vec<Vec<String>>, RecordsError> {
        Ok(SpanRecord::read(records)?.into_iter().map(|record| vec![record.context]).collect())
    }

    /// Returns `hidden`, `[rows, tokens]`, true where no answer may begin or end: everywhere except in the context and
    /// at the first token, which stands for no answer. For samples of another kind, no token is hidden.
    fn inputs(&self, samples: &[&TextSample], tokens: usize) -> HostArrays {
        let hidden = samples.iter().flat_map(|sample| {
            let open = |at: usize| match sample.target.get::<SpanTarget>() {
                Ok(target) => target.window.offsets.get(at).is_some_and(Option::is_some),
                Err(_) => at < sample.ids.len(),
            };
            (0..tokens).map(move |at| at > 0 && !open(at))
        });
        HostArrays::default().with_bools("hidden", [samples.len(), tokens], hidden.collect())
    }

    fn labels(&self, samples: &[&TextSample], _: usize) -> Result<HostArrays, BoxError> {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for sample in samples {
            let window = &sample.target.get::<SpanTarget>()?.window;
            first.push(window.start as i64);
            last.push(window.end as i64);
        }
        Ok(HostArrays::default().with_ints("first", [samples.len()], first).with_ints("last", [samples.len()], last))
    }

    fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead {
        BoxedHead::new("Span", self.head_config().init(embeddings.weight.dims()[1], device))
    }

    fn text_head(&self, head: &BoxedHead) -> Result<TextHead, String> {
        own_head(self, head).map(TextHead::Span)
    }

    fn pack(&self, answer: &Answer) -> Option<String> {
        let SpanAnswer { start, end } = answer.get()?;
        // As bits: non-finite numbers have no decimal digits, and every number must be restored exactly.
        let bits: Vec<u32> = start.iter().chain(end).map(|logit| logit.to_bits()).collect();
        Some(packed_numbers(&bits))
    }

    fn unpack(&self, packed: &str) -> Option<Answer> {
        let mut start: Vec<f32> = unpacked_numbers(packed)?.into_iter().map(f32::from_bits).collect();
        let end = start.split_off(start.len() / 2);
        Some(Answer::value(SpanAnswer { start, end }))
    }

    fn score(&self, _: &[String]) -> Box<dyn TaskScore> {
        Box::new(score::SpanScore::new(self.clone()))
    }

    fn baseline(&self, trivial: TrivialBaseline, _: &[TextSample]) -> Option<BaselineAnswer> {
        let lead = |sample: &TextSample| match sample.target.get::<SpanTarget>() {
            Ok(target) => Answer::text(first_sentence(&target.record.context)),
            Err(_) => Answer::text(""),
        };
        (trivial == TrivialBaseline::Lead).then(|| Box::new(lead) as BaselineAnswer)
    }

    fn context_use(&self) -> ContextUse {
        ContextUse::Required
    }

    fn user_samples(&self, text: &UserInput, framer: &Framer) -> Result<UserSamples, UserInputError> {
        let record = SpanRecord {
            id: String::new(),
            question: text.text.to_owned(),
            context: text.context.ok_or(UserInputError::NoContext)?.to_owned(),
            answers: Vec::new(),
            origin: text.origin(),
        };
        Ok(UserSamples { samples: self.samples(vec![record], framer)?, cut: 0 })
    }

    fn answer_text(&self, text: &UserInput, samples: &[TextSample], answers: &[Answer]) -> Result<String, BoxError> {
        let mut windows = Vec::new();
        for (sample, answer) in samples.iter().zip(answers) {
            if let Some(SpanAnswer { start, end }) = answer.get() {
                windows.push(WindowLogits { window: &sample.target.get::<SpanTarget>()?.window, start, end });
            }
        }
        Ok(best_span(&windows, text.context.unwrap_or_default(), self)?.to_owned())
    }
}

impl TaskHead for SpanHead {
    fn loss(&self, input: HeadInput) -> Result<Tensor<1>, BoxError> {
        let SpanLogits { start, end } = self.forward(input.states, &input.arrays.bools::<2>("hidden")?);
        let first = cross_entropy(start, input.arrays.ints::<1>("first")?, Default::default()).sum;
        let last = cross_entropy(end, input.arrays.ints::<1>("last")?, Default::default()).sum;
        Ok((first + last).div_scalar(2.0))
    }

    fn answer(&self, input: HeadInput, _: &AnswerContext) -> Result<Vec<Answer>, BoxError> {
        let tokens = input.states.dims()[1];
        let SpanLogits { start, end } = self.forward(input.states, &input.arrays.bools::<2>("hidden")?);
        let rows = |logits: Tensor<2>| -> Vec<Vec<f32>> {
            let values: Vec<f32> = logits.into_data().iter::<f32>().collect();
            values.chunks(tokens).map(<[f32]>::to_vec).collect()
        };
        let both = rows(start).into_iter().zip(rows(end));
        Ok(both.map(|(start, end)| Answer::value(SpanAnswer { start, end })).collect())
    }
}
