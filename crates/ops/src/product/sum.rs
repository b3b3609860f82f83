//! Sums of products of matrices. On CubeCL they are one operation of the backend with its reshapes and transposes: each operation, also one that
//! only changes a shape, passes through fusion and costs the host time.

use super::plain::matmul_as;
use crate::graph::AnyFloat;
use crate::host;
use crate::precision::product_type;
use burn::backend::Dispatch;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Device, Tensor};
#[cfg(feature = "cube")]
use {
    super::plain::rounding,
    crate::{capacity::properties, cube, device::Backing},
    burn_cubecl::CubeBackend,
    burn_cubecl::tensor::CubeTensor,
};

/// Matrix whose rows are all axes of a tensor but the last one, or the transposed one of it.
#[derive(Clone)]
pub(crate) struct Matrix {
    numbers: AnyFloat,
    form: Form,
    #[cfg(feature = "cube")]
    device: Device,
    #[cfg(feature = "cube")]
    dtype: DType,
}

/// Shape of a matrix in memory, and whether it stands for the transposed one.
#[derive(Clone, Copy)]
struct Form {
    axes: usize,
    stored: [usize; 2],
    is_transposed: bool,
}

impl Matrix {
    pub fn of<const D: usize>(x: Tensor<D>) -> Self {
        let shape = x.dims();
        let stored = [shape[..D - 1].iter().product(), shape[D - 1]];
        let form = Form { axes: D, stored, is_transposed: false };
        Self {
            form,
            #[cfg(feature = "cube")]
            device: x.device(),
            #[cfg(feature = "cube")]
            dtype: x.dtype(),
            numbers: x.into(),
        }
    }

    pub fn transposed(mut self) -> Self {
        self.form.is_transposed ^= true;
        self
    }

    /// Returns it as a tensor of its own shape.
    fn tensor(self) -> Tensor<2> {
        let Form { axes, stored, is_transposed } = self.form;
        let numbers = if axes == 2 { self.numbers.0 } else { Dispatch::float_reshape(self.numbers.0, stored.into()) };
        let matrix = Tensor::<2>::from_dispatch(numbers);
        if is_transposed { matrix.transpose() } else { matrix }
    }
}

/// Sum of products of matrices, `[m, n]` each, without gradients.
pub(crate) struct Products {
    terms: Vec<[Matrix; 2]>,
    scale: f64,
    bias: Option<Tensor<1>>,
}

impl Products {
    /// One product of `[m, k]` and `[k, n]`.
    pub fn of(lhs: Matrix, rhs: Matrix) -> Self {
        Self { terms: vec![[lhs, rhs]], scale: 1.0, bias: None }
    }

    /// Adds another product.
    pub fn plus(mut self, lhs: Matrix, rhs: Matrix) -> Self {
        self.terms.push([lhs, rhs]);
        self
    }

