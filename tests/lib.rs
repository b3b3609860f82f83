//! What the tests share: an experiment that takes seconds, a place to run it in, the command line as a process, and
//! the answers of reference implementations.

pub mod http;
pub mod model_folder;
pub mod reference;
pub mod runs;
pub mod toys;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use undertone::model::whisper::{GenerationConfig, PretrainedWhisper, WhisperConfig, WhisperTokenizer};
use undertone::store::{Dtype, HostTensor, TensorFile, write_tensors};

/// Clips of two seconds without anything in the way.
pub const CLIPS: &str = "synth: cw, cw: {duration_s: [2, 2], wpm: [20, 30], lead_s: [0.05, 0.2], tail_s: [0.05, 0.1], \
     farnsworth: {probability: 0}, hand: {probability: 0}, clean: 1, noise_only: 0}";

/// A temporary directory with the files of a test; processes run in it and have their temporary files below it.
pub struct Place {
    dir: TempDir,
}

impl Default for Place {
    fn default() -> Self {
        // Some tests read configurations in their own process.
        undertone::register().expect("registered");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("tmp")).expect("a directory");
        Self { dir }
    }
}

impl Place {
    /// A place with the file `tiny.yaml`: [`experiment`] with its runs in here.
    pub fn with_experiment(train: &str) -> Self {
        let place = Self::default();
        place.write_experiment(train);
        place
    }

    /// Loads a configuration in it.
    pub fn load(&self, name: &str) -> undertone::phases::Experiment {
        undertone::phases::Experiment::load(Some(&self.path(name)), &[]).expect(name)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("written");
    }

    /// Text of a file.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Bytes of a file.
    #[track_caller]
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The JSON of a file.
    #[track_caller]
    pub fn json(&self, name: &str) -> Value {
        model_folder::read_json(&self.path(name))
    }

    /// Writes recordings with their texts, `00.wav` and so on, and the list of them, `list.jsonl`.
    pub fn write_recordings(&self, recordings: impl Iterator<Item = (Vec<f32>, String)>) {
        let mut list = String::new();
        for (index, (audio, text)) in recordings.enumerate() {
            let name = format!("{index:02}.wav");
            self.write(&name, wav(&audio));
            list += &format!("{}\n", serde_json::json!({"audio": name, "text": text}));
        }
        self.write("list.jsonl", list);
    }

    /// Writes `tiny.yaml`, as [`Self::with_experiment`] does.
    pub fn write_experiment(&self, train: &str) {
        self.write("tiny.yaml", experiment(train));
    }

    /// Every path below it.
    pub fn tree(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.dir.path().to_owned()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).expect("listed") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    open.push(path.clone());
                }
                found.insert(path);
            }
        }
        found
    }

    /// `cargo xtask ARGS`, in here, with its output in pipes.
    pub fn xtask(&self, args: &[&str]) -> Command {
        let test = std::env::current_exe().expect("a path");
        let binary = test.ancestors().nth(2).expect("target/debug/deps/TEST").join("xtask");
        assert!(
            binary.is_file(),
            "`{}` is missing: `cargo build -p xtask`, or test with `cargo xtask test`",
            binary.display()
        );
        self.program(&binary, args)
    }

    /// `BINARY ARGS`, in here, with its output in pipes.
    pub fn program(&self, binary: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(binary);
        command.args(args).current_dir(self.dir.path()).env("TMPDIR", self.path("tmp"));
        // Mesa's drivers complain where they have none.
        command.env("XDG_RUNTIME_DIR", self.path("tmp"));
        // What is shown is what the test asks for.
        command.env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `cargo xtask ARGS` to its end.
    pub fn run(&self, args: &[&str]) -> Outcome {
        Outcome::of(&mut self.xtask(args))
    }

    /// Trains with a configuration, to the end, with `more` options.
    pub fn train(&self, config: &str, more: &[&str]) -> Outcome {
        self.run(&[&["train", "--config", config], more].concat())
    }
}

/// Settings as the command line takes them: `--set` before each.
pub fn sets(settings: &[impl AsRef<str>]) -> Vec<&str> {
    settings.iter().flat_map(|setting| ["--set", setting.as_ref()]).collect()
}

/// The JSON of each line.
#[track_caller]
pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// How a process ended and what it said.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status; none after a signal.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { status: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

