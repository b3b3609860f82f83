//! Operations on all parameters, averages or gradients of a model at once: on CubeCL one kernel for each group of them.
//! Tensors are f32, without autodiff.

use crate::host::{flex, floats, from_flex, fused, tensor};
use crate::step::StepControl;
use crate::sum::sum;
#[cfg(feature = "cube")]
use crate::{cube, device::Backing};
use burn::tensor::Tensor;
use undertone_kernels::{adamw, pool};

/// Returns the running averages after a step: `average · decay + value · (1 - decay)` for each pair of an average and a
/// value. Tensors are f32, without autodiff. If `control` did not take the step, averages stay unchanged.
pub fn average(pairs: Vec<[Tensor<1>; 2]>, decay: f64, control: Option<&StepControl>) -> Vec<Tensor<1>> {
    #[cfg(feature = "cube")]
    if on_cube(&pairs) {
        return mixed("average", pairs, [decay as f32, 1.0 - decay as f32], control);
    }
    let averaged = |[average, value]: [Tensor<1>; 2]| {
        let new = average.clone().mul_scalar(decay) + value.mul_scalar(1.0 - decay);
        match control {
            None => new,
            Some(control) => control.choose(average, new),
        }
    };
    pairs.into_iter().map(averaged).collect()
}

/// Returns the sum of each pair of f32 tensors of equal length, without autodiff.
pub fn add(pairs: Vec<[Tensor<1>; 2]>) -> Vec<Tensor<1>> {
    #[cfg(feature = "cube")]
    if on_cube(&pairs) {
        return mixed("add", pairs, [1.0, 1.0], None);
    }
    pairs.into_iter().map(|[a, b]| a + b).collect()
}

#[cfg(feature = "cube")]
fn on_cube(pairs: &[[Tensor<1>; 2]]) -> bool {
    pairs.first().is_some_and(|[first, _]| Backing::of(&first.device()).is_cube())
}

/// Returns `first · kept + second · share` of each pair, by few kernels.
#[cfg(feature = "cube")]
fn mixed(name: &str, pairs: Vec<[Tensor<1>; 2]>, factors: [f32; 2], control: Option<&StepControl>) -> Vec<Tensor<1>> {
    let shapes = pairs.iter().map(|[first, _]| first.shape()).collect();
    let control = control.map(StepControl::numbers);
    let controlled = control.is_some();
    let inputs = pairs.into_iter().flatten().chain(control).map(Tensor::into_dispatch).collect();
    let made = cube::launched_all(name, inputs, shapes, move |mut inputs| {
        let control = if controlled { inputs.pop() } else { None };
        cube::mix(inputs, factors, control)
    });
    made.into_iter().map(Tensor::from_dispatch).collect()
}

/// Returns the sum of squares of all elements of all tensors, `[1]`, f32; `None` without tensors.
pub fn sum_of_squares(tensors: Vec<Tensor<1>>) -> Option<Tensor<1>> {
    let device = tensors.first()?.device();
    #[cfg(feature = "cube")]
    if Backing::of(&device).is_cube() {
        let inputs = tensors.into_iter().map(|x| x.into_dispatch()).collect();
        let run = |inputs| vec![cube::sum_of_squares(inputs)];
        let sums = cube::launched_all("sum_of_squares", inputs, vec![[1].into()], run);
        return sums.into_iter().next().map(Tensor::from_dispatch);
    }
    let squares = |x: Tensor<1>| match fused(&device) {
        true => from_flex(tensor(vec![adamw::sum_of_squares(floats(&flex(x))) as f32], [1])),
        false => sum(x.square()),
    };
    Some(pool::within(|| sum(Tensor::cat(tensors.into_iter().map(squares).collect(), 0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device, pseudo_random};

    #[test]
    fn sums_squares_of_views_too() {
        let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0, 4.0], &device());
        let squares = |tensors| sum_of_squares(tensors).expect("a sum");
        assert_close(squares(vec![x.clone()]), &[30.0], 1e-6);
        assert_close(squares(vec![x.clone(), x.clone().narrow(0, 0, 1)]), &[31.0], 1e-6);
        assert!(sum_of_squares(Vec::new()).is_none());
        assert_close(squares(vec![x.narrow(0, 1, 2)]), &[13.0], 1e-6);
    }

    #[test]
    fn pairs_are_added_and_what_else_holds_them_is_left_alone() {
        let host = |n: usize| [0, 1].map(|part| pseudo_random(100 + n, (2 * n + part) as u64 + 1));
        let device = device();
        let pairs = |n: usize| host(n).map(|numbers| Tensor::<1>::from_floats(numbers.as_slice(), &device));
        let held = pairs(0)[0].clone();
        let all: Vec<[Tensor<1>; 2]> =
            (0..70).map(|n| if n == 0 { [held.clone(), held.clone()] } else { pairs(n) }).collect();
        let sums = add(all);
        assert_eq!(sums.len(), 70);
        for (n, sum) in sums.into_iter().enumerate() {
            let [a, b] = host(n);
            let b = if n == 0 { &a } else { &b };
            let expected: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
            assert_close(sum, &expected, 0.0);
        }
        assert_close(held, &host(0)[0], 0.0);
        assert!(add(Vec::new()).is_empty());
    }
}
