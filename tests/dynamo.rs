//! A DYNAMO run as a user sees it: phases that follow each other, resume by themselves, and refuse what cannot be.

use serde_json::Value;
use undertone_tests::runs::two_tasks;
use undertone_tests::toys::lines;
use undertone_tests::{Outcome, Place, change_tensors, sets, tensors, wav};

fn place() -> Place {
    let place = Place::default();
    place.write("two.yaml", two_tasks());
    place
}

fn train(place: &Place, more: &[&str]) -> Outcome {
    place.train("two.yaml", more)
}

fn trained(place: &Place, more: &[&str]) -> Outcome {
    train(place, more).succeeded()
}

#[test]
fn phases_follow_each_other_and_change_what_is_theirs() {
    let place = place();
    trained(&place, &["--phase", "1"]);
    trained(&place, &["--phase", "2"]);
    trained(&place, &["--phase", "3"]);
    let part = |phase: &str, part: &str| tensors(&place.path(&format!("runs/two/{phase}/best/{part}")));
    let last =
        |phase: &str| tensors(&place.path(&format!("runs/two/{phase}/checkpoints/step-00000006/model.safetensors")));
    for task in ["low", "high"] {
        let adapter = format!("adapters/{task}/adapter_model.safetensors");
        let first = part(&format!("phase1/{task}"), &adapter);
        assert_eq!(first, part("phase2", &adapter), "phase 2 leaves adapters alone");
        assert!(first.keys().all(|name| !name.contains("encoder.layers.0")), "nothing is adapted below the tap");
        let trained = last(&format!("phase1/{task}"));
        let moved = |name: &str| trained[name].data.iter().any(|x| *x != 0.0);
        assert!(
            moved("backbone.Whisper.encoder.layers.1.self_attn.q_proj.lora.lora_b") && moved("heads.0.Prompt.start")
        );
        assert!(trained.keys().all(|name| name.contains(".lora.") || name.starts_with("heads.")), "nothing else is");
    }
    assert!(last("phase2").keys().all(|name| name.starts_with("router.")), "phase 2 trains the router alone");
    for trained in ["backbone.", "heads.", "router."] {
        assert!(last("phase3").keys().any(|name| name.starts_with(trained)), "phase 3 trains all");
    }
    // A router alone runs the first blocks, whose arithmetic is not that of the whole model.
    for (phase, counted) in [("phase2", false), ("phase3", true)] {
        let lines = place.text(&format!("runs/two/{phase}/performance.jsonl"));
        assert_eq!(lines.contains("flops_per_second"), counted, "{phase}: {lines}");
    }
    let logged = lines(&place.path("runs/two/phase3"), "train");
    for term in ["routing", "load_balance", "efficiency", "consistency", "entropy", "confidence", "gumbel_temperature"]
    {
        assert!(logged.iter().all(|line| line.get(term).is_some()), "{term} is not logged by itself: {logged:?}");
    }
    for task in ["low", "high"] {
        let there = logged.iter().filter(|line| line.get(task).is_some()).count();
        assert!(there > 0 && logged.iter().all(|line| line.get(task).is_none_or(|loss| *loss != 0.0)), "{logged:?}");
    }
    for (baseline, parameters) in [("head", 16), ("shared", 16 + 4 * (16 + 16 + 16 + 32) * 2)] {
        trained(&place, &["--baseline", baseline]);
        let directory = if baseline == "head" { "head/low" } else { baseline };
        let summary = place.json(&format!("runs/two/baselines/{directory}/summary.json"));
        // One encoder block's and one decoder block's q_proj and fc1, and the decoder's second q_proj.
        let extra = if baseline == "shared" { 4 * (16 + 16) } else { 0 };
        assert_eq!(summary["parameters"]["trainable"], parameters + extra, "{baseline}");
    }
    let analysis = place.run(&["analyze", "--run", "runs/two", "--by", "duration"]);
    assert_eq!(analysis.status, Some(0), "{analysis:?}");
    let evaluation = place.json("runs/two/evaluation.json");
    assert_eq!(evaluation["groups"][1]["task"], "high", "{evaluation}");
    assert!(analysis.stdout.contains("| high: duration | Samples |"), "{}", analysis.stdout);
    let interval = &place.json("runs/two/metrics.json")["rows"][0]["intervals"]["low"]["cer"];
    assert!(interval[0].as_f64() <= interval[1].as_f64() && interval[0].is_number(), "{interval}");
    for router in ["learned", "oracle", "uniform", "random", "head only", "shared adapter"] {
        assert!(analysis.stdout.contains(router), "{router} is not in {}", analysis.stdout);
    }
    let page = |name: &str| place.text(&format!("runs/two/{name}"));
    let report = page("report.html");
    assert!(report.contains("<svg") && report.contains("href=\"phase1/low/report.html\""), "{report}");
    assert!(report.contains("low: by duration") && report.contains("<small>["), "groups and intervals: {report}");
    assert!(page("phase1/low/report.html").contains("href=\"../../report.html\""), "the stage leads back");
    assert!(place.path("runs/two/phase2/environment.json").is_file());
    std::fs::remove_file(place.path("runs/two/phase3/report.html")).expect("a page");
    let reports = place.run(&["report", "runs/two"]);
    assert_eq!(reports.status, Some(0), "{reports:?}");
    assert!(reports.stdout.starts_with("runs/two/report.html\n"), "{}", reports.stdout);
    assert!(reports.stdout.contains("runs/two/phase3/report.html"), "{}", reports.stdout);
    assert_eq!(page("report.html"), report, "the same numbers give the same page");
    assert!(page("phase3/report.html").contains("<svg"));
    let clip = place.path("clip.wav");
    undertone::data::audio::write_wav(&clip, &[0.1; 24_000]).expect("written");
    let answer = place.run(&["predict", "--run", "runs/two", "--audio", "clip.wav", "--format", "json"]).json();
    let gates: f64 = ["low", "high"].iter().map(|task| answer["gates"][task].as_f64().expect("a gate")).sum();
    assert!((gates - 1.0).abs() < 1e-5, "{answer}");
}

