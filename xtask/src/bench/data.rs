//! `cargo xtask bench data`: how fast samples are made, alone and beside Python.

use super::numbers::{median, rounded};
use super::random::Random;
use crate::process::{json_line, output};
use clap::builder::RangedU64ValueParser;
use rayon::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use undertone::data::audio;
use undertone::data::cache::{Cache, Key};
use undertone::data::features::{LogMel, Mel};
use undertone::data::loader::{Collate, Dataset, Loader, LoaderConfig, SampleError, Workers};
use undertone::model::whisper::WhisperTokenizer;
use undertone::train::HardwareSampler;
use undertone_cli::{Failure, say};

#[derive(clap::Args)]
pub struct Args {
    /// A folder of recordings: WAV, FLAC, MP3, Ogg
    #[arg(long, value_name = "DIR")]
    audio: PathBuf,
    /// Texts to be tokenised, one a line; with a tokenizer
    #[arg(long, value_name = "FILE", requires = "tokenizer")]
    texts: Option<PathBuf>,
    /// A Whisper's `tokenizer.json`
    #[arg(long, value_name = "FILE", requires = "texts")]
    tokenizer: Option<PathBuf>,
    /// The Python that has soundfile, soxr, torch and transformers
    #[arg(long, value_name = "PATH", requires = "peer")]
    peer_python: Option<PathBuf>,
    /// The peer's script, `xtask/peers/data.py`
    #[arg(long, value_name = "PATH", requires = "peer_python")]
    peer: Option<PathBuf>,
    /// Threads, and the peer's processes, that make batches
    #[arg(long, default_value = "2", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    workers: usize,
    /// How often each of the two runs
    #[arg(long, default_value = "3", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
}

/// Samples of a batch.
const BATCH: usize = 16;
/// Whisper's window.
const WINDOW: usize = 480_000;
/// Clips in an epoch.
const CLIPS: usize = 320;
/// How long the consumer takes over a batch where its waiting is measured: a step of a fast accelerator.
const STEP: Duration = Duration::from_millis(50);
/// Batches before that: at first nothing is ready.
const WARM_UP: usize = 8;
/// Threads where the consumer's waiting is measured.
const WAITED_FOR: usize = 4;
/// Epochs over which memory is watched.
const EPOCHS: u64 = 20;
const EXTENSIONS: [&str; 4] = ["wav", "flac", "mp3", "ogg"];

type Results = BTreeMap<String, f64>;

pub fn run(args: &Args) -> Result<(), Failure> {
    let files = recordings(&args.audio)?;
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        ours.push(compared(args, &files)?);
        say!("{}", json!({"ours": ours.last()}))?;
        if let (Some(python), Some(script)) = (&args.peer_python, &args.peer) {
            peers.push(peer(python, script, args)?);
            say!("{}", json!({"peer": peers.last()}))?;
        }
    }
    let alone = alone(&files)?;
    for (name, found) in medians(&ours) {
        let mut line = json!({"bench": "data", "part": name, "ours": rounded(found, 2)});
        if let Some(peer) = medians(&peers).get(&name) {
            // Times are better when lower, rates when higher.
            let ratio = if name.ends_with("_ms") { peer / found } else { found / peer };
            line["peer"] = json!(rounded(*peer, 2));
            line["ratio"] = json!(rounded(ratio, 2));
        }
        say!("{line}")?;
    }
    for (name, found) in alone {
        say!("{}", json!({"bench": "data", "part": name, "ours": rounded(found, 4)}))?;
    }
    Ok(())
}

