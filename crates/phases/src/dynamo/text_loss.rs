//! Losses of text tasks, each summed over the samples of one task.

use super::model::Head;
use super::text_data::{Target, TextSample, pad_row};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use undertone_model::heads::SpanLogits;
use undertone_ops::{cross_entropy, linear_cross_entropy};

const IGNORED: i64 = -100;

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
            let labels = ints(labels.collect(), device);
            cross_entropy(head.forward(states, Some(&padding)), labels, Default::default()).sum
        }
        Head::Span(head) => {
            let SpanLogits { start, end } = head.forward(states, &span_hidden(samples, tokens, device));
            let edge = |of: fn(&Target) -> i64| ints(samples.iter().map(|sample| of(&sample.target)).collect(), device);
            let first = cross_entropy(start, edge(first_token), Default::default()).sum;
            (first + cross_entropy(end, edge(last_token), Default::default()).sum).div_scalar(2.0)
        }
        Head::Tag(head) => {
            let logits = head.forward(states);
            let labels = samples.iter().flat_map(|sample| match &sample.target {
                Target::Tags { features, .. } => pad_row(&features.labels, tokens, IGNORED).collect::<Vec<_>>(),
                _ => vec![IGNORED; tokens],
            });
            let (labels, tags) = (ints(labels.collect(), device), logits.dims()[2]);
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
            let inputs = ints(shifted(0, end), device).reshape([rows, length]);
            let labels = ints(shifted(1, IGNORED), device);
            let mut cache = writer.cache(states, source_ids(samples, tokens, device), padding);
            let hidden = decoder.forward(inputs, &mut cache);
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

fn ints(values: Vec<i64>, device: &Device) -> Tensor<1, Int> {
    Tensor::from_ints(TensorData::from(values.as_slice()), device)
}
