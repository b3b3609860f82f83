//! Every operation on small inputs, forward and backward.

use burn::tensor::{Bool, Device, Gradients, Int, Tensor};
use undertone_ops::{
    AdafactorRule, AdamWRule, AdamWStep, AttentionOptions, CrossEntropyOptions, FactoredMoments, LoraGates, LoraUpdate,
    Moments, adamw, add, attention, average, checkpoint, conv1d, cross_entropy, dropout, embedding, gelu, layer_norm,
    linear, linear_cross_entropy, linear_lowered, lora_bank, lora_linear, lora_linear_lowered, matmul,
    residual_dropout, seed, sum, sum_of_squares,
};

/// An operation, and how the table calls it.
pub struct Case {
    pub name: &'static str,
    /// What it is on the CPU.
    pub cpu: &'static str,
    pub run: fn(&Device) -> Run,
}

/// What an operation gave, and how its gradients are had.
pub struct Run {
    pub values: Vec<f32>,
    /// A sum in which each of the values counts otherwise; nothing of an operation without gradients.
    pub loss: Option<Tensor<1>>,
    gradients: Box<Find>,
}

/// Finds the gradients of an operation's inputs.
type Find = dyn FnOnce(&Gradients) -> Vec<Vec<f32>>;

impl Run {
    /// The gradients of `loss`.
    pub fn backward(self) -> Vec<Vec<f32>> {
        self.loss.map_or_else(Vec::new, |loss| (self.gradients)(&loss.backward()))
    }
}

const KERNEL: &str = "a kernel each way";
const UPDATE: &str = "a kernel";
const BURN: &str = "Burn's operations";

/// A tensor, and the sum that gradients are taken of.
pub const NOTHING: Case = Case { name: "nothing", cpu: "", run: |device| of_one(device, [40, 70], 1.0, |x| x) };

