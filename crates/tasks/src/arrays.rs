//! Labels and masks by name: made on the host by the data loader's workers, then copied to a device.

use crate::BoxError;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use std::collections::BTreeMap;

/// Named arrays in host memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostArrays(BTreeMap<&'static str, HostArray>);

/// One array.
#[derive(Clone, Debug, PartialEq)]
struct HostArray {
    shape: Vec<usize>,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Bools(Vec<bool>),
}

/// The same arrays on a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceArrays {
    ints: BTreeMap<&'static str, Tensor<1, Int>>,
    floats: BTreeMap<&'static str, Tensor<1>>,
    bools: BTreeMap<&'static str, Tensor<1, Bool>>,
    shapes: BTreeMap<&'static str, Vec<usize>>,
}

impl HostArrays {
    /// Adds an array of integers, in row-major order.
    ///
    /// # Panics
    /// If the values do not fill the shape.
    pub fn with_ints<const D: usize>(self, name: &'static str, shape: [usize; D], values: Vec<i64>) -> Self {
        self.with(name, shape, values.len(), Values::Ints(values))
    }

    /// Adds an array of floats, in row-major order.
    ///
    /// # Panics
    /// If the values do not fill the shape.
    pub fn with_floats<const D: usize>(self, name: &'static str, shape: [usize; D], values: Vec<f32>) -> Self {
        self.with(name, shape, values.len(), Values::Floats(values))
    }

    /// Adds an array of booleans, in row-major order.
    ///
    /// # Panics
    /// If the values do not fill the shape.
    pub fn with_bools<const D: usize>(self, name: &'static str, shape: [usize; D], values: Vec<bool>) -> Self {
        self.with(name, shape, values.len(), Values::Bools(values))
    }

    /// Adds all arrays of `other`.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    fn with<const D: usize>(mut self, name: &'static str, shape: [usize; D], length: usize, values: Values) -> Self {
        assert_eq!(shape.iter().product::<usize>(), length, "the values of `{name}` fill its shape");
        self.0.insert(name, HostArray { shape: shape.to_vec(), values });
        self
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        let size = |values: &Values| match values {
            Values::Ints(values) => 8 * values.len(),
            Values::Floats(values) => 4 * values.len(),
            Values::Bools(values) => values.len(),
        };
        self.0.values().map(|array| size(&array.values)).sum()
    }

    /// Copies the arrays to `device`.
    pub fn upload(&self, device: &Device) -> DeviceArrays {
        let mut arrays = DeviceArrays::default();
        for (name, HostArray { shape, values }) in &self.0 {
            arrays.shapes.insert(name, shape.clone());
            match values {
                Values::Ints(values) => {
                    arrays.ints.insert(name, Tensor::from_data(TensorData::from(values.as_slice()), device));
                }
                Values::Floats(values) => {
                    arrays.floats.insert(name, Tensor::from_data(TensorData::from(values.as_slice()), device));
                }
                Values::Bools(values) => {
                    arrays.bools.insert(name, Tensor::from_data(TensorData::from(values.as_slice()), device));
                }
            }
        }
        arrays
    }
}

impl DeviceArrays {
    /// Returns integers by name.
    ///
    /// # Errors
    /// When there is no such array of that name and rank.
    pub fn ints<const D: usize>(&self, name: &str) -> Result<Tensor<D, Int>, BoxError> {
        Ok(self.ints.get(name).ok_or_else(|| missing(name))?.clone().reshape(self.shape::<D>(name)?))
    }

    /// Returns floats by name.
    ///
    /// # Errors
    /// When there is no such array of that name and rank.
    pub fn floats<const D: usize>(&self, name: &str) -> Result<Tensor<D>, BoxError> {
        Ok(self.floats.get(name).ok_or_else(|| missing(name))?.clone().reshape(self.shape::<D>(name)?))
    }

    /// Returns booleans by name.
    ///
    /// # Errors
    /// When there is no such array of that name and rank.
    pub fn bools<const D: usize>(&self, name: &str) -> Result<Tensor<D, Bool>, BoxError> {
        Ok(self.bools.get(name).ok_or_else(|| missing(name))?.clone().reshape(self.shape::<D>(name)?))
    }

    fn shape<const D: usize>(&self, name: &str) -> Result<[usize; D], BoxError> {
        let shape = self.shapes.get(name).ok_or_else(|| missing(name))?;
        let rank = shape.len();
        shape
            .as_slice()
            .try_into()
            .map_err(|_| format!("the batch's `{name}` has {rank} axes, and {D} are asked for").into())
    }
}

fn missing(name: &str) -> BoxError {
    format!("the batch has no `{name}`: a kind of task makes what its head asks for in `inputs` and `labels`").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_arrive_with_their_shapes_or_are_missed_by_name() {
        let device = Device::default();
        let host = HostArrays::default().with_ints("a", [2, 2], vec![1, 2, 3, 4]).with_floats("b", [2], vec![0.5, 1.5]);
        let host = host.and(HostArrays::default().with_bools("c", [1, 2], vec![true, false]));
        assert_eq!(host.bytes(), 32 + 8 + 2);
        let arrays = host.upload(&device);
        assert_eq!(arrays.ints::<2>("a").expect("there").dims(), [2, 2]);
        assert_eq!(arrays.floats::<1>("b").expect("there").into_data().iter::<f32>().collect::<Vec<_>>(), [0.5, 1.5]);
        assert_eq!(
            arrays.bools::<2>("c").expect("there").into_data().iter::<bool>().collect::<Vec<_>>(),
            [true, false]
        );
        assert!(arrays.ints::<1>("a").expect_err("of another rank").to_string().contains("2 axes"));
        assert!(arrays.ints::<1>("b").expect_err("of another kind").to_string().contains("no `b`"));
    }
}
