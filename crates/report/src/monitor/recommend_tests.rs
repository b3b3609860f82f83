use super::*;
use serde_json::json;
use undertone_train::{Hardware, RankPerformance, TimeSplit};

/// Ten steps of a run on a CPU that needs no change.
fn well() -> Performance {
    Performance {
        step: 50,
        steps: 10,
        seconds: 12.0,
        samples_per_second: 13.0,
        audio_seconds_per_second: None,
        tokens_per_second: None,
        flops_per_second: None,
        mfu: None,
        time: TimeSplit {
            data_wait: 0.01,
            transfer: 0.0,
            forward: 0.35,
            backward: 0.55,
            ranks: 0.0,
            optimizer: 0.06,
            other: 0.03,
        },
        ranks: None,
        hardware: Some(Hardware {
            cpu: Some(0.95),
            process_cpu: Some(0.93),
            memory_bytes: Some(3 << 30),
            memory_total_bytes: Some(10 << 30),
            memory_available_bytes: Some(6 << 30),
            gpus: Vec::new(),
        }),
    }
}

/// The same on a GPU.
fn on_gpu(name: &str, busy: f64, memory: u64) -> Performance {
    let gpu = Gpu {
        name: name.into(),
        utilization: Some(busy),
        memory_bytes: Some(memory),
        memory_total_bytes: Some(100),
        ..Gpu::default()
    };
    let mut performance = well();
    let hardware = performance.hardware.as_mut().expect("hardware");
    (hardware.cpu, hardware.process_cpu, hardware.gpus) = (Some(0.3), Some(0.25), vec![gpu]);
    performance
}

/// Returns `performance` with other shares of the time; the forward pass takes the rest.
fn spent(mut performance: Performance, change: impl Fn(&mut TimeSplit)) -> Performance {
    let time = &mut performance.time;
    change(time);
    time.forward = 1.0 - time.data_wait - time.transfer - time.backward - time.optimizer - time.other;
    performance
}

/// Returns `performance` as one of two ranks: other load on the machine may be the other rank.
fn with_another_rank(performance: Performance) -> Performance {
    let ranks = Some(RankPerformance { count: 2, overlap: 0.5, slowest: 0, imbalance: 0.0 });
    Performance { ranks, ..performance }
}

fn settings() -> Settings {
    Settings {
        max_batch_seconds: None,
        cores: 8,
        on_gpu: None,
        workers: 2,
        prefetch_batches: 16,
        batch_size: 16,
        pads_to_window: false,
        accumulation: 1,
        compute: Compute::F32,
        log_every: 10,
        checkpointing: true,
    }
}

/// Returns the text of each recommendation.
fn said(performance: &Performance, settings: &Settings) -> Vec<String> {
    recommend(performance, Some(settings)).into_iter().map(|advice| advice.text).collect()
}

/// Returns the only recommendation, and its changes.
fn only(performance: &Performance, settings: &Settings) -> (String, Vec<(String, Value, Value)>) {
    let mut all = recommend(performance, Some(settings));
    assert_eq!(all.len(), 1, "{all:?}");
    let advice = all.remove(0);
    let changes = advice.changes.into_iter().map(|c| (c.key, c.present, c.proposed)).collect();
    (advice.finding, changes)
}

#[test]
fn nothing_is_said_when_all_is_well() {
    assert_eq!(said(&well(), &settings()), [""; 0]);
    assert_eq!(
        all_is_well(&well(), Some(&settings())),
        "nothing to change: data wait 1 %, transfer 0 %, optimizer 6 %, memory 40 %"
    );
    let gpu = Settings { compute: Compute::Bf16, ..settings() };
    assert_eq!(said(&on_gpu("NVIDIA L4", 0.97, 41), &gpu), [""; 0]);
    assert!(all_is_well(&on_gpu("NVIDIA L4", 0.97, 41), Some(&gpu)).ends_with("GPU 97 % busy, memory 41 %"));
}

#[test]
fn nothing_is_said_without_numbers_or_about_unknown_settings() {
    let waiting = spent(well(), |time| (time.data_wait, time.backward) = (0.5, 0.2));
    assert_eq!(recommend(&waiting, None), []);
    assert_eq!(said(&Performance { steps: 9, ..waiting.clone() }, &settings()), [""; 0]);
    // Without hardware measurements the processors may be idle and the memory may be full.
    let blind = Performance { hardware: None, ..waiting };
    assert_eq!(said(&blind, &settings()), ["data wait 50 %: raise data.workers from 2 to 6"]);
    assert_eq!(said(&Performance { hardware: None, ..well() }, &settings()), [""; 0]);
}