#[test]
fn an_interrupted_phase_goes_on_by_itself_and_ends_in_the_same_bits() {
    let (whole, parts) = (place(), place());
    trained(&whole, &[]);
    // Everything up to a point is what a kill at that point leaves.
    trained(&parts, &["--phase", "1"]);
    let run = parts.path("runs/two");
    std::fs::remove_file(run.join("phase1/low/summary.json")).expect("deleted");
    std::fs::remove_dir_all(run.join("phase1/low/checkpoints/step-00000006")).expect("deleted");
    std::fs::remove_dir_all(run.join("phase1/high")).expect("deleted");
    let outcome = trained(&parts, &["--resume"]);
    assert!(outcome.stderr.contains("step 4"), "{outcome:?}");
    // Accumulation, curriculum and the temperature of the gates go on where they were.
    for phase in ["phase2", "phase3"] {
        std::fs::remove_file(run.join(phase).join("summary.json")).expect("deleted");
        std::fs::remove_dir_all(run.join(phase).join("checkpoints/step-00000006")).expect("deleted");
        trained(&parts, &["--resume"]);
    }
    for file in ["phase1/low", "phase1/high", "phase2", "phase3"]
        .map(|s| format!("{s}/checkpoints/step-00000006/model.safetensors"))
    {
        let read = |place: &Place| place.bytes(&format!("runs/two/{file}"));
        assert!(read(&whole) == read(&parts), "{file} differs");
    }
    let again = trained(&parts, &["--resume"]);
    assert!(again.stdout.contains("finished earlier") && !again.stderr.contains("step 6/6"), "{again:?}");
    // A part of phase 1 that is gone is not trained anew below a router that was made from it.
    std::fs::remove_dir_all(run.join("phase1/high")).expect("deleted");
    train(&parts, &["--resume"]).assert_refusal(&["phase2", "earlier phase"]);
}

