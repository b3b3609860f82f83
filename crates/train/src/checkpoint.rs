//! Checkpoints: atomically written directories, and the choice of which to keep.

use crate::guard::GuardState;
use crate::loss_scale::LossScale;
use crate::objective::Evaluation;
use crate::tally::LossTally;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use undertone_metrics::Direction;
use undertone_store::{
    Dtype, HostTensor, StoreError, TensorFile, replace_directory, write_atomically, write_json, write_tensors,
};

/// State of training without its tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainState {
    /// Optimizer steps taken.
    pub step: u64,
    /// Epoch of the next batch.
    pub epoch: u64,
    /// Position of the next batch in its epoch.
    pub cursor: usize,
    /// Unit of `cursor`: batches per epoch and batches per step.
    pub batching: Option<(usize, usize)>,
    /// Number of ranks at the beginning of the run; a step has `accumulation` batches for each of them. Absent from
    /// older checkpoints, which come from one rank.
    #[serde(default)]
    pub ranks: Option<usize>,
    /// Samples trained on.
    pub samples: u64,
    /// Seconds trained, over all sessions.
    pub seconds: f64,
    /// Evaluation before the first step.
    pub before: Option<Evaluation>,
    /// Latest evaluation.
    pub latest: Option<Evaluation>,
    /// Value of the deciding metric at this checkpoint, if it was evaluated here.
    pub score: Option<f64>,
    /// Best value of the deciding metric so far, and its step.
    pub best: Option<(f64, u64)>,
    /// Last score that counted as an improvement for early stopping, with the sign that makes lower better.
    pub reference: Option<f64>,
    /// Number of evaluations since then.
    pub stalled: u64,
    /// Seed of the run. The randomness of a step follows from it and the step's number.
    pub seed: u64,
    /// Checksum of the frozen parameters, which no checkpoint holds. Absent from older checkpoints.
    #[serde(default)]
    pub frozen: Option<u32>,
    /// State of loss scaling, with `compute: f16`.
    #[serde(default)]
    pub loss_scale: Option<LossScale>,
    /// State of the guard.
    #[serde(default)]
    pub guard: GuardState,
    /// Best value of the deciding metric for the averaged weights, and its step.
    #[serde(default)]
    pub best_ema: Option<(f64, u64)>,
    /// Whether an interrupt prevented the evaluation at this step, which is still to be done.
    #[serde(default)]
    pub unjudged: bool,
    /// Loss since the last line of `metrics.jsonl`.
    #[serde(default)]
    pub losses: LossTally,
    /// Newest step whose parameters are known to be sound: with them a later step had a loss that is finite and no
    /// spike. Absent from older checkpoints.
    #[serde(default)]
    pub sound: Option<u64>,
}

/// Contents of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// State of training.
    pub state: TrainState,
    /// Trainable parameters by path.
    pub model: BTreeMap<String, HostTensor>,
    /// Optimizer state by name.
    pub optimizer: BTreeMap<String, HostTensor>,
    /// Averages of the parameters by path, if there are any.
    pub ema: Option<BTreeMap<String, HostTensor>>,
}

/// The directory `checkpoints/` of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
}

/// An opened checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    /// Path of the checkpoint's directory.
    pub path: PathBuf,
    /// State of training.
    pub state: TrainState,
    /// Parameters by path.
    pub model: TensorFile,
    /// Optimizer state by name.
    pub optimizer: TensorFile,
    /// Averages of the parameters by path, if there are any.
    pub ema: Option<TensorFile>,
}

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const EMA: &str = "ema.safetensors";
const STATE: &str = "state.json";
const CHECKSUMS: &str = "checksums";
/// Mark of a checkpoint that should not be resumed from.
const DOUBTFUL: &str = "doubtful";

