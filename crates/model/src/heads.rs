//! Heads for text tasks over an encoder's states: a label for a text, a span of it, a tag for each token.
//!
//! Module paths are those of transformers' models with such heads (`classifier`, `qa_outputs`). A head returns logits;
//! the caller computes the loss.

use crate::config_error::{ConfigError, check_dropout};
use crate::layers::{Linear, mean_pool};
use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor};
use serde::{Deserialize, Serialize};
use undertone_ops::dropout;

/// Classification head, from states to logits of a text's label: pooling, a dense layer with tanh, dropout, a linear
/// map. It equals BERT's pooler with a classifier, and RoBERTa's head without the dropout before the dense layer.
#[derive(Module, Debug)]
pub struct ClassifyHead {
    /// `[d_model, d_model]`.
    pub dense: Linear,
    /// `[labels, d_model]`.
    pub out_proj: Linear,
    #[module(skip)]
    config: ClassifyHeadConfig,
}

/// Span head, from states to logits of a span's first and last token.
#[derive(Module, Debug)]
pub struct SpanHead {
    /// `[2, d_model]`: start, then end. The bias exists for checkpoints that have one: it shifts all positions equally,
    /// so a softmax over them does not change.
    pub qa_outputs: Linear,
    #[module(skip)]
    config: SpanHeadConfig,
}

/// Tagging head, from states to logits of each token's tag.
#[derive(Module, Debug)]
pub struct TagHead {
    /// `[tags, d_model]`.
    pub classifier: Linear,
    #[module(skip)]
    config: TagHeadConfig,
}

/// Logits over the positions of a batch; minus infinity where a span must not begin or end.
#[derive(Clone, Debug)]
pub struct SpanLogits {
    /// Logits of the first token, `[batch, tokens]`.
    pub start: Tensor<2>,
    /// Logits of the last token, `[batch, tokens]`.
    pub end: Tensor<2>,
}

/// Configuration of a classification head.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifyHeadConfig {
    /// States from which the label is read.
    pub pooling: Pooling,
    /// Dropout on the dense layer's output, in training.
    pub dropout: f64,
}

/// Configuration of a span head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanHeadConfig {
    /// Dropout on the states, in training. BERT has none here because its last block has its own.
    pub dropout: f64,
}

/// Configuration of a tagging head.
#[derive(Clone, Debug, PartialEq)]
pub struct TagHeadConfig {
    /// Dropout on the states, in training.
    pub dropout: f64,
}

/// States from which a text's label is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The state of the first token, `[CLS]` or `<s>`, as in BERT and RoBERTa. It stands for no word, so an encoder
    /// trained along learns to collect there the features that the task needs.
    #[default]
    Cls,
    /// The mean of all states that are not padding. Use it for encoders that were trained with mean pooling, such as
    /// MiniLM's sentence encoders: their first state was not trained for anything.
    Mean,
}

/// Standard deviation of new weights: BERT's and RoBERTa's `initializer_range`.
const STD: f64 = 0.02;

impl Default for ClassifyHeadConfig {
    fn default() -> Self {
        Self { pooling: Pooling::Cls, dropout: 0.1 }
    }
}

impl Default for TagHeadConfig {
    fn default() -> Self {
        Self { dropout: 0.1 }
    }
}

impl ClassifyHeadConfig {
    /// Creates a configuration that reads the first state, with dropout 0.1.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the states to read from.
    pub fn with_pooling(self, pooling: Pooling) -> Self {
        Self { pooling, ..self }
    }

    /// Sets the dropout.
    pub fn with_dropout(self, dropout: f64) -> Self {
        Self { dropout, ..self }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dropout("dropout", self.dropout)
    }

    /// Creates a head for states of width `d_model` and `labels` labels.
    pub fn init(&self, d_model: usize, labels: usize, device: &Device) -> ClassifyHead {
        ClassifyHead {
            dense: Linear::init(d_model, d_model, true, STD, device),
            out_proj: Linear::init(d_model, labels, true, STD, device),
            config: self.clone(),
        }
    }
}

impl ClassifyHead {
    /// States from which the label is read.
    pub fn pooling(&self) -> Pooling {
        self.config.pooling
    }

    /// Dropout on the dense layer's output, in training.
    pub fn dropout(&self) -> f64 {
        self.config.dropout
    }