#[test]
fn what_is_stored_belongs_to_tasks_by_name_and_not_by_place() {
    let reversed = || {
        let tasks = two_tasks().find("  - name: low").expect("the first task");
        let (second, end) =
            (two_tasks().find("  - name: high").expect("a task"), two_tasks().find("router:").expect("a router"));
        [&two_tasks()[..tasks], &two_tasks()[second..end], &two_tasks()[tasks..second], &two_tasks()[end..]].concat()
    };
    let mixed = ["--set", "phases.1.mixed=true"];
    let (whole, parts) = (place(), place());
    trained(&whole, &mixed);
    let adapters = whole.path("runs/two/phase1/all/best/adapters");
    assert!(adapters.join("low").is_dir() && adapters.join("high").is_dir());
    for (phase, last) in [("phase1/all", 6), ("phase2", 6), ("phase3", 6)] {
        parts.write("two.yaml", two_tasks());
        let number = &phase[5..6];
        trained(&parts, &[&["--phase", number], &mixed[..]].concat());
        let stage = parts.path("runs/two").join(phase);
        std::fs::remove_file(stage.join("summary.json")).expect("deleted");
        std::fs::remove_dir_all(stage.join(format!("checkpoints/step-{last:08}"))).expect("deleted");
        parts.write("two.yaml", reversed());
        trained(&parts, &[&["--resume", "--phase", number], &mixed[..]].concat());
        let file = format!("runs/two/{phase}/checkpoints/step-{last:08}/model.safetensors");
        let read = |place: &Place| place.bytes(&file);
        assert!(read(&whole) == read(&parts), "{file} differs");
    }
}

#[test]
fn a_stage_goes_on_only_with_what_concerns_it_unchanged() {
    let place = place();
    trained(&place, &["--phase", "1"]);
    let before = place.tree();
    for (setting, change) in [
        ("tasks.low.lora.r=3", "`tasks.low.lora.r` 2 → 3"),
        ("tasks.low.data.train.samples=13", "`tasks.low.data.train"),
        ("phases.1.train.accumulation=2", "`phases.1.train.accumulation` null → 2"),
        ("seed=7", "`seed` 42 → 7"),
    ] {
        train(&place, &["--phase", "1", "--resume", "--set", setting])
            .assert_refusal(&["phase1/low/stage.yaml", change]);
    }
    assert_eq!(place.tree(), before, "nothing is touched");
    // What later phases do is theirs, and a task that is new is trained besides.
    trained(&place, &["--phase", "1", "--resume", "--set", "phases.2.losses.routing=2"]);
    place.write("two.yaml", two_tasks().replace("router: {tap", &format!("{}router: {{tap", yaml_of_task("third"))));
    let outcome = trained(&place, &["--phase", "1", "--resume"]);
    assert_eq!(outcome.stdout.matches("finished earlier").count(), 2, "{outcome:?}");
    assert!(place.path("runs/two/phase1/third/best/score.json").is_file());
    let tasks = |name: &str| place.text(&format!("runs/two/{name}")).matches("- name:").count();
    assert_eq!((tasks("config.yaml"), tasks("config.1.yaml")), (3, 2), "what was is kept");
}