#[test]
fn a_wait_for_data_asks_for_workers_while_cores_are_idle() {
    let waiting = spent(on_gpu("NVIDIA L4", 0.6, 50), |time| (time.data_wait, time.backward) = (0.38, 0.3));
    let with = |change: fn(&mut Settings)| {
        let mut settings = Settings { compute: Compute::Bf16, ..settings() };
        change(&mut settings);
        only(&waiting, &settings)
    };
    let workers = |from: usize, to: usize| ("data.workers".to_owned(), json!(from), json!(to));
    // 1.5 · 2 / 0.62 = 4.8.
    assert_eq!(with(|_| ()), ("data wait 38 %".into(), vec![workers(2, 5)]));
    assert_eq!(with(|s| s.cores = 2).1, [workers(2, 4)], "idle cores: the disk is what they wait for");
    let prefetch = |from: usize, to: usize| ("data.prefetch_batches".to_owned(), json!(from), json!(to));
    assert_eq!(with(|s| s.prefetch_batches = 1).1, [prefetch(1, 4)], "one worker of the two is idle");
    assert_eq!(with(|s| s.prefetch_batches = 3).1, [workers(2, 5), prefetch(3, 10)]);
}

#[test]
fn more_workers_do_not_help_a_processor_that_has_nothing_left() {
    let busy = spent(well(), |time| (time.data_wait, time.backward) = (0.38, 0.3));
    assert_eq!(
        said(&busy, &settings()),
        [
            "data wait 38 %: 2 workers on 8 cores and the CPU 95 % used: use samples that are cheaper to make, or a machine with more cores"
        ]
    );
}

#[test]
fn whoever_else_uses_the_processor_is_the_one_to_look_at() {
    let mut crowded = spent(well(), |time| (time.data_wait, time.backward) = (0.38, 0.3));
    let hardware = crowded.hardware.as_mut().expect("hardware");
    (hardware.cpu, hardware.process_cpu) = (Some(0.98), Some(0.392));
    assert_eq!(said(&crowded, &settings()), ["CPU 98 % used: this run has 40 % of that, something else is running"]);
    let of_two = with_another_rank(crowded);
    assert!(said(&of_two, &settings())[0].starts_with("data wait 38 %: 2 workers on 8 cores and the CPU 98 % used"));
    let mut elsewhere = on_gpu("NVIDIA L4", 0.97, 41);
    elsewhere.hardware.as_mut().expect("hardware").cpu = Some(0.98);
    assert_eq!(said(&elsewhere, &Settings { compute: Compute::Bf16, ..settings() }), [""; 0], "the GPU is kept busy");
}

#[test]
fn full_memory_asks_for_checkpointing_then_for_smaller_batches() {
    let full = on_gpu("NVIDIA L4", 0.97, 96);
    let with = |checkpointing, batch_size| {
        let settings = Settings { compute: Compute::Bf16, checkpointing, batch_size, ..settings() };
        said(&full, &settings)
    };
    assert_eq!(
        with(false, 16),
        [
            "memory 96 %: set train.gradient_checkpointing from false to true (activations are computed again instead of kept)"
        ]
    );
    let halves = "memory 96 %: lower data.batch_size from 16 to 8 and raise train.accumulation from 1 to 2 (the same steps with half the activations)";
    assert_eq!(with(true, 16), [halves]);
    assert_eq!(with(true, 1), [""; 0], "one sample is the least");
    let by_seconds = Settings { compute: Compute::Bf16, max_batch_seconds: Some(240.0), ..settings() };
    assert_eq!(only(&full, &by_seconds).1, [("data.max_batch_seconds".to_owned(), json!(240.0), json!(120.0))]);
    let mut machine = well();
    machine.hardware.as_mut().expect("hardware").memory_available_bytes = Some(500 << 20);
    assert_eq!(
        said(&machine, &settings()),
        ["memory 95 %: this run has 30 % of it, something else is holding the rest"]
    );
    assert_eq!(only(&with_another_rank(machine.clone()), &settings()).1.len(), 2);
    machine.hardware.as_mut().expect("hardware").memory_bytes = Some(8 << 30);
    assert_eq!(only(&machine, &settings()).1.len(), 2);
}

