//! Initialisation for small models that are trained from scratch.

use super::{FeedForward, PositionEmbeddings, Whisper, WhisperConfig};
use crate::layers::{Conv1d, Embedding, Linear};
use burn::module::Param;
use burn::tensor::{Device, Tensor};

/// Offsets, in encoder positions, that the heads of each layer attend to at first. They grow with the layer, so that a
/// stack of four covers a second to either side. Deeper or wider models repeat the table.
const OFFSETS: [[f64; 4]; 4] =
    [[-1.0, 1.0, -3.0, 3.0], [-2.0, 2.0, -5.0, 5.0], [-5.0, 5.0, -12.5, 12.5], [-10.0, 10.0, -25.0, 25.0]];

impl WhisperConfig {
    /// Creates a model whose encoder heads attend to neighbouring positions from the start.
    ///
    /// With uniform initial attention, a model must first learn locality before a tone of three frames is of use. A
    /// small model on little data stays on that plateau for tens of thousands of samples. Trockman and Kolter (2023)
    /// initialise attention close to its trained state. Here the sinusoids make that exact: queries rotate the
    /// sine/cosine pair of each frequency by `ω · offset` and keys copy it, so `q · k` peaks at that offset. Weights
    /// have the variance `1 / (3 · fan_in)` that PyTorch gives its layers, and convolutions nine times that: otherwise
    /// their input, a log-mel between -1 and 2, would vanish next to the positions. `init_std` has no effect here.
    ///
    /// # Panics
    /// If positions are rotary: heads cannot look for sinusoids that are not there.
    pub fn init_local(&self, device: &Device) -> Whisper {
        assert!(self.position_embeddings_type == PositionEmbeddings::Absolute, "rotary positions have no sinusoids");
        // Drawn with standard deviation 1, then scaled to that of each tensor.
        let mut model = Self { init_std: 1.0, ..self.clone() }.init(device);
        let d = self.d_model as f64;
        scale_conv(&mut model.encoder.conv1);
        scale_conv(&mut model.encoder.conv2);
        for (i, layer) in model.encoder.layers.iter_mut().enumerate() {
            for linear in [&mut layer.self_attn.v_proj, &mut layer.self_attn.out_proj, &mut layer.fc1, &mut layer.fc2] {
                scale_linear(linear, 1.0);
            }
            let offsets = OFFSETS[i % OFFSETS.len()];
            let heads = self.encoder_attention_heads;
            look_at(&mut layer.self_attn.q_proj, heads, |head| offsets[head % offsets.len()]);
            look_at(&mut layer.self_attn.k_proj, self.key_value_heads()[0], |_| 0.0);
            if let Some(FeedForward { intermediate_dense, output_dense, .. }) = &mut layer.ffn1 {
                [intermediate_dense, output_dense].into_iter().for_each(|linear| scale_linear(linear, 1.0));
            }
            if let Some(module) = &mut layer.conv_module {
                for linear in [&mut module.pointwise_conv1, &mut module.pointwise_conv2] {
                    scale_linear(linear, 1.0);
                }
                let weight = &mut module.depthwise_conv.weight;
                *weight = scaled(weight, (3.0 * self.conv_kernel() as f64).powf(-0.5));
            }
        }
        for layer in &mut model.decoder.layers {
            for attention in [&mut layer.self_attn, &mut layer.encoder_attn] {
                let projections =
                    [&mut attention.q_proj, &mut attention.k_proj, &mut attention.v_proj, &mut attention.out_proj];
                projections.into_iter().for_each(|linear| scale_linear(linear, 1.0));
            }
            scale_linear(&mut layer.fc1, 1.0);
            scale_linear(&mut layer.fc2, 1.0);
        }
        scale_embedding(&mut model.decoder.embed_tokens, d.powf(-0.5));
        scale_embedding(&mut model.decoder.embed_positions, d.powf(-0.5));
        model
    }
}

/// Sets a query projection that rotates the positions' sinusoids by `offset(head)`, plus three tenths of the usual
/// noise. A key projection is the same with offset 0.
fn look_at(linear: &mut Linear, heads: usize, offset: impl Fn(usize) -> f64) {
    scale_linear(linear, 0.3);
    let weight = linear.weight.val();
    let [rows, d] = weight.dims();
    let (half, d_head) = (d / 2, rows / heads);
    // The upper half of the frequencies, with periods from 6 positions to hundreds, spread over the head's rows.
    let pairs = d_head / 2;
    let step = 10_000_f64.ln() / (half as f64 - 1.0);
    let gain = std::f64::consts::SQRT_2;
    let mut turn = vec![0.0_f32; rows * d];
    for head in 0..heads {
        for pair in 0..pairs {
            let frequency = pair * (half / 2) / pairs;
            let angle = (-step * frequency as f64).exp() * offset(head);
            let (sin, cos) = (frequency, half + frequency);
            let (row_sin, row_cos) = (head * d_head + pair, head * d_head + pairs + pair);
            turn[row_sin * d + sin] = (gain * angle.cos()) as f32;
            turn[row_sin * d + cos] = (gain * angle.sin()) as f32;
            turn[row_cos * d + cos] = (gain * angle.cos()) as f32;
            turn[row_cos * d + sin] = (-gain * angle.sin()) as f32;
        }
    }
    let turn = Tensor::<1>::from_floats(turn.as_slice(), &weight.device()).reshape([rows, d]);
    linear.weight = Param::from_tensor((weight + turn).detach());
}

fn scale_linear(linear: &mut Linear, gain: f64) {
    let fan_in = linear.weight.dims()[1] as f64;
    linear.weight = scaled(&linear.weight, gain / (3.0 * fan_in).sqrt());
}

fn scale_conv(conv: &mut Conv1d) {
    let [_, d_in, kernel] = conv.weight.dims();
    conv.weight = scaled(&conv.weight, 3.0 / (3.0 * (d_in * kernel) as f64).sqrt());
}

fn scale_embedding(embedding: &mut Embedding, std: f64) {
    embedding.weight = scaled(&embedding.weight, std);
}

fn scaled<const D: usize>(param: &Param<Tensor<D>>, factor: f64) -> Param<Tensor<D>> {
    Param::from_tensor(param.val().detach().mul_scalar(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_look_at_their_offsets() {
        let config = WhisperConfig {
            vocab_size: 60,
            max_source_positions: 200,
            decoder_start_token_id: 1,
            eos_token_id: 2,
            pad_token_id: 2,
            ..WhisperConfig::new(128, 1536, 4, [4, 4])
        };
        let device = Device::default();
        undertone_ops::seed(3);
        let model = config.init_local(&device);
        let positions = model.encoder.embed_positions.as_ref().expect("sinusoids").weight.val();
        for (i, layer) in model.encoder.layers.iter().enumerate() {
            let heads = |linear: &Linear| linear.forward(positions.clone()).reshape([200, 4, 32]).swap_dims(0, 1);
            let scores = heads(&layer.self_attn.q_proj).matmul(heads(&layer.self_attn.k_proj).swap_dims(1, 2));
            for (head, offset) in OFFSETS[i].into_iter().enumerate() {
                let row = scores.clone().narrow(0, head, 1).narrow(1, 100, 1);
                let peak = row.argmax(2).into_scalar::<i64>() as f64;
                assert!((peak - 100.0 - offset).abs() <= 2.0, "layer {i}, head {head}: at {peak}, not {offset}");
            }
        }
    }
}