#[test]
fn a_task_that_is_added_to_a_finished_run_leaves_the_others_as_they_are() {
    let place = place();
    trained(&place, &["--phase", "1"]);
    trained(&place, &["--phase", "2"]);
    let parts = |stage: &str, task: &str| {
        let folder = format!("runs/two/{stage}/best/adapters/{task}/adapter_model.safetensors");
        place.bytes(&folder)
    };
    let before = ["low", "high"].map(|task| parts(&format!("phase1/{task}"), task));
    trained(&place, &["--baseline", "shared"]);
    let third = two_tasks().replace("router: {tap", &format!("{}router: {{tap", yaml_of_task("third")));
    place.write("two.yaml", third);
    // A router over two tasks does not become one over three by going on.
    train(&place, &["--phase", "2", "--resume"]).assert_refusal(&["phase1/third"]);
    trained(&place, &["--phase", "1", "--resume"]);
    place.run(&["eval", "--run", "runs/two", "--task", "third"]).succeeded();
    // The router of phase 2 is none of the three.
    place.run(&["eval", "--run", "runs/two"]).assert_refusal(&["no router over its tasks", "run.overwrite=true"]);
    let packed = place.run(&["export", "--run", "runs/two", "--format", "dynamo", "--out", "packed"]).succeeded();
    assert!(packed.stderr.contains("the router is left out"), "{packed:?}");
    assert!(place.path("packed/phase1/third/best").is_dir() && !place.path("packed/phase2").exists());
    train(&place, &["--phase", "2", "--resume"]).assert_refusal(&["phase2/stage.yaml", "`tasks.third"]);
    trained(&place, &["--phase", "2", "--set", "run.overwrite=true"]);
    for (task, before) in ["low", "high"].into_iter().zip(before) {
        assert!(parts(&format!("phase1/{task}"), task) == before, "phase 1 trained `{task}` again");
        assert!(parts("phase2", task) == before, "phase 2 changed `{task}`");
    }
    // The router chooses among three, or among those that are asked for.
    let tone: Vec<f32> = (0..24_000).map(|t| (t as f32 * 0.2).sin() * 0.5).collect();
    std::fs::write(place.path("tone.wav"), wav(&tone)).expect("written");
    let predict = |more: &[&str]| {
        let line = [&["predict", "--run", "runs/two", "--audio", "tone.wav", "--format", "json"], more].concat();
        let answer = place.run(&line).succeeded().stdout;
        serde_json::from_str::<Value>(answer.lines().next().expect("an answer")).expect("JSON")
    };
    let gates = |answer: &Value| ["low", "high", "third"].map(|task| answer["gates"][task].as_f64().expect("a gate"));
    assert!((gates(&predict(&[])).iter().sum::<f64>() - 1.0).abs() < 1e-6);
    for (asked, others) in [("low,third", ["high"]), ("high,third", ["low"])] {
        let answer = predict(&["--task", asked]);
        assert!(others.iter().all(|task| answer["gates"][*task] == 0.0 && answer["task"] != **task), "{answer}");
    }
    assert_others_are_told(&place);
    place
        .run(&["predict", "--run", "runs/two", "--audio", "tone.wav", "--set", "router.reject=0.0001"])
        .assert_refusal(&["`router.reject` is 0.0001", "rejects nothing"]);
    // A baseline knows two tasks.
    let table = place.run(&["analyze", "--run", "runs/two"]).succeeded();
    assert!(table.stderr.contains("baselines/shared` was trained for other tasks"), "{table:?}");
    assert!(!table.stdout.contains("shared adapter") && table.stdout.contains("learned"), "{table:?}");
    place
        .run(&["predict", "--run", "runs/two", "--audio", "tone.wav", "--task", "low,fourth"])
        .assert_refusal(&["there is no task `fourth`", "low, high, third"]);
}

/// Recordings of none of the tasks: a folder of two, of which one has two windows, and a single one.
fn assert_others_are_told(place: &Place) {
    std::fs::create_dir(place.path("others")).expect("a directory");
    for (name, seconds) in [("short.wav", 1_u32), ("long.wav", 3)] {
        let hiss: Vec<f32> = (0..16_000 * seconds).map(|t| (t * t % 997) as f32 / 997.0 - 0.5).collect();
        std::fs::write(place.path("others").join(name), wav(&hiss)).expect("written");
    }
    place.write("others/notes.txt", "no recording");
    let analyze = |others: &str| place.run(&["analyze", "--run", "runs/two", "--others", others]);
    for (others, count) in [("others", " and 3 of others: area"), ("tone.wav", " and 1 of tone.wav: area")] {
        assert!(analyze(others).succeeded().stdout.contains(count), "{others}");
    }
    analyze("two.yaml").assert_refusal(&["two.yaml"]);
}

/// The second task's YAML under another name.
fn yaml_of_task(name: &str) -> String {
    let (start, end) =
        (two_tasks().find("  - name: high").expect("a task"), two_tasks().find("router:").expect("a router"));
    two_tasks()[start..end].replace("high", name)
}

#[test]
fn parts_of_a_phase_move_at_rates_of_their_own() {
    let place = place();
    let settings = ["phases.3.lr={router: 1.0e-30, heads: 1.0e-2}", "train.optimizer.lora_plus_ratio=16"];
    trained(&place, &["--phase", "all", "--set", settings[0], "--set", settings[1]]);
    let at = |step: u64| tensors(&place.path(&format!("runs/two/phase3/checkpoints/step-{step:08}/model.safetensors")));
    let (earlier, later) = (at(4), at(6));
    // Adam moves by about its rate, whatever the gradient's length.
    let moved = |part: &str| {
        let of = |(name, tensor): (&String, &undertone::store::HostTensor)| {
            let both = tensor.data.iter().zip(&earlier[name].data).map(|(a, b)| f64::from((a - b).abs()));
            both.fold(0.0, f64::max)
        };
        later.iter().filter(|(name, _)| name.contains(part)).map(of).fold(0.0, f64::max)
    };
    assert!(later.keys().any(|name| name.starts_with("router.")) && moved("router.") < 1e-20, "{}", moved("router."));
    assert!(moved(".lora_b") > 4.0 * moved(".lora_a"), "{} {}", moved(".lora_b"), moved(".lora_a"));
    assert!(moved("Prompt.start") > 3.0 * moved(".lora_a"), "{} {}", moved("Prompt.start"), moved(".lora_a"));
}