fn recordings(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |e| Failure::BadInput(format!("`{}` cannot be listed: {e}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(failed)?.filter_map(Result::ok);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| kind(path).is_some()).collect();
    files.sort();
    match files.is_empty() {
        true => Err(Failure::BadInput(format!("`{}` holds no wav, flac, mp3 or ogg files", folder.display()))),
        false => Ok(files),
    }
}

fn kind(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?;
    EXTENSIONS.into_iter().find(|known| *known == extension)
}

/// What the peer measures too.
fn compared(args: &Args, files: &[PathBuf]) -> Result<Results, Failure> {
    let mut results = Results::new();
    let log_mel = LogMel::new(80).map_err(Failure::bad_input)?;
    let noise = noise();
    let mut out = vec![0.0; 80 * LogMel::frames(WINDOW)];
    let mel = seconds(21, || log_mel.features_padded_into(&noise, WINDOW, &mut out).map_err(Failure::bad_input))?;
    results.insert("mel_ms".into(), 1e3 * mel);
    for extension in EXTENSIONS {
        let some: Vec<&PathBuf> = files.iter().filter(|path| kind(path) == Some(extension)).collect();
        if some.is_empty() {
            continue;
        }
        let length = |path: &&PathBuf| audio::load(path).map(|audio| audio.len()).map_err(Failure::bad_input);
        let samples = some.iter().map(length).sum::<Result<usize, _>>()?;
        let taken = seconds(5, || some.iter().try_for_each(|path| length(path).map(|_| ())))?;
        results.insert(format!("decode_{extension}"), samples as f64 / f64::from(audio::SAMPLE_RATE) / taken);
    }
    let loader = loader(Recordings { files: files.to_vec(), cache: None }, args.workers)?;
    let mut epoch = 0;
    let taken = seconds(3, || {
        epoch += 1;
        loader.epoch(epoch, 0).try_for_each(|batch| batch.map(|_| ()).map_err(Failure::bad_input))
    })?;
    results.insert("loader".into(), CLIPS as f64 / taken);
    if let (Some(tokenizer), Some(texts)) = (&args.tokenizer, &args.texts) {
        let read = |path: &Path| std::fs::read(path).map_err(|e| Failure::BadInput(format!("{}: {e}", path.display())));
        let tokenizer = WhisperTokenizer::from_bytes(read(tokenizer)?).map_err(Failure::bad_input)?;
        let text = String::from_utf8(read(texts)?).map_err(Failure::bad_input)?;
        let lines: Vec<&str> = text.lines().collect();
        let encode = |line: &&str| tokenizer.encode(line).map(|_| ()).map_err(Failure::bad_input);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(args.workers).build().map_err(Failure::bad_input)?;
        let taken = pool.install(|| seconds(5, || lines.par_iter().try_for_each(encode)))?;
        results.insert("tokenize".into(), lines.len() as f64 / taken);
    }
    Ok(results)
}

/// What is ours alone: waiting, the cache, memory.
fn alone(files: &[PathBuf]) -> Result<Results, Failure> {
    let mut results = Results::new();
    results.insert("wait_of_50_ms_steps".into(), waited(&loader(Noise(noise()), WAITED_FOR)?)?);
    let decoded = loader(Recordings { files: files.to_vec(), cache: None }, WAITED_FOR)?;
    results.insert("wait_of_50_ms_steps_with_decoding".into(), waited(&decoded)?);

    let folder = tempfile::tempdir().map_err(Failure::bad_input)?;
    let cache = Arc::new(Cache::open(folder.path(), 10_000_000_000).map_err(Failure::bad_input)?);
    let cached = loader(Recordings { files: files.to_vec(), cache: Some(cache) }, 2)?;
    for name in ["first_epoch", "second_epoch"] {
        let epoch = u64::from(name == "second_epoch");
        let taken = seconds(1, || cached.epoch(epoch, 0).try_for_each(|b| b.map(|_| ()).map_err(Failure::bad_input)))?;
        results.insert(format!("cache_{name}"), CLIPS as f64 / taken);
    }

    let sampler = HardwareSampler::start(HardwareSampler::INTERVAL);
    for epoch in 0..EPOCHS {
        decoded.epoch(epoch, 0).try_for_each(|batch| batch.map(|_| ()).map_err(Failure::bad_input))?;
        if epoch == 1 || epoch + 1 == EPOCHS {
            // The sampler looks once in an interval.
            std::thread::sleep(2 * HardwareSampler::INTERVAL);
            let bytes = sampler.take().and_then(|found| found.memory_bytes);
            let mib = bytes.map_or(f64::NAN, |bytes| bytes as f64 / f64::from(1 << 20));
            results.insert(format!("memory_mib_after_epoch_{:02}", epoch + 1), mib);
        }
    }
    Ok(results)
}

/// The share of its time that a consumer waits which takes 50 ms over each batch, once the workers have begun.
fn waited<D: Dataset + 'static, C: Collate<D::Item> + 'static>(loader: &Loader<D, C>) -> Result<f64, Failure>
where
    C::Batch: 'static,
{
    let mut batches = loader.epoch(0, 0);
    for batch in batches.by_ref().take(WARM_UP) {
        batch.map_err(Failure::bad_input)?;
        std::thread::sleep(STEP);
    }
    let (started, mut waited) = (Instant::now(), Duration::ZERO);
    loop {
        std::thread::sleep(STEP);
        let asked = Instant::now();
        let Some(batch) = batches.next() else { break };
        waited += asked.elapsed();
        batch.map_err(Failure::bad_input)?;
    }
    Ok(waited.as_secs_f64() / started.elapsed().as_secs_f64())
}

/// The median of the seconds that something takes.
fn seconds(repeats: usize, mut run: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut times = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let started = Instant::now();
        run()?;
        times.push(started.elapsed().as_secs_f64());
    }
    Ok(median(&times))
}

fn medians(rounds: &[Results]) -> Results {
    let names = rounds.first().into_iter().flat_map(BTreeMap::keys);
    let of = |name: &String| rounds.iter().filter_map(|round| round.get(name).copied()).collect::<Vec<f64>>();
    names.map(|name| (name.clone(), median(&of(name)))).collect()
}

fn peer(python: &Path, script: &Path, args: &Args) -> Result<Results, Failure> {
    let mut command = Command::new(python);
    command.arg(script).arg("--audio").arg(&args.audio).args(["--workers", &args.workers.to_string()]);
    command.args(["--clips", &CLIPS.to_string()]);
    if let (Some(tokenizer), Some(texts)) = (&args.tokenizer, &args.texts) {
        command.arg("--tokenizer").arg(tokenizer).arg("--texts").arg(texts);
    }
    let line = json_line(&output(&mut command)?)?;
    serde_json::from_value(line)
        .map_err(|e| Failure::BadInput(format!("{command:?} did not end with a JSON object of numbers: {e}")))
}

/// Thirty seconds that no two samples of are alike.
fn noise() -> Vec<f32> {
    let mut random = Random::new(1, "noise", 0);
    std::iter::repeat_with(|| 0.1 * (random.share() - 0.5) as f32).take(WINDOW).collect()
}

fn loader<D: Dataset<Item = Clip> + 'static>(dataset: D, workers: usize) -> Result<Loader<D, Features>, Failure> {
    let config = LoaderConfig { batch_size: BATCH, workers: Workers::Count(workers), ..LoaderConfig::default() };
    let collate = Features(LogMel::new(80).map_err(Failure::bad_input)?);
    Loader::new(Arc::new(dataset), Arc::new(collate), config).map_err(Failure::bad_input)
}

