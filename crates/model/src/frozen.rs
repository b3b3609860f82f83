//! Frozen weights in half precision.

pub use crate::frozen_dtype::{FrozenDtype, in_f32, loaded_in};

use crate::backbone::{BoxedBackbone, own_path};
use crate::whisper::{PretrainedWhisper, Whisper};
use burn::module::{Param, ParamId};
use burn::tensor::{DType, Tensor};
use std::collections::HashSet;
use undertone_ops::{AnyFloat, exactly_halved, prefers_half};
use undertone_store::{MapParameter, map};

/// Rounds the frozen matrices of a backbone to `dtype` and holds them in it: the weights of its linear maps and its
/// token embedding, if `is_frozen` says so of their path in the backbone. Everything else stays in f32: biases, norms,
/// positions and convolutions, which are few numbers, and what is trained. Returns the backbone and the number of matrices that
/// are held so.
///
/// One matrix is converted after the other, so that there is never a second copy of all.
pub fn hold_frozen(
    backbone: BoxedBackbone,
    dtype: FrozenDtype,
    is_frozen: impl Fn(&str) -> bool,
) -> (BoxedBackbone, usize) {
    hold(backbone, |own, matrix| if is_frozen(own) { matrix.cast(dtype.dtype()) } else { matrix })
}

/// Holds the matrices whose numbers all are ones of f16 or bf16 in half precision. Returns the backbone and the number of matrices
/// that are held so.
fn hold_exactly(backbone: BoxedBackbone) -> (BoxedBackbone, usize) {
    hold(backbone, |_, matrix| exactly_halved(matrix))
}

/// Holds the matrices of a Whisper that is not trained in half precision, each one whose numbers all are ones of f16 or bf16:
/// the model computes the same, from half the memory. OpenAI trained Whisper in f16, so this is so for its models, also in files
/// that hold them in f32. On processors that are slower so it does nothing. Reading the matrices is a large part of a CPU's work
/// while a decoder writes a token.
pub fn hold_whisper_exactly(mut whisper: PretrainedWhisper) -> PretrainedWhisper {
    if !prefers_half() {
        return whisper;
    }
    let (network, _) = hold_exactly(BoxedBackbone::new("Whisper", whisper.model));
    whisper.model = network.downcast_ref::<Whisper>().expect("the network that was put in").clone();
    whisper
}

/// Replaces each matrix by what `held` returns for its path in the backbone and the matrix. Returns the backbone and the number
/// of matrices that are in half precision.
fn hold(mut backbone: BoxedBackbone, held: impl FnMut(&str, Tensor<2>) -> Tensor<2>) -> (BoxedBackbone, usize) {
    let mut matrices: HashSet<ParamId> = backbone.linears().iter().map(|(_, linear)| linear.weight.id).collect();
    matrices.insert(backbone.token_embedding().weight.id);
    let mut holder = Holder { matrices, held, count: 0 };
    let backbone = map(backbone, &mut holder);
    (backbone, holder.count)
}

struct Holder<F> {
    matrices: HashSet<ParamId>,
    held: F,
    count: usize,
}

