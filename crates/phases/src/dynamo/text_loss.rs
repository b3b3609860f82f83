//! Losses of text tasks, each summed over the samples of one task.

use super::evaluate::ints;
use super::model::Head;
use super::text_data::{Target, TextSample, pad_row};
use crate::text::IGNORED;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use undertone_model::heads::SpanLogits;
use undertone_ops::{cross_entropy, linear_cross_entropy};

/// The loss of a head on samples of its task: `states` are the backbone's, `[batch, tokens, d_model]`, `padding` is true
/// where a sample has ended.
pub(super) fn text_loss(
    head: &Head,
    states: Tensor<3>,
    padding: Tensor<2, Bool>,
    samples: &[&TextSample],
    device: &Device,
) -> Tensor<1> {
    let [rows, tokens, _] = states.dims();
    match head {
        Head::Classify(head) => {
            let labels = samples.iter().map(|sample| match sample.target {
                Target::Label(label) => label as i64,
                _ => IGNORED,
            });
            let labels: Vec<i64> = labels.collect();
            let labels = ints(&labels, device);
            cross_entropy(head.forward(states, Some(&padding)), labels, Default::default()).sum
        }
        Head::Span(head) => {
            let SpanLogits { start, end } = head.forward(states, &span_hidden(samples, tokens, device));
            let edge = |of: fn(&Target) -> i64| {
                ints(&samples.iter().map(|sample| of(&sample.target)).collect::<Vec<_>>(), device)
            };
            let first = cross_entropy(start, edge(first_token), Default::default()).sum;
            (first + cross_entropy(end, edge(last_token), Default::default()).sum).div_scalar(2.0)
        }
        Head::Tag(head) => {
            let logits = head.forward(states);
            let labels = samples.iter().flat_map(|sample| match &sample.target {
                Target::Tags { features, .. } => pad_row(&features.labels, tokens, IGNORED).collect::<Vec<_>>(),
                _ => vec![IGNORED; tokens],
            });
            let (labels, tags): (Vec<i64>, _) = (labels.collect(), logits.dims()[2]);
            let labels = ints(&labels, device);
            cross_entropy(logits.reshape([rows * tokens, tags]), labels, Default::default()).sum
        }
        Head::Seq2seq(writer) => {
            let decoder = &writer.decoder;
            let targets: Vec<&[u32]> = samples.iter().map(|sample| target_tokens(&sample.target)).collect();
            let length = targets.iter().map(|target| target.len()).max().unwrap_or(1) - 1;
            let end = targets.iter().find_map(|target| target.last()).map_or(0, |id| i64::from(*id));
            let shifted = |from: usize, with: i64| -> Vec<i64> {
                targets.iter().flat_map(|t| pad_row(&t[from..t.len() + from - 1], length, with)).collect()
            };
            let inputs = ints(&shifted(0, end), device).reshape([rows, length]);
            let labels = ints(&shifted(1, IGNORED), device);
            let cache = writer.cache(states, source_ids(samples, tokens, device), padding);
            let hidden = decoder.forward_all(inputs, cache);
            let d_model = hidden.dims()[2];
            let embedding = decoder.embed_tokens.weight.val();
            linear_cross_entropy(hidden.reshape([rows * length, d_model]), embedding, None, labels, Default::default())
                .sum
        }
        Head::Prompt(_) => panic!("a head of a speech backbone has no loss on text"),
    }
}

/// True where no answer may begin or end, `[batch, tokens]`: everywhere but in the context and at the first token, which
/// stands for having none.
pub(super) fn span_hidden(samples: &[&TextSample], tokens: usize, device: &Device) -> Tensor<2, Bool> {
    let rows = samples.iter().flat_map(|sample| {
        let open = |at: usize| match &sample.target {
            Target::Span { window, .. } => window.offsets.get(at).is_some_and(Option::is_some),
            _ => at < sample.ids.len(),
        };
        (0..tokens).map(move |at| at > 0 && !open(at))
    });
    let rows: Vec<bool> = rows.collect();
    Tensor::from_data(TensorData::new(rows, [samples.len(), tokens]), device)
}

/// The tokens that the backbone read, `[batch, tokens]`; what stands for padding is not looked at.
pub(super) fn source_ids(samples: &[&TextSample], tokens: usize, device: &Device) -> Tensor<2, Int> {
    let ids: Vec<i64> = samples.iter().flat_map(|sample| pad_row(&sample.ids, tokens, 0)).collect();
    Tensor::from_data(TensorData::new(ids, [samples.len(), tokens]), device)
}

fn first_token(target: &Target) -> i64 {
    if let Target::Span { window, .. } = target { window.start as i64 } else { IGNORED }
}

fn last_token(target: &Target) -> i64 {
    if let Target::Span { window, .. } = target { window.end as i64 } else { IGNORED }
}

