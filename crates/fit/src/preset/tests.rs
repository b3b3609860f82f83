use super::*;

#[test]
fn every_batch_is_the_largest_that_fits_its_card() {
    // tiny, base, small, medium, large and turbo; MiniLM, BERT, RoBERTa and RoBERTa-large: without activation
    // checkpointing, and with it.
    #[rustfmt::skip]
    let table = [
        ("cpu", [16, 8, 1, 0, 0, 0, 16, 16, 8, 0], [16, 16, 4, 0, 0, 0, 16, 16, 16, 0]),
        ("rtx-5060", [16, 8, 0, 0, 0, 0, 16, 16, 16, 0], [16, 16, 2, 0, 0, 0, 16, 16, 16, 0]),
        ("t4", [16, 16, 4, 0, 0, 0, 16, 16, 16, 8], [16, 16, 16, 0, 0, 0, 16, 16, 16, 16]),
        ("rtx-4080", [16, 16, 4, 0, 0, 0, 16, 16, 16, 8], [16, 16, 16, 0, 0, 0, 16, 16, 16, 16]),
        ("rtx-4090", [16, 16, 8, 1, 0, 0, 16, 16, 16, 16], [16, 16, 16, 16, 0, 0, 16, 16, 16, 16]),
        ("a100-40", [16, 16, 16, 4, 0, 4, 16, 16, 16, 16], [16, 16, 16, 16, 0, 16, 16, 16, 16, 16]),
        ("a100-80", [16, 16, 16, 16, 8, 16, 16, 16, 16, 16], [16, 16, 16, 16, 16, 16, 16, 16, 16, 16]),
        ("h100-80", [16, 16, 16, 16, 8, 16, 16, 16, 16, 16], [16, 16, 16, 16, 16, 16, 16, 16, 16, 16]),
        ("h200", [16, 16, 16, 16, 16, 16, 16, 16, 16, 16], [16, 16, 16, 16, 16, 16, 16, 16, 16, 16]),
    ];
    let rows = CARDS.iter().map(|card| {
        let computed = |checkpointed| -> [usize; 10] {
            let execution = Execution { checkpointed, ..card.execution(DeviceSpec::Auto, card.compute) };
            std::array::from_fn(|index| card.largest(&published(index), 16, &execution))
        };
        (card.name, computed(false), computed(true))
    });
    assert_eq!(table.to_vec(), rows.collect::<Vec<_>>());
}

fn resolved(card: &str, hub: &str, trained: &TrainedPart, tokens: Option<usize>, rate_rule: Option<&str>) -> Preset {
    resolved_frozen(card, hub, trained, FrozenDtype::F32, tokens, rate_rule)
}

fn resolved_frozen(
    card: &str,
    hub: &str,
    trained: &TrainedPart,
    frozen: FrozenDtype,
    tokens: Option<usize>,
    rate_rule: Option<&str>,
) -> Preset {
    let reads_text = !hub.contains("whisper");
    let model = PresetModel {
        name: hub,
        reads_text,
        folder: None,
        hub: Some(hub),
        config: None,
        trained,
        frozen,
        tokens,
        optimizer_state: 8,
    };
    let context =
        PresetContext { device: DeviceSpec::Cpu, compute: None, given: None, effective: 16, rate_rule, workers: 1 };
    card.parse::<DevicePreset>().expect("a card").resolve(&model, &context).expect("a preset")
}

#[test]
fn adapters_are_not_sized_as_full_fine_tuning() {
    let adapters = crate::trained::tests::adapters(16, &["q_proj"]);
    let batch = |card, hub, trained| {
        let split = resolved(card, hub, trained, None, None).settings.and_then(|s| s.split).expect("a split");
        (split.batch_size, split.checkpointed)
    };
    assert_eq!(batch("t4", "openai/whisper-medium", &TrainedPart::All), (1, false));
    assert_eq!(batch("t4", "openai/whisper-medium", &adapters), (16, true));
    assert_eq!(batch("rtx-5060", "openai/whisper-small", &TrainedPart::All), (2, true));
    assert_eq!(batch("rtx-5060", "openai/whisper-small", &adapters), (4, false));
}

