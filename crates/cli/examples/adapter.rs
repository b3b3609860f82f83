//! A program with a custom adapter type and every command of Undertone: `cargo run -p undertone-cli --example
//! adapter -- train --config mine.yaml`, then `eval`, `predict`, `export --merge` and the others.
//!
//! In YAML: `adapter: {type: ia3, target_modules: [k_proj, v_proj, fc1]}`.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use undertone::model::adapters::{AdapterBank, AdapterKind, Gates, MapWeights, ReadTensor, changed};
use undertone::ops::{linear, matmul};
use undertone::store::{HostTensor, StoreError};

fn main() -> std::process::ExitCode {
    undertone_cli::main(|kinds| kinds.adapter::<Ia3>())
}

/// (IA)³ (Liu et al., 2022): learned vectors that rescale the outputs of linear maps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Ia3 {
    target_modules: Vec<String>,
}

impl AdapterKind for Ia3 {
    type Bank = Ia3Bank;

    fn name(&self) -> &'static str {
        "ia3"
    }

    fn target_modules(&self) -> &[String] {
        &self.target_modules
    }

    fn bank(_: usize, d_out: usize, targeting: &[(usize, &Self)], _: usize, device: &Device) -> Ia3Bank {
        let adapters: Vec<usize> = targeting.iter().map(|(adapter, _)| *adapter).collect();
        Ia3Bank { vectors: Param::from_tensor(Tensor::ones([adapters.len(), d_out], device)), adapters }
    }

    fn parameters(&self, _: usize, d_out: usize) -> usize {
        d_out
    }

    /// PEFT rescales the inputs of maps that it is told are feed-forward layers.
    fn peft_keys(&self) -> Map<String, Value> {
        [("feedforward_modules".to_owned(), Value::Array(Vec::new())), ("fan_in_fan_out".to_owned(), false.into())]
            .into_iter()
            .collect()
    }
}

#[derive(Module, Debug)]
struct Ia3Bank {
    /// Vectors of all adapters, `[adapters that target the map, out]`, initially 1.
    vectors: Param<Tensor<2>>,
    /// Index of each row's adapter.
    #[module(skip)]
    adapters: Vec<usize>,
}

impl Ia3Bank {
    fn row(&self, adapter: usize) -> Option<usize> {
        self.adapters.iter().position(|own| *own == adapter)
    }

    /// Returns an adapter's vector, `[1, out]`.
    fn vector(&self, adapter: usize) -> Option<Tensor<2>> {
        Some(self.vectors.val().narrow(0, self.row(adapter)?, 1))
    }
}

impl AdapterBank for Ia3Bank {
    /// Multiplies by `1 + Σ gate · (vector − 1)`.
    fn forward(&self, x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>, gates: &Gates) -> Tensor<3> {
        let y = linear(x, weight, bias);
        let factors = match gates {
            Gates::One(adapter) => self.vector(*adapter),
            Gates::Each(gates) => {
                let own = self.adapters.iter().map(|adapter| gates.clone().narrow(1, *adapter, 1));
                Some(matmul(Tensor::cat(own.collect(), 1), self.vectors.val() - 1.0) + 1.0)
            }
        };
        factors.map_or(y.clone(), |factors| y * factors.unsqueeze_dim::<3>(1))
    }

    fn merged(&self, adapter: usize, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Option<MapWeights> {
        let vector = self.vector(adapter)?;
        Some((weight * vector.clone().transpose(), bias.map(|bias| bias * vector.squeeze_dim::<1>(0))))
    }

    fn tensors(&self, adapter: usize) -> Vec<(&'static str, HostTensor)> {
        self.vector(adapter).map(|vector| (VECTOR, vector.transpose().into())).into_iter().collect()
    }

    fn load(&mut self, adapter: usize, read: &mut ReadTensor) -> Result<(), StoreError> {
        let Some(row) = self.row(adapter) else { return Ok(()) };
        let width = self.vectors.dims()[1];
        let vector: Tensor<2> = read(VECTOR, &[width, 1])?.on(&self.vectors.device());
        self.vectors = changed(&self.vectors, |all| all.slice_assign([row..row + 1, 0..width], vector.transpose()));
        Ok(())
    }
}

/// Name and shape, `[out, 1]`, are PEFT's.
const VECTOR: &str = "ia3_l";
