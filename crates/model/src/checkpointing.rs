//! Execution of consecutive blocks, with everything kept for the backward pass, or only their inputs and the blocks run
//! again.

use crate::adapters::Gates;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Tensor};
use std::num::NonZeroUsize;
use undertone_ops::{AnyFloat, Rotary, checkpoint, fork};

/// Inputs of a block besides the stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// Gates of the adapters.
    pub gates: Option<Gates>,
    /// Encoder states that a decoder attends to, `[batch, time, d_model]`.
    pub states: Option<Tensor<3>>,
    /// Padding mask of the keys, `[batch, keys]`, true where a key is padding.
    pub padding: Option<Tensor<2, Bool>>,
    /// Positions of an encoder with rotary ones; constants.
    pub rotary: Option<Rotary>,
}

impl Beside {
    /// Applies `change` to its float tensors, always in the same order.
    fn map(self, change: &mut impl FnMut(AnyFloat) -> AnyFloat) -> Self {
        let gates = self.gates.map(|gates| match gates {
            Gates::Each(gates) => Gates::Each(change(gates.into()).tensor()),
            one => one,
        });
        let states = self.states.map(|states| change(states.into()).tensor());
        Self { gates, states, ..self }
    }
}

/// A block's forward pass.
pub(crate) type Forward<B> = fn(&B, Tensor<3>, &Beside) -> Tensor<3>;

/// Returns the stream after `blocks`. With `every`, only the input of each group of `every` blocks is kept for the
/// backward pass, in which they run again. The activations of n blocks become n / `every` inputs and the activations of
/// `every` blocks, at the cost of one more forward pass.
///
/// On the CPU gradients are bit-identical for any `every`. Exceptions are gates that need gradients: their gradients,
/// and those of the tensors that they gate, may be summed in another order.
pub(crate) fn run<B: Module + 'static>(
    blocks: &[B],
    x: Tensor<3>,
    beside: &Beside,
    every: Option<NonZeroUsize>,
    forward: Forward<B>,
) -> Tensor<3> {
    // Forked for each block, so that gradients are summed within a block first, whether or not it runs again.
    let besides: Vec<Beside> = blocks.iter().map(|_| beside.clone().map(&mut AnyFloat::fork)).collect();
    let Some(every) = every.filter(|_| x.is_autodiff()) else { return pass(blocks, x, &besides, forward) };
    let segments = blocks.chunks(every.get()).zip(besides.chunks(every.get()));
    segments.fold(x, |x, (blocks, besides)| rerun(blocks, x, besides, forward))
}

fn pass<B>(blocks: &[B], x: Tensor<3>, besides: &[Beside], forward: Forward<B>) -> Tensor<3> {
    blocks.iter().zip(besides).fold(x, |x, (block, beside)| forward(block, fork(x), beside))
}

/// As [`pass`], but keeps only the inputs.
fn rerun<B: Module + 'static>(blocks: &[B], x: Tensor<3>, besides: &[Beside], forward: Forward<B>) -> Tensor<3> {
    let mut inputs = vec![AnyFloat::from(fork(x))];
    blocks.iter().for_each(|block| block.visit(&mut Read(&mut inputs)));
    // Tensors that the part holds must not hold the graph, so all of them are plain.
    let blocks: Vec<B> = blocks.iter().map(|block| block.clone().map(&mut Replace(AnyFloat::plain))).collect();
    let besides = besides.iter().cloned().map(|beside| {
        beside.map(&mut |x| {
            inputs.push(x.clone());
            x.plain()
        })
    });
    let besides: Vec<Beside> = besides.collect();
    checkpoint(inputs, move |inputs| {
        let mut inputs = inputs.into_iter();
        let x = deepened(next(&mut inputs).tensor());
        let mut take = |_| next(&mut inputs);
        let blocks: Vec<B> = blocks.iter().map(|block| block.clone().map(&mut Replace(&mut take))).collect();
        let besides = besides.iter().cloned().map(|beside| {
            let beside = beside.map(&mut take);
            Beside { states: beside.states.map(deepened), ..beside }
        });
        pass(&blocks, x, &besides.collect::<Vec<_>>(), forward)
    })
}

fn next(inputs: &mut impl Iterator<Item = AnyFloat>) -> AnyFloat {
    inputs.next().expect("a part gets as many inputs as were given")
}

