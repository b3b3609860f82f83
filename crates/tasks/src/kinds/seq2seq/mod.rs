//! Text generation: a translation, a summary, code.

mod features;
mod score;
mod writer;

pub use features::{Seq2SeqFeatures, seq2seq_features, seq2seq_text};
pub use score::{WrittenTarget, spoken};
pub use writer::TextWriter;

use crate::{
    Answer, BaselineAnswer, BoxError, BoxedHead, ContextUse, Cut, Framer, HostArrays, IGNORED, KindMetric, ReadError,
    Target, TaskKind, TaskRecord, TaskScore, TextDataset, TextSample, TrivialBaseline, first_sentence, pad_row,
};
use burn::tensor::Device;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use undertone_data::records::{PairRecord, RecordsConfig, RecordsError};
use undertone_model::layers::Embedding;
use undertone_model::text_decoder::TextDecoderConfig;

/// Text generation over a text backbone. Over a speech backbone, the backbone's own decoder writes; a learned vector at
/// the start token tells it the task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Seq2seqConfig {
    /// Number of decoder blocks.
    pub layers: usize,
    /// Number of attention heads; divides the backbone's width.
    pub heads: usize,
    /// Width of the feed-forward layers.
    pub ffn: usize,
    /// Maximum number of source tokens; longer sources are truncated.
    pub max_source: usize,
    /// Maximum number of target tokens, special ones included; longer targets are truncated.
    pub max_target: usize,
    /// Dropout in the decoder, in training.
    pub dropout: f64,
}

impl Default for Seq2seqConfig {
    fn default() -> Self {
        let decoder = TextDecoderConfig::default();
        Self {
            layers: decoder.layers,
            heads: decoder.heads,
            ffn: decoder.ffn,
            max_source: 256,
            max_target: decoder.max_length,
            dropout: decoder.dropout,
        }
    }
}

impl Seq2seqConfig {
    fn decoder(&self) -> TextDecoderConfig {
        TextDecoderConfig {
            layers: self.layers,
            heads: self.heads,
            ffn: self.ffn,
            max_length: self.max_target,
            dropout: self.dropout,
        }
    }
}

impl TaskKind for Seq2seqConfig {
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Self::json_schema(generator)
    }

    fn name(&self) -> &'static str {
        "seq2seq"
    }

    fn metrics(&self) -> &'static [KindMetric] {
        &score::METRICS
    }

    fn registered_metrics(&self) -> Vec<KindMetric> {
        score::registered()
    }

    fn max_input_key(&self) -> &'static str {
        "max_source"
    }

    fn max_target(&self) -> Option<usize> {
        Some(self.max_target)
    }

    fn context_use(&self) -> ContextUse {
        ContextUse::Unused
    }

    fn validate(&self) -> Result<(), String> {
        if self.max_source < 3 || self.max_target < 3 {
            return Err("`max_source` and `max_target` are at least 3: two tokens frame a text".into());
        }
        // The width is the backbone's, and checked once that is known.
        self.decoder().validate(self.heads).map_err(|e| e.to_string())
    }

    fn validate_on_speech(&self) -> Result<(), String> {
        if *self == Self::default() {
            return Ok(());
        }
        Err("a speech backbone writes with its own decoder: leave out all but the type".into())
    }

    fn fits(&self, d_model: usize) -> Result<(), String> {
        self.decoder().validate(d_model).map_err(|e| e.to_string())
    }

    fn read(&self, records: &RecordsConfig, framer: &Framer) -> Result<TextDataset, ReadError> {
        let records = PairRecord::read(records)?;
        let pairs: Vec<_> = records.iter().map(|r| (r.source.as_str(), r.target.as_str())).collect();
        let rows = seq2seq_features(framer, &pairs, self.max_source, self.max_target)?;
        let mut cut = Cut::default();
        let samples = records.into_iter().zip(rows).map(|(record, row)| {
            cut.inputs += usize::from(row.source_cut > 0);
            cut.targets += usize::from(row.target_cut > 0);
            TextSample {
                name: record.origin.to_string(),
                text: record.source.as_str().into(),
                ids: row.source,
                type_ids: row.source_type_ids,
                target: WrittenTarget { source: record.source, tokens: row.target, text: record.target }.target(),
            }
        });
        let samples = samples.collect();
        Ok(TextDataset::new(samples, cut))
    }

    fn records(&self, records: &RecordsConfig) -> Result<Vec<TaskRecord>, RecordsError> {
        let record = |record: PairRecord| TaskRecord::new(record.source, Target::unknown(), record.origin);
        Ok(PairRecord::read(records)?.into_iter().map(record).collect())
    }

    fn labels(&self, samples: &[&TextSample], _: usize) -> Result<HostArrays, BoxError> {
        let targets = samples.iter().map(|sample| Ok(sample.target.get::<WrittenTarget>()?.tokens.as_slice()));
        let targets: Vec<&[u32]> = targets.collect::<Result<_, BoxError>>()?;
        let length = targets.iter().map(|target| target.len()).max().unwrap_or(1) - 1;
        let end = targets.iter().find_map(|target| target.last()).map_or(0, |id| i64::from(*id));
        let shifted = |from: usize, with: i64| -> Vec<i64> {
            targets.iter().flat_map(|t| pad_row(&t[from..t.len() + from - 1], length, with)).collect()
        };
        let inputs = HostArrays::default().with_ints("inputs", [targets.len(), length], shifted(0, end));
        Ok(inputs.with_ints("labels", [targets.len() * length], shifted(1, IGNORED)))
    }

    fn head(&self, embeddings: &Embedding, device: &Device) -> BoxedHead {
        BoxedHead::new("Seq2seq", TextWriter::new(self.decoder().init(embeddings, device), device))
    }

    fn score(&self, metrics: &[String]) -> Box<dyn TaskScore> {
        Box::new(score::WrittenScore::new(metrics))
    }

    fn baseline(&self, trivial: TrivialBaseline, _: &[TextSample]) -> Option<BaselineAnswer> {
        let answer = move |sample: &TextSample| match (sample.target.get::<WrittenTarget>(), trivial) {
            (Ok(target), TrivialBaseline::Lead) => Answer::text(first_sentence(&target.source)),
            (Ok(target), TrivialBaseline::Copy) => Answer::text(target.source.clone()),
            (Err(_), _) => Answer::text(""),
        };
        Some(Box::new(answer))
    }
}
