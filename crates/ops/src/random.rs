//! Random numbers for initial values and dropout.
//!
//! They come from a generator of the calling thread, on the host. So a seed gives the same numbers on every device,
//! whatever else the process does. Each of Burn's backends has one generator for the whole process, and no two of them
//! give the same numbers.

use crate::device::runs_on_host;
use burn::tensor::{DType, Device, Distribution, Int, Shape, Tensor, TensorData};
use rand::rngs::StdRng;
use rand::{SeedableRng, make_rng};
use std::cell::{Cell, RefCell};

thread_local! {
    /// `None` before the first seed or draw.
    static STREAM: RefCell<Option<StdRng>> = const { RefCell::new(None) };
    /// Whether values are drawn; see [`undrawn`].
    static DRAWS: Cell<bool> = const { Cell::new(true) };
    /// Scopes that record or replay seeds, the innermost last.
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// Seeds this thread's generator: later values of [`normal`], [`uniform`] and dropout depend on `seed` alone. A thread
/// that was never seeded draws different numbers in every process.
///
/// Burn's `Device::seed` has no influence on them.
///
/// ```
/// use burn::tensor::Device;
/// use undertone_ops::{normal, seed};
///
/// let draw = || {
///     seed(7);
///     normal([2, 3], 1.0, &Device::flex()).into_data()
/// };
/// assert_eq!(draw(), draw());
/// ```
pub fn seed(seed: u64) {
    STREAM.set(Some(StdRng::seed_from_u64(seed)));
}

/// Runs `init`, in which [`normal`] and [`uniform`] return zeros and draw nothing: for a module whose values are loaded
/// afterwards. Drawing them first takes seconds for each 300 million.
///
/// ```
/// use burn::tensor::Device;
/// use undertone_ops::{normal, undrawn};
///
/// let zeros = undrawn(|| normal([2], 1.0, &Device::flex()));
/// assert_eq!(zeros.into_data().to_vec::<f32>()?, [0.0, 0.0]);
/// # Ok::<(), burn::tensor::DataError>(())
/// ```
pub fn undrawn<T>(init: impl FnOnce() -> T) -> T {
    struct Before(bool);

    impl Drop for Before {
        fn drop(&mut self) {
            DRAWS.set(self.0);
        }
    }

    let _before = Before(DRAWS.replace(false));
    init()
}

/// Returns normally distributed values with mean 0 and standard deviation `std`, f32.
pub fn normal<const D: usize>(shape: [usize; D], std: f64, device: &Device) -> Tensor<D> {
    draw(shape, Distribution::Normal(0.0, std), device)
}

/// Returns uniformly distributed values in `[low, high)`, f32.
pub fn uniform<const D: usize>(shape: [usize; D], low: f64, high: f64, device: &Device) -> Tensor<D> {
    draw(shape, Distribution::Uniform(low, high), device)
}

fn draw<const D: usize>(shape: [usize; D], distribution: Distribution, device: &Device) -> Tensor<D> {
    if !DRAWS.get() {
        // In host memory one number stands for all: writing zeros takes longer than reading the values that replace them.
        let held = if runs_on_host(device) { [1; D] } else { shape };
        return Tensor::<D>::zeros(held, (device, DType::F32)).expand(shape);
    }
    Tensor::from_data(numbers(shape, distribution), (device, DType::F32))
}

fn numbers(shape: impl Into<Shape>, distribution: Distribution) -> TensorData {
    STREAM.with_borrow_mut(|stream| {
        let stream = stream.get_or_insert_with(make_rng);
        TensorData::random::<f32, _, _>(shape, distribution, stream)
    })
}

/// Draws a seed for dropout.
pub(crate) fn draw_seed() -> u64 {
    SCOPES.with_borrow_mut(|scopes| next(scopes))
}

/// Factors of dropout, in tensor operations: 0 with probability `p`, else `1 / (1 - p)`. They equal those of the
/// kernels of the CPU and of CubeCL for this seed.
pub(crate) fn kept<const D: usize>(shape: [usize; D], p: f64, seed: u64, device: &Device) -> Tensor<D> {
    let p = p as f32;
    let elements = shape.iter().product::<usize>() as i64;
    let index = Tensor::<1, Int>::arange(0..elements, (device, DType::I64));
    let (low, high) = (i64::from(seed as u32), (seed >> 32) as i64);
    let hash = mix(mix(index.bitwise_xor_scalar(low)).bitwise_xor_scalar(high));
    // 24 bits of the hash are a number in [0, 1), times 2²⁴: f32 holds it exactly.
    let least = (p * (1_u32 << 24) as f32).ceil() as i64;
    let kept = hash.bitwise_right_shift_scalar(8_i64).greater_equal_scalar(least);
    kept.float().cast(DType::F32).mul_scalar(1.0 / (1.0 - p)).reshape(shape)
}

/// The finaliser of `undertone_kernels`, in integers of 64 bits.
fn mix(x: Tensor<1, Int>) -> Tensor<1, Int> {
    // Lower 32 bits of a product, by halves of the factor: the whole product would overflow a signed integer.
    let times = |x: Tensor<1, Int>, factor: i64| {
        let upper = x.clone().mul_scalar(factor >> 16).bitwise_and_scalar(0xFFFF_i64).bitwise_left_shift_scalar(16_i64);
        (x.mul_scalar(factor & 0xFFFF) + upper).bitwise_and_scalar(0xFFFF_FFFF_i64)
    };
    let folded = |x: Tensor<1, Int>, bits: i64| x.clone().bitwise_xor(x.bitwise_right_shift_scalar(bits));
    folded(times(folded(times(folded(x, 16), 0x7FEB_352D), 15), 0x846C_A68B), 16)
}

/// Seeds that were drawn while a function ran, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draws(Vec<u64>);

impl Draws {
    /// Returns the result of `run` and the seeds that it drew. Recording does not change the seeds.
    pub fn record<T>(run: impl FnOnce() -> T) -> (T, Self) {
        let scope = Entered::new(Scope::default());
        let result = run();
        (result, scope.leave())
    }

    /// Runs `run` with these seeds in place of new ones.
    ///
    /// # Panics
    /// If `run` draws more seeds than were recorded.
    pub fn replay<T>(self, run: impl FnOnce() -> T) -> T {
        let _scope = Entered::new(Scope { replaying: true, drawn: self, used: 0 });
        run()
    }
}

#[derive(Debug, Default)]
struct Scope {
    drawn: Draws,
    replaying: bool,
    /// Number of the recorded seeds that were used again.
    used: usize,
}

/// Returns the next seed: replayed by the innermost scope that replays, and recorded by every scope inside that.
fn next(scopes: &mut [Scope]) -> u64 {
    let Some((scope, outer)) = scopes.split_last_mut() else { return fresh() };
    if !scope.replaying {
        let seed = next(outer);
        scope.drawn.0.push(seed);
        return seed;
    }
    scope.used += 1;
    *scope.drawn.0.get(scope.used - 1).expect("a block draws as often when it runs again")
}

/// A seed of the stream: three draws of 24 bits, which f32 holds exactly.
fn fresh() -> u64 {
    let draws = numbers([3], Distribution::Uniform(0.0, f64::from(1_u32 << 24)));
    draws.iter::<f32>().fold(0, |seed, draw| (seed << 22) ^ draw as u64)
}

/// Ends a scope when dropped, also on a panic.
struct Entered;

impl Entered {
    fn new(scope: Scope) -> Self {
        SCOPES.with_borrow_mut(|scopes| scopes.push(scope));
        Self
    }

    fn leave(self) -> Draws {
        SCOPES
            .with_borrow_mut(|scopes| scopes.last_mut().map(|scope| std::mem::take(&mut scope.drawn)))
            .unwrap_or_default()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        SCOPES.with_borrow_mut(Vec::pop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, device};
    use proptest::prelude::*;
    use undertone_kernels::activation;

    fn seeds(count: usize) -> Vec<u64> {
        (0..count).map(|_| draw_seed()).collect()
    }

    #[test]
    fn a_seed_gives_the_numbers_that_burns_cpu_backend_gives() {
        // Weights that were published with a seed must start from the same values.
        Device::flex().seed(11);
        let expected = Tensor::<2>::random([3, 5], Distribution::Normal(0.0, 0.5), &Device::flex());
        seed(11);
        assert_close(normal([3, 5], 0.5, &device()), &expected.try_into_vec_as::<f32>().expect("floats"), 0.0);
    }

    #[test]
    fn a_stream_belongs_to_its_thread() {
        seed(3);
        let plain = seeds(4);
        seed(3);
        let first = seeds(1);
        let others = std::thread::spawn(|| {
            seed(4);
            // Burn's generator has no influence.
            device().seed(9);
            seeds(2)
        });
        let others = others.join().expect("a thread");
        assert_eq!([&first[..], &seeds(3)].concat(), plain);
        assert!(others.iter().all(|seed| !plain.contains(seed)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_tensor_operations_keep_what_the_kernel_keeps(seed: u64, p in 0.0_f32..0.99, rows in 1_usize..40, columns in 1_usize..70) {
            let expected = activation::dropout(&vec![1.0; rows * columns], p, seed);
            assert_close(kept([1, rows, columns], f64::from(p), seed, &Device::flex()), &expected, 0.0);
        }
    }

    #[test]
    fn recording_changes_no_draw_and_a_replay_makes_the_same_ones_without_the_stream() {
        seed(3);
        let plain = seeds(4);
        seed(3);
        let first = seeds(1);
        let (recorded, draws) = Draws::record(|| seeds(2));
        assert_eq!([&first[..], &recorded].concat(), plain[..3]);
        assert_eq!(draws.replay(|| seeds(2)), recorded);
        assert_eq!(seeds(1), plain[3..], "a replay leaves the stream where it was");
    }

    #[test]
    fn a_recording_within_a_replay_draws_what_was_recorded_around_it() {
        let (recorded, draws) = Draws::record(|| seeds(3));
        let (inner, again) = draws.replay(|| (seeds(1), Draws::record(|| seeds(2)))).1;
        assert_eq!(inner, recorded[1..]);
        assert_eq!(again.replay(|| seeds(2)), inner);
    }
}
