//! `cargo xtask bench ops`: every operation of a training step at Whisper's sizes, fused and composed in turn.

use super::numbers::{median, rounded};
use burn::tensor::{Device, Int, Tensor};
use std::time::Instant;
use undertone::kernels::roofline;
use undertone::ops::{
    AdafactorRule, AdamWRule, AttentionOptions, DeviceSpec, FactoredMoments, Kernels, Moments, attention, conv1d,
    embedding, gelu, layer_norm, linear, linear_cross_entropy, lora_bank, normal, residual_dropout, set_kernels,
    state_attention, uniform,
};
use undertone_cli::{Failure, say};

#[derive(clap::Args)]
pub struct Args {
    /// How often each body is timed, in turn
    #[arg(long, default_value = "5", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
    /// Clips of 30 s
    #[arg(long, default_value = "4", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    batch: usize,
    /// Only operations whose name contains this
    #[arg(long, default_value = "")]
    only: String,
}

/// One operation with its backward pass.
struct Case {
    name: &'static str,
    shape: String,
    /// Floating-point operations of both passes, or bytes that they must move: what bounds it.
    work: Work,
    run: Box<dyn Fn()>,
}

#[derive(Clone, Copy)]
enum Work {
    Operations(f64),
    Bytes(f64),
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let device = DeviceSpec::Cpu.resolve().map_err(Failure::bad_input)?;
    let (operations, bytes) = (roofline::operations_per_second(), roofline::bytes_per_second());
    say!(
        "{} threads, {:.0} GFLOP/s in registers, {:.1} GB/s through memory. Milliseconds, forward and backward.\n",
        rayon::current_num_threads(),
        operations / 1e9,
        bytes / 1e9
    )?;
    say!("| operation | shape | fused | composed | ratio | fused reaches | of the machine |")?;
    say!("|---|---|---|---|---|---|---|")?;
    for case in cases(args.batch, &device).into_iter().filter(|case| case.name.contains(&args.only)) {
        let (fused, composed) = times(&case, args.rounds);
        let (rate, unit, limit) = match case.work {
            Work::Operations(n) => (n / fused, "GFLOP/s", operations),
            Work::Bytes(n) => (n / fused, "GB/s", bytes),
        };
        say!(
            "| {} | {} | {} | {} | {}× | {} {unit} | {:.0} % |",
            case.name,
            case.shape,
            rounded(fused * 1e3, 2),
            rounded(composed * 1e3, 2),
            rounded(composed / fused, 1),
            rounded(rate / 1e9, 1),
            100.0 * rate / limit,
        )?;
    }
    Ok(())
}

/// Median seconds of the fused and the composed body.
fn times(case: &Case, rounds: usize) -> (f64, f64) {
    let mut seconds = [Vec::new(), Vec::new()];
    // The first round warms up.
    for round in 0..=rounds {
        for (kernels, seconds) in [Kernels::Fused, Kernels::Composed].into_iter().zip(&mut seconds) {
            set_kernels(kernels);
            let started = Instant::now();
            (case.run)();
            if round > 0 {
                seconds.push(started.elapsed().as_secs_f64());
            }
        }
    }
    set_kernels(Kernels::Fused);
    let [fused, composed] = seconds.map(|seconds| median(&seconds));
    (fused, composed)
}

/// The sizes of Whisper tiny.
const D: usize = 384;
const HEADS: usize = 6;
const TIME: usize = 1500;
const TOKENS: usize = 32;
const VOCABULARY: usize = 51_865;

