use super::*;
use burn::module::{Flag, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Bool, Int, Tensor};
use undertone_store::{load_parameters, parameter_infos, parameters, set_trainable};

#[derive(Debug)]
struct Modules;

impl Family for Modules {
    type Object = dyn DynModule<Self>;
}

impl<M: Module + ModuleDisplay + 'static> Erase<M> for Modules {
    fn erase(module: Box<M>) -> Box<dyn DynModule<Self>> {
        module
    }
}

/// Parameters of every kind, and a flag.
#[derive(Module, Debug)]
struct Parts {
    linear: Linear,
    norm: BatchNorm,
    cube: Param<Tensor<3>>,
    counts: Param<Tensor<1, Int>>,
    open: Param<Tensor<2, Bool>>,
    dropout: Dropout,
}

#[derive(Module, Debug)]
enum Variants {
    Parts(Parts),
}

fn parts(device: &Device) -> Parts {
    Parts {
        linear: LinearConfig::new(2, 3).init(device),
        norm: BatchNormConfig::new(3).init(device),
        cube: Param::from_tensor(Tensor::ones([2, 1, 2], device)),
        counts: Param::initialized(Default::default(), Tensor::from_ints([4, 5], device)),
        open: Param::initialized(Default::default(), Tensor::from_bool([[true, false]], device)),
        dropout: DropoutConfig::new(0.5).init(),
    }
}

/// Records the visited parameters.
#[derive(Default, PartialEq, Debug)]
struct Log(Vec<String>);

impl ModuleVisitor for Log {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(format!("float {D} {}", param.id));
    }
    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.0.push(format!("int {D} {}", param.id));
    }
    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.0.push(format!("bool {D} {}", param.id));
    }
    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0.push(format!("flag {}", flag.is_enabled()));
    }
    fn enter_module(&mut self, name: &str, _: &str) {
        self.0.push(format!("> {name}"));
    }
    fn exit_module(&mut self, name: &str, _: &str) {
        self.0.push(format!("< {name}"));
    }
}

/// Doubles floats, adds 1 to integers, inverts booleans and flags.
#[derive(Default)]
struct Change(Vec<String>);

impl ModuleMapper for Change {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|x| x.mul_scalar(2.0))
    }
    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        param.map(|x| x.add_scalar(1))
    }
    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        param.map(Tensor::bool_not)
    }
    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        let value = !flag.is_enabled();
        flag.with_value(value)
    }
    fn enter_module(&mut self, name: &str, _: &str) {
        self.0.push(name.to_owned());
    }
}

fn log(module: &impl Module) -> Log {
    let mut log = Log::default();
    module.visit(&mut log);
    log
}

#[test]
fn a_boxed_module_is_visited_as_an_enums_variant_is() {
    let parts = parts(&Device::default());
    let boxed = Boxed::<Modules>::new("Parts", parts.clone());
    let plain = Variants::Parts(parts);
    let found = log(&boxed);
    assert_eq!(found, log(&plain));
    let has = |start: &str| found.0.iter().any(|line| line.starts_with(start));
    assert!(["float 1", "float 2", "float 3", "int 1", "bool 2", "flag", "> Parts"].into_iter().all(has), "{found:?}");
    assert_eq!(Module::num_params(&boxed), Module::num_params(&plain));
    assert_eq!(parameter_infos(&vec![boxed])[0].name, "0.Parts.linear.weight");
}

#[test]
fn a_boxed_module_is_mapped_as_a_plain_one_is() {
    let parts = parts(&Device::default());
    let (mut mine, mut theirs) = (Change::default(), Change::default());
    let boxed = Boxed::<Modules>::new("Parts", parts.clone()).map(&mut mine);
    let plain = Variants::Parts(parts).map(&mut theirs);
    assert_eq!((mine.0, parameters(&boxed)), (theirs.0, parameters(&plain)));
    let changed = boxed.downcast_ref::<Parts>().expect("its type");
    let counts: Vec<i64> = changed.counts.val().into_data().iter().collect();
    let open: Vec<bool> = changed.open.val().into_data().iter().collect();
    assert_eq!((counts, open), (vec![5, 6], vec![false, true]));
    assert_eq!(log(&boxed), log(&plain));
    assert!(boxed.downcast_ref::<Linear>().is_none());
    assert!(boxed.to_string().contains("ParamTensor"), "{boxed}");
}

#[test]
fn a_boxed_module_goes_where_a_plain_one_does() {
    let (device, training) = (Device::default(), Device::default().autodiff());
    let boxed = vec![Boxed::<Modules>::new("Parts", parts(&device))];
    assert_eq!(boxed.devices(), std::slice::from_ref(&device));
    let before = parameters(&boxed);
    let trained = boxed.clone().train();
    assert!(parameter_infos(&trained)[0].trainable && !parameter_infos(&trained.valid())[0].trainable);
    for moved in [trained.clone().fork(&training), trained.to_device(&device), boxed.materialize()] {
        assert_eq!(parameters(&moved), before);
    }
}

#[test]
fn a_boxed_module_is_trained_frozen_and_loaded() {
    let device = Device::default();
    let fresh = || Boxed::<Modules>::new("Linear", LinearConfig::new(2, 1).init(&device));
    let module = set_trainable(fresh(), |name| name == "Linear.weight").train();
    let before = parameters(&module);
    let linear = module.downcast_ref::<Linear>().expect("its type");
    let loss = linear.forward(Tensor::<2>::ones([1, 2], &device.clone().autodiff())).sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &module);
    assert_eq!(gradients.len(), 1, "the bias is frozen");
    let module = SgdConfig::new().init().step(1.0, module, gradients);
    let after = parameters(&module);
    let moved = |name: &str| before[name] != after[name];
    assert!(moved("Linear.weight") && !moved("Linear.bias"));
    let loaded = load_parameters(fresh(), |name| Ok(after[name].clone())).expect("the same shapes");
    assert_eq!(parameters(&loaded), after);
    let other = load_parameters(Boxed::<Modules>::new("Linear", LinearConfig::new(3, 1).init(&device)), |name| {
        Ok(after[name].clone())
    });
    assert!(other.is_err_and(|error| error.to_string().contains("Linear.weight")));
}