impl Outcome {
    /// That of a process, which is run to its end and writes UTF-8.
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().expect("a process");
        for bytes in [&output.stdout, &output.stderr] {
            assert!(std::str::from_utf8(bytes).is_ok(), "not UTF-8: {output:?}");
        }
        Self::from(output)
    }

    /// That of a process that was started, once it ends.
    pub fn at_the_end(child: Child) -> Self {
        Self::from(child.wait_with_output().expect("an end"))
    }

    /// The same, of a process that succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.status, Some(0), "{self:?}");
        self
    }

    /// The JSON on standard output.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Exit status 2, and a last line on standard error that is an error and names every culprit.
    pub fn assert_refusal(&self, culprits: &[&str]) {
        assert_eq!(self.status, Some(2), "{self:?}");
        let last = self.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "{self:?}");
        for culprit in culprits {
            assert!(last.contains(culprit), "{culprit:?} is not named in {last:?}");
        }
    }
}

/// An experiment of a few steps: a model of width 16, two seconds wide, from nothing. `train` is the YAML of
/// `data.train`.
pub fn experiment(train: &str) -> String {
    format!(
        "run: {{name: tiny, dir: runs}}
device: cpu
model:
  source:
    config:
      {{d_model: 16, encoder_layers: 1, decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,
        encoder_ffn_dim: 32, decoder_ffn_dim: 32, max_source_positions: 100, max_target_positions: 56, dropout: 0.1}}
data:
  batch_size: 4
  workers: 1
  train: {{{train}}}
  valid: {{samples: 2, {CLIPS}}}
train:
  max_steps: 24
  log_every: 1
  optimizer: {{lr: 1.0e-3, warmup_steps: 2}}
  evaluate: {{every: 6, metrics: [cer, loss]}}
  checkpoint: {{every: 4}}
"
    )
}

/// The same with two tasks of few samples, each with `more` keys.
pub fn experiment_of_tasks(more: &str) -> String {
    let valid = format!("  valid: {{samples: 2, {CLIPS}}}\n");
    let base = experiment("").replace("  train: {}\n", "").replace(&valid, "").replace(", metrics: [cer, loss]", "");
    let task = |name: &str| {
        format!(
            "  - {{name: {name}, {more}lora: {{r: 2, target_modules: [q_proj]}}, data: {{train: {{samples: 8, {CLIPS}}}, valid: {{samples: 2, {CLIPS}}}}}}}\n"
        )
    };
    format!("{base}router: {{tap: 0}}\ntasks:\n{}{}", task("a"), task("b"))
}

/// A model like the experiment's, written as a folder.
pub fn write_model(dir: &Path) {
    let config =
        WhisperConfig { max_source_positions: 100, max_target_positions: 56, ..WhisperConfig::new(16, 32, 2, [1, 1]) };
    let characters: String = undertone::cw::morse::alphabet().collect();
    let tokenizer = WhisperTokenizer::of_characters(&characters, &["en"]).expect("a tokenizer");
    let device = burn::tensor::Device::default();
    undertone::ops::seed(3);
    let whisper = PretrainedWhisper::init(config, tokenizer, GenerationConfig::new(true), &device).expect("a model");
    whisper.save(dir, Dtype::F32).expect("saved");
}

/// Every tensor of a safetensors file.
pub fn tensors(path: &Path) -> BTreeMap<String, HostTensor> {
    let file = TensorFile::open(path).expect("a safetensors file");
    file.names().into_iter().map(|name| (name.clone(), file.read(&name).expect("a tensor"))).collect()
}

/// Writes a safetensors file again with some of its tensors changed.
pub fn change_tensors(path: &Path, change: impl FnOnce(&mut BTreeMap<String, HostTensor>)) {
    let mut tensors = tensors(path);
    change(&mut tensors);
    write_tensors(path, &tensors, Dtype::F32).expect("written");
}

/// A WAV file of 32-bit floats, 16 kHz, mono.
pub fn wav(samples: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
    let length = u32::try_from(data.len()).expect("a short file");
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + length).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x03\0\x01\0");
    for number in [16_000, 64_000, 4 | 32 << 16] {
        bytes.extend(u32::to_le_bytes(number));
    }
    bytes.extend(b"data");
    bytes.extend(length.to_le_bytes());
    bytes.extend(data);
    bytes
}