/// All operations of the crate.
pub const CASES: &[Case] = &[
    Case { name: "`gelu`", cpu: KERNEL, run: |device| of_one(device, [40, 70], 4.0, gelu) },
    Case {
        name: "`dropout`",
        cpu: KERNEL,
        run: |device| {
            seed(7);
            of_one(device, [40, 70], 1.0, |x| dropout(x, 0.3))
        },
    },
    Case {
        name: "`residual_dropout`",
        cpu: KERNEL,
        run: |device| {
            seed(7);
            let [residual, x] = [1, 2].map(|n| leaf::<2>(n, [40, 70], 1.0, device));
            let y = residual_dropout(residual.clone(), x.clone(), 0.3);
            run(y, move |g| vec![gradient(&residual, g), gradient(&x, g)])
        },
    },
    Case {
        name: "`layer_norm`",
        cpu: KERNEL,
        run: |device| {
            let x = leaf::<3>(1, [3, 17, 96], 3.0, device);
            let [weight, bias] = [2, 3].map(|n| leaf::<1>(n, [96], 1.0, device));
            let y = layer_norm(x.clone(), weight.clone(), bias.clone(), 1e-5);
            run(y, move |g| vec![gradient(&x, g), gradient(&weight, g), gradient(&bias, g)])
        },
    },
    Case {
        name: "`linear`",
        cpu: KERNEL,
        run: |device| {
            let x = leaf::<3>(1, [3, 17, 48], 1.0, device);
            let (weight, bias) = (leaf::<2>(2, [96, 48], 0.3, device), leaf::<1>(3, [96], 1.0, device));
            let y = linear(x.clone(), weight.clone(), Some(bias.clone()));
            run(y, move |g| vec![gradient(&x, g), gradient(&weight, g), gradient(&bias, g)])
        },
    },
    Case {
        name: "`matmul`",
        cpu: BURN,
        run: |device| {
            let (a, b) = (leaf::<3>(1, [3, 17, 48], 1.0, device), leaf::<3>(2, [3, 48, 20], 0.3, device));
            run(matmul(a.clone(), b.clone()), move |g| vec![gradient(&a, g), gradient(&b, g)])
        },
    },
    Case {
        name: "`embedding`",
        cpu: KERNEL,
        run: |device| {
            let weight = leaf::<2>(1, [30, 48], 1.0, device);
            let ids = (0..34).map(|i| i * i % 30).collect::<Vec<i64>>();
            let ids = Tensor::<1, Int>::from_ints(ids.as_slice(), device).reshape([2, 17]);
            run(embedding(weight.clone(), ids), move |g| vec![gradient(&weight, g)])
        },
    },
    Case { name: "`conv1d`", cpu: KERNEL, run: |device| convolution(device, [33, 48], 1) },
    Case { name: "`conv1d`, stride 2", cpu: KERNEL, run: |device| convolution(device, [33, 48], 2) },
    Case { name: "`attention`", cpu: KERNEL, run: |device| attends(device, [37, 37], |options| options) },
    Case {
        name: "`attention`, causal",
        cpu: KERNEL,
        run: |device| attends(device, [21, 37], AttentionOptions::causal),
    },
    Case {
        name: "`attention`, padded",
        cpu: KERNEL,
        run: |device| {
            let hidden: Vec<bool> = (0..2 * 37).map(|i| i % 37 > 30 - i / 37).collect();
            let mask = Tensor::<1, Bool>::from_bool(hidden.as_slice(), &device.clone().inner()).reshape([2, 37]);
            attends(device, [21, 37], |options| options.with_key_padding(Some(mask)))
        },
    },
    Case {
        name: "`attention`, with dropout",
        cpu: KERNEL,
        run: |device| {
            seed(7);
            attends(device, [37, 37], |options| options.causal().with_dropout(0.2))
        },
    },
    Case {
        name: "`lora_bank`",
        cpu: KERNEL,
        run: |device| {
            let x = leaf::<3>(1, [3, 17, 48], 1.0, device);
            let (a, b) = (leaf::<2>(2, [12, 48], 0.3, device), leaf::<2>(3, [40, 12], 0.3, device));
            let gates = leaf::<2>(4, [3, 12], 1.0, device);
            let y = lora_bank(x.clone(), a.clone(), b.clone(), gates.clone());
            run(y, move |g| vec![gradient(&x, g), gradient(&a, g), gradient(&b, g), gradient(&gates, g)])
        },
    },
    Case {
        name: "`lora_linear`",
        cpu: "kernels of `linear`",
        run: |device| {
            let (x, weight) = (leaf::<3>(1, [3, 17, 48], 1.0, device), plain::<2>(5, [40, 48], 0.3, device));
            let (a, b) = (leaf::<2>(2, [12, 48], 0.3, device), leaf::<2>(3, [40, 12], 0.3, device));
            let (bias, gates) = (plain::<1>(6, [40], 0.3, device), leaf::<2>(4, [3, 12], 1.0, device));
            let each = LoraGates::Each(gates.clone());
            let update = LoraUpdate { dropped: None, a: a.clone(), b: b.clone(), gates: each };
            let y = lora_linear(x.clone(), weight, Some(bias), vec![update]);
            run(y, move |g| vec![gradient(&x, g), gradient(&a, g), gradient(&b, g), gradient(&gates, g)])
        },
    },
    Case {
        name: "`cross_entropy`",
        cpu: BURN,
        run: |device| {
            let logits = leaf::<2>(1, [25, 60], 3.0, device);
            let loss = cross_entropy(logits.clone(), targets(25, 60, device), smoothed());
            run(loss.sum, move |g| vec![gradient(&logits, g)])
        },
    },
    Case {
        name: "`linear_cross_entropy`",
        cpu: KERNEL,
        run: |device| {
            let (x, weight) = (leaf::<2>(1, [25, 48], 1.0, device), leaf::<2>(2, [60, 48], 0.3, device));
            let bias = leaf::<1>(3, [60], 1.0, device);
            let targets = targets(25, 60, device);
            let loss = linear_cross_entropy(x.clone(), weight.clone(), Some(bias.clone()), targets, smoothed());
            run(loss.sum, move |g| vec![gradient(&x, g), gradient(&weight, g), gradient(&bias, g)])
        },
    },
    Case { name: "`sum`", cpu: BURN, run: |device| of_one(device, [40, 70], 1.0, |x| sum(x).unsqueeze()) },
    Case {
        name: "`checkpoint` of a block",
        cpu: "its operations, again in the backward pass",
        run: |device| {
            seed(7);
            let (x, weight) = (leaf::<3>(1, [2, 17, 48], 1.0, device), leaf::<2>(2, [48, 48], 0.3, device));
            let y = checkpoint(vec![x.clone().into(), weight.clone().into()], |inputs| {
                let mut inputs = inputs.into_iter();
                let x: Tensor<3> = inputs.next().expect("x").tensor();
                let weight = inputs.next().expect("a weight").tensor();
                x.clone() + dropout(gelu(linear(x, weight, None)), 0.2)
            });
            run(y, move |g| vec![gradient(&x, g), gradient(&weight, g)])
        },
    },
    Case {
        name: "`AdamWRule`",
        cpu: UPDATE,
        run: |device| {
            let [parameter, gradient, mean, square] = [1, 2, 3, 4].map(|n| plain::<1>(n, [3000], 1.0, device));
            let rule = AdamWRule {
                learning_rate: 0.01,
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.1,
                step: 3,
                gradient_scale: 0.5,
            };
            let (p, m) = rule.apply(parameter, gradient, Moments { mean, square: positive(square) });
            of_several([p, m.mean, m.square])
        },
    },
    Case {
        name: "`adamw` for 40 parameters",
        cpu: "a kernel each",
        run: |device| {
            let rule = AdamWRule {
                learning_rate: 0.01,
                beta1: 0.9,
                beta2: 0.98,
                epsilon: 1e-6,
                weight_decay: 0.1,
                step: 3,
                gradient_scale: 0.5,
            };
            let step = |n: u64| {
                let tensor = |part| plain::<1>(4 * n + part, [31 * n as usize], 1.0, device);
                let square = positive(tensor(3));
                let moments = Moments { mean: tensor(2), square };
                let rule = AdamWRule { learning_rate: 0.01 * n as f64, step: n, ..rule };
                AdamWStep { rule, parameter: tensor(0), gradient: tensor(1), moments }
            };
            let moved = adamw((1..=40).map(step).collect(), None).into_iter();
            of_several(moved.flat_map(|(p, m)| [p, m.mean, m.square]))
        },
    },
    Case {
        name: "`average` of 40 parameters",
        cpu: BURN,
        run: |device| {
            let pair = |n: u64| [0, 1].map(|part| plain::<1>(2 * n + part, [31 * n as usize], 1.0, device));
            of_several(average((1..=40).map(pair).collect(), 0.9, None))
        },
    },
    Case {
        name: "`add` of 40 pairs",
        cpu: BURN,
        run: |device| {
            let pair = |n: u64| [0, 1].map(|part| plain::<1>(2 * n + part, [31 * n as usize], 1.0, device));
            of_several(add((1..=40).map(pair).collect()))
        },
    },
    Case {
        name: "`AdafactorRule`",
        cpu: UPDATE,
        run: |device| {
            let [parameter, gradient] = [1, 2].map(|n| plain::<1>(n, [2 * 30 * 50], 1.0, device));
            let zeros = |n: usize| Tensor::<1>::zeros([n], &device.clone().inner());
            let moments = FactoredMoments { rows: zeros(60), columns: zeros(100), changes: None };
            let rule = AdafactorRule {
                learning_rate: 0.01,
                beta1: 0.9,
                decay_rate: -0.8,
                epsilon: 1e-30,
                clip_threshold: 1.0,
                scale: Some(1e-3),
                weight_decay: 0.1,
                step: 3,
                gradient_scale: 0.5,
            };
            let (p, m) = rule.apply([2, 30, 50], parameter, gradient, moments);
            of_several([p, m.rows, m.columns])
        },
    },
    Case {
        name: "`sum_of_squares` of 39 tensors",
        cpu: UPDATE,
        run: |device| {
            let tensors = (1..40).map(|n| plain::<1>(n, [77 * n as usize], 1.0, device)).collect();
            of_several([sum_of_squares(tensors).expect("a sum")])
        },
    },
];

