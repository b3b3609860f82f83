//! Where dropout takes its chances from, and how a block that is run again takes the same ones.

use burn::tensor::{Device, Distribution, Tensor};
use std::cell::RefCell;

/// A seed for dropout, drawn from the device: seeding that decides what is dropped.
pub(crate) fn draw_seed(device: &Device) -> u64 {
    SCOPES.with_borrow_mut(|scopes| next(scopes, device))
}

/// A tensor of `like`'s shape that is 1 with probability `keep` and 0 elsewhere, drawn by the device itself.
pub(crate) fn bernoulli<const D: usize>(like: &Tensor<D>, keep: f64) -> Tensor<D> {
    SCOPES.with_borrow_mut(|scopes| seed_once(scopes, &like.device()));
    like.random_like(Distribution::Bernoulli(keep))
}

/// The seeds that were drawn while something ran, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draws(Vec<u64>);

impl Draws {
    /// What `run` gives, and the seeds it drew. They are those it would have drawn anyway; only a device that draws masks
    /// itself is seeded before the first of them, since its state can be set but not be read.
    pub fn record<T>(run: impl FnOnce() -> T) -> (T, Self) {
        let scope = Entered::new(Scope::default());
        let result = run();
        (result, scope.leave())
    }

    /// Runs `run` with these seeds in place of new ones. The device draws afterwards what it would not have drawn within.
    ///
    /// # Panics
    /// If `run` wants more seeds than there are.
    pub fn replay<T>(self, run: impl FnOnce() -> T) -> T {
        let _scope = Entered::new(Scope { replaying: true, drawn: self, ..Scope::default() });
        run()
    }
}

thread_local! {
    /// What is being recorded or replayed, the innermost last.
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug, Default)]
struct Scope {
    drawn: Draws,
    replaying: bool,
    /// How many of the drawn seeds were used again.
    used: usize,
    /// Whether the device draws from a seed of this scope.
    seeded: bool,
    /// What the device is seeded with when a replay ends.
    restore: Option<(Device, u64)>,
}

/// The next seed: recorded by every scope it is drawn through, and replayed by the innermost one that replays.
fn next(scopes: &mut [Scope], device: &Device) -> u64 {
    let Some((scope, outer)) = scopes.split_last_mut() else { return fresh(device) };
    if !scope.replaying {
        let seed = next(outer, device);
        scope.drawn.0.push(seed);
        return seed;
    }
    scope.used += 1;
    *scope.drawn.0.get(scope.used - 1).expect("a block draws as often when it runs again")
}

/// Gives the device a seed of the innermost scope, unless it has one.
fn seed_once(scopes: &mut [Scope], device: &Device) {
    match scopes.last_mut() {
        Some(scope) if !scope.seeded => {
            scope.seeded = true;
            scope.restore = scope.replaying.then(|| (device.clone(), fresh(device)));
            device.seed(next(scopes, device));
        }
        _ => {}
    }
}

/// A seed that the device draws.
fn fresh(device: &Device) -> u64 {
    let range = Distribution::Uniform(0.0, f64::from(1_u32 << 24));
    let draws = Tensor::<1>::random([3], range, &device.clone().inner());
    let draws: Vec<f32> = draws.try_into_vec_as().expect("floats");
    draws.iter().fold(0, |seed, draw| (seed << 22) ^ *draw as u64)
}

/// A scope that ends with this, also by a panic.
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
        let scope = SCOPES.with_borrow_mut(Vec::pop);
        if let Some((device, seed)) = scope.and_then(|scope| scope.restore) {
            device.seed(seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;

    fn seeds(count: usize) -> Vec<u64> {
        (0..count).map(|_| draw_seed(&device())).collect()
    }

    #[test]
    fn recording_changes_no_draw_and_a_replay_makes_the_same_ones_without_the_device() {
        device().seed(3);
        let plain = seeds(4);
        device().seed(3);
        let first = seeds(1);
        let (recorded, draws) = Draws::record(|| seeds(2));
        assert_eq!([&first[..], &recorded].concat(), plain[..3]);
        assert_eq!(draws.replay(|| seeds(2)), recorded);
        assert_eq!(seeds(1), plain[3..], "a replay leaves the device where it was");
    }

    #[test]
    fn a_recording_within_a_replay_draws_what_was_recorded_around_it() {
        let (recorded, draws) = Draws::record(|| seeds(3));
        let (inner, again) = draws.replay(|| (seeds(1), Draws::record(|| seeds(2)))).1;
        assert_eq!(inner, recorded[1..]);
        assert_eq!(again.replay(|| seeds(2)), inner);
    }

    #[test]
    fn masks_that_the_device_draws_are_drawn_again() {
        let like = Tensor::<1>::ones([64], &device());
        let masks = || [(); 2].map(|()| bernoulli(&like, 0.5).into_data());
        let (recorded, draws) = Draws::record(masks);
        assert_ne!(recorded[0], recorded[1]);
        assert_eq!(draws.replay(masks), recorded);
        assert_ne!(masks(), recorded, "what follows is drawn anew");
    }
}