impl Checkpoints {
    /// Returns the checkpoints in `dir`, which need not exist yet.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Folder of the checkpoints.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of every checkpoint that may be resumed from, oldest first, and the value of the deciding metric there, if
    /// it was evaluated. A checkpoint whose state cannot be read has none.
    pub fn scores(&self) -> Vec<(PathBuf, Option<f64>)> {
        let score = |path: &Path| read_state(path).ok()?.score.filter(|score| score.is_finite());
        let trusted = self.list().into_iter().filter(|(_, path)| !path.join(DOUBTFUL).exists());
        trusted.map(|(_, path)| (path.clone(), score(&path))).collect()
    }

    /// Number of ranks that the run of the newest checkpoint began with; `None` if there is no checkpoint. Each of its steps has
    /// `accumulation` batches for each of them, however many resume it.
    pub fn ranks(&self) -> Option<usize> {
        let mut newest = self.list().into_iter().rev();
        newest.find_map(|(_, path)| Some(read_state(&path).ok()?.ranks.unwrap_or(1)))
    }

    /// Saves a checkpoint atomically.
    ///
    /// # Errors
    /// When the file system refuses; older checkpoints are untouched then.
    pub fn save(&self, contents: &Contents) -> Result<(), StoreError> {
        let Contents { state, model, optimizer, ema } = contents;
        let path = self.path(state.step);
        replace_directory(
            &path,
            |name| FILES.contains(&name),
            |dir| {
                write_tensors(&dir.join(MODEL), model, Dtype::F32)?;
                write_tensors(&dir.join(OPTIMIZER), optimizer, Dtype::F32)?;
                if let Some(ema) = ema {
                    write_tensors(&dir.join(EMA), ema, Dtype::F32)?;
                }
                write_json(&dir.join(STATE), state)?;
                let mut sums = String::new();
                for name in [MODEL, OPTIMIZER, STATE].into_iter().chain(ema.is_some().then_some(EMA)) {
                    sums.push_str(&format!("{:08x}  {name}\n", checksum(&dir.join(name))?));
                }
                write_atomically(&dir.join(CHECKSUMS), sums.as_bytes())
            },
        )
    }

    /// Returns the newest complete checkpoint, and a sentence for each newer one that was passed over. A checkpoint
    /// that is marked as doubtful is returned only if there is no other.
    pub fn newest(&self) -> (Option<Checkpoint>, Vec<String>) {
        let (mut complaints, mut doubtful) = (Vec::new(), None);
        for (_, path) in self.list().into_iter().rev() {
            let mut pass_over =
                |why: String| complaints.push(format!("checkpoint `{}` is passed over: {why}", path.display()));
            match (Checkpoint::open(&path), path.join(DOUBTFUL).exists()) {
                (Ok(checkpoint), false) => return (Some(checkpoint), complaints),
                (Err(error), _) => pass_over(error.to_string()),
                (Ok(checkpoint), true) => {
                    pass_over("with its parameters no loss was found to go on with".into());
                    doubtful.get_or_insert(checkpoint);
                }
            }
        }
        (doubtful, complaints)
    }

    /// Returns the newest complete checkpoint of a step up to `step`.
    pub(crate) fn newest_until(&self, step: u64) -> Option<Checkpoint> {
        let until = self.list().into_iter().rev().filter(|(at, _)| *at <= step);
        until.into_iter().find_map(|(_, path)| Checkpoint::open(&path).ok())
    }

    /// Marks the checkpoints after `step` as doubtful: [`newest`](Self::newest) passes them over.
    pub(crate) fn doubt_after(&self, step: u64) -> Result<(), StoreError> {
        let mut later = self.list().into_iter().filter(|(at, _)| *at > step);
        later.try_for_each(|(_, path)| write_atomically(&path.join(DOUBTFUL), b""))
    }

