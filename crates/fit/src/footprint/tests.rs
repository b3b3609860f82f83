use super::*;
use crate::preset::published;

// Indices of OpenAI's sizes in the table of presets.
const TINY: usize = 0;
const BASE: usize = 1;
const SMALL: usize = 2;
const MEDIUM: usize = 3;
const LARGE: usize = 4;
const TURBO: usize = 5;

#[test]
fn parameters_are_those_of_the_published_models() {
    for (size, parameters) in [
        (TINY, 37_760_640),
        (BASE, 72_593_920),
        (SMALL, 241_734_912),
        (MEDIUM, 763_857_920),
        (LARGE, 1_543_490_560),
        (TURBO, 808_878_080),
    ] {
        assert_eq!(published(size).parameters, parameters, "{size:?}");
    }
    // bert-base-uncased without its pooler of 590,592.
    assert_eq!(Footprint::text(&TextEncoderConfig::default(), 512).parameters, 109_482_240 - 590_592);
}

/// Returns the estimate by what was measured, without the copy as loaded, which benchmarks do not keep.
fn ratio(footprint: &Footprint, batch: usize, execution: &Execution, mib: u32) -> f64 {
    let bytes = footprint.bytes(batch, 1, execution) - footprint.loaded_bytes();
    bytes as f64 / 1_048_576.0 / f64::from(mib)
}

#[test]
fn an_optimizer_counts_by_its_state() {
    let tiny = published(TINY);
    let bytes = |state| tiny.with_optimizer_state(state).bytes(4, 1, &Execution::CPU);
    assert_eq!(bytes(8), tiny.bytes(4, 1, &Execution::CPU), "AdamW is the usual one");
    assert_eq!(bytes(8) - bytes(0), 8 * tiny.trainable);
}

#[test]
fn cpus_hold_what_was_measured() {
    let half = Execution::CPU.in_half();
    for (size, batch, execution, mib) in [
        (TINY, 1, Execution::CPU, 949),
        (TINY, 4, Execution::CPU, 1600),
        (TINY, 8, Execution::CPU, 2563),
        (BASE, 1, Execution::CPU, 1523),
        (TINY, 1, half, 859),
        (TINY, 2, half, 1011),
        (TINY, 4, half, 1280),
        (TINY, 8, half, 1836),
        (BASE, 2, half, 1714),
        (TINY, 1, Execution::COMPOSED, 1100),
        (TINY, 2, Execution::COMPOSED, 1563),
        (TINY, 4, Execution::COMPOSED, 2358),
    ] {
        let ratio = ratio(&published(size), batch, &execution, mib);
        println!("{size:?} batch {batch} {execution:?}: {ratio:.3}");
        assert!((0.96..1.1).contains(&ratio), "{size:?} batch {batch} {execution:?}: {ratio:.3} of what was measured");
    }
    let run = published(TINY).bytes(1, 2, &Execution::CPU) as f64 / 1.25e9;
    assert!((0.99..1.1).contains(&run), "{run} of what fine-tuning held");
}