    /// Returns the logits of the labels.
    ///
    /// # Shapes
    /// - `states`: `[batch, tokens, d_model]`; `padding`: `[batch, tokens]`, true where a token is padding, which is
    ///   never the first
    /// - output: `[batch, labels]`
    pub fn forward(&self, states: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        let pooled = match self.config.pooling {
            Pooling::Cls => states.narrow(1, 0, 1).squeeze_dim(1),
            Pooling::Mean => mean_pool(states, padding),
        };
        let hidden = dropout(self.dense.forward(pooled).tanh(), self.config.dropout);
        self.out_proj.forward(hidden)
    }
}

impl SpanHeadConfig {
    /// Creates a configuration without dropout.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the dropout.
    pub fn with_dropout(self, dropout: f64) -> Self {
        Self { dropout }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dropout("dropout", self.dropout)
    }

    /// Creates a head for states of width `d_model`.
    pub fn init(&self, d_model: usize, device: &Device) -> SpanHead {
        SpanHead { qa_outputs: Linear::init(d_model, 2, true, STD, device), config: self.clone() }
    }
}

impl SpanHead {
    /// Returns logits that are minus infinity where `hidden` is true: at padding, special tokens and the question. A
    /// row needs a position that is not hidden, and its target must be one. If a text may have no answer, the first
    /// token stands for that and must not be hidden.
    ///
    /// # Shapes
    /// - `states`: `[batch, tokens, d_model]`; `hidden`: `[batch, tokens]`
    /// - output: `[batch, tokens]`, twice
    pub fn forward(&self, states: Tensor<3>, hidden: &Tensor<2, Bool>) -> SpanLogits {
        let logits = forward_dropped(&self.qa_outputs, states, self.config.dropout);
        let [start, end] = [0, 1].map(|column| {
            let column: Tensor<2> = logits.clone().narrow(2, column, 1).squeeze_dim(2);
            column.mask_fill(hidden.clone(), f32::NEG_INFINITY)
        });
        SpanLogits { start, end }
    }
}

impl TagHeadConfig {
    /// Creates a configuration with dropout 0.1.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the dropout.
    pub fn with_dropout(self, dropout: f64) -> Self {
        Self { dropout }
    }

    /// Checks the values.
    ///
    /// # Errors
    /// Names the invalid key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_dropout("dropout", self.dropout)
    }

    /// Creates a head for states of width `d_model` and `tags` tags.
    pub fn init(&self, d_model: usize, tags: usize, device: &Device) -> TagHead {
        TagHead { classifier: Linear::init(d_model, tags, true, STD, device), config: self.clone() }
    }
}

impl TagHead {
    /// Dropout on the states, in training.
    pub fn dropout(&self) -> f64 {
        self.config.dropout
    }

    /// Returns the logits of the tags: `[batch, tokens, d_model]` → `[batch, tokens, tags]`. Padding has logits too;
    /// ignore its labels.
    pub fn forward(&self, states: Tensor<3>) -> Tensor<3> {
        forward_dropped(&self.classifier, states, self.config.dropout)
    }
}

