//! Complete fine-tuning runs: throughput of the loader, and utilisation of the card.

use super::args::Scale;
use super::bench::{Bench, s};
use super::report::Part;
use crate::bench::step::Size;
use std::path::{Path, PathBuf};
use undertone::model::text::{PretrainedText, TextEncoderConfig, TextModelType, TextTokenizer};
use undertone::model::whisper::WhisperConfig;
use undertone::ops::DeviceSpec;
use undertone::store::Dtype;
use undertone::train::Performance;
use undertone_cli::Failure;

/// The README's first command.
const QUICKSTART: &str = include_str!("../../../../configs/cw-contest.yaml");

/// Tokenizer of a few letters.
const TOKENIZER: &[u8] = include_bytes!("../../../../tests/fixtures/text/roberta/tokenizer.json");
const WORDS: [&str; 8] = ["hello", "world", "and", "a", "cab", "kick", "ends", "rain"];

/// A run, as the table calls it.
struct Guide {
    title: String,
    name: &'static str,
    config: String,
    /// Of DYNAMO, where it has tasks.
    phase: Option<&'static str>,
}

impl Bench<'_> {
    /// Some steps of the README's first command.
    pub fn quickstart(&mut self) -> Result<(), Failure> {
        let config = QUICKSTART.to_owned();
        let guide = Guide { title: "cw-contest".to_owned(), name: "cw-contest", config, phase: None };
        self.guide(&guide, Part::Quickstart)
    }

    /// The five guides.
    pub fn guides(&mut self) -> Result<(), Failure> {
        let small = self.args.guides == Scale::Small;
        let (roberta, minilm) = match small {
            true => ([64, 2, 4], [64, 2, 4]),
            false => ([768, 12, 12], [384, 6, 12]),
        };
        let [roberta, minilm] =
            [("roberta", roberta), ("minilm", minilm)].map(|(name, shape)| self.encoder(name, shape));
        let sized = |size: Size| if small { Size::Nano.config() } else { size.config() };
        let texts = self.texts()?;
        let batch = if small { 4 } else { 16 };
        // Whoever stands in for it.
        let of = |model: &'static str, stand_in: &'static str| if small { stand_in } else { model };
        let (nano, blocks) = ("whisper-nano", "an encoder of two blocks");
        let guides = [
            Guide {
                title: format!("Morse on {}, bf16, batch {batch}", of("Whisper small", nano)),
                name: "morse",
                config: morse("morse", &sized(Size::Small), [batch, 1], "bf16"),
                phase: None,
            },
            Guide {
                title: format!("{} in 8 GB, f16, batch 6, accumulation 4", of("Whisper base", nano)),
                name: "base-8gb",
                config: morse("base-8gb", &sized(Size::Base), [6, 4], "f16"),
                phase: None,
            },
            Guide {
                title: format!("tweets on {}, bf16, batch 32", of("RoBERTa", blocks)),
                name: "tweets",
                config: text("tweets", "roberta", &roberta?, &texts, 32),
                phase: Some("1"),
            },
            Guide {
                title: format!("DYNAMO on {}, bf16, batch {batch}", of("Whisper base", nano)),
                name: "dynamo",
                config: dynamo(&sized(Size::Base), batch),
                phase: Some("all"),
            },
            Guide {
                title: format!("a small text set on {}, bf16, batch 16", of("MiniLM", blocks)),
                name: "small-text",
                config: text("small-text", "roberta", &minilm?, &texts, 16),
                phase: Some("1"),
            },
        ];
        if small {
            let note =
                "the models of the runs: whisper-nano and encoders of two blocks stood in for them (--guides small)";
            self.report.leave_out(Some(note.to_owned()));
        }
        guides.iter().try_for_each(|guide| self.guide(guide, Part::Guides))
    }

    /// Trains, and reads what the run wrote of its speed, also where it had to be stopped.
    fn guide(&mut self, guide: &Guide, part: Part) -> Result<(), Failure> {
        let file = self.work.path().join(format!("{}.yaml", guide.name));
        write(&file, &guide.config)?;
        let (steps, log) = (self.args.guide_steps, self.args.guide_steps / 6);
        let mut arguments = vec!["train".to_owned(), "--config".to_owned(), file.to_string_lossy().into_owned()];
        arguments.extend(["--device".to_owned(), self.device.to_string()]);
        for set in [
            format!("train.max_steps={steps}"),
            format!("train.log_every={log}"),
            "train.evaluate.every=0".to_owned(),
            "train.checkpoint.every=0".to_owned(),
            "train.optimizer.warmup_steps=1".to_owned(),
        ] {
            arguments.extend(["--set".to_owned(), set]);
        }
        arguments.extend(guide.phase.into_iter().flat_map(|phase| ["--phase".to_owned(), phase.to_owned()]));
        // On a card of some size a stage takes less than half a minute.
        let most = match (self.card.is_host, guide.phase) {
            (true, _) => s(3600),
            (false, Some("all")) => s(120),
            (false, _) => s(60),
        };
        self.our(&guide.title, &arguments, [s(15), most])?;
        let run = self.work.path().join("runs").join(guide.name);
        for (stage, lines) in performance(&run) {
            let title = if stage.is_empty() { guide.title.clone() } else { format!("{}: {stage}", guide.title) };
            self.report.row(part, cells(title, &lines))?;
        }
        // Models of some gigabytes, which the next run needs the room of.
        let _ = std::fs::remove_dir_all(run);
        Ok(())
    }

    /// A folder with a fresh text encoder of this width, so many blocks and heads.
    fn encoder(&self, name: &str, [width, blocks, heads]: [usize; 3]) -> Result<PathBuf, Failure> {
        let failed =
            |e: &dyn std::fmt::Display| Failure::Machine(format!("cannot make the text encoder `{name}`: {e}"));
        let tokenizer = TextTokenizer::from_bytes(TOKENIZER.to_vec(), &[]).map_err(|e| failed(&e))?;
        let config = TextEncoderConfig {
            model_type: TextModelType::Roberta,
            max_position_embeddings: 514,
            ..TextEncoderConfig::new(width, 4 * width, heads, blocks)
        };
        let cpu = DeviceSpec::Cpu.resolve().map_err(|e| failed(&e))?;
        let folder = self.work.path().join(name);
        let model = PretrainedText::init(config, tokenizer, &cpu).map_err(|e| failed(&e))?;
        model.save(&folder, Dtype::F32).map_err(|e| failed(&e))?;
        Ok(folder)
    }

    /// Two thousand texts of two kinds.
    fn texts(&self) -> Result<PathBuf, Failure> {
        let file = self.work.path().join("texts.csv");
        let word = |at: usize| WORDS[at * 2_654_435_761 % 2_147_483_647 % WORDS.len()];
        let line = |i: usize| {
            let words: Vec<&str> = (0..8 + i % 9).map(|w| word(17 * i + w)).collect();
            format!("{},{}\n", words.join(" "), ["calm", "cross"][i % 2])
        };
        let lines: String = (0..2000).map(line).collect();
        write(&file, &format!("text,label\n{lines}"))?;
        Ok(file)
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|e| Failure::Machine(format!("cannot write `{}`: {e}", file.display())))
}

