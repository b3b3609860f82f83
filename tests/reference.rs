//! What parity tests share: tensors of a reference implementation, and gradients by name.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a fixture lies.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// The tensors of a safetensors file.
pub struct Expected {
    tensors: safetensors::SafeTensors<'static>,
}

impl Expected {
    /// Reads the file, which stays in memory to the end of the process.
    pub fn load(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { tensors: safetensors::SafeTensors::deserialize(bytes.leak()).expect("safetensors") }
    }

    /// The names of all tensors.
    pub fn names(&self) -> Vec<&str> {
        self.tensors.names()
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.tensor(name).is_ok()
    }

    /// The values of a tensor of floats.
    pub fn floats(&self, name: &str) -> Vec<f32> {
        let view = self.tensors.tensor(name).expect(name);
        view.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// The values of a tensor of integers.
    pub fn ints(&self, name: &str) -> Vec<i64> {
        let view = self.tensors.tensor(name).expect(name);
        view.data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()
    }

    /// A tensor's shape.
    pub fn shape<const D: usize>(&self, name: &str) -> [usize; D] {
        self.tensors.tensor(name).expect(name).shape().try_into().expect("rank")
    }

    /// A tensor of floats.
    pub fn tensor<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D> {
        Tensor::from_data(TensorData::new(self.floats(name), self.shape::<D>(name)), device)
    }

    /// A tensor of token ids.
    pub fn ids(&self, name: &str, device: &Device) -> Tensor<2, Int> {
        Tensor::<1, Int>::from_ints(TensorData::from(self.ints(name).as_slice()), device).reshape(self.shape::<2>(name))
    }

    /// Compares gradients with every tensor named `grad.NAME`, where `ours` says what NAME is called here; gives how many
    /// there were.
    pub fn assert_gradients(&self, found: &BTreeMap<String, Vec<f32>>, ours: impl Fn(&str) -> String) -> usize {
        let mut compared = 0;
        for key in self.names() {
            let Some(name) = key.strip_prefix("grad.") else { continue };
            let name = ours(name);
            assert_close(key, found.get(&name).unwrap_or_else(|| panic!("no gradient of {name}")), &self.floats(key));
            compared += 1;
        }
        compared
    }
}

/// Asserts that two lists agree within 1e-4.
pub fn assert_close(what: &str, actual: &[f32], expected: &[f32]) {
    assert_within(what, actual, expected, 1e-4);
}

/// Asserts that two lists agree within a tolerance.
pub fn assert_within(what: &str, actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{what}: lengths");
    let largest = actual.iter().zip(expected).map(|(a, e)| (a - e).abs()).fold(0.0, f32::max);
    println!("{what}: within {largest:.1e}");
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance, "{what} at {i}: {a} is not {e} within {tolerance}");
    }
}

/// A tensor's values.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_vec_as().expect("floats")
}

/// The gradient of every parameter that has one, by its path.
pub fn gradients<M: Module>(model: &M, gradients: &Gradients) -> BTreeMap<String, Vec<f32>> {
    let mut reader = GradientReader { path: Vec::new(), gradients, found: BTreeMap::new() };
    model.visit(&mut reader);
    reader.found
}

struct GradientReader<'a> {
    path: Vec<String>,
    gradients: &'a Gradients,
    found: BTreeMap<String, Vec<f32>>,
}

impl ModuleVisitor for GradientReader<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            self.found.insert(self.path.join("."), values(gradient));
        }
    }
}
