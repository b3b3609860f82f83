//! Modules behind a trait object: for example a head of another crate, in a `Vec` with other heads.
//!
//! Burn's [`Module`] is not object-safe: its visitors and mappers are generic over a parameter's rank. [`DynModule`] is
//! its object-safe mirror, which every module implements, and [`Boxed`] is a module that holds such an object. A crate
//! defines a trait for its modules' other methods, and a [`Family`] names that trait:
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Tensor};
//! use undertone_model::boxed::{Boxed, DynModule, Erase, Family};
//!
//! /// Methods of the modules.
//! trait Layer: DynModule<Layers> {
//!     fn forward(&self, x: Tensor<2>) -> Tensor<2>;
//! }
//!
//! #[derive(Debug)]
//! struct Layers;
//!
//! impl Family for Layers {
//!     type Object = dyn Layer;
//! }
//!
//! impl<M: Layer> Erase<M> for Layers {
//!     fn erase(module: Box<M>) -> Box<dyn Layer> {
//!         module
//!     }
//! }
//!
//! impl Layer for Linear {
//!     fn forward(&self, x: Tensor<2>) -> Tensor<2> {
//!         Linear::forward(self, x)
//!     }
//! }
//!
//! #[derive(Module, Debug)]
//! struct Stack {
//!     layers: Vec<Boxed<Layers>>,
//! }
//!
//! let device = Device::default();
//! let stack = Stack { layers: vec![Boxed::new("Linear", LinearConfig::new(3, 2).init(&device))] };
//! assert_eq!(stack.layers[0].forward(Tensor::zeros([1, 3], &device)).dims(), [1, 2]);
//! assert_eq!(stack.num_params(), 8);
//! ```

mod traverse;

pub use traverse::{DynMapper, DynVisitor};

use burn::module::{
    Content, Devices, DisplaySettings, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::tensor::Device;
use std::any::Any;
use std::fmt::{Debug, Display, Formatter};
use std::ops::{Deref, DerefMut};
use traverse::{Typed, Untyped};

/// Family of module types that share a trait.
pub trait Family: Debug + Sized + 'static {
    /// Trait object, for example `dyn Layer`; the trait has [`DynModule`] of this family as a supertrait.
    type Object: ?Sized + DynModule<Self>;
}

/// Conversion of a module of type `M` to the family's trait object.
pub trait Erase<M>: Family {
    /// Returns the module as an object. The body is `module`.
    fn erase(module: Box<M>) -> Box<Self::Object>;
}

/// A module of a family, of any type. It can be a field of a `#[derive(Module)]` struct. Its parameters are one level
/// deeper, below the name that it is given, like those of an enum's variants.
pub struct Boxed<F: Family> {
    name: &'static str,
    module: Box<F::Object>,
}

/// Burn's [`Module`] without generic methods, as [`Boxed`] needs it. Every module that can be displayed implements it.
pub trait DynModule<F: Family>: Any + Debug + Send {
    /// As [`Module::collect_devices`].
    fn collect_devices_dyn(&self, devices: Devices) -> Devices;
    /// As [`Module::fork`].
    fn fork_dyn(self: Box<Self>, device: &Device) -> Box<F::Object>;
    /// As [`Module::to_device`].
    fn to_device_dyn(self: Box<Self>, device: &Device) -> Box<F::Object>;
    /// As [`Module::train`].
    fn train_dyn(self: Box<Self>) -> Box<F::Object>;
    /// As [`Module::valid`].
    fn valid_dyn(&self) -> Box<F::Object>;
    /// As [`Module::materialize`].
    fn materialize_dyn(self: Box<Self>) -> Box<F::Object>;
    /// As [`Module::num_params`].
    fn num_params_dyn(&self) -> usize;
    /// As [`Module::visit`].
    fn visit_dyn(&self, visitor: &mut dyn DynVisitor);
    /// As [`Module::map`].
    fn map_dyn(self: Box<Self>, mapper: &mut dyn DynMapper) -> Box<F::Object>;
    /// As [`Clone::clone`].
    fn clone_dyn(&self) -> Box<F::Object>;
    /// As [`ModuleDisplay::format`].
    fn format_dyn(&self, settings: DisplaySettings) -> String;
    /// Returns the module as [`Any`], to query its type.
    fn as_any(&self) -> &dyn Any;
    /// As [`as_any`](Self::as_any), to change the module.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Container type that a [`Boxed`] reports to visitors.
const CONTAINER: &str = "Boxed";

impl<F: Family> Boxed<F> {
    /// Creates a box around `module`, whose parameters' paths begin with `name`.
    pub fn new<M>(name: &'static str, module: M) -> Self
    where
        F: Erase<M>,
    {
        Self { name, module: F::erase(Box::new(module)) }
    }

    /// Returns the same module under another name.
    pub fn renamed(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Returns the module, if it is of this type.
    pub fn downcast_ref<M: 'static>(&self) -> Option<&M> {
        self.module.as_any().downcast_ref()
    }

    /// Returns the module for changes, if it is of this type.
    pub fn downcast_mut<M: 'static>(&mut self) -> Option<&mut M> {
        self.module.as_any_mut().downcast_mut()
    }

