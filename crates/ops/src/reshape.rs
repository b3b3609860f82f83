//! Many tensors in other shapes, as one operation of a device's queue.
//!
//! Each operation of the queue takes the host some ten microseconds, and an optimizer reshapes every parameter three times in a step.

use crate::AnyFloat;
#[cfg(feature = "cube")]
use crate::{cube, device::Backing};
use burn::backend::ops::FloatTensorOps;
use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::{Shape, Tensor};
#[cfg(feature = "cube")]
use burn_cubecl::ops::reshape;

/// Returns each tensor as a vector, `[elements]`. They must not have autodiff.
pub fn flatten_all(tensors: Vec<AnyFloat>) -> Vec<Tensor<1>> {
    let flat = |x: AnyFloat| {
        let shape = [x.0.shape().num_elements()].into();
        (x, shape)
    };
    reshaped(tensors.into_iter().map(flat).collect()).into_iter().map(AnyFloat::tensor).collect()
}

/// Returns each vector, `[elements]`, in its shape. They must not have autodiff.
pub fn unflatten_all(tensors: Vec<(Tensor<1>, Shape)>) -> Vec<AnyFloat> {
    reshaped(tensors.into_iter().map(|(x, shape)| (x.into(), shape)).collect())
}

fn reshaped(tensors: Vec<(AnyFloat, Shape)>) -> Vec<AnyFloat> {
    #[cfg(feature = "cube")]
    if tensors.first().is_some_and(|(x, _)| Backing::of(&x.clone().tensor::<1>().device()).is_cube()) {
        return reshaped_at_once(tensors);
    }
    let reshaped = |(x, shape): (AnyFloat, Shape)| AnyFloat(Dispatch::float_reshape(x.0, shape));
    tensors.into_iter().map(reshaped).collect()
}

#[cfg(feature = "cube")]
fn reshaped_at_once(tensors: Vec<(AnyFloat, Shape)>) -> Vec<AnyFloat> {
    let outputs: Vec<_> = tensors.iter().map(|(x, shape)| (shape.clone(), x.0.dtype())).collect();
    let shapes: Vec<Shape> = outputs.iter().map(|(shape, _)| shape.clone()).collect();
    let inputs = tensors.into_iter().map(|(x, _)| x.0).collect();
    let run =
        move |inputs: Vec<_>| inputs.into_iter().zip(&shapes).map(|(x, shape)| reshape(x, shape.clone())).collect();
    cube::queue("reshape_all", inputs, outputs, run).into_iter().map(AnyFloat).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{device, values};

    #[test]
    fn tensors_are_flattened_and_get_their_shapes_back() {
        let matrix = Tensor::<2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device());
        let vector = Tensor::<1>::from_floats([7.0], &device());
        // A transposed view is not contiguous.
        let tensors = vec![matrix.clone().into(), vector.clone().into(), matrix.clone().transpose().into()];
        let flat = flatten_all(tensors);
        let found: Vec<Vec<f32>> = flat.iter().cloned().map(values).collect();
        assert_eq!(found, [vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![7.0], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]]);
        let shapes = [matrix.shape(), vector.shape(), [3, 2].into()];
        let [a, b, c]: [AnyFloat; 3] = unflatten_all(flat.into_iter().zip(shapes).collect()).try_into().expect("three");
        assert_eq!(
            (a.tensor::<2>().into_data(), b.tensor::<1>().into_data()),
            (matrix.clone().into_data(), vector.into_data())
        );
        assert_eq!(c.tensor::<2>().into_data(), matrix.transpose().into_data());
        assert!(flatten_all(Vec::new()).is_empty());
    }
}