    /// Deletes the checkpoints after `step`.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn remove_after(&self, step: u64) -> Result<(), StoreError> {
        self.list().into_iter().filter(|(at, _)| *at > step).try_for_each(|(_, path)| delete(&path))
    }

    /// Whether there is no checkpoint, not even a damaged one.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Deletes all checkpoints but the newest `keep_last`, the newest of a step up to `sound`, for rollback, and the
    /// `keep_best` with the best scores in `direction`.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn rotate(
        &self,
        keep_last: usize,
        keep_best: usize,
        direction: Direction,
        sound: Option<u64>,
    ) -> Result<(), StoreError> {
        let all = self.list();
        let mut scored: Vec<(f64, u64)> = all
            .iter()
            .filter_map(|(step, path)| Some((direction.as_cost(read_state(path).ok()?.score?), *step)))
            .filter(|(cost, _)| cost.is_finite())
            .collect();
        scored.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut kept: Vec<u64> = scored.into_iter().take(keep_best).map(|(_, step)| step).collect();
        kept.extend(all.iter().map(|(step, _)| *step).filter(|step| sound.is_some_and(|sound| *step <= sound)).max());
        let old = all.len().saturating_sub(keep_last);
        for (step, path) in &all[..old] {
            if !kept.contains(step) {
                delete(path)?;
            }
        }
        Ok(())
    }

    /// Lists the step and directory of every checkpoint, oldest first. A directory without any file of a checkpoint is
    /// left out.
    fn list(&self) -> Vec<(u64, PathBuf)> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut found: Vec<(u64, PathBuf)> = entries
            .filter_map(|entry| {
                let step = entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok()?;
                let path = entry.path();
                FILES.iter().any(|file| path.join(file).exists()).then_some((step, path))
            })
            .collect();
        found.sort();
        found
    }

    fn path(&self, step: u64) -> PathBuf {
        self.dir.join(format!("step-{step:08}"))
    }
}

impl Checkpoint {
    /// Opens a checkpoint, and compares every file with its checksum.
    ///
    /// # Errors
    /// Names the file that is missing, cut or changed.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let sums_path = path.join(CHECKSUMS);
        let sums = std::fs::read_to_string(&sums_path).map_err(|source| StoreError::Io {
            action: "read",
            path: sums_path,
            source,
        })?;
        // A damaged list may lack the averages. Without this check, training would then start a new average.
        let averaged = path.join(EMA).exists() || sums.lines().any(|line| line.ends_with(EMA));
        for name in [MODEL, OPTIMIZER, STATE].into_iter().chain(averaged.then_some(EMA)) {
            let file = path.join(name);
            let line = format!("{:08x}  {name}", checksum(&file)?);
            if !sums.lines().any(|l| l == line) {
                return Err(StoreError::Damaged { path: file, reason: "its checksum differs".into() });
            }
        }
        Ok(Self {
            path: path.to_owned(),
            state: read_state(path)?,
            model: TensorFile::open(&path.join(MODEL))?,
            optimizer: TensorFile::open(&path.join(OPTIMIZER))?,
            ema: averaged.then(|| TensorFile::open(&path.join(EMA))).transpose()?,
        })
    }
}

/// Files of a checkpoint. The first one is deleted first: a checkpoint without it is incomplete.
const FILES: [&str; 6] = [CHECKSUMS, MODEL, OPTIMIZER, EMA, STATE, DOUBTFUL];

/// Deletes a checkpoint. Files that it did not write stay, and its directory with them.
fn delete(path: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { action: "delete", path: path.to_owned(), source };
    for file in FILES {
        match std::fs::remove_file(path.join(file)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
    }
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => Err(io(error)),
        _ => Ok(()),
    }
}

fn read_state(dir: &Path) -> Result<TrainState, StoreError> {
    let path = dir.join(STATE);
    let bytes = std::fs::read(&path).map_err(|source| StoreError::Io { action: "read", path: path.clone(), source })?;
    serde_json::from_slice(&bytes).map_err(|e| StoreError::Damaged { path, reason: e.to_string() })
}