/// Audio, or features that were kept.
enum Clip {
    Audio(Vec<f32>),
    Features(Mel),
}

/// Features of whole windows.
struct Features(LogMel);

impl Collate<Clip> for Features {
    type Batch = Vec<f32>;

    fn collate(&self, clips: Vec<Clip>) -> Result<Vec<f32>, SampleError> {
        let frames = LogMel::frames(WINDOW);
        let mut batch = vec![0.0; clips.len() * self.0.bins() * frames];
        for (clip, out) in clips.iter().zip(batch.chunks_mut(self.0.bins() * frames)) {
            match clip {
                Clip::Audio(audio) => self.0.features_padded_into(audio, WINDOW, out)?,
                Clip::Features(mel) => mel.pad_into(frames, out),
            }
        }
        Ok(batch)
    }

    fn bytes(batch: &Vec<f32>) -> usize {
        4 * batch.len()
    }
}

/// The same thirty seconds again and again, in memory.
struct Noise(Vec<f32>);

impl Dataset for Noise {
    type Item = Clip;

    fn len(&self) -> usize {
        10 * CLIPS
    }

    fn get(&self, _: usize, _: u64) -> Result<Clip, SampleError> {
        Ok(Clip::Audio(self.0.clone()))
    }

    fn name(&self, index: usize) -> String {
        index.to_string()
    }
}

/// Files, each as often as an epoch asks for; with a cache, each of an epoch's samples is one of its own.
struct Recordings {
    files: Vec<PathBuf>,
    cache: Option<Arc<Cache>>,
}

impl Dataset for Recordings {
    type Item = Clip;

    fn len(&self) -> usize {
        CLIPS
    }

    fn get(&self, index: usize, _: u64) -> Result<Clip, SampleError> {
        let load = || audio::load(&self.files[index % self.files.len()]);
        let Some(cache) = &self.cache else { return Ok(Clip::Audio(load()?)) };
        let key = Key::new(&[&index.to_le_bytes()]);
        let compute = || Ok::<Mel, SampleError>(LogMel::new(80)?.features_and_silence(&load()?));
        Ok(Clip::Features(cache.get_or_compute(&key, compute)?))
    }

    fn name(&self, index: usize) -> String {
        index.to_string()
    }
}
