//! Traversal of a module's float parameters with their paths. No other module depends on how Burn reports paths.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

/// Visitor of the float parameters of a module, for [`visit`]. It is a trait and not a closure, because parameters have
/// any number of dimensions.
pub trait VisitParameter {
    /// Visits a parameter with its path in the module, such as `encoder.layers.0.fc1.weight`.
    fn visit<const D: usize>(&mut self, path: &str, parameter: &Param<Tensor<D>>);
}

/// Mapper of the float parameters of a module, for [`map`].
pub trait MapParameter {
    /// Returns the replacement of a parameter, given its path in the module.
    fn map<const D: usize>(&mut self, path: &str, parameter: Param<Tensor<D>>) -> Param<Tensor<D>>;
}

/// Visits every float parameter of `module` with its path, in the module's order.
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

/// Returns `module` with every float parameter replaced by what `mapper` returns for it.
pub fn map<M: Module>(module: M, mapper: &mut impl MapParameter) -> M {
    module.map(&mut WithPath { path: Vec::new(), each: mapper })
}

/// Tracks the path while Burn traverses a module.
struct WithPath<'a, T> {
    path: Vec<String>,
    each: &'a mut T,
}

/// The `enter_module`/`exit_module` pair that tracks the path.
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