#[test]
fn an_idle_gpu_with_room_asks_for_larger_batches() {
    let idle = on_gpu("NVIDIA L4", 0.55, 41);
    let with = |accumulation| only(&idle, &Settings { compute: Compute::Bf16, accumulation, ..settings() }).1;
    let batch = ("data.batch_size".to_owned(), json!(16), json!(32));
    assert_eq!(with(1), std::slice::from_ref(&batch));
    assert_eq!(with(6), [batch.clone(), ("train.accumulation".to_owned(), json!(6), json!(3))]);
    assert_eq!(with(3), [batch]);
    let by_seconds = Settings { compute: Compute::Bf16, max_batch_seconds: Some(240.0), ..settings() };
    assert_eq!(only(&idle, &by_seconds).1, [("data.max_batch_seconds".to_owned(), json!(240.0), json!(480.0))]);
    let bf16 = Settings { compute: Compute::Bf16, ..settings() };
    assert_eq!(only(&on_gpu("NVIDIA L4", 0.55, 10), &bf16).1[0].2, json!(128), "8 · 10 % is 80 %");
    assert_eq!(said(&on_gpu("NVIDIA L4", 0.55, 43), &bf16), [""; 0], "twice that might not fit");
    let slow = Performance { mfu: Some(0.12), ..on_gpu("NVIDIA L4", 0.97, 41) };
    assert_eq!(only(&slow, &bf16).0, "memory 41 %, GPU 97 % busy, MFU 12 %");
}

#[test]
fn a_gpu_that_is_not_the_runs_own_is_left_alone() {
    let elsewhere = on_gpu("NVIDIA L4", 0.55, 41);
    assert_eq!(said(&elsewhere, &Settings { on_gpu: Some(false), ..settings() }), [""; 0]);
    assert_eq!(said(&on_gpu("NVIDIA L4", 0.01, 1), &settings()), [""; 0]);
    let told = Settings { on_gpu: Some(true), compute: Compute::Bf16, ..settings() };
    assert_eq!(only(&on_gpu("NVIDIA L4", 0.01, 1), &told).1[0].2, json!(128));
}

#[test]
fn a_busy_gpu_asks_for_its_fast_arithmetic() {
    let on = |name: &str| said(&on_gpu(name, 0.97, 80), &settings());
    assert_eq!(
        on("NVIDIA L4"),
        ["forward and backward 90 %: set train.compute from f32 to bf16 (121 TFLOP/s instead of 30 on this card)"]
    );
    assert_eq!(
        on("Tesla T4"),
        ["forward and backward 90 %: set train.compute from f32 to f16 (65 TFLOP/s instead of 8 on this card)"]
    );
    assert_eq!(on("a card from tomorrow"), [""; 0]);
}

#[test]
fn the_optimizer_the_transfer_and_the_log_each_name_their_key() {
    let slow = spent(well(), |time| (time.optimizer, time.backward) = (0.3, 0.3));
    assert_eq!(
        said(&slow, &settings()),
        [
            "optimizer 30 %: raise train.accumulation from 1 to 2 (its share becomes 18 %; a step sees twice the samples, so the learning rate may have to follow)"
        ]
    );
    let padded = spent(well(), |time| (time.transfer, time.backward) = (0.2, 0.3));
    assert_eq!(said(&padded, &settings()), [""; 0], "nothing can be left out");
    assert_eq!(
        said(&padded, &Settings { pads_to_window: true, ..settings() }),
        ["transfer 20 %: set data.pad from window to longest (silence need not be moved)"]
    );
    let chatty = spent(well(), |time| (time.other, time.backward) = (0.2, 0.3));
    assert_eq!(said(&chatty, &settings()), [""; 0]);
    assert_eq!(
        said(&chatty, &Settings { log_every: 1, ..settings() }),
        ["other 20 %: raise train.log_every from 1 to 10"]
    );
}

#[test]
fn no_key_is_given_two_values() {
    // The memory rule and the optimizer rule both propose more accumulation; only one may.
    let both = spent(on_gpu("NVIDIA L4", 0.97, 96), |time| (time.optimizer, time.backward) = (0.3, 0.3));
    let all = recommend(&both, Some(&Settings { compute: Compute::Bf16, accumulation: 3, ..settings() }));
    let keys: Vec<&str> = all.iter().flat_map(|advice| &advice.changes).map(|c| c.key.as_str()).collect();
    assert_eq!(keys, ["data.batch_size", "train.accumulation"]);
}
