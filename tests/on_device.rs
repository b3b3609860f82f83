//! The command line on an accelerator, against the same on the CPU: `cargo xtask test --device wgpu` runs these, also where
//! the only driver is one that computes on the CPU.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use undertone_testing::skipped;
use undertone_tests::runs::{TRAIN, place, two_tasks};
use undertone_tests::toys::lines;
use undertone_tests::{Outcome, Place, sets};

/// The device that the tests are for, in words of the command line: that of `BURN_DEVICE`.
fn device() -> &'static str {
    match std::env::var("BURN_DEVICE").as_deref() {
        Ok("cuda") => "cuda:0",
        Ok("tch") => "tch:cpu",
        _ => "wgpu:0",
    }
}

fn done(place: &Place, args: &[&str]) -> Outcome {
    place.run(args).succeeded()
}

/// The values of `name` by step, of the training lines of a run.
fn logged(run: &Path, name: &str) -> BTreeMap<u64, f64> {
    lines(run, "train").iter().filter_map(|line| Some((line["step"].as_u64()?, line[name].as_f64()?))).collect()
}

/// Asserts that two runs had the same losses, as far as sums of floats in another order are the same.
fn assert_near(found: &BTreeMap<u64, f64>, expected: &BTreeMap<u64, f64>, tolerance: f64) {
    assert!(found.keys().eq(expected.keys()) && !found.is_empty(), "{found:?} {expected:?}");
    for (step, loss) in found {
        let far = (loss - expected[step]).abs() / expected[step].abs();
        assert!(far < tolerance, "step {step}: {loss} instead of {}", expected[step]);
    }
}

#[test]
#[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
fn some_steps_of_the_quickstart_lose_what_they_lose_on_the_cpu() {
    let place = Place::default();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/cw-contest.yaml");
    let settings = [
        "data.batch_size=2", "data.valid.samples=2", "train.max_steps=4", "train.log_every=1",
        "train.evaluate.every=0", "train.optimizer.warmup_steps=2",
    ];
    let losses = |device: &str| {
        let name = format!("run.name={}", device.replace(':', "-"));
        let mut args = vec!["train", "--config", config, "--device", device, "--set", &name];
        args.extend(sets(&settings));
        done(&place, &args);
        let run = place.path("runs").join(device.replace(':', "-"));
        (logged(&run, "loss"), logged(&run, "grad_norm"))
    };
    let (cpu, found) = (losses("cpu"), losses(device()));
    assert_near(&found.0, &cpu.0, 2e-3);
    assert_near(&found.1, &cpu.1, 2e-2);
}

/// What `bench device` counted, for blocks that are narrow: their number alone decides.
fn counted(args: &[&str]) -> Value {
    let always = ["bench", "device", "--narrow", "--batch", "1", "--steps", "1", "--device", device()];
    let outcome = done(&Place::default(), &[&always[..], args].concat());
    let line = outcome.stdout.lines().last().expect("a line");
    serde_json::from_str(line).expect("JSON")
}

#[test]
#[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
fn a_step_is_few_kernels_and_waits_for_nothing() {
    if device().starts_with("tch") {
        return skipped("nothing counts LibTorch's kernels");
    }
    // What was counted when these were written (drivers that take 31 buffers to a kernel), and a little more.
    for (args, most) in [
        (&["--size", "nano"][..], 405.0),
        (&["--size", "nano", "--accumulation", "2"], 790.0),
        (&["--size", "nano", "--lora", "8"], 530.0),
        (&["--size", "nano", "--lora", "8", "--adapters", "2"], 880.0),
        (&["--size", "nano", "--compute", "f16"], 540.0),
        (&["--size", "nano", "--compute", "f16", "--lora", "8"], 715.0),
        (&["--size", "small"], 1500.0),
        (&["--size", "small", "--lora", "8"], 2250.0),
    ] {
        let found = counted(args);
        let kernels = found["kernels_per_step"].as_f64().expect("a number");
        assert!(kernels > 100.0 && kernels <= most, "{kernels} kernels, and {most} at most: {found}");
        assert_eq!(found["waits_per_step"].as_f64(), Some(0.0), "{found}");
    }
}

#[test]
#[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
fn a_run_goes_on_on_another_device() {
    // A rate that does not depend on how many steps there will be.
    let run = [&TRAIN[..], &["--set", "train.optimizer.schedule=constant"]].concat();
    let cpu = place();
    done(&cpu, &run);
    let expected = logged(&cpu.path("runs/tiny"), "loss");
    for (first, second) in [("cpu", device()), (device(), "cpu")] {
        let place = place();
        done(&place, &[&run[..], &["--device", first, "--set", "train.max_steps=12"]].concat());
        let outcome = done(&place, &[&run[..], &["--device", second, "--resume"]].concat());
        assert!(outcome.stderr.contains("step 12"), "{outcome:?}");
        assert_near(&logged(&place.path("runs/tiny"), "loss"), &expected, 2e-3);
    }
}

#[test]
#[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
fn a_run_that_stops_and_goes_on_ends_in_the_same_bits() {
    let (whole, stopped) = (place(), place());
    let on_device = [&TRAIN[..], &["--device", device(), "--set", "train.optimizer.schedule=constant"]].concat();
    done(&whole, &on_device);
    done(&stopped, &[&on_device[..], &["--set", "train.max_steps=10"]].concat());
    done(&stopped, &[&on_device[..], &["--resume"]].concat());
    let model = |place: &Place| place.bytes("runs/tiny/checkpoints/step-00000024/model.safetensors");
    assert!(model(&whole) == model(&stopped), "the models differ");
}