#[test]
fn a_group_that_a_phase_has_no_parameters_for_is_refused_before_the_first_phase() {
    let place = place();
    let group = "phases.2.train.optimizer.groups=[{match: lora, lr: 1}]";
    let outcome = train(&place, &["--phase", "all", "--set", group]);
    outcome.assert_refusal(&["phase 2", "groups.0.match", "`lora`", "router.", "phases.N.train.optimizer"]);
    assert!(!place.path("runs").exists());
}

#[test]
fn a_finished_phase_goes_on_when_more_steps_are_asked_of_it() {
    let place = place();
    let steps = |task: &str| place.json(&format!("runs/two/phase1/{task}/summary.json"))["steps"].clone();
    trained(&place, &["--phase", "1"]);
    let more = ["--phase", "1", "--resume", "--set", "phases.1.train.max_steps=8"];
    let outcome = trained(&place, &more);
    assert_eq!(outcome.stderr.matches("step-00000006`, step 6").count(), 2, "{outcome:?}");
    assert_eq!([steps("low"), steps("high")], [8, 8]);
    // The checkpoints are needed by what goes on alone; begun anew, a stage would replace what it found.
    std::fs::remove_dir_all(place.path("runs/two/phase1/low/checkpoints")).expect("deleted");
    let again = trained(&place, &more);
    assert_eq!(again.stdout.matches("finished earlier").count(), 2, "{again:?}");
    train(&place, &["--phase", "1", "--resume", "--set", "phases.1.train.max_steps=9"])
        .assert_refusal(&["no checkpoint", "phase1/low"]);
    assert_eq!([steps("low"), steps("high")], [8, 8]);
}

#[test]
fn a_phase_that_stopped_early_is_finished_until_it_is_given_more_patience() {
    let place = place();
    // No error rate gets better by 100.
    let early = |patience: &str, steps: &str| {
        let patience = format!("train.early_stopping.patience={patience}");
        let steps = format!("phases.1.train.max_steps={steps}");
        ["train.early_stopping.min_delta=100".to_owned(), patience, steps]
    };
    let run =
        |resume: &[&str], settings: &[String]| trained(&place, &[&["--phase", "1"], resume, &sets(settings)].concat());
    let steps = || place.json("runs/two/phase1/low/summary.json")["steps"].clone();
    run(&[], &early("1", "6"));
    assert_eq!(steps(), 3, "the first evaluation after the beginning ends it");
    let again = run(&["--resume"], &early("1", "9"));
    assert_eq!(again.stdout.matches("finished earlier").count(), 2, "{again:?}");
    run(&["--resume"], &early("2", "9"));
    assert_eq!(steps(), 6);
}

#[test]
fn a_phase_does_not_go_on_with_other_adapters_than_it_was_trained_on() {
    let place = place();
    trained(&place, &["--phase", "1"]);
    trained(&place, &["--phase", "2"]);
    change_tensors(&place.path("runs/two/phase1/low/best/adapters/low/adapter_model.safetensors"), |tensors| {
        tensors.values_mut().next().expect("a tensor").data[0] += 1e-3;
    });
    train(&place, &["--phase", "2", "--resume", "--set", "phases.2.train.max_steps=8"])
        .assert_refusal(&["phase2/checkpoints/step-00000006", "frozen weights", "earlier stages"]);
}