/// A convolution of 20 channels at so many positions to others.
fn convolution(device: &Device, [time, channels]: [usize; 2], stride: usize) -> Run {
    let (x, weight) = (leaf::<3>(1, [2, time, 20], 1.0, device), leaf::<3>(2, [channels, 20, 3], 0.3, device));
    let bias = leaf::<1>(3, [channels], 1.0, device);
    let y = conv1d(x.clone(), weight.clone(), bias.clone(), stride, 1);
    run(y, move |g| vec![gradient(&x, g), gradient(&weight, g), gradient(&bias, g)])
}

/// Operations on more numbers than a tile of their kernels has: attention with so many scores that half precision always computes it on
/// matrix units, of keys that are read four at a time, and one at a time; heads as wide as Whisper's; and products, one of a convolution, of which a weight's gradient
/// is split among cubes, with a narrow one and one of an odd width.
pub const LARGE: [Case; 13] = [
    Case {
        name: "`attention`, many scores",
        cpu: KERNEL,
        run: |device| attends(device, [258, 264], |options| options),
    },
    Case {
        name: "`attention`, many scores, causal",
        cpu: KERNEL,
        run: |device| attends(device, [261, 263], AttentionOptions::causal),
    },
    Case {
        name: "`attention`, many scores, wide heads",
        cpu: KERNEL,
        run: |device| heads_attend(device, [258, 264], [2, 64], |options| options),
    },
    Case {
        name: "`attention`, wide heads",
        cpu: KERNEL,
        run: |device| heads_attend(device, [70, 130], [2, 64], |options| options),
    },
    Case {
        name: "`attention`, wide heads, causal, padded, with dropout",
        cpu: KERNEL,
        run: |device| {
            seed(7);
            let hidden: Vec<bool> = (0..2 * 130).map(|i| i % 130 > 120 - i / 130 || i % 130 == 5).collect();
            let mask = Tensor::<1, Bool>::from_bool(hidden.as_slice(), &device.clone().inner()).reshape([2, 130]);
            let with = |options: AttentionOptions| options.causal().with_key_padding(Some(mask)).with_dropout(0.2);
            heads_attend(device, [70, 130], [2, 64], with)
        },
    },
    Case { name: "`conv1d`, many positions", cpu: KERNEL, run: |device| convolution(device, [700, 72], 1) },
    Case { name: "`linear`, many rows", cpu: KERNEL, run: |device| maps(device, [72, 136]) },
    Case { name: "`linear`, many rows, to a narrow one", cpu: KERNEL, run: |device| maps(device, [168, 24]) },
    Case { name: "`linear`, many rows, to an odd width", cpu: KERNEL, run: |device| maps(device, [72, 37]) },
    Case { name: "`lora_linear`, many rows", cpu: KERNEL, run: |device| adapted(device, [72, 136], 16, true) },
    Case {
        name: "`lora_linear`, many rows, one scale",
        cpu: KERNEL,
        run: |device| adapted(device, [136, 72], 8, false),
    },
    Case { name: "`linear_lowered`, many rows", cpu: KERNEL, run: lowered_block },
    Case { name: "`lora_linear`, many rows, odd sizes", cpu: KERNEL, run: |device| adapted(device, [72, 37], 3, true) },
];