#[test]
#[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
fn transcribes_what_it_transcribes_on_the_cpu() {
    let place = Place::default();
    done(&place, &["data", "synth", "--count", "2", "--out", "clips"]);
    let clips: Vec<String> =
        ["clips/000000.wav", "clips/000001.wav"].iter().map(|clip| place.path(clip).display().to_string()).collect();
    let read = |device: &str| {
        let clips = clips.iter().map(String::as_str);
        let args: Vec<&str> =
            ["transcribe", "--model", "whisper-nano-cw", "--device", device].into_iter().chain(clips).collect();
        done(&place, &args).stdout
    };
    assert_eq!(read(device()), read("cpu"));
}

#[test]
#[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
fn all_phases_of_dynamo_lose_what_they_lose_on_the_cpu() {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    for (name, device) in [("cpu", "cpu"), ("there", device())] {
        let name = format!("run.name={name}");
        done(&place, &["train", "--config", "two.yaml", "--phase", "all", "--device", device, "--set", &name]);
    }
    for stage in ["phase1/low", "phase1/high", "phase2", "phase3"] {
        let losses = |name: &str| logged(&place.path(&format!("runs/{name}/{stage}")), "loss");
        assert_near(&losses("there"), &losses("cpu"), 1e-2);
    }
}

#[test]
#[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
fn a_type_that_the_device_does_not_have_is_replaced_and_said_once() {
    let place = place();
    let has: &[&str] = match device() {
        "wgpu:0" => &[],
        "tch:cpu" => &["bf16"],
        _ => &["bf16", "tf32"],
    };
    for compute in ["bf16", "tf32"] {
        let (name, compute_in) = (format!("run.name={compute}"), format!("train.compute={compute}"));
        let settings = ["--device", device(), "--set", &name, "--set", &compute_in, "--set", "train.max_steps=4"];
        let outcome = done(&place, &[&TRAIN[..], &settings].concat());
        let said = format!("`train.compute` asks for {compute}, which this device does not multiply in");
        assert_eq!(outcome.stderr.matches(&said).count(), usize::from(!has.contains(&compute)), "{outcome:?}");
        // bf16 becomes f16, where there is that.
        let scaled = !logged(&place.path("runs").join(compute), "loss_scale").is_empty();
        assert_eq!(outcome.stderr.contains("made in f16, and the loss is scaled"), scaled, "{outcome:?}");
    }
}

#[test]
#[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
fn devices_that_are_not_there_are_refused() {
    let place = place();
    let beyond = match device() {
        "tch:cpu" => "tch:cuda:99".to_owned(),
        device => device.replace(":0", ":99"),
    };
    place.train("tiny.yaml", &["--device", &beyond]).assert_refusal(&[&beyond, "was not found", "`cpu`"]);
    if device() == "wgpu:0" {
        // As on a machine whose Vulkan has no driver.
        let mut command = place.xtask(&[&TRAIN[..], &["--device", "wgpu"]].concat());
        command.env("VK_DRIVER_FILES", "/nowhere.json").env("VK_ICD_FILENAMES", "/nowhere.json");
        command.env("LIBGL_DRIVERS_PATH", "/nowhere").env("EGL_PLATFORM", "surfaceless");
        let Outcome { status, stderr, .. } = Outcome::of(&mut command);
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains("`wgpu:0` was not found") && stderr.contains("vulkaninfo"), "{stderr}");
    }
    assert!(!place.path("runs").exists(), "nothing is written for a run that cannot begin");
}

#[cfg(feature = "wgpu")]
mod lost {
    use burn::tensor::Device;
    use std::path::Path;
    use undertone::train::{BackendFailure, Learner, TrainConfig, catch_backend_failure, silence_backend_failures};
    use undertone_tests::toys::{self, HUNDRED, OnPartial, Partial, Zero, hundred, run_of};

    fn learner(device: Device, dir: &Path) -> Learner<OnPartial<Zero>> {
        let mut config = TrainConfig { log_every: 1, ..run_of(30) };
        config.checkpoint.every = 5;
        toys::builder(config, Zero, Partial::new(false, false, &device), dir).with_device(device).build()
    }

    #[test]
    #[ignore = "needs an accelerator's backend: cargo xtask test --device wgpu"]
    fn a_driver_that_dies_in_a_run_leaves_a_checkpoint_that_another_device_goes_on_from() {
        silence_backend_failures();
        let dir = tempfile::tempdir().expect("a directory");
        let (device, setup) = Device::wgpu_options().init_with_setup().expect("a device");
        let batches = hundred(|batch| {
            if batch == 16 {
                setup.device.destroy();
            }
        });
        let mut dying = learner(device, dir.path());
        let failure = catch_backend_failure(|| dying.train(&batches));
        assert!(matches!(failure, Err(BackendFailure::Device(_))), "{failure:?}");
        assert_eq!(dying.saved(), Some(15));
        // It neither saves what it cannot read, nor panics about it.
        dying.rescue();
        assert_eq!(dying.saved(), Some(15));
        drop(dying);
        let mut again = learner(Device::flex(), dir.path());
        assert!(again.resume().expect("resumed"));
        let summary = again.train(&HUNDRED).expect("trained");
        assert!(summary.completed && summary.steps == 30, "{summary:?}");
    }
}
