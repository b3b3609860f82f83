//! What operations hold on a device that counts its memory.

use super::cases::plain;
use burn::tensor::Device;
use undertone_ops::{AttentionOptions, attention, sum};
use undertone_testing::skipped;

/// How much more the device's allocator has reserved after a forward and a backward pass over so many positions.
fn growth(time: usize, device: &Device) -> Option<u64> {
    let reserved = || device.memory_pool_usage().map(|usage| usage.bytes_reserved);
    let before = reserved()?;
    let qkv = [1, 2, 3].map(|n| plain::<3>(n, [2, time, 32], 1.0, device).autodiff().require_grad());
    let [q, k, v] = qkv.clone();
    let gradients = sum(attention(q, k, v, AttentionOptions::new(2))).backward();
    qkv.iter().for_each(|x| drop(x.grad(&gradients).expect("a gradient").into_data()));
    Some(reserved()? - before)
}

#[test]
#[ignore = "needs a device that counts its memory: cargo xtask test --device wgpu"]
fn attention_holds_nothing_that_grows_with_the_square_of_the_time() {
    let device = Device::default();
    if growth(100, &device).is_none() {
        return skipped("the device does not count its memory");
    }
    for time in [1500, 3000] {
        let found = growth(time, &device).expect("counted before");
        let (tensor, weights) = (2 * time * 32 * 4, 2 * 2 * time * time * 4);
        println!("{time} positions: {found} bytes; a tensor has {tensor}, all weights would have {weights}");
        // Inputs, their gradients, the output and its gradient, and what the allocator rounds up.
        assert!(found < 24 * tensor as u64, "{found} bytes at {time} positions; a tensor has {tensor}");
    }
}