#[test]
fn running_blocks_again_needs_less_memory_and_changes_no_bit() {
    let place = place();
    let deep = two_tasks().replace("encoder_layers: 2", "encoder_layers: 12").replace("ffn_dim: 32", "ffn_dim: 256");
    place.write("two.yaml", deep.replace("d_model: 16", "d_model: 64").replace("samples: 12", "samples: 64"));
    let run = |checkpointing: bool| {
        let name = format!("run-{checkpointing}");
        let settings = [
            format!("run.name={name}"),
            format!("train.gradient_checkpointing={checkpointing}"),
            "data.batch_size=64".to_owned(),
            "phases.1.train.max_steps=2".to_owned(),
        ];
        trained(&place, &[&["--phase", "1"], &sets(&settings)[..]].concat());
        let stage = format!("runs/{name}/phase1/low");
        let peak = place.json(&format!("{stage}/summary.json"))["peak_memory_bytes"].as_u64().expect("bytes");
        (peak, tensors(&place.path(&format!("{stage}/checkpoints/step-00000002/model.safetensors"))))
    };
    let ((plain, weights), (peak, again)) = (run(false), run(true));
    assert!(again == weights);
    assert!(peak < plain * 3 / 4, "{} and {} MiB", peak >> 20, plain >> 20);
}

/// Losses, batches and metrics that runs without tasks have, in a run with tasks.
#[test]
fn tasks_have_what_fine_tuning_has() {
    let place = place();
    let more = [
        "loss.label_smoothing=0.1",
        "loss.random_position=true",
        "loss.alignment={characters: 0.5, elements: 0.25, elements_layer: 2}",
        "data.max_batch_seconds=5",
        "data.normalizer=basic",
        "phases.3.curriculum={from: 0, to: 0}",
        "tasks.low.metrics=[loss, cer]",
    ];
    trained(&place, &[&["--phase", "all"], &sets(&more)[..]].concat());
    for (stage, terms) in
        [("phase1/low", ["low", "characters", "elements"]), ("phase3", ["high", "characters", "elements"])]
    {
        let of = |split: &str| lines(&place.path("runs/two").join(stage), split);
        for term in terms {
            assert!(
                of("train").iter().any(|line| line[term].as_f64().is_some_and(|loss| loss > 0.0)),
                "{stage} {term}"
            );
        }
        let last = of("valid").pop().expect("it was judged");
        assert!(last["low.loss"].as_f64().is_some_and(|loss| loss > 0.0 && loss.is_finite()), "{stage}: {last}");
    }
    // Two of two seconds fit into five: half of the four that a batch may have.
    assert_eq!(place.json("runs/two/phase1/low/summary.json")["samples"].as_u64(), Some(12));
}

#[test]
fn what_cannot_be_is_refused_in_one_sentence() {
    let place = place();
    let before = place.tree();
    train(&place, &["--phase", "2"]).assert_refusal(&["phase 2", "phase1/low", "--phase 1"]);
    train(&place, &["--phase", "4"]).assert_refusal(&["`4`", "1, 2, 3 or all"]);
    train(&place, &["--set", "router.tap=2"]).assert_refusal(&["`router.tap`", "2 blocks"]);
    for (old, new, culprits) in [
        ("[q_proj, fc1]", "[query]", vec!["task `low`", "`query`", "q_proj"]),
        ("name: high", "name: low", vec!["`low`"]),
        ("metrics: [cer, exact]", "metrics: [rouge]", vec!["task `low`", "`rouge`", "cer"]),
        ("r: 2, lora", "r: 0, lora", vec!["task `low`", "`r`"]),
        ("router: {tap: 1", "router: {tap: 1, temperature: 0.01", vec!["`router`", "temperature"]),
        ("  3: {train", "  3: {losses: {task: -1}, train", vec!["phases.3.losses.task"]),
        ("  2: {train: {max_steps", "  2: {train: {max_stepz", vec!["phases.2.train", "max_stepz"]),
        ("model:\n", "model:\n  trainable: decoder\n", vec!["`model.trainable`", "`tasks`"]),
        ("tasks:\n", "loss: {label_smoothing: 2}\ntasks:\n", vec!["`loss.label_smoothing`"]),
        (
            "{batch_size: 4,",
            "{batch_size: 4, max_batch_seconds: 8,",
            vec!["`phases.3.curriculum`", "max_batch_seconds"],
        ),
        ("{synth: cw, samples: 12", "{samples: 12", vec!["task `low`", "data.train", "no data"]),
    ] {
        assert!(two_tasks().contains(old), "{old}");
        place.write("odd.yaml", two_tasks().replacen(old, new, 1));
        place.train("odd.yaml", &[]).assert_refusal(&culprits);
    }
    std::fs::remove_file(place.path("odd.yaml")).expect("deleted");
    place.run(&["predict", "--run", "runs/two", "--audio", "two.yaml"]).assert_refusal(&["runs/two"]);
    assert_eq!(place.tree(), before, "nothing is touched");
}