fn cases(batch: usize, device: &Device) -> Vec<Case> {
    let rows = batch * TIME;
    let mut cases = vec![
        attention_case("attention, self", [batch, TIME, TIME], false, device),
        attention_case("attention, cross", [batch, TOKENS, TIME], false, device),
        attention_case("attention, causal", [batch, 448, 448], true, device),
        linear_case("linear", [rows, D, D], true, device),
        linear_case("linear", [rows, D, 4 * D], true, device),
        linear_case("linear", [rows, 4 * D, D], true, device),
        linear_case("linear, frozen", [rows, D, 4 * D], false, device),
        lora_case("lora bank", [batch, D, D], 1, false, device),
        lora_case("lora bank", [batch, D, D], 32, false, device),
        lora_case("lora bank, routed", [batch, D, D], 32, true, device),
        lora_case("lora bank", [batch, D, 4 * D], 32, false, device),
        lora_case("lora bank", [batch, 4 * D, D], 32, false, device),
        loss_case(batch * TOKENS, device),
        conv_case("convolution 1", [batch, 2 * TIME, 80], 1, device),
        conv_case("convolution 2", [batch, 2 * TIME, D], 2, device),
    ];
    cases.extend(memory_bound(batch, rows, device));
    // What a decoder computes for each token of a batch: 5 beams, 16 pieces.
    for rows in [1, 5, 16, 32] {
        cases.push(few_rows_case([rows, D, D], device));
        cases.push(few_rows_case([rows, D, 4 * D], device));
        cases.push(few_rows_case([rows, 4 * D, D], device));
        cases.push(few_rows_case([rows, D, VOCABULARY], device));
    }
    for batch in [1, 16] {
        cases.push(states_case(batch, device));
    }
    cases
}

fn leaf<const A: usize>(shape: [usize; A], device: &Device) -> Tensor<A> {
    normal(shape, 0.1, device).autodiff().require_grad()
}

fn attention_case(name: &'static str, [batch, queries, keys]: [usize; 3], causal: bool, device: &Device) -> Case {
    let (q, kv) = (leaf([batch, queries, D], device), leaf([batch, keys, D], device));
    let mut options = AttentionOptions::new(HEADS);
    options.causal = causal;
    // Two products forward; backward recomputes the scores and takes four more. Causal: half of each.
    let operations = 7.0 * 2.0 * (batch * queries * keys * D) as f64 * if causal { 0.5 } else { 1.0 };
    Case {
        name,
        shape: format!("[{batch}, {queries}, {D}] over {keys}"),
        work: Work::Operations(operations),
        run: Box::new(move || {
            attention(q.clone(), kv.clone(), kv.clone(), options.clone()).backward();
        }),
    }
}

fn linear_case(name: &'static str, [rows, d_in, d_out]: [usize; 3], trained: bool, device: &Device) -> Case {
    let x = leaf([rows, d_in], device);
    let weight = uniform([d_out, d_in], 0.0, 1.0, device).autodiff();
    let bias = Tensor::zeros([d_out], device).autodiff();
    let (weight, bias) = if trained { (weight.require_grad(), bias.require_grad()) } else { (weight, bias) };
    let products = if trained { 3.0 } else { 2.0 };
    Case {
        name,
        shape: format!("[{rows}, {d_in}] → {d_out}"),
        work: Work::Operations(products * 2.0 * (rows * d_in * d_out) as f64),
        run: Box::new(move || {
            linear(x.clone(), weight.clone(), Some(bias.clone())).backward();
        }),
    }
}

/// A linear map without gradients, as often as makes milliseconds of it.
fn few_rows_case([rows, d_in, d_out]: [usize; 3], device: &Device) -> Case {
    let times = (VOCABULARY / d_out).max(1);
    let (x, weight) = (normal([rows, d_in], 0.1, device), uniform([d_out, d_in], 0.0, 1.0, device));
    Case {
        name: "linear, few rows, forward",
        shape: format!("{times} × [{rows}, {d_in}] → {d_out}"),
        work: Work::Operations((times * 2 * rows * d_in * d_out) as f64),
        run: Box::new(move || {
            for _ in 0..times {
                std::hint::black_box(linear(x.clone(), weight.clone(), None));
            }
        }),
    }
}