    fn with(&self, module: Box<F::Object>) -> Self {
        Self { name: self.name, module }
    }

    fn changed(self, change: impl FnOnce(Box<F::Object>) -> Box<F::Object>) -> Self {
        Self { name: self.name, module: change(self.module) }
    }
}

impl<F: Family> Deref for Boxed<F> {
    type Target = F::Object;

    fn deref(&self) -> &F::Object {
        &self.module
    }
}

impl<F: Family> DerefMut for Boxed<F> {
    fn deref_mut(&mut self) -> &mut F::Object {
        &mut self.module
    }
}

impl<F: Family> Clone for Boxed<F> {
    fn clone(&self) -> Self {
        self.with(self.module.clone_dyn())
    }
}

impl<F: Family> Debug for Boxed<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.module.fmt(f)
    }
}

impl<F: Family> Display for Boxed<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.module.format_dyn(DisplaySettings::default()))
    }
}

impl<F: Family> ModuleDisplayDefault for Boxed<F> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_formatted(&self.module.format_dyn(DisplaySettings::default())).optional()
    }

    fn num_params(&self) -> usize {
        self.module.num_params_dyn()
    }
}

impl<F: Family> ModuleDisplay for Boxed<F> {
    fn format(&self, settings: DisplaySettings) -> String {
        self.module.format_dyn(settings)
    }
}

impl<F: Family> Module for Boxed<F> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.module.collect_devices_dyn(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.changed(|module| module.fork_dyn(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.changed(|module| module.to_device_dyn(device))
    }

    fn train(self) -> Self {
        self.changed(|module| module.train_dyn())
    }

    fn valid(&self) -> Self {
        self.with(self.module.valid_dyn())
    }

    fn materialize(self) -> Self {
        self.changed(|module| module.materialize_dyn())
    }

    fn num_params(&self) -> usize {
        self.module.num_params_dyn()
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        visitor.enter_module(self.name, CONTAINER);
        self.module.visit_dyn(&mut Typed(visitor));
        visitor.exit_module(self.name, CONTAINER);
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let name = self.name;
        mapper.enter_module(name, CONTAINER);
        let module = self.changed(|module| module.map_dyn(&mut Typed(mapper)));
        mapper.exit_module(name, CONTAINER);
        module
    }
}

impl<F: Erase<M>, M: Module + ModuleDisplay + 'static> DynModule<F> for M {
    fn collect_devices_dyn(&self, devices: Devices) -> Devices {
        self.collect_devices(devices)
    }

    fn fork_dyn(self: Box<Self>, device: &Device) -> Box<F::Object> {
        F::erase(Box::new((*self).fork(device)))
    }

    fn to_device_dyn(self: Box<Self>, device: &Device) -> Box<F::Object> {
        F::erase(Box::new((*self).to_device(device)))
    }

    fn train_dyn(self: Box<Self>) -> Box<F::Object> {
        F::erase(Box::new((*self).train()))
    }

    fn valid_dyn(&self) -> Box<F::Object> {
        F::erase(Box::new(self.valid()))
    }

    fn materialize_dyn(self: Box<Self>) -> Box<F::Object> {
        F::erase(Box::new((*self).materialize()))
    }

    fn num_params_dyn(&self) -> usize {
        Module::num_params(self)
    }

    fn visit_dyn(&self, visitor: &mut dyn DynVisitor) {
        self.visit(&mut Untyped(visitor));
    }

    fn map_dyn(self: Box<Self>, mapper: &mut dyn DynMapper) -> Box<F::Object> {
        F::erase(Box::new((*self).map(&mut Untyped(mapper))))
    }

    fn clone_dyn(&self) -> Box<F::Object> {
        F::erase(Box::new(self.clone()))
    }

    fn format_dyn(&self, settings: DisplaySettings) -> String {
        ModuleDisplay::format(self, settings)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