/// Returns `x` at the depth that it has in a whole network: deeper than parameters, gates and values computed from
/// them. Where gradients meet, Burn adds that of the deeper step first.
fn deepened(x: Tensor<3>) -> Tensor<3> {
    (0..4).fold(x, |x, _| fork(x))
}

/// Visitor that collects parameters.
struct Read<'a>(&'a mut Vec<AnyFloat>);

impl ModuleVisitor for Read<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().into());
    }
}

/// Mapper that replaces parameters, in the order of [`Read`].
struct Replace<F>(F);

impl<F: FnMut(AnyFloat) -> AnyFloat> ModuleMapper for Replace<F> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = param.consume();
        Param::from_mapped_value(id, (self.0)(value.into()).tensor(), mapper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptable::{Adaptable, adapt};
    use crate::adapters::lora::LoraConfig;
    use crate::layers::Embedding;
    use crate::testing::{randomize_lora, values};
    use crate::text::{TextEncoder, TextEncoderConfig, TextModelType};
    use crate::text_decoder::TextDecoderConfig;
    use crate::whisper::{Whisper, WhisperConfig, WhisperDecoder};
    use burn::tensor::{Device, Gradients, Int, TensorData};
    use undertone_store::set_trainable;

    const D_MODEL: usize = 16;
    const BLOCKS: usize = 3;
    const DROPOUT: f64 = 0.2;

    /// Allowed difference of gradients.
    #[derive(Clone, Copy, PartialEq)]
    enum Tolerance {
        Bits,
        Rounding,
    }

    fn whisper(device: &Device) -> Whisper {
        let config = WhisperConfig {
            vocab_size: 20,
            num_mel_bins: 8,
            init_std: 0.2,
            dropout: DROPOUT,
            attention_dropout: DROPOUT,
            activation_dropout: DROPOUT,
            ..WhisperConfig::new(D_MODEL, 32, 2, [BLOCKS, BLOCKS])
        };
        undertone_ops::seed(1);
        config.init(device)
    }

    fn text_encoder(model_type: TextModelType, device: &Device) -> TextEncoder {
        let config = TextEncoderConfig {
            model_type,
            vocab_size: 20,
            max_position_embeddings: 12,
            pad_token_id: 1,
            initializer_range: 0.5,
            hidden_dropout_prob: DROPOUT,
            attention_probs_dropout_prob: DROPOUT,
            ..TextEncoderConfig::new(D_MODEL, 24, 2, BLOCKS)
        };
        undertone_ops::seed(1);
        config.init(device)
    }

    /// Two adapters of different rank and dropout, on every named map.
    fn adapted<M: Module + Adaptable>(model: M, targets: &[&str], device: &Device) -> M {
        let target_modules: Vec<String> = targets.iter().map(|target| (*target).to_owned()).collect();
        let lora = |r, lora_dropout| LoraConfig {
            r,
            lora_dropout,
            target_modules: target_modules.clone(),
            ..Default::default()
        };
        let mut model = model.no_grad();
        adapt(&mut model, &[lora(2, 0.3), lora(3, 0.0)], 1, device).expect("adapted");
        // Not zero, or gradients would be zero too.
        model.linears().into_iter().for_each(|(_, linear)| randomize_lora(linear, 0.5, device));
        model
    }

    const WHISPER_MAPS: [&str; 6] = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"];
    const TEXT_MAPS: [&str; 4] = ["query", "key", "value", "dense"];

    fn normal<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
        undertone_ops::normal(shape, 0.5, device)
    }

    fn ids(device: &Device) -> Tensor<2, Int> {
        Tensor::from_ints([[2, 3, 4, 5, 6], [7, 8, 9, 1, 1]], device)
    }

    fn padding(keys: usize, device: &Device) -> Tensor<2, Bool> {
        let hidden: Vec<bool> = (0..2 * keys).map(|i| i >= 2 * keys - 2).collect();
        Tensor::from_data(TensorData::new(hidden, [2, keys]), device)
    }

    /// Loss in which every number has a different weight.
    fn weighed(y: Tensor<3>) -> Tensor<1> {
        let device = y.device().inner();
        undertone_ops::seed(3);
        let weight = normal(y.dims(), &device);
        (y * weight.autodiff()).sum()
    }

    struct Gradient<'a>(&'a Gradients, Vec<Option<Vec<f32>>>);

    impl ModuleVisitor for Gradient<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(param.val().grad(self.0).map(values));
        }
    }

    /// Returns the loss, and the gradients of all parameters and of `leaves`.
    fn found<M: Module>(model: &M, leaves: &[Tensor<2>], loss: impl Fn(&M) -> Tensor<1>) -> Vec<Option<Vec<f32>>> {
        undertone_ops::seed(7);
        let loss = loss(model);
        let gradients = loss.backward();
        let mut gradient = Gradient(&gradients, Vec::new());
        model.visit(&mut gradient);
        let leaves = leaves.iter().map(|leaf| leaf.grad(&gradients).map(values));
        gradient.1.into_iter().chain(leaves).chain([Some(values(loss.inner()))]).collect()
    }

    /// Compares gradients with the plain ones, for different group sizes.
    fn compare<M: Module>(
        model: M,
        leaves: &[Tensor<2>],
        tolerance: Tolerance,
        with: fn(M, Option<NonZeroUsize>) -> M,
        loss: impl Fn(&M) -> Tensor<1>,
    ) -> Vec<bool> {
        let plain = found(&model, leaves, &loss);
        for every in [1, 2, BLOCKS, 10] {
            let again = found(&with(model.clone(), NonZeroUsize::new(every)), leaves, &loss);
            assert_eq!(plain.len(), again.len());
            for (i, (plain, again)) in plain.iter().zip(&again).enumerate() {
                assert_eq!(plain.is_some(), again.is_some(), "gradient {i} of every {every}");
                let (Some(plain), Some(again)) = (plain, again) else { continue };
                let largest = plain.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
                // An accelerator's backend fuses the rerun differently, and so rounds differently.
                let allowed = match tolerance {
                    _ if undertone_ops::runs_ahead(&Device::default()) => 1e-4 * largest,
                    Tolerance::Bits => 0.0,
                    _ => 1e-5 * largest,
                };
                let off = plain.iter().zip(again).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(off <= allowed, "gradient {i} of every {every} is off by {off} where the largest is {largest}");
            }
        }
        plain[..plain.len() - leaves.len() - 1].iter().map(Option::is_some).collect()
    }

    fn whisper_loss(model: &Whisper, mel: &Tensor<3>, gates: Option<&Gates>) -> Tensor<1> {
        let encoder = &model.encoder;
        // The stream in between and at the end also has another reader, as with an alignment loss.
        let tapped = encoder.blocks(encoder.front_end(mel.clone(), 0), 0..1, gates);
        let states = encoder.layer_norm.forward(encoder.blocks(tapped.clone(), 1..BLOCKS, gates));
        let cache =
            model.decoder.cache(states.clone(), gates.cloned()).with_padding(padding(states.dims()[1], &mel.device()));
        let hidden = model.decoder.forward_all(ids(&mel.device()), cache);
        weighed(model.decoder.logits(hidden)) + weighed(states) + weighed(tapped)
    }

    fn mel(device: &Device) -> Tensor<3> {
        undertone_ops::seed(2);
        normal([2, 8, 14], device).autodiff()
    }

    #[test]
    fn whisper_has_the_same_gradients() {
        let device = Device::default();
        let mel = mel(&device);
        let loss = |model: &Whisper| whisper_loss(model, &mel, None);
        let with = Whisper::with_gradient_checkpointing;
        let all = compare(whisper(&device).train(), &[], Tolerance::Bits, with, loss);
        assert_eq!(all.iter().filter(|there| !**there).count(), 1, "all but the sinusoids");
        let decoder = set_trainable(whisper(&device), |name| name.starts_with("decoder."));
        compare(decoder.train(), &[], Tolerance::Bits, with, loss);
        let encoder = set_trainable(whisper(&device), |name| name.starts_with("encoder.layers"));
        compare(encoder.train(), &[], Tolerance::Bits, with, loss);
    }

    #[test]
    fn adapters_of_a_frozen_whisper_have_the_same_gradients_and_it_has_none() {
        let device = Device::default();
        let mel = mel(&device);
        let model = adapted(whisper(&device), &WHISPER_MAPS, &device).train();
        let with = Whisper::with_gradient_checkpointing;
        let rows = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0]], &device).autodiff();
        for gates in [Gates::One(0), Gates::Each(rows.clone())] {
            let loss = |model: &Whisper| whisper_loss(model, &mel, Some(&gates));
            let there = compare(model.clone(), &[], Tolerance::Bits, with, loss);
            // Six maps of two of the encoder's blocks and ten of three of the decoder's, two matrices each.
            assert_eq!(there.iter().filter(|there| **there).count(), 2 * (6 * 2 + 10 * 3));
        }
        let rows = (rows.inner() * 0.6 + 0.2).autodiff().require_grad();
        let gates = Gates::Each(rows.clone());
        let loss = |model: &Whisper| whisper_loss(model, &mel, Some(&gates));
        compare(model, &[rows], Tolerance::Rounding, with, loss);
    }

    #[test]
    fn text_encoders_have_the_same_gradients() {
        let device = Device::default();
        let with = TextEncoder::with_gradient_checkpointing;
        let hidden = padding(5, &device);
        for model_type in [TextModelType::Bert, TextModelType::Roberta] {
            let training = device.clone().autodiff();
            let loss = |gates: Option<Gates>| {
                let (ids, hidden) = (ids(&training), hidden.clone());
                move |model: &TextEncoder| weighed(model.forward(ids.clone(), None, Some(&hidden), gates.as_ref()))
            };
            compare(text_encoder(model_type, &device).train(), &[], Tolerance::Bits, with, loss(None));
            let model = adapted(text_encoder(model_type, &device), &TEXT_MAPS, &device).train();
            let rows = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0]], &device).autodiff();
            let there = compare(model.clone(), &[], Tolerance::Bits, with, loss(Some(Gates::Each(rows.clone()))));
            assert_eq!(there.iter().filter(|there| **there).count(), 2 * 6 * 2);
            compare(model.clone(), &[], Tolerance::Bits, with, loss(Some(Gates::One(1))));
            let rows = (rows.inner() * 0.6 + 0.2).autodiff().require_grad();
            let leaves = [rows.clone()];
            compare(model, &leaves, Tolerance::Rounding, with, loss(Some(Gates::Each(rows))));
        }
    }

    #[test]
    fn text_decoders_have_the_same_gradients_as_have_the_states_they_read() {
        let device = Device::default();
        undertone_ops::seed(4);
        let embeddings = Embedding { weight: Param::from_tensor(normal([20, D_MODEL], &device)) };
        let config = TextDecoderConfig { layers: BLOCKS, heads: 2, ffn: 24, max_length: 8, dropout: DROPOUT };
        let decoder = config.init(&embeddings, &device).train();
        let leaf = |shape| normal(shape, &device).autodiff().require_grad();
        let (states, start) = (leaf([2 * 5, D_MODEL]), leaf([2, D_MODEL]));
        let leaves = [states.clone(), start.clone()];
        let loss = |model: &WhisperDecoder| {
            let states = states.clone().reshape([2, 5, D_MODEL]);
            let cache = model.cache(states, None).with_start(start.clone()).with_padding(padding(5, &device));
            weighed(model.forward_all(ids(&device.clone().autodiff()), cache))
        };
        compare(decoder, &leaves, Tolerance::Bits, WhisperDecoder::with_gradient_checkpointing, loss);
    }

    #[test]
    fn a_whole_sequence_has_the_states_of_one_that_is_continued() {
        let device = Device::default();
        let model = whisper(&device);
        undertone_ops::seed(5);
        let states = normal([2, 7, D_MODEL], &device);
        let cache = model.decoder.cache(states, None).with_padding(padding(7, &device));
        let whole = values(model.decoder.forward_all(ids(&device), cache.clone()));
        let stepped = values(model.decoder.forward(ids(&device), &mut cache.clone()));
        // A cache attends to the states as they are, whose sums are in another order.
        assert!(whole.iter().zip(&stepped).all(|(a, b)| (a - b).abs() < 1e-5), "{whole:?} is not {stepped:?}");
        let mut begun = cache;
        let first = model.decoder.forward(ids(&device).narrow(1, 0, 2), &mut begun);
        let rest = model.decoder.forward_all(ids(&device).narrow(1, 2, 3), begun);
        let continued = values(Tensor::cat(vec![first, rest], 1));
        assert!(whole.iter().zip(&continued).all(|(a, b)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn without_autodiff_nothing_changes() {
        let device = Device::default();
        let model = text_encoder(TextModelType::Bert, &device);
        let run = |model: &TextEncoder| values(model.forward(ids(&device), None, None, None));
        assert_eq!(run(&model), run(&model.clone().with_gradient_checkpointing(NonZeroUsize::new(2))));
    }
}