/// Cross-attention of one token without gradients. The composed body projects keys and values first, which a decoder would
/// keep.
fn states_case(batch: usize, device: &Device) -> Case {
    let (query, states) = (normal([batch, 1, D], 0.1, device), normal([batch, TIME, D], 1.0, device));
    let projections = [(); 2].map(|()| normal([D, D], 0.05, device));
    Case {
        name: "attention to states, forward",
        shape: format!("[{batch}, 1, {D}] over {TIME}"),
        work: Work::Bytes(4.0 * (batch * TIME * D) as f64),
        run: Box::new(move || {
            let projections = projections.clone();
            std::hint::black_box(state_attention(query.clone(), states.clone(), projections, HEADS, None));
        }),
    }
}

/// Adapters of rank 8, of which each clip goes through another one; `routed`, its gates want a gradient.
fn lora_case(
    name: &'static str,
    [batch, d_in, d_out]: [usize; 3],
    adapters: usize,
    routed: bool,
    device: &Device,
) -> Case {
    const RANK: usize = 8;
    let columns = adapters * RANK;
    let gate = |clip: usize, column: usize| f32::from(column / RANK == clip % adapters);
    let gates: Vec<f32> = (0..batch).flat_map(|clip| (0..columns).map(move |column| gate(clip, column))).collect();
    let gates = Tensor::<1>::from_floats(gates.as_slice(), device).reshape([batch, columns]).autodiff();
    let gates = if routed { gates.require_grad() } else { gates };
    let x = leaf([batch, TIME, d_in], device);
    let (a, b) = (leaf([columns, d_in], device), leaf([d_out, columns], device));
    // The output is written, begins the backward pass and is read there; the input is read twice and its gradient
    // written. Every parameter has a gradient.
    let floats = 3 * batch * TIME * (d_in + d_out) + columns * (d_in + d_out);
    Case {
        name,
        shape: format!("[{batch}, {TIME}, {d_in}] → {d_out}, {adapters} of rank {RANK}"),
        work: Work::Bytes(4.0 * floats as f64),
        run: Box::new(move || {
            lora_bank(x.clone(), a.clone(), b.clone(), gates.clone()).backward();
        }),
    }
}

fn loss_case(rows: usize, device: &Device) -> Case {
    let (x, weight) = (leaf([rows, D], device), leaf([VOCABULARY, D], device));
    let targets = Tensor::<1, Int>::arange(0..rows as i64, device);
    Case {
        name: "linear + cross-entropy",
        shape: format!("[{rows}, {D}] → {VOCABULARY}"),
        work: Work::Operations(3.0 * 2.0 * (rows * D * VOCABULARY) as f64),
        run: Box::new(move || {
            linear_cross_entropy(x.clone(), weight.clone(), None, targets.clone(), Default::default()).sum.backward();
        }),
    }
}

fn conv_case(name: &'static str, [batch, time, channels]: [usize; 3], stride: usize, device: &Device) -> Case {
    // The first one's input is audio, which wants no gradient.
    let first = stride == 1;
    let x = leaf([batch, time, channels], device);
    let x = if first { x.detach() } else { x };
    let (weight, bias) = (leaf([D, channels, 3], device), leaf([D], device));
    let products = if first { 2.0 } else { 3.0 };
    Case {
        name,
        shape: format!("[{batch}, {time}, {channels}] → {D}"),
        work: Work::Operations(products * 2.0 * (batch * time / stride * 3 * channels * D) as f64),
        run: Box::new(move || {
            conv1d(x.clone(), weight.clone(), bias.clone(), stride, 1).backward();
        }),
    }
}

