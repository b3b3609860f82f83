//! An optimizer over a module's parameters, with state by name.

mod adafactor;
mod adamw;
mod algorithm;
mod config;
mod groups;
pub mod registry;
mod rule;
mod scaling;
mod settings;
mod taken;

pub use adafactor::AdafactorConfig;
pub use adamw::AdamWConfig;
pub use algorithm::Algorithm;
pub use config::OptimizerConfig;
pub use groups::{GroupConfig, Pattern};
pub use scaling::{LrScaling, LrScalingConfig};
pub(crate) use taken::Moved;

use crate::GradientSum;
use crate::shard::Shard;
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use registry::title;
use rule::{DynRule, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use taken::{Taken, take};
use undertone_ops::{StepControl, settled};
use undertone_store::{HostTensor, StoreError};

/// The optimizer of a configuration. Its state has names, and can be saved and restored exactly.
pub struct Optimizer {
    config: OptimizerConfig,
    rule: Box<dyn DynRule>,
    state: BTreeMap<String, State>,
    /// Names of the parameters of the last step.
    moved: Vec<String>,
    /// Part of each larger parameter that this rank updates, if the state is sharded.
    shard: Option<Shard>,
}

/// State of one parameter: its number of steps, and the tensors of its update rule.
struct State {
    step: u64,
    parts: Vec<Tensor<1>>,
    /// Number of elements of the whole parameter.
    size: usize,
}

/// Name of the step count, beside the names of a rule's tensors.
const STEP: &str = "step";

impl Optimizer {
    /// Makes an optimizer. State is created with the first gradient of each parameter.
    ///
    /// # Panics
    /// If [`OptimizerConfig::validate`] refuses the keys of a registered rule.
    pub fn new(config: &OptimizerConfig) -> Self {
        Self { config: config.clone(), rule: config.rule(), state: BTreeMap::new(), moved: Vec::new(), shard: None }
    }

    /// Updates every parameter that has a gradient, and consumes the gradients. Parameters that only `model` holds are
    /// updated in place. The rates of groups and of LoRA+ are in proportion to `learning_rate`.
    pub fn step<M: Module>(&mut self, model: M, gradients: &mut GradientSum, learning_rate: f64) -> M {
        self.controlled_step(model, gradients, learning_rate, None)
    }

    /// Like [`step`](Self::step). With `control`, gradients are multiplied by its factor, and parameters change only if
    /// it allows it.
    pub fn controlled_step<M: Module>(
        &mut self,
        model: M,
        gradients: &mut GradientSum,
        learning_rate: f64,
        control: Option<&StepControl>,
    ) -> M {
        let stepped = self.sharded_step(model, gradients, learning_rate, control, Ok::<_, Infallible>);
        stepped.unwrap_or_else(|never| match never {})
    }

    /// Like [`controlled_step`](Self::controlled_step); `whole` completes parameters from their updated parts.
    pub(crate) fn sharded_step<M: Module, E>(
        &mut self,
        model: M,
        gradients: &mut GradientSum,
        learning_rate: f64,
        control: Option<&StepControl>,
        whole: impl FnOnce(BTreeMap<String, Moved>) -> Result<BTreeMap<String, Moved>, E>,
    ) -> Result<M, E> {
        let gradient_scale = gradients.scale();
        let (model, places, taken) = take(model, gradients);
        let (mut steps, mut updates) = (Vec::new(), Vec::new());
        for parameter in taken {
            let (name, size) = (parameter.name.clone(), parameter.shape.num_elements());
            let update = self.update(parameter, learning_rate);
            steps.push((name, size, update.number));
            updates.push(update);
        }
        self.moved = steps.iter().map(|(name, ..)| name.clone()).collect();
        let mut moved = BTreeMap::new();
        let stepped = self.rule.steps(updates, gradient_scale, control);
        for ((name, size, step), (values, parts)) in steps.into_iter().zip(stepped) {
            self.state.insert(name.clone(), State { step, parts, size });
            moved.insert(name, Moved { values, size });
        }
        Ok(places.fill(model, whole(moved)?))
    }

    /// Returns the update of a parameter, or of this rank's part of it, with its state.
    fn update(&mut self, parameter: Taken, learning_rate: f64) -> Update {
        let Taken { name, shape, values, gradient } = parameter;
        let (size, device) = (shape.num_elements(), values.device());
        let own = self.shard.filter(|shard| shard.divides(size)).map(|shard| shard.range(size));
        // Only elementwise rules are sharded, so a part has the shape of a vector.
        let own_shape = own.as_ref().map_or(shape.to_vec(), |own| vec![own.len()]);
        let parameter = match own {
            Some(own) => values.slice([own]),
            None => values,
        };
        let fresh = || {
            let lengths = self.rule.lengths(&own_shape).into_iter();
            State { step: 0, parts: lengths.map(|length| settled(Tensor::zeros([length], &device))).collect(), size }
        };
        let State { step, parts, .. } = self.state.remove(&name).unwrap_or_else(fresh);
        let settings = self.config.settings(&name, shape.num_dims());
        Update {
            shape: own_shape,
            learning_rate: learning_rate * settings.factor,
            weight_decay: settings.weight_decay,
            number: step + 1,
            parameter,
            gradient,
            state: parts,
        }
    }

    /// Shards the optimizer state: keeps state for this rank's part of each larger parameter alone. Existing state is
    /// not divided.
    pub(crate) fn share_out(&mut self, shard: Shard) {
        self.shard = Some(shard);
    }

    /// Part of each larger parameter that this rank updates, if the state is sharded.
    pub(crate) fn shard(&self) -> Option<Shard> {
        self.shard
    }

    /// Returns the names of those tensors of [`to_tensors`](Self::to_tensors) that cover only a part of their
    /// parameter.
    pub(crate) fn divided(&self) -> Vec<String> {
        let divided = |state: &State| self.shard.is_some_and(|shard| shard.divides(state.size));
        let parts = |name: &String| self.rule.state().iter().map(|part| format!("{name}.{part}")).collect::<Vec<_>>();
        self.state.iter().filter(|(_, state)| divided(state)).flat_map(|(name, _)| parts(name)).collect()
    }

    /// Takes the last step off the step counts, because its control prevented the update.
    pub fn take_back(&mut self) {
        for name in std::mem::take(&mut self.moved) {
            let steps = self.state.get_mut(&name).map(|state| {
                state.step -= 1;
                state.step
            });
            if steps == Some(0) {
                self.state.remove(&name);
            }
        }
    }

    /// Whether this parameter has ever had a gradient.
    pub fn has_state(&self, name: &str) -> bool {
        self.state.contains_key(name)
    }

    /// Returns the state as tensors: `<parameter>.step` of one element, and depending on the optimizer `<parameter>.m`
    /// and `.v` or `<parameter>.row`, `.column` and `.change`.
    pub fn to_tensors(&self) -> BTreeMap<String, HostTensor> {
        let mut tensors = BTreeMap::new();
        for (name, state) in &self.state {
            for (part, tensor) in self.rule.state().iter().zip(&state.parts) {
                let data: Vec<f32> = tensor.clone().try_into_vec_as().expect("moments are floats");
                tensors.insert(format!("{name}.{part}"), HostTensor { shape: vec![data.len()], data });
            }
            // f32 counts steps exactly up to 16.7 million.
            let step = HostTensor { shape: vec![1], data: vec![state.step as f32] };
            tensors.insert(format!("{name}.{STEP}"), step);
        }
        tensors
    }

    /// Restores the state of the parameters `names` from the tensors of [`to_tensors`](Self::to_tensors). State of
    /// another optimizer is not detected; [`maker`](Self::maker) names the optimizer that wrote it.
    ///
    /// # Errors
    /// The first error of `source`; nothing has changed then.
    pub fn load(
        &mut self,
        names: impl IntoIterator<Item = String>,
        device: &Device,
        source: impl Fn(&str) -> Result<HostTensor, StoreError>,
    ) -> Result<(), StoreError> {
        let mut state = BTreeMap::new();
        for name in names {
            let mut size = 0;
            let tensor = |part: &&str| -> Result<Tensor<1>, StoreError> {
                let mut own = source(&format!("{name}.{part}"))?.data;
                size = own.len();
                if let Some(shard) = self.shard {
                    own = own[shard.range(size)].to_vec();
                }
                let length = own.len();
                Ok(settled(Tensor::from_data(TensorData::new(own, [length]), device)))
            };
            let parts = self.rule.state().iter().map(tensor).collect::<Result<_, _>>()?;
            let step = source(&format!("{name}.{STEP}"))?.data.first().copied().unwrap_or_default() as u64;
            state.insert(name, State { step, parts, size });
        }
        self.state = state;
        Ok(())
    }

    /// Name of the optimizer for messages.
    pub fn title(&self) -> &'static str {
        title(&self.rule.state().iter().copied().collect())
    }

    /// Returns the name of the optimizer whose state has tensors of these names, as in [`title`](Self::title); `None`
    /// without names.
    pub fn maker<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Option<String> {
        let names: Vec<N> = names.into_iter().collect();
        let last = names.iter().filter_map(|name| name.as_ref().rsplit('.').next());
        let parts: BTreeSet<&str> = last.filter(|part| *part != STEP).collect();
        (!names.is_empty()).then(|| title(&parts).to_owned())
    }
}