#[test]
fn cuda_reserves_what_was_measured() {
    let (full, half) = (Execution::GPU, Execution::GPU.in_half());
    let lora = crate::trained::tests::adapters(32, &["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]);
    for (size, batch, tokens, execution, all, adapters) in [
        (TINY, 16, 32, half, 2875, 2438),
        (TINY, 64, 32, half, 9449, 8380),
        (BASE, 16, 32, half, 4916, 4304),
        (SMALL, 8, 32, half, 9433, 7384),
        (SMALL, 8, 128, half, 9677, 0),
        (SMALL, 32, 32, half, 26437, 23173),
        (SMALL, 32, 128, half, 26870, 0),
        (MEDIUM, 4, 32, half, 19070, 12267),
        (MEDIUM, 16, 32, half, 41518, 33525),
        (LARGE, 2, 32, half, 0, 15832),
        (LARGE, 8, 32, half, 0, 35229),
        (TINY, 16, 32, full, 3868, 0),
        (TINY, 64, 32, full, 13477, 0),
        (SMALL, 4, 32, full, 7827, 5907),
        (SMALL, 16, 32, full, 21750, 19012),
    ] {
        let footprint = published(size).on(1500, tokens);
        for (footprint, mib) in [(footprint, all), (footprint.training_part(&lora), adapters)] {
            if mib == 0 {
                continue;
            }
            let ratio = ratio(&footprint, batch, &execution, mib);
            println!("{size:?} batch {batch} {}: {ratio:.3}", execution.element_bytes);
            assert!((0.97..1.12).contains(&ratio), "{size:?} batch {batch}: {ratio:.3} of what was reserved");
        }
    }
}

#[test]
fn cuda_reserves_what_was_measured_where_blocks_run_again_or_gradients_are_summed() {
    let half = Execution::GPU.in_half();
    let again = Execution { checkpointed: true, ..half };
    for (size, batch, accumulation, execution, mib) in [
        (SMALL, 16, 1, again, 6259),
        (SMALL, 64, 1, again, 13431),
        (MEDIUM, 16, 1, again, 17634),
        (SMALL, 4, 2, half, 7746),
    ] {
        let footprint = published(size).on(1500, 32);
        let bytes = footprint.bytes(batch, accumulation, &execution) - footprint.loaded_bytes();
        let ratio = bytes as f64 / 1_048_576.0 / f64::from(mib);
        println!("{size:?} batch {batch}: {ratio:.3}");
        assert!((0.94..1.1).contains(&ratio), "{size:?} batch {batch}: {ratio:.3} of what was reserved");
    }
}

#[test]
fn a_run_on_texts_reserves_less() {
    let roberta =
        TextEncoderConfig { vocab_size: 50265, max_position_embeddings: 514, type_vocab_size: 1, ..Default::default() };
    let lora = crate::trained::tests::adapters(16, &["query", "key", "value", "dense"]);
    let footprint = Footprint::text(&roberta, 128).training_part(&lora);
    for (batch, reserved) in [(32, 2_390_273_024_u64), (64, 3_829_967_872)] {
        let ratio = footprint.bytes(batch, 1, &Execution::GPU.in_half()) as f64 / reserved as f64;
        println!("RoBERTa batch {batch}: {ratio:.3}");
        assert!((1.0..1.25).contains(&ratio), "batch {batch}: {ratio:.3} of what was reserved");
    }
}

#[test]
fn vulkan_reserves_what_was_measured() {
    let ratio = ratio(&published(TINY).on(1500, 32), 1, &Execution::GPU, 902);
    assert!((0.97..1.1).contains(&ratio), "{ratio} of what was reserved");
}

#[test]
fn a_ctc_loss_takes_what_was_measured() {
    let tiny = published(TINY).on(1500, 40);
    let with = Footprint { trainable: tiny.trainable + 50_257 * 385, ..tiny.with_ctc(50_257) };
    let more = with.bytes(4, 1, &Execution::CPU) - tiny.bytes(4, 1, &Execution::CPU);
    // Peaks of `train` on whisper-tiny.en, four recordings of LJSpeech a batch: with `loss.ctc: 0.3` and without.
    let ratio = more as f64 / (2_536_388 - 1_890_184) as f64 / 1024.0;
    assert!((0.85..1.15).contains(&ratio), "{ratio} of what was measured");
}

#[test]
fn less_of_everything_takes_less() {
    let tiny = published(TINY);
    let all = tiny.bytes(4, 1, &Execution::GPU);
    let with = |execution: Execution| tiny.bytes(4, 1, &execution);
    assert!(with(Execution::CPU) < all, "fused kernels");
    assert!(with(Execution::GPU.in_half()) < all, "bf16");
    assert!(with(Execution { checkpointed: true, ..Execution::GPU }) < all, "checkpointing");
    assert!(tiny.training(tiny.trainable / 2, false).bytes(4, 1, &Execution::GPU) < all, "a frozen encoder");
    assert!(tiny.on(300, 64).bytes(4, 1, &Execution::GPU) < all, "short samples");
    assert!(tiny.bytes(4, 2, &Execution::GPU) > all, "summed gradients");
    assert!(tiny.with_ctc(50_257).bytes(4, 1, &Execution::GPU) > all, "a CTC loss");
}

#[test]
fn the_largest_batch_is_the_last_that_fits() {
    let tiny = published(TINY);
    for execution in [Execution::CPU, Execution::GPU] {
        for bytes in [1_000_000_000, 8_000_000_000, 24_000_000_000] {
            let batch = tiny.largest_batch(bytes, 1, &execution);
            assert!(batch == 0 || tiny.bytes(batch, 1, &execution) <= bytes);
            assert!(tiny.bytes(batch + 1, 1, &execution) > bytes);
        }
    }
    assert_eq!(tiny.largest_batch(500_000_000, 1, &Execution::CPU), 0);
}

#[test]
fn what_is_frozen_takes_half_where_it_is_held_in_half_precision() {
    let large = published(TURBO);
    let adapted = large.training(1_000_000, true);
    let held = adapted.holding(FrozenDtype::Bf16);
    let saved = |execution: &Execution| adapted.bytes(1, 1, execution) - held.bytes(1, 1, execution);
    // Nearly all parameters are in matrices of linear maps or in the vocabulary.
    let share = saved(&Execution::CPU) as f64 / (2.0 * large.parameters as f64);
    assert!((0.98..1.0).contains(&share), "{share}");
    // It is also its own copy for products in half precision.
    let half = Execution::GPU.in_half();
    assert_eq!(saved(&half), 2 * saved(&Execution::CPU));
    assert!(held.largest_batch(8_000_000_000, 1, &half) > adapted.largest_batch(8_000_000_000, 1, &half));
    // Of a model that is trained as a whole, only positions are frozen.
    assert!(large.bytes(1, 1, &half) - large.holding(FrozenDtype::F16).bytes(1, 1, &half) < 10_000_000);
    let bert = Footprint::text(&TextEncoderConfig::default(), 128).training(300_000, true);
    assert!(bert.holding(FrozenDtype::Bf16).bytes(8, 1, &half) + 200_000_000 < bert.bytes(8, 1, &half));
}
