//! Silero's network: the probability of speech in each 32 ms.

use burn::tensor::activation::relu;
use burn::tensor::{Tensor, TensorData};
use safetensors::SafeTensors;
use undertone_ops::DeviceSpec;

/// Number of samples of a frame, for which the network gives one probability: 32 ms.
pub const FRAME: usize = 512;
/// Number of samples before a frame that the network reads with it.
const CONTEXT: usize = 64;
/// Length and distance of the windows of the spectrum, and the number of its frequencies.
const WINDOW: usize = 256;
const STRIDE: usize = 128;
const FREQUENCIES: usize = WINDOW / 2 + 1;
/// Number of samples that are mirrored at a frame's end.
const MIRRORED: usize = 64;
/// Number of windows of a frame.
const WINDOWS: usize = (CONTEXT + FRAME + MIRRORED - WINDOW) / STRIDE + 1;
/// Size of the recurrent state.
const STATE: usize = 128;

/// Weights of silero-vad 6.2 (`silero-vad/convert.py`), MIT licence (`silero-vad/LICENSE`).
const WEIGHTS: &[u8] = include_bytes!("../../silero-vad/silero_vad_16k.safetensors");

/// Silero's network for voice activity (Silero Team, 2021), for audio of 16 kHz.
///
/// Everything but the recurrence runs for many frames at once, on the CPU.
#[derive(Clone, Debug)]
pub struct VadNetwork {
    /// Cosines and sines, `[WINDOW, 2 · FREQUENCIES]`.
    spectrum: Tensor<2>,
    convolutions: Vec<Convolution>,
    /// `[STATE, 4 · STATE]` and `[1, 4 · STATE]`: input of the gates in the order input, forget, cell, output.
    input: Tensor<2>,
    bias: Tensor<2>,
    /// Transposed weights from the state to the gates, `[STATE, 4 · STATE]`, row by row.
    recurrent: Vec<f32>,
    /// Last layer, `[STATE]`, and its bias.
    output: Vec<f32>,
    output_bias: f32,
}

/// Recurrent state between frames, and the samples that the next frame reads with it.
#[derive(Clone, Debug)]
pub struct VadState {
    context: [f32; CONTEXT],
    hidden: [f32; STATE],
    cell: [f32; STATE],
}

impl Default for VadState {
    fn default() -> Self {
        Self { context: [0.0; CONTEXT], hidden: [0.0; STATE], cell: [0.0; STATE] }
    }
}

/// Convolution of width 3, as a product with the three positions side by side.
#[derive(Clone, Debug)]
struct Convolution {
    /// `[3 · inputs, outputs]`.
    weight: Tensor<2>,
    /// `[1, outputs]`.
    bias: Tensor<2>,
    stride: usize,
}

impl VadNetwork {
    /// Reads the bundled weights.
    ///
    /// # Panics
    /// If the bundled file is not what this version of the crate was built with.
    pub fn new() -> Self {
        let device = DeviceSpec::Cpu.resolve().expect("every machine has a CPU");
        let file = SafeTensors::deserialize(WEIGHTS).expect("the bundled weights are safetensors");
        let read = |name: &str| -> (Vec<f32>, Vec<usize>) {
            let view = file.tensor(name).expect("a bundled tensor");
            let floats =
                view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes")));
            (floats.collect(), view.shape().to_vec())
        };
        let matrix = |values: Vec<f32>, rows: usize| {
            let columns = values.len() / rows;
            Tensor::<2>::from_data(TensorData::new(values, [rows, columns]), &device)
        };
        let convolution = |index: usize, stride: usize| {
            let (weight, shape) = read(&format!("conv{index}.weight"));
            let [outputs, inputs] = [shape[0], shape[1]];
            let weight = Tensor::<3>::from_data(TensorData::new(weight, [outputs, inputs, 3]), &device);
            let weight = weight.permute([2, 1, 0]).reshape([3 * inputs, outputs]);
            Convolution { weight, bias: matrix(read(&format!("conv{index}.bias")).0, 1), stride }
        };
        let transposed = |name: &str| matrix(read(name).0, 4 * STATE).transpose();
        let [input_bias, state_bias] = ["lstm_cell.bias_ih", "lstm_cell.bias_hh"].map(|name| matrix(read(name).0, 1));
        Self {
            spectrum: matrix(read("stft_conv.weight").0, 2 * FREQUENCIES).transpose(),
            convolutions: [(1, 1), (2, 2), (3, 2), (4, 1)].map(|(index, stride)| convolution(index, stride)).to_vec(),
            input: transposed("lstm_cell.weight_ih"),
            bias: input_bias + state_bias,
            recurrent: undertone_ops::read(transposed("lstm_cell.weight_hh")),
            output: read("final_conv.weight").0,
            output_bias: read("final_conv.bias").0[0],
        }
    }