impl OptimizerConfig {
    fn rule(&self) -> Box<dyn DynRule> {
        self.algorithm.rule().unwrap_or_else(|reason| panic!("a configuration that was not checked: {reason}"))
    }

    /// Whether the update of an element depends on no other element, so that the state can be sharded.
    pub(crate) fn is_elementwise(&self) -> bool {
        self.rule().is_elementwise()
    }

    /// Bytes of state for a trained parameter of this shape: f32 tensors, and four bytes for its number of steps.
    pub fn state_bytes(&self, shape: &[usize]) -> usize {
        4 * (self.rule().lengths(shape).into_iter().sum::<usize>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessGroup;
    use crate::gradients::ReceivedEarly;
    use burn::module::Param;
    use burn::nn::{Linear, LinearConfig};
    use std::sync::Arc;
    use undertone_ranks::{Ranks, Threads, threads};
    use undertone_store::parameters;

    fn config() -> OptimizerConfig {
        OptimizerConfig { weight_decay: 0.1, ..Default::default() }
    }

    fn step(model: Linear, optimizer: &mut Optimizer, device: &Device) -> Linear {
        let loss = model.forward(Tensor::<2>::from_floats([[1.0, -2.0]], device)).square().sum();
        let mut gradients = GradientSum::default();
        gradients.add(&model, loss.backward());
        optimizer.step(model, &mut gradients, 0.01)
    }

    #[test]
    fn the_first_step_is_signed_and_decays_matrices_only() {
        let device = Device::default().autodiff();
        let model: Linear = LinearConfig::new(2, 1).init(&device);
        let before = parameters(&model);
        let after = parameters(&step(model, &mut Optimizer::new(&config()), &device));
        // With bias correction the first Adam step is lr · sign(gradient), up to ε.
        let (w0, w1) = (&before["weight"].data, &after["weight"].data);
        for (old, new) in w0.iter().zip(w1) {
            let moved = new - old * (1.0 - 0.01 * 0.1);
            assert!((moved.abs() - 0.01).abs() < 1e-5, "weight moved by {moved}");
        }
        let moved = after["bias"].data[0] - before["bias"].data[0];
        assert!((moved.abs() - 0.01).abs() < 1e-5, "bias moved by {moved}");
    }

    #[test]
    fn a_restored_optimizer_takes_the_same_steps() {
        let device = Device::default().autodiff();
        let mut model: Linear = LinearConfig::new(2, 1).init(&device);
        let mut one = Optimizer::new(&config());
        for _ in 0..3 {
            model = step(model, &mut one, &device);
        }
        let saved = one.to_tensors();
        let mut two = Optimizer::new(&config());
        let names = ["weight", "bias"].map(str::to_owned);
        two.load(names, &device.clone().inner(), |name| Ok(saved[name].clone())).expect("loaded");
        let a = parameters(&step(model.clone(), &mut one, &device));
        let b = parameters(&step(model, &mut two, &device));
        assert_eq!(a, b);
    }

    #[derive(Module, Debug)]
    struct Parts {
        adapter: Bank,
        router: Linear,
        heads: Vec<Linear>,
        frozen: Linear,
    }

    #[derive(Module, Debug)]
    struct Bank {
        lora_a: Param<Tensor<2>>,
        lora_b: Param<Tensor<2>>,
    }

    fn parts(device: &Device) -> Parts {
        let linear = || LinearConfig::new(2, 2).with_bias(false).init(device);
        let matrix = || Param::from_tensor(Tensor::<2>::ones([2, 2], device));
        Parts {
            adapter: Bank { lora_a: matrix(), lora_b: matrix() },
            router: linear(),
            heads: vec![linear(), linear()],
            frozen: linear().no_grad(),
        }
    }

    /// The gradients of a step that the second head takes no part in.
    fn gradients(model: &Parts, device: &Device) -> GradientSum {
        let x = Tensor::<2>::from_floats([[1.0, 2.0], [1.0, 3.0]], device);
        let y = x.matmul(model.adapter.lora_a.val()).matmul(model.adapter.lora_b.val());
        let y = model.frozen.forward(model.heads[0].forward(model.router.forward(y)));
        let mut sum = GradientSum::default();
        sum.add(model, y.sum().backward());
        sum
    }

    #[test]
    fn every_parameter_moves_at_its_own_rate() {
        let device = Device::default().autodiff();
        let group = |pattern: &str, lr| -> GroupConfig {
            serde_json::from_value(serde_json::json!({"match": pattern, "lr": lr})).expect("a group")
        };
        for algorithm in [Algorithm::default(), Algorithm::Adafactor(AdafactorConfig::default())] {
            let config = OptimizerConfig {
                algorithm,
                lr: 1e-3,
                weight_decay: 0.0,
                groups: vec![group("^router\\.", 5e-3), group("^heads\\.1", 1.0), group("heads", 2e-3)],
                lora_plus_ratio: Some(16.0),
                ..Default::default()
            };
            let model = parts(&device);
            assert_eq!(config.check(&undertone_store::parameter_infos(&model)), Ok(()));
            let before = parameters(&model);
            let mut gradients = gradients(&model, &device);
            // Half of the peak, as in the middle of a schedule.
            let mut optimizer = Optimizer::new(&config);
            let after = parameters(&optimizer.step(model, &mut gradients, 0.5e-3));
            // The root mean square of a first step is the rate, for both: exactly for Adam's signs, and Adafactor's
            // estimate of a rank-one gradient, which these are, is exact as well.
            let moved = |name: &str| {
                let (a, b) = (&before[name].data, &after[name].data);
                let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(b - a).powi(2)).sum();
                (squares / a.len() as f64).sqrt()
            };
            for (name, rate) in [
                ("adapter.lora_a", 0.5e-3),
                ("adapter.lora_b", 8e-3),
                ("router.weight", 2.5e-3),
                ("heads.0.weight", 1e-3),
                ("heads.1.weight", 0.0),
                ("frozen.weight", 0.0),
            ] {
                assert!((moved(name) - rate).abs() < 1e-6, "{name} moved by {}, not {rate}", moved(name));
            }
            assert!(!optimizer.has_state("heads.1.weight") && !optimizer.has_state("frozen.weight"));
            assert!(optimizer.has_state("heads.0.weight"));
        }
    }

    #[test]
    fn each_rank_keeps_the_state_of_its_share() {
        let kept: Vec<usize> = std::thread::scope(|scope| {
            let ranks: Vec<_> =
                threads(2).into_iter().map(|transport| scope.spawn(|| state_of_a_step(transport))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        });
        // Two moments of 6400 weights by two, and of 64 biases, which both keep.
        assert_eq!(kept, [2 * (3200 + 64); 2]);
    }

    /// Number of state values of a rank after one step, without step counts.
    fn state_of_a_step(transport: Threads) -> usize {
        let ranks = ProcessGroup::of(Arc::new(Ranks::over(|| Ok(transport)).expect("a rank")));
        let shard = ranks.shard();
        let device = Device::default().autodiff();
        let model: Linear = LinearConfig::new(100, 64).init(&device);
        let mut gradients = GradientSum::default();
        gradients.add(&model, model.forward(Tensor::<2>::ones([1, 100], &device)).sum().backward());
        let early = ReceivedEarly::default();
        gradients.all_reduce(&ranks, early, Some(shard), &device.clone().inner()).expect("summed");
        let mut optimizer = Optimizer::new(&OptimizerConfig::default());
        optimizer.share_out(shard);
        let mut moved = 0;
        let stepped: Result<Linear, ()> = optimizer.sharded_step(model, &mut gradients, 0.1, None, |parts| {
            moved = parts.values().map(|part| part.values.dims()[0]).sum();
            Err(())
        });
        assert!(stepped.is_err() && moved == 3200 + 64, "{moved}");
        let state = optimizer.to_tensors();
        state.iter().filter(|(name, _)| !name.ends_with(".step")).map(|(_, tensor)| tensor.data.len()).sum()
    }

    #[test]
    fn state_tells_whose_it_is() {
        let maker = |names: &[&str]| Optimizer::maker(names);
        assert_eq!(maker(&[]), None);
        assert_eq!(maker(&["a.m", "a.step", "a.v"]).as_deref(), Some("adamw"));
        assert_eq!(maker(&["a.b.row", "a.b.step", "a.b.column"]).as_deref(), Some("adafactor"));
        assert_eq!(maker(&["a.row", "a.column", "a.change", "a.step"]).as_deref(), Some("adafactor with `beta1`"));
        assert_eq!(maker(&["a.velocity", "a.step"]).as_deref(), Some("an unknown optimizer"));
        assert_eq!(Optimizer::new(&config()).title(), "adamw");
    }
}