#[test]
fn a_run_is_not_replaced_unasked_and_changed_adapters_are_noticed() {
    let place = place();
    trained(&place, &["--phase", "1"]);
    train(&place, &["--phase", "1"]).assert_refusal(&["phase1/low", "--resume", "run.overwrite=true"]);
    let before = place.tree();
    let config = place.bytes("runs/two/config.yaml");
    train(&place, &["--phase", "2", "--set", "router.tap=0"])
        .assert_refusal(&["phase1/low", "above block 1", "block 0"]);
    place.write("two.yaml", two_tasks().replacen("r: 2, lora_alpha: 4", "r: 3, lora_alpha: 4", 1));
    train(&place, &["--phase", "2"]).assert_refusal(&["phase1/low", "phase 1 again"]);
    assert_eq!(place.tree(), before, "nothing is touched");
    assert!(place.bytes("runs/two/config.yaml") == config);
    // Tasks that have given each other their names are not those that the router was trained on.
    place.write("two.yaml", two_tasks());
    trained(&place, &["--phase", "2"]);
    let swapped = two_tasks().replacen("name: low", "name: x", 1).replacen("name: high", "name: low", 1);
    place.write("two.yaml", swapped.replacen("name: x", "name: high", 1));
    train(&place, &["--phase", "3"]).assert_refusal(&["phase2/stage.yaml", "`tasks.high.data.train.cw.pitch_hz`"]);
    // Phase 1 anew would leave later phases without what they were made from.
    place.write("two.yaml", two_tasks());
    train(&place, &["--phase", "1", "--set", "phases.1.mixed=true"]).assert_refusal(&["phase2", "run.overwrite=true"]);
    // Whoever wants that is told what goes, and what is somebody's own does not.
    let overwrite = ["--phase", "1", "--set", "run.overwrite=true"];
    place.write("runs/two/phase2/notes.txt", "mine");
    train(&place, &overwrite).assert_refusal(&["runs/two/phase2", "`notes.txt`"]);
    std::fs::remove_file(place.path("runs/two/phase2/notes.txt")).expect("removed");
    let outcome = train(&place, &overwrite).succeeded();
    let gone = "deleting what was trained in `runs/two/phase1/low`, `runs/two/phase1/high`, `runs/two/phase2`";
    assert!(outcome.stderr.contains(gone) && !place.path("runs/two/phase2").exists(), "{outcome:?}");
}

#[test]
fn recordings_of_tasks_share_windows_and_what_they_lack_is_said_with_the_task() {
    let place = place();
    let audio: Vec<f32> = (0..6400).map(|n| 0.2 * (n as f32 * 0.3).sin()).collect();
    place.write_recordings((0..12).map(|_| (audio.clone(), "E".into())));
    let start = two_tasks().find("{synth: cw, samples: 12").expect("the first task's data");
    let end = start + two_tasks()[start..].find(", valid").expect("its end");
    place.write("two.yaml", two_tasks().replacen(&two_tasks()[start..end], "{path: list.jsonl}", 1));
    // Twelve recordings of 0.4 s with a gap between them: four in a window of 2 s, and batches of one sample.
    let epoch = ["--phase", "1", "--set", "data.batch_size=1", "--set", "phases.1.train={epochs: 1, max_steps: null}"];
    let steps = |more: &[&str]| {
        trained(&place, &[&epoch[..], &["--set", "run.overwrite=true"], more].concat());
        place.json("runs/two/phase1/low/summary.json")["steps"].as_u64()
    };
    assert_eq!(steps(&[]), Some(12));
    let packed = steps(&["--set", "data.pack=true"]);
    assert!(packed.is_some_and(|packed| (3..6).contains(&packed)), "{packed:?}");
    let before = place.tree();
    train(&place, &["--set", "run.overwrite=true", "--set", "data.timestamps=0.5"])
        .assert_refusal(&["task `low`", "data.timestamps"]);
    assert_eq!(place.tree(), before, "nothing is touched");
}