    /// Returns the probability of speech in each frame of `audio`, whose length is a multiple of [`FRAME`].
    ///
    /// # Panics
    /// If it is not.
    pub fn forward(&self, audio: &[f32], state: &mut VadState) -> Vec<f32> {
        assert!(audio.len().is_multiple_of(FRAME), "{} samples are not whole frames", audio.len());
        if audio.is_empty() {
            return Vec::new();
        }
        let gates =
            undertone_ops::read(self.features(audio, &state.context).matmul(self.input.clone()) + self.bias.clone());
        state.context.copy_from_slice(&audio[audio.len() - CONTEXT..]);
        gates.chunks_exact(4 * STATE).map(|gates| self.step(gates, state)).collect()
    }

    /// Returns the features of each frame, `[frames, STATE]`.
    fn features(&self, audio: &[f32], context: &[f32; CONTEXT]) -> Tensor<2> {
        let frames = audio.len() / FRAME;
        let mut windows = Vec::with_capacity(frames * WINDOWS * WINDOW);
        let mut frame = Vec::with_capacity(CONTEXT + FRAME + MIRRORED);
        for (index, own) in audio.chunks_exact(FRAME).enumerate() {
            frame.clear();
            let before = index * FRAME;
            frame.extend_from_slice(if index == 0 { context } else { &audio[before - CONTEXT..before] });
            frame.extend_from_slice(own);
            frame.extend((2..2 + MIRRORED).map(|back| own[FRAME - back]));
            (0..WINDOWS).for_each(|window| windows.extend_from_slice(&frame[window * STRIDE..][..WINDOW]));
        }
        let device = self.spectrum.device();
        let windows = Tensor::<2>::from_data(TensorData::new(windows, [frames * WINDOWS, WINDOW]), &device);
        let spectrum = windows.matmul(self.spectrum.clone());
        let part = |start| spectrum.clone().narrow(1, start, FREQUENCIES);
        let magnitude = (part(0).square() + part(FREQUENCIES).square()).sqrt();
        let mut x = magnitude.reshape([frames, WINDOWS, FREQUENCIES]);
        for convolution in &self.convolutions {
            x = relu(convolution.forward(x));
        }
        x.reshape([frames, STATE])
    }

    /// Returns the probability of a frame, given the gates' input.
    fn step(&self, gates: &[f32], state: &mut VadState) -> f32 {
        let mut gates: [f32; 4 * STATE] = gates.try_into().expect("the gates of a frame");
        for (row, hidden) in self.recurrent.chunks_exact(4 * STATE).zip(&state.hidden) {
            gates.iter_mut().zip(row).for_each(|(gate, weight)| *gate += hidden * weight);
        }
        let (mut sum, sigmoid) = (self.output_bias, |x: f32| 1.0 / (1.0 + (-x).exp()));
        for unit in 0..STATE {
            let [input, forget, cell, output] = std::array::from_fn(|gate| gates[gate * STATE + unit]);
            state.cell[unit] = sigmoid(forget) * state.cell[unit] + sigmoid(input) * cell.tanh();
            state.hidden[unit] = sigmoid(output) * state.cell[unit].tanh();
            sum += self.output[unit] * state.hidden[unit].max(0.0);
        }
        sigmoid(sum)
    }
}

impl Default for VadNetwork {
    fn default() -> Self {
        Self::new()
    }
}

impl Convolution {
    /// `[frames, positions, inputs]` → `[frames, ⌈positions / stride⌉, outputs]`, with a zero on both sides.
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [frames, positions, inputs] = x.dims();
        let outside = Tensor::zeros([frames, 1, inputs], &x.device());
        let padded = Tensor::cat(vec![outside.clone(), x, outside], 1);
        let around = |position| padded.clone().narrow(1, position, 3).reshape([frames, 1, 3 * inputs]);
        let around: Vec<_> = (0..positions).step_by(self.stride).map(around).collect();
        let outputs = around.len();
        let x = Tensor::cat(around, 1).reshape([frames * outputs, 3 * inputs]);
        (x.matmul(self.weight.clone()) + self.bias.clone()).reshape([frames as i32, outputs as i32, -1])
    }
}