/// Results that only attention, GELU and products read: heads of 64 over 70 positions, and a wider layer, of which the first map has an adapter.
fn lowered_block(device: &Device) -> Run {
    let x = leaf::<3>(1, [2, 70, 128], 1.0, device);
    let weights = [2, 3, 4, 5].map(|number| leaf::<2>(number, [128, 128], 0.1, device));
    let [wide, back] = [(6, [200, 128]), (7, [128, 200])].map(|(number, shape)| leaf::<2>(number, shape, 0.1, device));
    let (a, b) = (leaf::<2>(8, [8, 128], 0.3, device), leaf::<2>(9, [200, 8], 0.3, device));
    let bias = leaf::<1>(10, [200], 1.0, device);
    let [query, key, value] = [0, 1, 2].map(|at| linear_lowered(x.clone(), weights[at].clone(), None));
    let mixed = linear(attention(query, key, value, AttentionOptions::new(2)), weights[3].clone(), None) + x.clone();
    let update = LoraUpdate { dropped: None, a: a.clone(), b: b.clone(), gates: LoraGates::Same(0.7) };
    let fed = gelu(lora_linear_lowered(mixed.clone(), wide.clone(), Some(bias.clone()), vec![update]));
    let y = linear(fed, back.clone(), None) + mixed;
    run(y, move |g| {
        let matrices = weights.iter().chain([&wide, &back, &a, &b]).map(|weight| gradient(weight, g));
        [gradient(&x, g), gradient(&bias, g)].into_iter().chain(matrices).collect()
    })
}

/// A linear map of 1,400 rows, from one width to another, with an adapter of a rank, which has gates or one scale.
fn adapted(device: &Device, [from, to]: [usize; 2], rank: usize, gated: bool) -> Run {
    let x = leaf::<3>(1, [2, 700, from], 1.0, device);
    let (weight, bias) = (plain::<2>(5, [to, from], 0.3, device), leaf::<1>(6, [to], 1.0, device));
    let (a, b) = (leaf::<2>(2, [rank, from], 0.3, device), leaf::<2>(3, [to, rank], 0.3, device));
    let gates = leaf::<2>(4, [2, rank], 1.0, device);
    let each = if gated { LoraGates::Each(gates.clone()) } else { LoraGates::Same(0.7) };
    let update = LoraUpdate { dropped: None, a: a.clone(), b: b.clone(), gates: each };
    let y = lora_linear(x.clone(), weight, Some(bias.clone()), vec![update]);
    run(y, move |g| {
        let mut found = vec![gradient(&x, g), gradient(&bias, g), gradient(&a, g), gradient(&b, g)];
        found.extend(gated.then(|| gradient(&gates, g)));
        found
    })
}

