//! Every float parameter of a module with its path: the one place that knows how Burn tells paths.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

/// What is done with each float parameter of a module: [`visit`] calls it. A trait and not a closure, for parameters have
/// any number of dimensions.
pub trait VisitParameter {
    /// A parameter and its path in the module, such as `encoder.layers.0.fc1.weight`.
    fn visit<const D: usize>(&mut self, path: &str, parameter: &Param<Tensor<D>>);
}

/// What is made of each float parameter of a module: [`map`] calls it.
pub trait MapParameter {
    /// What takes the place of a parameter, given its path in the module.
    fn map<const D: usize>(&mut self, path: &str, parameter: Param<Tensor<D>>) -> Param<Tensor<D>>;
}

/// Shows every float parameter of `module` with its path, in the module's order.
///
/// ```
/// use burn::module::Param;
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use undertone_store::{VisitParameter, visit};
///
/// struct Elements(Vec<(String, usize)>);
///
/// impl VisitParameter for Elements {
///     fn visit<const D: usize>(&mut self, path: &str, parameter: &Param<Tensor<D>>) {
///         self.0.push((path.to_owned(), parameter.dims().iter().product()));
///     }
/// }
///
/// let mut elements = Elements(Vec::new());
/// visit(&LinearConfig::new(3, 2).init(&Device::default()), &mut elements);
/// assert_eq!(elements.0, [("weight".to_owned(), 6), ("bias".to_owned(), 2)]);
/// ```
pub fn visit<M: Module>(module: &M, visitor: &mut impl VisitParameter) {
    module.visit(&mut WithPath { path: Vec::new(), each: visitor });
}

/// `module` with every float parameter replaced by what `mapper` makes of it.
pub fn map<M: Module>(module: M, mapper: &mut impl MapParameter) -> M {
    module.map(&mut WithPath { path: Vec::new(), each: mapper })
}

/// Keeps the path while Burn goes through a module.
struct WithPath<'a, T> {
    path: Vec<String>,
    each: &'a mut T,
}

/// The `enter_module`/`exit_module` pair that keeps the path.
macro_rules! track_path {
    () => {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
    };
}

impl<V: VisitParameter> ModuleVisitor for WithPath<'_, V> {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.each.visit(&self.path.join("."), param);
    }
}

impl<F: MapParameter> ModuleMapper for WithPath<'_, F> {
    track_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.each.map(&self.path.join("."), param)
    }
}