/// CRC-32. It detects every burst of up to 32 flipped bits, and a cut file; it does not protect against an attacker.
fn checksum(path: &Path) -> Result<u32, StoreError> {
    let io = |source| StoreError::Io { action: "read", path: path.to_owned(), source };
    let (mut file, mut sum, mut piece) = (File::open(path).map_err(io)?, crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece).map_err(io)? {
            0 => return Ok(sum.finalize()),
            read => sum.update(&piece[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::StepTerm;
    use proptest::prelude::*;

    fn save(checkpoints: &Checkpoints, step: u64, score: Option<f64>) {
        let tensors = BTreeMap::from([("w".to_owned(), HostTensor { shape: vec![2], data: vec![step as f32, 0.5] })]);
        let state = TrainState { step, score, ..Default::default() };
        let contents = Contents { state, model: tensors.clone(), optimizer: tensors, ema: None };
        checkpoints.save(&contents).expect("saved");
    }

    fn steps(checkpoints: &Checkpoints) -> Vec<u64> {
        checkpoints.list().into_iter().map(|(step, _)| step).collect()
    }

    /// Any finite number, including those that differ from their nearest shorter decimal.
    fn number() -> impl Strategy<Value = f64> {
        use proptest::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
        POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO
    }

    fn evaluation() -> impl Strategy<Value = Evaluation> {
        let metrics = prop::collection::btree_map("[a-z]{1,8}", number(), 0..4);
        metrics.prop_map(|metrics| Evaluation { metrics, ..Default::default() })
    }

    /// Terms of a step, of which the state keeps the sums.
    fn terms() -> impl Strategy<Value = Vec<StepTerm>> {
        let term = (number(), number(), number());
        let term = term.prop_map(|(mean, weighted, count)| StepTerm { name: "text".into(), mean, weighted, count });
        prop::collection::vec(term, 0..3)
    }

    /// The bits of every number in a state: `==` takes 0 and -0 for the same.
    fn bits(state: &TrainState) -> Vec<u64> {
        let evaluations =
            [&state.before, &state.latest].into_iter().flatten().flat_map(|e| e.metrics.values().copied());
        let scores = [state.score, state.best.map(|(score, _)| score), state.reference].into_iter().flatten();
        let losses = state.losses.numbers();
        evaluations.chain(scores).chain([state.seconds]).chain(losses).map(f64::to_bits).collect()
    }

    proptest! {
        #[test]
        fn a_state_is_read_back_to_the_last_bit(
            numbers in prop::array::uniform4(number()), evaluations in [evaluation(), evaluation()], seed: u64, step: u64,
            terms in terms(),
        ) {
            let [seconds, score, best, reference] = numbers;
            let [before, latest] = evaluations.map(Some);
            let (score, best, reference) = (Some(score), Some((best, step)), Some(reference));
            let mut losses = LossTally::default();
            losses.add(&terms);
            prop_assume!(losses.numbers().all(f64::is_finite));
            let state =
                TrainState { step, seconds, before, latest, score, best, reference, seed, losses, ..Default::default() };
            let json = serde_json::to_string_pretty(&state).expect("JSON");
            let read: TrainState = serde_json::from_str(&json).expect("a state");
            prop_assert_eq!(&read, &state);
            prop_assert_eq!(bits(&read), bits(&state));
        }
    }

    #[test]
    fn a_state_of_an_older_version_is_read() {
        let mut state = TrainState { step: 3, frozen: Some(u32::MAX), ..Default::default() };
        state.losses.add(&[StepTerm { name: "text".into(), mean: 1.0, weighted: 1.0, count: 2.0 }]);
        let json = serde_json::to_value(&state).expect("JSON");
        assert_eq!(serde_json::from_value::<TrainState>(json.clone()).expect("a state"), state);
        let mut older = json;
        for key in ["frozen", "losses"] {
            older.as_object_mut().expect("an object").shift_remove(key).expect(key);
        }
        let read: TrainState = serde_json::from_value(older).expect("a state");
        assert_eq!(read, TrainState { frozen: None, losses: LossTally::default(), ..state });
    }

    #[test]
    fn averages_are_checked_like_the_rest() {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoints = Checkpoints::new(dir.path().to_owned());
        let ema = BTreeMap::from([("w".to_owned(), HostTensor { shape: vec![1], data: vec![0.25] })]);
        checkpoints.save(&Contents { ema: Some(ema), ..Default::default() }).expect("saved");
        let path = checkpoints.path(0);
        let whole = Checkpoint::open(&path).expect("whole");
        assert_eq!(whole.ema.expect("averages").read("w").expect("a tensor").data, [0.25]);
        let sums = std::fs::read_to_string(path.join(CHECKSUMS)).expect("read");
        std::fs::write(path.join(CHECKSUMS), sums.replace(EMA, "emu.safetensors")).expect("written");
        assert!(Checkpoint::open(&path).expect_err("not in the list").to_string().contains(EMA));
        std::fs::write(path.join(CHECKSUMS), sums).expect("written");
        std::fs::remove_file(path.join(EMA)).expect("removed");
        assert!(Checkpoint::open(&path).expect_err("a file is gone").to_string().contains(EMA));
    }

    #[test]
    fn the_newest_and_the_best_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoints = Checkpoints::new(dir.path().join("checkpoints"));
        let scores = [0.5, 0.2, 0.9, 0.2, 0.7, f64::NAN];
        for (direction, best) in [(Direction::Lower, 1), (Direction::Higher, 2)] {
            for (step, score) in scores.into_iter().enumerate() {
                save(&checkpoints, step as u64, Some(score).filter(|s| s.is_finite()));
                checkpoints.rotate(2, 1, direction, None).expect("rotated");
            }
            assert_eq!(steps(&checkpoints), [best, 4, 5], "the first of equals is the best");
        }
    }

    #[test]
    fn the_last_one_that_is_known_to_be_sound_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoints = Checkpoints::new(dir.path().to_owned());
        let rotate = |sound| {
            checkpoints.rotate(1, 0, Direction::Lower, sound).expect("rotated");
            steps(&checkpoints)
        };
        (1..=3).for_each(|step| save(&checkpoints, step, None));
        assert_eq!(rotate(Some(1)), [1, 3], "no later one has been trained on from");
        save(&checkpoints, 4, None);
        assert_eq!(rotate(Some(3)), [3, 4]);
        assert_eq!(rotate(Some(4)), [4]);
    }

    #[test]
    fn a_doubtful_checkpoint_is_passed_over_while_there_is_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoints = Checkpoints::new(dir.path().to_owned());
        (1..=3).for_each(|step| save(&checkpoints, step, None));
        checkpoints.doubt_after(1).expect("marked");
        let (newest, complaints) = checkpoints.newest();
        assert_eq!(newest.expect("a sound one").state.step, 1);
        assert!(complaints.len() == 2 && complaints[0].contains("step-00000003"), "{complaints:?}");
        save(&checkpoints, 3, None);
        assert_eq!(checkpoints.newest().0.expect("one made anew").state.step, 3);
        checkpoints.doubt_after(0).expect("marked");
        assert_eq!(checkpoints.newest().0.expect("better than none").state.step, 3);
        assert_eq!(checkpoints.newest_until(2).expect("an older one").state.step, 2);
    }

    #[test]
    fn what_somebody_has_put_into_a_checkpoint_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoints = Checkpoints::new(dir.path().to_owned());
        (1..=2).for_each(|step| save(&checkpoints, step, None));
        let notes = checkpoints.path(1).join("notes.txt");
        std::fs::write(&notes, "mine").expect("written");
        checkpoints.rotate(1, 0, Direction::Lower, None).expect("rotated");
        assert_eq!(std::fs::read_to_string(&notes).expect("there"), "mine");
        assert_eq!(steps(&checkpoints), [2], "what is left is no checkpoint");
    }

    #[test]
    fn a_damaged_checkpoint_is_passed_over_and_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let checkpoints = Checkpoints::new(dir.path().to_owned());
        save(&checkpoints, 1, None);
        save(&checkpoints, 2, None);
        let model = checkpoints.path(2).join(MODEL);
        let mut bytes = std::fs::read(&model).expect("read");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&model, bytes).expect("written");
        let (newest, complaints) = checkpoints.newest();
        assert_eq!(newest.expect("the older one").state.step, 1);
        assert!(complaints.len() == 1 && complaints[0].contains("model.safetensors"), "{complaints:?}");
    }
}
