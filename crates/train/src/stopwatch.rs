//! Time of training steps by section.

use crate::Hardware;
use crate::objective::BatchStats;
use crate::performance::{Performance, RankPerformance, TimeSplit};
use burn::tensor::Device;
use std::time::{Duration, Instant};
use undertone_ops::wait;

/// Section of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    DataWait,
    Transfer,
    Forward,
    Backward,
    Ranks,
    Optimizer,
    Other,
}

const PARTS: usize = 7;

/// Times of an optimizer step on several ranks.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankStep {
    /// Seconds of the forward and backward passes of each rank.
    pub computing: Vec<f64>,
    /// Time that this rank waited for gradient sums.
    pub waited: Duration,
    /// Time that the sums took.
    pub on_the_way: Duration,
}

/// Time by section, without data wait.
pub(crate) type Parts = [Duration; PARTS];

/// Measures training steps by section, for the session and since the last line.
///
/// If the device runs asynchronously, the stopwatch waits for it after each section only in steps that are logged:
/// waiting in every step would slow down what is measured.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    /// Whether the device continues to work after a call has returned.
    runs_ahead: bool,
    /// Whether the sections of this step are measured.
    sampled: bool,
    began: Instant,
    lap: Instant,
    session: Totals,
    line: Totals,
    /// Sections of measured steps since the last line, without data wait.
    parts: Parts,
}

#[derive(Clone, Debug, Default)]
struct Totals {
    waiting: Duration,
    training: Duration,
    samples: u64,
    steps: u64,
    work: BatchStats,
    ranks: RankStep,
}

impl Stopwatch {
    pub fn new(runs_ahead: bool) -> Self {
        let now = Instant::now();
        Self {
            runs_ahead,
            sampled: true,
            began: now,
            lap: now,
            session: Totals::default(),
            line: Totals::default(),
            parts: Default::default(),
        }
    }

    /// Begins a step. `logged` is whether it will be logged.
    pub fn begin(&mut self, logged: bool) {
        self.sampled = logged || !self.runs_ahead;
        self.began = Instant::now();
        self.lap = self.began;
    }

    /// Adds the time since the last call to section `part`.
    pub fn lap(&mut self, part: Section, device: &Device) {
        if self.sampled && self.runs_ahead && part != Section::DataWait {
            wait(device);
        }
        let now = Instant::now();
        let time = now - self.lap;
        self.lap = now;
        if part == Section::DataWait {
            self.session.waiting += time;
            self.line.waiting += time;
        } else if self.sampled {
            self.parts[part as usize] += time;
        }
    }

    /// Adds the time since the last call to the all-reduce of gradients.
    pub fn lap_ranks(&mut self, step: RankStep, device: &Device) {
        self.lap(Section::Ranks, device);
        let sum = &mut self.line.ranks;
        sum.computing.resize(step.computing.len(), 0.0);
        sum.computing.iter_mut().zip(step.computing).for_each(|(sum, seconds)| *sum += seconds);
        sum.waited += step.waited;
        sum.on_the_way += step.on_the_way;
    }

    /// Returns the time by section since the stopwatch was made, or since the last line.
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// Divides the time since the last call between the sections in the proportions of `others`, which ran at the same
    /// time.
    pub fn lap_like(&mut self, others: &[Parts]) {
        let now = Instant::now();
        let passed = now - self.lap;
        self.lap = now;
        let all = seconds(others.iter().flatten().sum());
        for (section, part) in self.parts.iter_mut().enumerate() {
            let theirs: Duration = others.iter().map(|parts| parts[section]).sum();
            *part += passed.mul_f64(theirs.as_secs_f64() / all);
        }
    }

    /// Ends a step.
    pub fn end(&mut self, samples: usize, work: BatchStats, device: &Device) {
        self.lap(Section::Other, device);
        for totals in [&mut self.session, &mut self.line] {
            totals.training += self.began.elapsed();
            totals.samples += samples as u64;
            totals.steps += 1;
            totals.work += work;
        }
    }

    /// Number of optimizer steps of this session.
    pub fn steps(&self) -> u64 {
        self.session.steps
    }

    /// Samples per second in this session.
    pub fn samples_per_second(&self) -> f64 {
        self.session.samples as f64 / seconds(self.session.training)
    }

    /// Share of this session's training steps that was spent waiting for batches.
    pub fn data_wait(&self) -> f64 {
        self.session.waiting.as_secs_f64() / seconds(self.session.training)
    }

    /// Mean time of a step in this session.
    pub fn step_time(&self) -> Duration {
        self.session.training.div_f64(self.session.steps.max(1) as f64)
    }