/// Applies dropout and a map. The map's device decides about dropout, so it acts in training even if the states'
/// network is not trained.
fn forward_dropped(linear: &Linear, states: Tensor<3>, p: f64) -> Tensor<3> {
    let states = if linear.weight.val().is_autodiff() { states.autodiff() } else { states };
    linear.forward(dropout(states, p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::values;
    use burn::optim::GradientsParams;
    use burn::tensor::Int;
    use undertone_ops::{CrossEntropyOptions, cross_entropy};

    const D_MODEL: usize = 8;

    fn states(device: &Device) -> Tensor<3> {
        undertone_ops::normal([2, 4, D_MODEL], 1.0, device)
    }

    fn bools(rows: [[bool; 4]; 2], device: &Device) -> Tensor<2, Bool> {
        Tensor::from_bool(rows, device)
    }

    /// The second of two texts of four tokens has two of padding.
    const PADDING: [[bool; 4]; 2] = [[false; 4], [false, false, true, true]];
    /// Of the first text the last two tokens are open, of the second the first alone.
    const HIDDEN: [[bool; 4]; 2] = [[true, true, false, false], [false, true, true, true]];

    #[test]
    fn logits_are_as_many_as_labels_positions_and_tags() {
        let device = Device::default();
        let x = states(&device);
        let classify = ClassifyHeadConfig::new().init(D_MODEL, 3, &device);
        assert_eq!(classify.forward(x.clone(), None).dims(), [2, 3]);
        let span = SpanHeadConfig::new().init(D_MODEL, &device).forward(x.clone(), &bools(HIDDEN, &device));
        assert_eq!((span.start.dims(), span.end.dims()), ([2, 4], [2, 4]));
        assert_eq!(TagHeadConfig::new().init(D_MODEL, 5, &device).forward(x).dims(), [2, 4, 5]);
    }

    #[test]
    fn a_label_is_read_from_the_states_that_pooling_names() {
        let device = Device::default();
        let x = states(&device);
        let padding = bools(PADDING, &device);
        let other = |from: usize| x.clone().slice_assign([0..2, from..4], states(&device).slice([0..2, from..4]));
        let run = |head: &ClassifyHead, x: Tensor<3>| values(head.forward(x, Some(&padding)));
        let cls = ClassifyHeadConfig::new().init(D_MODEL, 3, &device);
        assert_eq!(run(&cls, x.clone()), run(&cls, other(1)));
        assert_ne!(run(&cls, x.clone()), run(&cls, other(0)));
        let mean = ClassifyHeadConfig::new().with_pooling(Pooling::Mean).init(D_MODEL, 3, &device);
        let (before, after) = (run(&mean, x.clone()), run(&mean, other(2)));
        assert_eq!(before[3..], after[3..], "padding counts");
        assert_ne!(before[..3], after[..3]);
        assert_ne!(before, run(&mean, other(1)));
    }

    #[test]
    fn a_label_is_out_proj_of_the_tanh_of_dense() {
        let device = Device::default();
        let mut head = ClassifyHeadConfig::new().init(2, 1, &device);
        let set = |rows: &[f32], out: usize| {
            burn::module::Param::from_tensor(Tensor::<1>::from_floats(rows, &device).reshape([out, 2]))
        };
        head.dense.weight = set(&[1.0, 0.0, 2.0, 1.0], 2);
        head.out_proj.weight = set(&[3.0, -1.0], 1);
        let logit = values(head.forward(Tensor::from_floats([[[0.5, -0.25], [9.0, 9.0]]], &device), None));
        // 3 tanh(0.5) − tanh(2 · 0.5 − 0.25)
        let expected = 3.0 * 0.5_f32.tanh() - 0.75_f32.tanh();
        assert!((logit[0] - expected).abs() < 1e-5, "{logit:?} for {expected}");
    }

    #[test]
    fn hidden_positions_are_minus_infinity_and_only_they() {
        let device = Device::default();
        let head = SpanHeadConfig::new().init(D_MODEL, &device);
        let x = states(&device);
        let (open, some) = (bools([[false; 4]; 2], &device), bools(HIDDEN, &device));
        let (whole, masked) = (head.forward(x.clone(), &open), head.forward(x, &some));
        assert_ne!(values(whole.start.clone()), values(whole.end.clone()));
        for (whole, masked) in [(whole.start, masked.start), (whole.end, masked.end)] {
            let expected = values(whole).into_iter().zip(HIDDEN.concat());
            let expected: Vec<f32> = expected.map(|(x, hidden)| if hidden { f32::NEG_INFINITY } else { x }).collect();
            assert_eq!(values(masked), expected);
        }
    }

    /// Gradients of the weight and the bias of every map that a head has.
    fn gradients<const N: usize>(head: &impl Module, loss: Tensor<1>, linears: [&Linear; N]) -> [[Vec<f32>; 2]; N] {
        assert!(values(loss.clone().inner())[0].is_finite(), "the loss is not finite");
        let gradients = GradientsParams::from_grads(loss.backward(), head);
        assert_eq!(gradients.len(), 2 * N);
        linears.map(|linear| {
            let weight = gradients.get::<2>(linear.weight.id).expect("a gradient of the weight");
            let bias = linear.bias.as_ref().and_then(|bias| gradients.get::<1>(bias.id));
            [values(weight), values(bias.expect("a gradient of the bias"))]
        })
    }

    /// Whether a gradient exists and is larger than rounding errors.
    fn counts(gradient: &[f32]) -> bool {
        gradient.iter().all(|g| g.is_finite()) && gradient.iter().any(|g| g.abs() > 1e-6)
    }

    #[test]
    fn every_parameter_gets_a_gradient() {
        let (device, training) = (Device::default(), Device::default().autodiff());
        undertone_ops::seed(7);
        let x = states(&training);
        let loss = |logits: Tensor<2>, targets: &[i64]| {
            let targets = Tensor::<1, Int>::from_ints(targets, &training);
            cross_entropy(logits, targets, CrossEntropyOptions::default()).mean()
        };
        for pooling in [Pooling::Cls, Pooling::Mean] {
            let head = ClassifyHeadConfig::new().with_pooling(pooling).init(D_MODEL, 3, &device).train();
            let logits = head.forward(x.clone(), Some(&bools(PADDING, &training)));
            let found = gradients(&head, loss(logits, &[2, 0]), [&head.dense, &head.out_proj]);
            assert!(found.as_flattened().iter().all(|g| counts(g)), "{found:?}");
        }
        let head = SpanHeadConfig::new().with_dropout(0.1).init(D_MODEL, &device).train();
        let SpanLogits { start, end } = head.forward(x.clone(), &bools(HIDDEN, &training));
        // Only the last two tokens of the first text are not hidden.
        let open = |logits: &Tensor<2>| logits.clone().slice([0..1, 2..4]).sum();
        let [[_, bias]] = gradients(&head, open(&start) + open(&end), [&head.qa_outputs]);
        assert_eq!(bias, [2.0, 2.0]);
        let SpanLogits { start, end } = head.forward(x.clone(), &bools(HIDDEN, &training));
        let [[weight, bias]] = gradients(&head, loss(start, &[2, 0]) + loss(end, &[3, 0]), [&head.qa_outputs]);
        assert!(counts(&weight), "{weight:?}");
        assert!(bias.iter().all(|g| g.abs() < 1e-6), "a softmax over positions does not see a shift of all: {bias:?}");
        let head = TagHeadConfig::new().init(D_MODEL, 5, &device).train();
        let logits = head.forward(x).reshape([8, 5]);
        let [found] = gradients(&head, loss(logits, &[0, 1, 2, 3, 4, 0, -100, -100]), [&head.classifier]);
        assert!(found.iter().all(|g| counts(g)), "{found:?}");
    }

    #[test]
    fn dropout_acts_in_training_only() {
        let device = Device::default();
        undertone_ops::seed(7);
        let x = states(&device);
        let open = bools([[false; 4]; 2], &device);
        let classify = ClassifyHeadConfig::new().with_dropout(0.5).init(D_MODEL, 3, &device);
        let span = SpanHeadConfig::new().with_dropout(0.5).init(D_MODEL, &device);
        let tag = TagHeadConfig::new().with_dropout(0.5).init(D_MODEL, 5, &device);
        let run = |classify: &ClassifyHead, span: &SpanHead, tag: &TagHead, x: &Tensor<3>| {
            let label = classify.forward(x.clone(), None);
            [values(label), values(span.forward(x.clone(), &open).start), values(tag.forward(x.clone()))]
        };
        let still = run(&classify, &span, &tag, &x);
        assert_eq!(still, run(&classify, &span, &tag, &x));
        let (classify, span, tag) = (classify.train(), span.train(), tag.train());
        // States of a trained encoder, and of a frozen one.
        for x in [x.clone().autodiff(), x.clone()] {
            let once = run(&classify, &span, &tag, &x);
            for (once, again) in once.iter().zip(run(&classify, &span, &tag, &x)) {
                assert_ne!(*once, again);
            }
        }
        assert_eq!(still, run(&classify.valid(), &span.valid(), &tag.valid(), &x));
    }

    #[test]
    fn a_dropout_that_is_no_probability_below_1_is_refused_by_name() {
        assert_eq!(ClassifyHeadConfig::new().validate(), Ok(()));
        assert_eq!((SpanHeadConfig::new().validate(), TagHeadConfig::new().validate()), (Ok(()), Ok(())));
        let refused = [
            ClassifyHeadConfig::new().with_dropout(1.0).validate(),
            SpanHeadConfig::new().with_dropout(-0.1).validate(),
            TagHeadConfig::new().with_dropout(f64::NAN).validate(),
        ];
        for error in refused {
            assert!(error.expect_err("refused").to_string().starts_with("`dropout` is "));
        }
    }
}