impl<F: FnMut(&str, Tensor<2>) -> Tensor<2>> MapParameter for Holder<F> {
    fn map<const D: usize>(&mut self, path: &str, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !self.matrices.contains(&parameter.id) {
            return parameter;
        }
        parameter.map(|value| {
            let held = (self.held)(own_path(path), AnyFloat::from(value).tensor());
            self.count += usize::from(held.dtype() != DType::F32);
            AnyFloat::from(held).tensor()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptable::{adapt, merge_and_unload};
    use crate::adapters::Gates;
    use crate::adapters::lora::LoraConfig;
    use crate::testing::{randomize_lora, values};
    use crate::text::TextEncoderConfig;
    use crate::whisper::{GenerateOptions, WhisperConfig};
    use burn::module::Module;
    use burn::tensor::{Device, Int};
    use std::collections::BTreeMap;
    use undertone_store::{VisitParameter, frozen_checksum, load_parameters, parameters, visit};

    struct Types(BTreeMap<String, DType>);

    impl VisitParameter for Types {
        fn visit<const D: usize>(&mut self, path: &str, parameter: &Param<Tensor<D>>) {
            self.0.insert(path.to_owned(), parameter.val().dtype());
        }
    }

    fn types(module: &impl Module) -> BTreeMap<String, DType> {
        let mut types = Types(BTreeMap::new());
        visit(module, &mut types);
        types.0
    }

    fn whisper(device: &Device) -> BoxedBackbone {
        undertone_ops::seed(5);
        let config = WhisperConfig { vocab_size: 20, init_std: 0.3, ..WhisperConfig::new(16, 32, 2, [2, 1]) };
        BoxedBackbone::new("Whisper", config.init(device).no_grad())
    }

    #[test]
    fn a_matrix_is_held_in_half_precision_if_it_has_the_same_numbers_there() {
        let device = Device::default();
        let (held, count) = hold_exactly(whisper(&device));
        assert_eq!(count, 0, "random numbers of f32");
        let (halves, _) = hold_frozen(held, FrozenDtype::F16, |path| path.starts_with("encoder."));
        let as_read = in_f32(halves.clone());
        let (found, count) = hold_exactly(as_read.clone());
        assert_eq!((types(&found), count), (types(&halves), 12), "six maps in each of two blocks");
        assert_eq!(parameters(&found), parameters(&as_read));
    }

    #[test]
    fn the_matrices_that_are_frozen_are_held_and_nothing_else() {
        let device = Device::default();
        let (held, count) = hold_frozen(whisper(&device), FrozenDtype::Bf16, |path| path.starts_with("encoder."));
        let types = types(&held);
        let half: Vec<&str> =
            types.iter().filter(|(_, dtype)| **dtype != DType::F32).map(|(path, _)| path.as_str()).collect();
        assert_eq!((half.len(), count), (12, 12), "six maps in each of two blocks: {half:?}");
        assert!(half.iter().all(|path| path.starts_with("Whisper.encoder.layers.") && path.ends_with(".weight")));
        let (held, count) = hold_frozen(whisper(&device), FrozenDtype::F16, |_| true);
        let types = self::types(&held);
        assert_eq!(count, 12 + 10 + 1);
        assert_eq!(types["Whisper.decoder.embed_tokens.weight"], DType::F16);
        assert_eq!(types["Whisper.encoder.embed_positions.weight"], DType::F32);
        assert_eq!(types["Whisper.encoder.conv1.weight"], DType::F32);
        let text =
            TextEncoderConfig { vocab_size: 20, max_position_embeddings: 8, ..TextEncoderConfig::new(16, 32, 2, 1) };
        let text = BoxedBackbone::new("Text", text.init(&device));
        assert_eq!(hold_frozen(text, FrozenDtype::Bf16, |_| true).1, 6 + 1);
    }

    #[test]
    fn what_is_loaded_in_half_precision_is_as_if_rounded_afterwards() {
        let device = Device::default();
        let source = whisper(&device);
        let (held, _) = hold_frozen(source.clone(), FrozenDtype::Bf16, |_| true);
        let stored = parameters(&source);
        let load = || load_parameters(whisper(&device), |name| Ok(stored[name].clone())).expect("loaded");
        let loaded = loaded_in(FrozenDtype::Bf16, || {
            let inside = loaded_in(FrozenDtype::F32, load);
            assert_eq!(parameters(&inside), stored);
            load()
        });
        let half = types(&loaded).values().filter(|dtype| **dtype == DType::BF16).count();
        assert_eq!(half, 12 + 10, "the token embedding waits until it is known to be frozen");
        let (loaded, count) = hold_frozen(loaded, FrozenDtype::Bf16, |_| true);
        assert_eq!((types(&loaded), count), (types(&held), 12 + 10 + 1));
        assert_eq!(parameters(&loaded), parameters(&held));
        assert_eq!(parameters(&load()), stored, "it ends with its scope");
    }

    /// The reference is the same model with weights that were rounded and are in f32.
    #[test]
    fn a_held_model_computes_decodes_and_is_written_as_a_rounded_one() {
        let device = Device::default();
        let (mut held, _) = hold_frozen(whisper(&device), FrozenDtype::Bf16, |_| true);
        let mut rounded = in_f32(held.clone());
        assert!(types(&rounded).values().all(|dtype| *dtype == DType::F32));
        assert_ne!(parameters(&rounded), parameters(&whisper(&device)), "it was rounded");
        assert_eq!(parameters(&held), parameters(&rounded));
        assert_eq!(frozen_checksum(&held), frozen_checksum(&rounded));
        let maps = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"].map(str::to_owned).to_vec();
        let lora = LoraConfig { r: 2, target_modules: maps, ..Default::default() };
        let mel = undertone_ops::normal([1, 80, 8], 1.0, &device);
        let ids = Tensor::<2, Int>::from_ints([[1, 2]], &device);
        let found = [&mut held, &mut rounded].map(|backbone| {
            undertone_ops::seed(7);
            adapt(&mut **backbone, std::slice::from_ref(&lora), 0, &device).expect("adapted");
            backbone.linears().into_iter().for_each(|(_, linear)| randomize_lora(linear, 1.0, &device));
            let network = backbone.downcast_ref::<Whisper>().expect("a Whisper");
            let gates = Gates::One(0);
            let states = network.encoder.layer_norm.forward(network.encoder.blocks(
                network.encoder.front_end(mel.clone(), 0),
                0..2,
                Some(&gates),
            ));
            let cache = network.decoder.cache(states.clone(), Some(gates));
            let logits = network.decoder.logits(network.decoder.forward_all(ids.clone(), cache.clone()));
            let texts = network.decoder.generate(cache, &[vec![1]], &GenerateOptions::new(19, 12));
            let trained = backbone.clone().train();
            let whole = trained.downcast_ref::<Whisper>().expect("a Whisper");
            let gradients = whole.forward(mel.clone().autodiff(), ids.clone().autodiff()).sum();
            merge_and_unload(&mut **backbone, 0);
            (values(states), values(logits), texts, values(gradients.inner()), parameters(backbone))
        });
        assert_eq!(found[0], found[1]);
    }
}