fn target_tokens(target: &Target) -> &[u32] {
    if let Target::Text { tokens, .. } = target { tokens } else { &[0, 0] }
}

#[cfg(test)]
mod tests {
    use super::super::head_config::HeadConfig;
    use super::super::model::BackboneNetwork;
    use super::*;
    use crate::text::{SpanWindow, TagFeatures};
    use serde_json::json;
    use std::path::Path;
    use std::sync::Arc;
    use undertone_data::records::{Origin, Place, SpanRecord};
    use undertone_model::text::TextEncoderConfig;

    const D_MODEL: usize = 8;

    fn backbone(device: &Device) -> BackboneNetwork {
        let config = TextEncoderConfig {
            vocab_size: 20,
            hidden_size: D_MODEL,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            intermediate_size: 16,
            max_position_embeddings: 16,
            ..Default::default()
        };
        BackboneNetwork::Text(config.init(device))
    }

    fn sample(length: usize, target: Target) -> TextSample {
        TextSample { name: "s".into(), ids: (3..3 + length as u32).collect(), type_ids: vec![0; length], target }
    }

    fn span(length: usize, start: usize, end: usize) -> Target {
        let offsets = (0..length).map(|i| (i > 1 && i + 1 < length).then_some((i, i + 1))).collect();
        let window = SpanWindow { record: 0, ids: vec![5; length], type_ids: vec![0; length], offsets, start, end };
        let (question, context) = ("q".into(), "c".into());
        let origin = Origin { path: Path::new("f").into(), place: Place::Line(1) };
        let record = SpanRecord { id: String::new(), question, context, answers: Vec::new(), origin };
        Target::Span { window: Arc::new(window), record: Arc::new(record) }
    }

    fn tags(labels: &[i64]) -> Target {
        let n = labels.len();
        let features = TagFeatures {
            ids: vec![5; n],
            type_ids: vec![0; n],
            labels: labels.to_vec(),
            words: vec![None; n],
            word_count: 0,
            lost: 0,
            cut: 0,
        };
        Target::Tags { features: Arc::new(features), tags: Vec::new() }
    }

    fn text(tokens: &[u32]) -> Target {
        Target::Text { source: String::new(), tokens: tokens.to_vec(), text: String::new() }
    }

    /// Two samples of six and four tokens for each kind of head.
    fn cases() -> Vec<(serde_json::Value, [Target; 2])> {
        vec![
            (json!({"type": "classify", "labels": ["a", "b", "c"]}), [Target::Label(2), Target::Label(0)]),
            (json!({"type": "span"}), [span(6, 2, 4), span(4, 0, 0)]),
            (
                json!({"type": "tag", "labels": ["O", "B-x"]}),
                [tags(&[-100, 1, -100, 0, 0, -100]), tags(&[-100, 1, 0, -100])],
            ),
            (
                json!({"type": "seq2seq", "layers": 1, "heads": 2, "ffn": 16}),
                [text(&[1, 7, 8, 9, 2]), text(&[1, 10, 2])],
            ),
        ]
    }

    #[test]
    fn a_batch_costs_what_its_samples_cost_by_themselves() {
        let device = Device::default();
        undertone_ops::seed(3);
        let backbone = backbone(&device);
        for (head, [long, short]) in cases() {
            let config: HeadConfig = serde_json::from_value(head).expect("a head");
            let head = backbone.head(&config, &device);
            let states = undertone_ops::normal([2, 6, D_MODEL], 1.0, &device);
            let samples = [sample(6, long), sample(4, short)];
            let ended: Vec<bool> = (0..12).map(|i| i >= 10).collect();
            let padding = Tensor::<2, Bool>::from_data(TensorData::new(ended, [2, 6]), &device);
            let refs: Vec<&TextSample> = samples.iter().collect();
            let together = text_loss(&head, states.clone(), padding, &refs, &device).into_scalar::<f32>();
            let alone: f32 = [6, 4]
                .into_iter()
                .enumerate()
                .map(|(row, length)| {
                    let states = states.clone().slice([row..row + 1, 0..length]);
                    let open = Tensor::<2, Bool>::from_data(TensorData::new(vec![false; length], [1, length]), &device);
                    text_loss(&head, states, open, &[&samples[row]], &device).into_scalar::<f32>()
                })
                .sum();
            assert!(together.is_finite() && (together - alone).abs() < 1e-4, "{config:?}: {together} for {alone}");
            // Untrained, a decision costs about the logarithm of the choices there are: 3, 4 and 2 open tokens, 2, 20.
            let counts: usize = samples.iter().map(|sample| sample.target.count()).sum();
            let mean = f64::from(together) / counts as f64;
            assert!((0.3..4.5).contains(&mean), "{config:?}: {mean} for each of {counts}");
        }
    }
}