    /// Returns the line of the steps since the last line, and begins the next one.
    pub fn line(&mut self, step: u64, hardware: Option<Hardware>, peak_flops: Option<f64>) -> Performance {
        let line = std::mem::take(&mut self.line);
        let parts = std::mem::take(&mut self.parts);
        let total = seconds(line.training);
        let data_wait = line.waiting.as_secs_f64() / total;
        let measured = parts.iter().sum::<Duration>().as_secs_f64().max(1e-12);
        let share = |part: Section| (1.0 - data_wait) * parts[part as usize].as_secs_f64() / measured;
        let rate = |amount: Option<f64>| amount.map(|amount| amount / total);
        let flops_per_second = rate(line.work.flops);
        let ranks = line.ranks.performance();
        // The work is that of all ranks, the peak that of one device.
        let devices = ranks.map_or(1, |ranks| ranks.count) as f64;
        Performance {
            step,
            steps: line.steps,
            seconds: line.training.as_secs_f64(),
            samples_per_second: line.samples as f64 / total,
            audio_seconds_per_second: rate(line.work.audio_seconds),
            tokens_per_second: rate(line.work.tokens),
            flops_per_second,
            // A peak that was measured while other programs computed is too low.
            mfu: flops_per_second
                .zip(peak_flops)
                .map(|(flops, peak)| flops / (peak * devices))
                .filter(|mfu| *mfu <= 1.0),
            time: TimeSplit {
                data_wait,
                transfer: share(Section::Transfer),
                forward: share(Section::Forward),
                backward: share(Section::Backward),
                ranks: share(Section::Ranks),
                optimizer: share(Section::Optimizer),
                other: share(Section::Other),
            },
            ranks,
            hardware,
        }
    }
}

impl RankStep {
    fn performance(&self) -> Option<RankPerformance> {
        let Self { computing, waited, on_the_way } = self;
        let slowest = (0..computing.len()).rev().max_by(|a, b| computing[*a].total_cmp(&computing[*b]))?;
        let mean = computing.iter().sum::<f64>() / computing.len() as f64;
        Some(RankPerformance {
            count: computing.len(),
            overlap: (1.0 - waited.as_secs_f64() / seconds(*on_the_way)).max(0.0),
            slowest,
            imbalance: computing[slowest] / mean.max(1e-9) - 1.0,
        })
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_lines_begin_anew() {
        let device = Device::default();
        let mut watch = Stopwatch::new(false);
        let sleep = || std::thread::sleep(Duration::from_millis(4));
        for _ in 0..2 {
            watch.begin(false);
            for part in [Section::DataWait, Section::Forward, Section::Forward, Section::Backward] {
                sleep();
                watch.lap(part, &device);
            }
            watch.end(3, BatchStats { tokens: Some(10.0), flops: Some(1e6), ..Default::default() }, &device);
        }
        let line = watch.line(2, None, Some(1e15));
        let TimeSplit { data_wait, transfer, forward, backward, ranks, optimizer, other } = line.time;
        assert!((data_wait + transfer + forward + backward + ranks + optimizer + other - 1.0).abs() < 1e-9, "{line:?}");
        assert!(forward > backward && backward > other && data_wait > other, "{line:?}");
        assert_eq!((line.step, line.steps, transfer, line.audio_seconds_per_second), (2, 2, 0.0, None));
        assert!((line.samples_per_second * line.seconds - 6.0).abs() < 1e-6);
        assert!((line.tokens_per_second.expect("tokens") * line.seconds - 20.0).abs() < 1e-6);
        assert!((line.mfu.expect("a share") * line.seconds / (2e6 / 1e15) - 1.0).abs() < 1e-6);
        assert_eq!((watch.line(2, None, None).steps, watch.steps()), (0, 2));
    }

    #[test]
    fn what_others_did_at_the_same_time_is_told_apart_as_theirs() {
        let mut watch = Stopwatch::new(false);
        std::thread::sleep(Duration::from_millis(4));
        let mut parts = Parts::default();
        parts[Section::Forward as usize] = Duration::from_secs(1);
        parts[Section::Backward as usize] = Duration::from_secs(3);
        watch.lap_like(&[parts, parts]);
        let [forward, backward] = [Section::Forward, Section::Backward].map(|part| watch.parts()[part as usize]);
        assert!(forward >= Duration::from_millis(1) && forward < Duration::from_secs(1), "{forward:?}");
        assert!((backward.as_secs_f64() / forward.as_secs_f64() - 3.0).abs() < 1e-3);
    }

    #[test]
    fn the_slowest_rank_and_what_was_done_while_sums_were_on_their_way_are_told() {
        let device = Device::default();
        let mut watch = Stopwatch::new(false);
        for computing in [vec![1.0, 2.0, 1.0], vec![2.0, 4.0, 2.0]] {
            watch.begin(true);
            let (waited, on_the_way) = (Duration::from_secs(1), Duration::from_secs(4));
            watch.lap_ranks(RankStep { computing, waited, on_the_way }, &device);
            watch.end(1, BatchStats { flops: Some(1e6), ..Default::default() }, &device);
        }
        let line = watch.line(2, None, Some(1e15));
        let mfu = line.mfu.expect("a share") * line.seconds;
        assert!((mfu / (2e6 / 3e15) - 1.0).abs() < 1e-6, "of what three devices can do");
        assert_eq!(line.ranks, Some(RankPerformance { count: 3, overlap: 0.75, slowest: 1, imbalance: 0.5 }));
        assert_eq!(watch.line(3, None, None).ranks, None);
    }

    #[test]
    fn on_a_device_that_runs_ahead_only_logged_steps_are_told_apart() {
        let device = Device::default();
        let mut watch = Stopwatch::new(true);
        for (logged, part) in [(false, Section::Forward), (true, Section::Backward)] {
            watch.begin(logged);
            std::thread::sleep(Duration::from_millis(2));
            watch.lap(part, &device);
            watch.end(1, BatchStats::default(), &device);
        }
        let line = watch.line(2, None, None);
        assert!(line.time.forward == 0.0 && line.time.backward > 0.9, "{line:?}");
    }
}