/// What each stage of a run wrote of its speed, in the order in which they were trained, by the stage's name.
fn performance(run: &Path) -> Vec<(String, Vec<Performance>)> {
    let mut found = Vec::new();
    let mut folders = vec![run.to_owned()];
    while let Some(folder) = folders.pop() {
        let file = folder.join("performance.jsonl");
        if let Ok(text) = std::fs::read_to_string(&file) {
            let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            let began = file.metadata().and_then(|data| data.created().or_else(|_| data.modified())).ok();
            let stage = folder.strip_prefix(run).unwrap_or(&folder).to_string_lossy().into_owned();
            found.push((began, stage, lines));
        }
        let inner = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(inner.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    found.into_iter().map(|(_, stage, lines)| (stage, lines)).collect()
}

/// A row, of all lines but the first, in which kernels are compiled and tuned.
fn cells(title: String, lines: &[Performance]) -> Vec<String> {
    let Some(all) = Performance::over(lines.get(1..).unwrap_or_default()) else {
        return [title, "fewer than two lines were written".to_owned()]
            .into_iter()
            .chain((2..8).map(|_| String::new()))
            .collect();
    };
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let gpus = all.hardware.as_ref().map(|hardware| hardware.gpus.as_slice()).unwrap_or_default();
    let gpu = gpus.first();
    // The most of any line: the mean says nothing of what has to fit.
    let memory = lines.iter().filter_map(|line| line.hardware.as_ref()?.gpus.first()?.memory_bytes).max();
    let unknown = || "?".to_owned();
    vec![
        title,
        all.step.to_string(),
        format!("{:.1}", all.samples_per_second),
        all.mfu.map_or_else(unknown, percent),
        percent(all.time.data_wait),
        percent(all.time.transfer),
        gpu.and_then(|gpu| gpu.utilization).map_or_else(unknown, percent),
        memory.map_or_else(unknown, |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 30))),
    ]
}

