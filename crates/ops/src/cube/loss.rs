//! Cross-entropy and its gradient, one cube per row of logits.

use super::launch::{UNITS, cube_each, empty, highest, row_of_cube, summed};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

/// Ignored targets and label smoothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassLoss {
    pub ignored: i32,
    pub smoothing: f32,
}

impl ClassLoss {
    /// Returns the loss of each row, `[rows]`, and the gradient of the logits, `[rows, classes]`, for the sum of all
    /// losses. Targets are `[rows]`, in 32 bits. Logits that nothing else holds are overwritten by their gradient.
    pub fn rows(self, [logits, targets]: [CubeTensor; 2]) -> [CubeTensor; 2] {
        let [logits, targets] = [logits, targets].map(into_contiguous);
        let logits = if logits.can_mut() { logits } else { into_contiguous(logits.copy()) };
        let (rows, classes) = (logits.meta.shape()[0], logits.meta.shape()[1]);
        let losses = empty(&logits, [rows]);
        if rows * classes > 0 {
            let (client, units) = (logits.client.clone(), CubeDim::new_1d(UNITS as u32));
            let [x, t, l] = [&logits, &targets, &losses].map(|x| x.clone().into_tensor_arg());
            class_loss::launch(&client, cube_each(rows), units, x, t, l, rows, classes, self.ignored, self.smoothing);
        }
        [losses, logits]
    }
}

#[cube(launch)]
fn class_loss(
    logits: &mut Tensor<f32>,
    targets: &Tensor<i32>,
    losses: &mut Tensor<f32>,
    rows: usize,
    classes: usize,
    ignored: i32,
    smoothing: f32,
) {
    let mut shares = Shared::<[f32]>::new_slice(UNITS);
    let row = row_of_cube();
    let unit = UNIT_POS_X as usize;
    if row < rows {
        let first = row * classes;
        let target = targets[row];
        if target == ignored {
            let mut at = unit;
            while at < classes {
                logits[first + at] = 0.0f32;
                at += UNITS;
            }
            if unit == 0 {
                losses[row] = 0.0f32;
            }
        } else {
            let class = usize::cast_from(target);
            // A target that is no class (negative ones become large) has an infinite loss, made by overflow: WGSL has no constant for it.
            if unit == 0 && class >= classes {
                losses[row] = (1000.0f32 * f32::cast_from(classes)).exp();
            }
            let mut top = logits[first];
            let mut plain = 0.0f32;
            let mut at = unit;
            while at < classes {
                top = max(top, logits[first + at]);
                plain += logits[first + at];
                at += UNITS;
            }
            let top = highest(&mut shares, top);
            let mut share = 0.0f32;
            at = unit;
            while at < classes {
                share += (logits[first + at] - top).exp();
                at += UNITS;
            }
            let total = summed(&mut shares, share);
            let mean = summed(&mut shares, plain) / f32::cast_from(classes);
            let even = smoothing / f32::cast_from(classes);
            at = unit;
            while at < classes {
                let logit = logits[first + at];
                let mut number = (logit - top).exp() / total - even;
                if at == class {
                    number -= 1.0f32 - smoothing;
                    let mut loss = top + total.ln() - (1.0f32 - smoothing) * logit;
                    // Not 0 times the mean: if a class has the logit -∞, the mean is not finite.
                    if smoothing > 0.0f32 {
                        loss -= smoothing * mean;
                    }
                    losses[row] = loss;
                }
                logits[first + at] = number;
                at += UNITS;
            }
        }
    }
}
