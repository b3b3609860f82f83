//! Heads of attention, split and merged for several tensors in one launch.

use super::launch::{element, empty_as, row_vector_width, wide_grid, wide_stride};
use super::optimizer::{every, longest};
use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::ir::ElemType;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Exchanges two inner axes of tensors of one float type and multiplies each tensor by its factor: `[batch, time, heads · d_head]` becomes `[batch,
/// heads, time, d_head]`, or the other way round.
#[derive(Clone, Debug)]
pub(crate) struct Heads {
    pub heads: usize,
    /// Whether heads are split, not merged.
    pub split: bool,
    pub factors: Vec<f32>,
    /// Type of the results.
    pub dtype: DType,
}

impl Heads {
    /// Returns the tensors with the axes exchanged, contiguous.
    pub fn exchange<const N: usize>(&self, tensors: [CubeTensor; N]) -> [CubeTensor; N] {
        let (client, from) = (tensors[0].client.clone(), tensors[0].dtype);
        let (mut sizes, mut factors) = (SequenceArg::<usize>::new(), SequenceArg::<f32>::new());
        let (mut pairs, mut d_head) = (Vec::new(), 0);
        for (x, factor) in tensors.into_iter().map(into_contiguous).zip(&self.factors) {
            let shape = x.shape();
            let [batch, time, width] = match self.split {
                true => [shape[0], shape[1], shape[2]],
                false => [shape[0], shape[2], shape[1] * shape[3]],
            };
            d_head = width / self.heads;
            let made = match self.split {
                true => vec![batch, self.heads, time, d_head],
                false => vec![batch, time, width],
            };
            let (outer, inner) = if self.split { (time, self.heads) } else { (self.heads, time) };
            [outer, inner].into_iter().for_each(|size| sizes.push(size));
            factors.push(*factor);
            let y = empty_as(&x, made, self.dtype);
            pairs.extend([x, y]);
        }
        let width = row_vector_width(d_head, pairs.iter());
        let (cubes, units) = wide_grid(&client, longest(&pairs, width));
        let (inputs, outputs) = (every(&pairs, 0, 2), every(&pairs, 1, 2));
        let vectors = d_head / width;
        heads_kernel::launch(
            &client,
            cubes,
            units,
            width,
            inputs,
            outputs,
            sizes,
            factors,
            vectors,
            element(from),
            element(self.dtype),
        );
        let made: Vec<CubeTensor> = pairs.into_iter().skip(1).step_by(2).collect();
        made.try_into().expect("one tensor for each input")
    }
}

/// `[batch, outer, inner, d_head]` becomes `[batch, inner, outer, d_head]`; `sizes` has outer and inner of each tensor, and `vectors` is
/// the number of vectors of a head.
#[cube(launch)]
fn heads_kernel<F: Numeric, T: Numeric, N: Size>(
    tensors: &Sequence<OwnedTensor<Vector<F, N>>>,
    outputs: &mut Sequence<OwnedTensor<Vector<T, N>>>,
    sizes: &Sequence<usize>,
    factors: &Sequence<f32>,
    vectors: usize,
    #[define(F)] _from: ElemType,
    #[define(T)] _to: ElemType,
) {
    #[unroll]
    for i in 0..tensors.len() {
        let (x, y) = (&tensors[i], &mut outputs[i]);
        let (outer, inner) = (sizes[comptime!(2 * i)], sizes[comptime!(2 * i + 1)]);
        let factor = Vector::<f32, N>::new(factors[i]);
        let mut at = ABSOLUTE_POS;
        while at < x.len() {
            let row = at / vectors;
            let (of_outer, rest) = (row % outer, row / outer);
            let (of_inner, batch) = (rest % inner, rest / inner);
            let from = ((batch * outer + of_outer) * inner + of_inner) * vectors + at % vectors;
            y[at] = Vector::cast_from(Vector::<f32, N>::cast_from(x[from]) * factor);
            at += wide_stride();
        }
    }
}