/// A fresh Whisper of these dimensions.
fn source(config: &WhisperConfig) -> String {
    format!(
        "{{config: {{d_model: {}, encoder_layers: {}, decoder_layers: {}, encoder_attention_heads: {}, decoder_attention_heads: {}, \
         encoder_ffn_dim: {}, decoder_ffn_dim: {}, num_mel_bins: {}, max_source_positions: {}, max_target_positions: {}}}}}",
        config.d_model,
        config.encoder_layers,
        config.decoder_layers,
        config.encoder_attention_heads,
        config.decoder_attention_heads,
        config.encoder_ffn_dim,
        config.decoder_ffn_dim,
        config.num_mel_bins,
        config.max_source_positions,
        config.max_target_positions,
    )
}

fn morse(name: &str, config: &WhisperConfig, [batch, accumulation]: [usize; 2], compute: &str) -> String {
    let source = source(config);
    format!(
        "seed: 1
run: {{name: {name}}}
model: {{source: {source}}}
data:
  batch_size: {batch}
  pad: window
  train: {{synth: cw, samples: 100000, cw: &cw {{duration_s: [3.0, 7.0]}}}}
  valid: {{synth: cw, samples: 4, cw: *cw}}
train:
  compute: {compute}
  accumulation: {accumulation}
  optimizer: {{lr: 1.0e-5}}
  evaluate: {{metrics: [loss]}}
  checkpoint: {{metric: loss}}
"
    )
}

fn text(name: &str, backbone: &str, model: &Path, texts: &Path, batch: usize) -> String {
    // A path in quotes of YAML's, in which only quotes are special.
    let [model, texts] = [model, texts].map(|path| path.to_string_lossy().replace('\'', "''"));
    format!(
        "seed: 1
run: {{name: {name}}}
model: {{backbone: {backbone}, source: {{path: '{model}'}}}}
data: {{batch_size: {batch}}}
tasks:
  - name: mood
    head: {{type: classify, labels: [calm, cross], max_length: 128}}
    lora: {{r: 16, lora_alpha: 32, target_modules: [query, key, value, dense]}}
    metrics: [accuracy]
    data:
      train: {{path: '{texts}'}}
      valid: {{part_of_train: 0.02}}
train:
  compute: bf16
  optimizer: {{lr: 1.0e-4}}
"
    )
}

fn dynamo(config: &WhisperConfig, batch: usize) -> String {
    let source = source(config);
    let task = |name: &str| {
        format!(
            "  - name: {name}
    lora: {{r: 16, lora_alpha: 32, target_modules: [q_proj, k_proj, v_proj, out_proj, fc1, fc2]}}
    metrics: [cer]
    data:
      train: {{synth: cw, samples: 100000, cw: {{task: {name}, duration_s: [5.5, 6.5], wpm: [26, 32]}}}}
      valid: {{synth: cw, samples: 4, cw: {{task: {name}, duration_s: [5.5, 6.5], wpm: [26, 32]}}}}
"
        )
    };
    let tasks: String = ["copy", "callsigns", "expand"].map(task).concat();
    format!(
        "seed: 1
run: {{name: dynamo}}
model: {{source: {source}}}
data: {{batch_size: {batch}, pad: window}}
tasks:
{tasks}train:
  compute: bf16
  optimizer: {{lr: 1.0e-4}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_found_in_the_folders_below_a_run() {
        let run = tempfile::tempdir().expect("a folder");
        let line = Performance {
            step: 4,
            steps: 4,
            seconds: 2.0,
            samples_per_second: 8.0,
            audio_seconds_per_second: None,
            tokens_per_second: None,
            flops_per_second: None,
            mfu: Some(0.5),
            time: Default::default(),
            ranks: None,
            hardware: None,
        };
        let json = serde_json::to_string(&line).expect("JSON");
        let stage = run.path().join("phase1").join("copy");
        std::fs::create_dir_all(&stage).expect("made");
        std::fs::write(stage.join("performance.jsonl"), format!("{json}\n{json}\n")).expect("written");
        let found = performance(run.path());
        let [(name, lines)] = found.as_slice() else { panic!("{} stages", found.len()) };
        assert_eq!((name.as_str(), lines.len()), (&*Path::new("phase1").join("copy").to_string_lossy(), 2));
        assert_eq!(cells("run".into(), lines)[..5], ["run", "4", "8.0", "50.0 %", "0.0 %"]);
        assert!(cells("run".into(), &lines[..1])[1].contains("fewer than two"));
        assert!(performance(&run.path().join("none")).is_empty());
    }
}