    /// Multiplies the products by a factor.
    pub fn scaled(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    /// Adds a bias, `[n]`, to the products, if there is one.
    pub fn with_bias(self, bias: Option<Tensor<1>>) -> Self {
        Self { bias, ..self }
    }

    /// Returns the sum in `dtype`, reshaped from `[m, n]`. Products are computed in the type of their factors.
    pub fn compute<const D: usize>(self, dtype: DType, shape: [usize; D]) -> Tensor<D> {
        #[cfg(feature = "cube")]
        if adds_up(&self.terms[0][0].device, self.terms[0][0].dtype) {
            return self.by_one_kernel(dtype, shape);
        }
        let Self { terms, scale, bias } = self;
        let wide = if terms.len() == 1 && scale == 1.0 { dtype } else { DType::F32 };
        let products = terms.into_iter().map(|factors| product(factors, wide, shape));
        let sum = products.reduce(|sum, product| sum + product).expect("a sum has a term");
        let sum = if scale == 1.0 { sum } else { sum.mul_scalar(scale) };
        let sum = host::restored(sum, dtype);
        // The bias is added in the shape of the neighbouring operations, so that it is fused with those.
        match bias {
            Some(bias) => sum + host::restored(bias, dtype).unsqueeze(),
            None => sum,
        }
    }

    #[cfg(feature = "cube")]
    fn by_one_kernel<const D: usize>(self, dtype: DType, shape: [usize; D]) -> Tensor<D> {
        let Self { terms, scale, bias } = self;
        let forms: Vec<Form> = terms.iter().flatten().map(|factor| factor.form).collect();
        let factors = terms.into_iter().flatten().map(|factor| factor.numbers.0);
        let inputs = factors.chain(bias.map(|bias| host::f32(bias).into_dispatch())).collect();
        let launch = move |inputs: Vec<CubeTensor>| {
            let factors: Vec<CubeTensor> = inputs.iter().zip(&forms).map(|(x, form)| form.matrix(x)).collect();
            let terms: Vec<[&CubeTensor; 2]> = factors.as_chunks::<2>().0.iter().map(|pair| pair.each_ref()).collect();
            let y = cube::sum_of_products(&terms, scale as f32, inputs.get(forms.len()), dtype);
            vec![CubeBackend::float_reshape(y, shape.into())]
        };
        Tensor::from_dispatch(cube::queue("matmul", inputs, vec![(shape.into(), dtype)], launch).remove(0))
    }
}

/// Returns a product in `dtype`, reshaped.
fn product<const D: usize>([lhs, rhs]: [Matrix; 2], dtype: DType, shape: [usize; D]) -> Tensor<D> {
    #[cfg(feature = "cube")]
    if let Some(rounding) = rounding(&lhs.device, lhs.dtype) {
        // Kernels write an f32 result as they have accumulated it.
        let out = if dtype == DType::F32 { dtype } else { lhs.dtype };
        let forms = [lhs.form, rhs.form];
        let launch = move |[lhs, rhs]: [CubeTensor; 2]| {
            let y = cube::matmul(&forms[0].matrix(&lhs), &forms[1].matrix(&rhs), out, rounding);
            [CubeBackend::float_reshape(y, shape.into())]
        };
        let [y] = cube::launched_as("matmul", [lhs.numbers.0, rhs.numbers.0], [(shape.into(), out)], launch);
        return host::restored(Tensor::from_dispatch(y), dtype);
    }
    matmul_as(lhs.tensor(), rhs.tensor(), dtype).reshape(shape)
}

#[cfg(feature = "cube")]
impl Form {
    /// The matrix of a tensor. It is copied only if its rows are not at equal distances.
    fn matrix(self, x: &CubeTensor) -> CubeTensor {
        let matrix = match self.axes {
            2 => x.clone(),
            _ => CubeBackend::float_reshape(x.clone(), self.stored.into()),
        };
        if self.is_transposed { CubeBackend::float_swap_dims(matrix, 0, 1) } else { matrix }
    }
}

/// Whether a kernel for products of such factors adds up several of them and other numbers, and writes the sums in any type.
pub(crate) fn adds_up(device: &Device, factors: DType) -> bool {
    #[cfg(feature = "cube")]
    {
        let has_fragments = || properties(device).is_some_and(|found| cube::has_fragments(&found, factors));
        Backing::of(device) == Backing::Cuda && has_fragments()
    }
    #[cfg(not(feature = "cube"))]
    {
        let _ = (device, factors);
        false
    }
}

/// Type of the results of maps of `x`: f32 between products that [`autocast`](crate::autocast) computes in half precision, and otherwise its own.
pub(crate) fn result_type<const D: usize>(x: &Tensor<D>) -> DType {
    if x.dtype() == product_type(&x.device()) { DType::F32 } else { x.dtype() }
}

/// Type of the results of maps of `x` that only products read: their type, where kernels write it at no cost.
pub(crate) fn lowered_type<const D: usize>(x: &Tensor<D>) -> DType {
    let (device, low) = (x.device(), product_type(&x.device()));
    if low != DType::F32 && adds_up(&device, low) { low } else { result_type(x) }
}