/// Bytes count each tensor once for every time a pass must read or write it, and the ones that begin a backward pass.
fn memory_bound(batch: usize, rows: usize, device: &Device) -> Vec<Case> {
    let (x, wide) = (leaf([rows, D], device), leaf([rows, 4 * D], device));
    let (scale, shift) = (leaf([D], device), leaf([D], device));
    let (residual, branch) = (x.clone(), leaf([rows, D], device));
    let table = leaf([VOCABULARY, D], device);
    let ids = Tensor::<1, Int>::arange(0..(batch * TOKENS) as i64, device).reshape([batch, TOKENS]);
    let bytes = |floats: usize| Work::Bytes(4.0 * floats as f64);
    vec![
        Case {
            name: "layer norm",
            shape: format!("[{rows}, {D}]"),
            work: bytes(6 * rows * D),
            run: Box::new(move || {
                layer_norm(x.clone(), scale.clone(), shift.clone(), 1e-5).backward();
            }),
        },
        Case {
            name: "GELU",
            shape: format!("[{rows}, {}]", 4 * D),
            work: bytes(6 * rows * 4 * D),
            run: Box::new(move || {
                gelu(wide.clone()).backward();
            }),
        },
        Case {
            name: "residual + dropout",
            shape: format!("[{rows}, {D}]"),
            work: bytes(6 * rows * D),
            run: Box::new(move || {
                residual_dropout(residual.clone(), branch.clone(), 0.1).backward();
            }),
        },
        Case {
            name: "embedding",
            shape: format!("[{VOCABULARY}, {D}], {} ids", batch * TOKENS),
            work: bytes(VOCABULARY * D + 5 * batch * TOKENS * D),
            run: Box::new(move || {
                embedding(table.clone(), ids.clone()).backward();
            }),
        },
        adamw_case(VOCABULARY * D, device),
        adafactor_case([1, VOCABULARY, D], device),
        ones_case([rows, 4 * D], device),
    ]
}

/// What every other case pays to begin its backward pass: Burn fills the first gradient, on one thread.
fn ones_case(shape: [usize; 2], device: &Device) -> Case {
    let device = device.clone();
    Case {
        name: "(ones alone)",
        shape: format!("{shape:?}"),
        work: Work::Bytes(4.0 * shape.iter().product::<usize>() as f64),
        run: Box::new(move || {
            Tensor::<2>::ones(shape, &device);
        }),
    }
}

fn adamw_case(elements: usize, device: &Device) -> Case {
    let fresh = || Tensor::<1>::zeros([elements], device);
    let state = std::cell::RefCell::new(Some((fresh(), Moments { mean: fresh(), square: fresh() })));
    let gradient = Tensor::<1>::ones([elements], device);
    let rule = AdamWRule {
        learning_rate: 1e-4,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.01,
        step: 1,
        gradient_scale: 1.0,
    };
    Case {
        name: "AdamW",
        shape: format!("{elements} parameters"),
        work: Work::Bytes(28.0 * elements as f64),
        run: Box::new(move || {
            let (parameter, moments) = state.take().expect("the last run's state");
            state.replace(Some(rule.apply(parameter, gradient.clone(), moments)));
        }),
    }
}

fn adafactor_case(shape: [usize; 3], device: &Device) -> Case {
    let [batch, rows, columns] = shape;
    let elements = shape.iter().product();
    let zeros = |length| Tensor::<1>::zeros([length], device);
    let moments = FactoredMoments { rows: zeros(batch * rows), columns: zeros(batch * columns), changes: None };
    let state = std::cell::RefCell::new(Some((zeros(elements), moments)));
    let gradient = Tensor::<1>::ones([elements], device);
    let rule = AdafactorRule {
        learning_rate: 1e-4,
        beta1: 0.0,
        decay_rate: -0.8,
        epsilon: 1e-30,
        clip_threshold: 1.0,
        scale: None,
        weight_decay: 0.01,
        step: 2,
        gradient_scale: 1.0,
    };
    Case {
        name: "Adafactor",
        shape: format!("{shape:?}"),
        // The gradient is needed three times: for the means, for the length of the change, and to change.
        work: Work::Bytes(20.0 * elements as f64),
        run: Box::new(move || {
            let (parameter, moments) = state.take().expect("the last run's state");
            state.replace(Some(rule.apply(shape, parameter, gradient.clone(), moments)));
        }),
    }
}