#[test]
fn what_is_frozen_is_sized_as_it_is_held() {
    let adapters = crate::trained::tests::adapters(16, &["q_proj"]);
    let [full, half] = [FrozenDtype::F32, FrozenDtype::Bf16].map(|frozen| {
        let preset = resolved_frozen("rtx-5060", "openai/whisper-large-v3-turbo", &adapters, frozen, None, None);
        (preset.settings.and_then(|settings| settings.split).expect("a split").batch_size, preset.reason)
    });
    assert!(half.0 > full.0, "{half:?} and {full:?}");
    assert!(half.1.contains("turbo, frozen in bf16") && !full.1.contains("frozen"), "{half:?} and {full:?}");
}

#[test]
fn wider_numbers_and_other_backends_take_smaller_batches() {
    let card = CARDS.iter().find(|card| card.name == "rtx-4090").expect("a card");
    let of = |device, compute| published(2).largest_batch(card.usable(), 1, &card.execution(device, compute));
    let half = of(DeviceSpec::Cuda(0), Compute::Bf16);
    assert!(of(DeviceSpec::Cuda(0), Compute::F32) < half);
    assert_eq!(of(DeviceSpec::Wgpu(0), Compute::F16), of(DeviceSpec::Cuda(0), Compute::F32), "all is kept in f32");
    assert!(of(DeviceSpec::TchCuda(0), Compute::Bf16) < half);
    assert_eq!(of(DeviceSpec::Auto, Compute::Bf16), half, "a named card is used through CUDA");
}

#[test]
fn a_large_card_has_larger_batches_where_it_is_said_how_rates_follow() {
    let split = |rule, tokens| {
        let preset = resolved("a100-40", "roberta-base", &TrainedPart::All, tokens, rule);
        (preset.settings.and_then(|settings| settings.split).expect("a split"), preset.reason)
    };
    let (usual, reason) = split(None, None);
    assert_eq!((usual.batch_size, usual.accumulation, usual.base_batch), (16, 1, None));
    assert!(reason.contains("samples would fit") && reason.contains("lr_scaling"), "{reason}");
    let (grown, reason) = split(Some("sqrt"), None);
    assert!(grown.batch_size > 16 && (grown.accumulation, grown.base_batch) == (1, Some(16)), "{grown:?}");
    assert!(reason.contains("instead of 16") && reason.contains("sqrt"), "{reason}");
    let short = split(Some("sqrt"), Some(128)).0.batch_size;
    assert!(grown.batch_size < short && short <= MOST, "short texts leave room for more: {short}");
    let small = resolved("t4", "openai/whisper-small", &TrainedPart::All, None, Some("sqrt"));
    assert_eq!(small.settings.and_then(|s| s.split).map(|split| split.base_batch), Some(None), "there is no room");
}

#[test]
fn names_round_trip() {
    for name in ["none", "auto", "cpu", "rtx-5060", "a100-80", "h200"] {
        assert_eq!(name.parse::<DevicePreset>().expect(name).to_string(), name);
    }
    let refused = "rtx-6000".parse::<DevicePreset>().expect_err("no such card");
    assert!(refused.contains("rtx-6000") && refused.contains("h100-80"), "{refused}");
}

#[test]
fn gpus_are_known_by_name_and_memory() {
    for (gpu, mib, name) in [
        ("NVIDIA H200", 143771, Some("h200")),
        ("NVIDIA A100-SXM4-40GB", 40960, Some("a100-40")),
        ("NVIDIA A100-SXM4-80GB", 81920, Some("a100-80")),
        ("NVIDIA GeForce RTX 4090", 24564, Some("rtx-4090")),
        ("NVIDIA GeForce RTX 5060", 8151, Some("rtx-5060")),
        ("Tesla T4", 15360, Some("t4")),
        ("NVIDIA GeForce RTX 3060", 12288, Some("rtx-5060")),
        ("NVIDIA GeForce GTX 1050", 2048, None),
    ] {
        assert_eq!(of_gpu(gpu, mib << 20).map(|(card, _)| card.name), name, "{gpu}");
    }
}