/// A linear map of 1,400 rows, from one width to another.
fn maps(device: &Device, [from, to]: [usize; 2]) -> Run {
    let x = leaf::<3>(1, [2, 700, from], 1.0, device);
    let (weight, bias) = (leaf::<2>(2, [to, from], 0.3, device), leaf::<1>(3, [to], 1.0, device));
    let y = linear(x.clone(), weight.clone(), Some(bias.clone()));
    run(y, move |g| vec![gradient(&x, g), gradient(&weight, g), gradient(&bias, g)])
}

fn attends(device: &Device, time: [usize; 2], with: impl FnOnce(AttentionOptions) -> AttentionOptions) -> Run {
    heads_attend(device, time, [4, 16], with)
}

/// Attention of so many queries to so many keys, by so many heads of a width.
fn heads_attend(
    device: &Device,
    [queries, keys]: [usize; 2],
    [heads, d_head]: [usize; 2],
    with: impl FnOnce(AttentionOptions) -> AttentionOptions,
) -> Run {
    let q = leaf::<3>(1, [2, queries, heads * d_head], 1.5, device);
    let [k, v] = [2, 3].map(|n| leaf::<3>(n, [2, keys, heads * d_head], 1.5, device));
    let y = attention(q.clone(), k.clone(), v.clone(), with(AttentionOptions::new(heads)));
    run(y, move |g| vec![gradient(&q, g), gradient(&k, g), gradient(&v, g)])
}

fn of_one(device: &Device, shape: [usize; 2], scale: f32, f: fn(Tensor<2>) -> Tensor<2>) -> Run {
    let x = leaf::<2>(1, shape, scale, device);
    run(f(x.clone()), move |g| vec![gradient(&x, g)])
}

fn of_several(tensors: impl IntoIterator<Item = Tensor<1>>) -> Run {
    let values = tensors.into_iter().flat_map(values).collect();
    Run { values, loss: None, gradients: Box::new(|_| Vec::new()) }
}

/// `y`, and what `gradients` finds of its inputs.
fn run<const D: usize>(y: Tensor<D>, gradients: impl FnOnce(&Gradients) -> Vec<Vec<f32>> + 'static) -> Run {
    let weight = plain::<D>(99, y.dims(), 1.0, &y.device().inner());
    Run { values: values(y.clone().inner()), loss: Some(sum(y * weight.autodiff())), gradients: Box::new(gradients) }
}

fn targets(rows: usize, classes: usize, device: &Device) -> Tensor<1, Int> {
    let target = |row: usize| if row % 4 == 2 { -100 } else { (row * 7 % classes) as i64 };
    Tensor::from_ints((0..rows).map(target).collect::<Vec<i64>>().as_slice(), device)
}

fn smoothed() -> CrossEntropyOptions {
    CrossEntropyOptions { label_smoothing: 0.1, ..Default::default() }
}

/// A tensor that wants a gradient.
fn leaf<const D: usize>(number: u64, shape: [usize; D], scale: f32, device: &Device) -> Tensor<D> {
    plain(number, shape, scale, device).autodiff().require_grad()
}

/// Numbers in [-scale, scale], the same on every device.
pub fn plain<const D: usize>(number: u64, shape: [usize; D], scale: f32, device: &Device) -> Tensor<D> {
    let values = undertone_testing::random(shape.iter().product(), number).into_iter();
    let values: Vec<f32> = values.map(|value| value * scale).collect();
    Tensor::<1>::from_floats(values.as_slice(), &device.clone().inner()).reshape(shape)
}

fn positive(x: Tensor<1>) -> Tensor<1> {
    let device = x.device();
    let values: Vec<f32> = values(x).into_iter().map(f32::abs).collect();
    Tensor::from_floats(values.as_slice(), &device)
}

fn gradient<const D: usize>(x: &Tensor<D>, gradients: &Gradients) -> Vec<f32> {
    values(x.grad(gradients).expect("a gradient"))
}

fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.try_into_vec_as().expect("floats")
}
