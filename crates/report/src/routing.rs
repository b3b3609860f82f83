//! Routing statistics: distribution of the gates, confidence of the router and its calibration, and balance of the adapters.

use crate::error::AnalysisError;
use serde::{Deserialize, Serialize};

/// Bins of the histograms.
const BINS: usize = 20;
/// Maximum deviation of the sum of a sample's gates from 1. A bf16 softmax rounds each gate by at most 2⁻⁹ of itself.
const SUM_TOLERANCE: f64 = 0.01;

/// Router output for one sample of a test set.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedSample {
    /// Index of the sample's task.
    pub task: usize,
    /// Gate of each adapter, in the order of the tasks; they sum to 1.
    pub gates: Vec<f32>,
    /// Confidence of the router in its choice, in 0..=1.
    pub confidence: f32,
}

/// Distribution of a test set over the adapters. Adapter `k` is the one trained on task `k`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoutingAnalysis {
    /// Names of the tasks.
    pub tasks: Vec<String>,
    /// Number of samples.
    pub samples: usize,
    /// Number of samples by true task (row) and adapter with the largest gate (column). Of equal gates the first
    /// counts, so the columns are meaningless for a router with uniform gates.
    pub confusion: Vec<Vec<usize>>,
    /// Share of the samples whose largest gate is that of their own task.
    pub accuracy: f64,
    /// Accuracy by task; `None` for a task without samples.
    pub task_accuracy: Vec<Option<f64>>,
    /// Mean gate of each adapter; sums to 1.
    pub usage: Vec<f64>,
    /// Mean gates by true task (outer); `None` for a task without samples.
    pub task_usage: Vec<Option<Vec<f64>>>,
    /// Variance of [`usage`](Self::usage) over the squared ideal share 1/K: 0 if all adapters are used equally, K − 1
    /// if only one is used. It is the squared coefficient of variation of Shazeer et al. (2017).
    pub load_imbalance: f64,
    /// Entropy of the gates.
    pub entropy: GateEntropy,
    /// Confidence of right and of wrong decisions.
    pub confidence: Confidence,
    /// Confidence beside the share of right decisions; `None` in analyses of earlier versions.
    #[serde(default)]
    pub calibration: Option<Calibration>,
}

/// Entropy of the gates, −Σ g ln g.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateEntropy {
    /// Mean over the samples, in nats.
    pub mean: f64,
    /// Mean divided by its maximum ln K: 0 for one adapter, 1 for equal gates. 0 if there is only one adapter.
    pub normalized_mean: f64,
    /// Number of samples by normalised entropy.
    pub histogram: Histogram,
}

/// Confidence of the router, separately for samples routed to their own adapter and to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confidence {
    /// Mean of right decisions; `None` if there is none.
    pub mean_right: Option<f64>,
    /// Mean of wrong decisions; `None` if there is none.
    pub mean_wrong: Option<f64>,
    /// Number of right decisions by confidence.
    pub right: Histogram,
    /// Number of wrong decisions by confidence.
    pub wrong: Histogram,
}

/// Whether decisions are right as often as their confidence says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Bins of equal width of the confidence over 0..=1; the last one includes 1.
    pub bins: Vec<CalibrationBin>,
    /// Expected calibration error (Naeini et al., 2015): mean over the samples of the difference between mean confidence and
    /// accuracy of their bin. 0 is perfect.
    pub error: f64,
}

/// Samples whose confidence is in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    /// Number of samples.
    pub samples: usize,
    /// Mean confidence; 0 without samples.
    pub confidence: f64,
    /// Share of right decisions; 0 without samples.
    pub accuracy: f64,
}

/// Counts in bins of equal width over 0..=1; the last bin includes 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of samples in each bin.
    pub counts: Vec<usize>,
}

impl RoutingAnalysis {
    /// Computes the statistics of `samples` over `tasks`.
    ///
    /// # Errors
    /// If there is no task or no sample, or if a sample has a task that does not exist, another number of gates than
    /// there are tasks, gates that are not a distribution, or a confidence outside 0..=1.
    pub fn new(tasks: Vec<String>, samples: &[RoutedSample]) -> Result<Self, AnalysisError> {
        if tasks.is_empty() {
            return Err(AnalysisError::Empty("task"));
        }
        if samples.is_empty() {
            return Err(AnalysisError::Empty("sample"));
        }
        let mut tally = Tally::new(tasks.len());
        for (index, sample) in samples.iter().enumerate() {
            let gates =
                checked_gates(sample, tasks.len()).map_err(|what| AnalysisError::Sample { sample: index, what })?;
            tally.count(sample, &gates);
        }
        Ok(tally.finish(tasks))
    }

    /// Returns the number of samples of each task.
    pub fn task_samples(&self) -> Vec<usize> {
        self.confusion.iter().map(|row| row.iter().sum()).collect()
    }
}

impl Histogram {
    fn new() -> Self {
        Self { counts: vec![0; BINS] }
    }

    fn add(&mut self, value: f64) {
        self.counts[bin_of(value)] += 1;
    }

    /// Returns the total count.
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }
}

/// Returns the bin of a value in 0..=1.
fn bin_of(value: f64) -> usize {
    ((value * BINS as f64) as usize).min(BINS - 1)
}

impl Calibration {
    /// Computes it from the sums of the confidence in each bin, and from the histograms of right and of wrong decisions.
    fn new(sums: &[f64], right: &Histogram, wrong: &Histogram) -> Self {
        let bins: Vec<CalibrationBin> = sums
            .iter()
            .zip(right.counts.iter().zip(&wrong.counts))
            .map(|(sum, (&right, &wrong))| {
                let samples = right + wrong;
                let share = |sum: f64| mean(sum, samples).unwrap_or_default();
                CalibrationBin { samples, confidence: share(*sum), accuracy: share(right as f64) }
            })
            .collect();
        let all: usize = bins.iter().map(|bin| bin.samples).sum();
        let differences = bins.iter().map(|bin| bin.samples as f64 * (bin.confidence - bin.accuracy).abs());
        let error = mean(differences.sum(), all).unwrap_or_default();
        Self { bins, error }
    }
}

/// Sums over the samples so far.
struct Tally {
    confusion: Vec<Vec<usize>>,
    gates: Vec<Vec<f64>>,
    entropy: f64,
    entropies: Histogram,
    /// Sum and histogram of the confidence: of wrong, and of right decisions.
    confidence: [(f64, Histogram); 2],
    /// Sum of the confidence in each bin.
    confidences: Vec<f64>,
}

impl Tally {
    fn new(tasks: usize) -> Self {
        Self {
            confusion: vec![vec![0; tasks]; tasks],
            gates: vec![vec![0.0; tasks]; tasks],
            entropy: 0.0,
            entropies: Histogram::new(),
            confidence: [(0.0, Histogram::new()), (0.0, Histogram::new())],
            confidences: vec![0.0; BINS],
        }
    }

    fn count(&mut self, sample: &RoutedSample, gates: &[f64]) {
        let chosen = first_largest(gates);
        self.confusion[sample.task][chosen] += 1;
        for (sum, gate) in self.gates[sample.task].iter_mut().zip(gates) {
            *sum += gate;
        }
        let entropy = entropy(gates);
        self.entropy += entropy;
        self.entropies.add(normalized(entropy, gates.len()));
        let confidence = f64::from(sample.confidence);
        let (sum, histogram) = &mut self.confidence[usize::from(chosen == sample.task)];
        *sum += confidence;
        histogram.add(confidence);
        self.confidences[bin_of(confidence)] += confidence;
    }

    fn finish(self, tasks: Vec<String>) -> RoutingAnalysis {
        let by_task: Vec<usize> = self.confusion.iter().map(|row| row.iter().sum()).collect();
        let samples: usize = by_task.iter().sum();
        let right: usize = self.confusion.iter().enumerate().map(|(task, row)| row[task]).sum();
        let usage: Vec<f64> = (0..tasks.len())
            .map(|adapter| self.gates.iter().map(|row| row[adapter]).sum::<f64>() / samples as f64)
            .collect();
        let entropy = self.entropy / samples as f64;
        let [wrong_confidence, right_confidence] = self.confidence;
        let calibration = Calibration::new(&self.confidences, &right_confidence.1, &wrong_confidence.1);
        RoutingAnalysis {
            calibration: Some(calibration),
            samples,
            accuracy: right as f64 / samples as f64,
            task_accuracy: self
                .confusion
                .iter()
                .zip(&by_task)
                .enumerate()
                .map(|(task, (row, &count))| mean(row[task] as f64, count))
                .collect(),
            task_usage: self
                .gates
                .iter()
                .zip(&by_task)
                .map(|(sums, &count)| sums.iter().map(|&sum| mean(sum, count)).collect())
                .collect(),
            load_imbalance: load_imbalance(&usage),
            entropy: GateEntropy {
                mean: entropy,
                normalized_mean: normalized(entropy, tasks.len()),
                histogram: self.entropies,
            },
            confidence: Confidence {
                mean_right: mean(right_confidence.0, right),
                mean_wrong: mean(wrong_confidence.0, samples - right),
                right: right_confidence.1,
                wrong: wrong_confidence.1,
            },
            confusion: self.confusion,
            usage,
            tasks,
        }
    }
}

/// Returns the sample's gates, rescaled to sum to exactly 1, or the error in the sample.
fn checked_gates(sample: &RoutedSample, tasks: usize) -> Result<Vec<f64>, String> {
    let RoutedSample { task, gates, confidence } = sample;
    if *task >= tasks {
        return Err(format!("it is of task {task}, but there are {tasks} tasks, counted from 0"));
    }
    if gates.len() != tasks {
        return Err(format!("it has {} gates for {tasks} tasks: give one gate per task's adapter", gates.len()));
    }
    if let Some((adapter, gate)) = gates.iter().enumerate().find(|(_, gate)| !(gate.is_finite() && **gate >= 0.0)) {
        return Err(format!("gate {adapter} is {gate}: gates are at least 0, so the router has diverged"));
    }
    let sum: f64 = gates.iter().map(|&gate| f64::from(gate)).sum();
    if (sum - 1.0).abs() > SUM_TOLERANCE {
        return Err(format!("its gates sum to {sum}: give the router's output after its softmax, which sums to 1"));
    }
    if !(0.0..=1.0).contains(confidence) {
        return Err(format!("its confidence is {confidence}: it must be in 0..=1"));
    }
    Ok(gates.iter().map(|&gate| f64::from(gate) / sum).collect())
}

fn first_largest(gates: &[f64]) -> usize {
    let mut largest = 0;
    for (index, gate) in gates.iter().enumerate() {
        if *gate > gates[largest] {
            largest = index;
        }
    }
    largest
}

/// Returns −Σ g ln g in nats, where 0 ln 0 is 0.
fn entropy(gates: &[f64]) -> f64 {
    gates.iter().filter(|gate| **gate > 0.0).map(|gate| -gate * gate.ln()).sum()
}

/// Returns the entropy divided by its maximum ln K, clamped to 1 against rounding.
fn normalized(entropy: f64, tasks: usize) -> f64 {
    if tasks < 2 { 0.0 } else { (entropy / (tasks as f64).ln()).clamp(0.0, 1.0) }
}

/// Returns Var(u) / (1/K)², with the variance around the ideal share, which is also the mean.
fn load_imbalance(usage: &[f64]) -> f64 {
    let ideal = 1.0 / usage.len() as f64;
    usage.iter().map(|share| (share / ideal - 1.0).powi(2)).sum::<f64>() * ideal
}

fn mean(sum: f64, count: usize) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(task: usize, gates: &[f32], confidence: f32) -> RoutedSample {
        RoutedSample { task, gates: gates.to_vec(), confidence }
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|task| format!("task {task}")).collect()
    }

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-6, "{left} is not {right}");
    }

    /// Two samples of task 0 (one right), one of task 1 (right), none of task 2.
    fn three_tasks() -> RoutingAnalysis {
        let samples =
            [sample(0, &[0.5, 0.25, 0.25], 0.9), sample(0, &[0.0, 1.0, 0.0], 0.32), sample(1, &[0.25, 0.75, 0.0], 0.7)];
        RoutingAnalysis::new(names(3), &samples).unwrap()
    }

    #[test]
    fn the_confusion_matrix_counts_the_largest_gate_by_true_task() {
        let analysis = three_tasks();
        assert_eq!(analysis.confusion, [[1, 1, 0], [0, 1, 0], [0, 0, 0]]);
        assert_eq!(analysis.task_samples(), [2, 1, 0]);
        assert_eq!(analysis.samples, 3);
    }

    #[test]
    fn accuracy_is_the_diagonal_over_all_and_by_task() {
        let analysis = three_tasks();
        close(analysis.accuracy, 2.0 / 3.0);
        assert_eq!(analysis.task_accuracy, [Some(0.5), Some(1.0), None]);
    }

    #[test]
    fn usage_is_the_mean_gate_over_all_and_by_task() {
        let analysis = three_tasks();
        for (usage, expected) in analysis.usage.iter().zip([0.75 / 3.0, 2.0 / 3.0, 0.25 / 3.0]) {
            close(*usage, expected);
        }
        assert_eq!(analysis.task_usage, [Some(vec![0.25, 0.625, 0.125]), Some(vec![0.25, 0.75, 0.0]), None]);
    }

    #[test]
    fn entropy_is_in_nats_and_over_ln_k() {
        let analysis = three_tasks();
        // H(½, ¼, ¼) = 1.5 ln 2, H(0, 1, 0) = 0, H(¼, ¾) = 2 ln 2 − ¾ ln 3.
        let (ln2, ln3) = (2f64.ln(), 3f64.ln());
        let entropies = [1.5 * ln2, 0.0, 2.0 * ln2 - 0.75 * ln3];
        close(analysis.entropy.mean, entropies.iter().sum::<f64>() / 3.0);
        close(analysis.entropy.normalized_mean, entropies.iter().sum::<f64>() / 3.0 / ln3);
        // 0.946, 0 and 0.512 of ln 3.
        let filled: Vec<usize> = (0..BINS).filter(|bin| analysis.entropy.histogram.counts[*bin] == 1).collect();
        assert_eq!(filled, [0, 10, 18]);
        assert_eq!(analysis.entropy.histogram.total(), 3);
    }

    #[test]
    fn confidence_is_apart_for_right_and_wrong() {
        let confidence = three_tasks().confidence;
        close(confidence.mean_right.unwrap(), 0.8);
        close(confidence.mean_wrong.unwrap(), 0.32);
        assert_eq!((confidence.right.total(), confidence.wrong.total()), (2, 1));
        assert_eq!(confidence.wrong.counts[6], 1);
    }

    #[test]
    fn calibration_compares_confidence_with_how_often_decisions_are_right() {
        let calibration = three_tasks().calibration.unwrap();
        // Each sample has a bin of its own: right with 0.9 and 0.7, wrong with 0.32.
        let bin = |confidence: f64| calibration.bins[bin_of(confidence)];
        for (confidence, accuracy) in [(0.9, 1.0), (0.7, 1.0), (0.32, 0.0)] {
            let found = bin(f64::from(confidence as f32));
            assert_eq!((found.samples, found.accuracy), (1, accuracy));
            close(found.confidence, confidence);
        }
        close(calibration.error, (0.1 + 0.3 + 0.32) / 3.0);
        // Of four samples with a confidence of 0.75 three are right.
        let of = |task| sample(task, &[1.0, 0.0], 0.75);
        let perfect = RoutingAnalysis::new(names(2), &[of(0), of(0), of(1), of(0)]).unwrap();
        close(perfect.calibration.unwrap().error, 0.0);
    }

    #[test]
    fn analyses_of_earlier_versions_have_no_calibration() {
        let mut json = serde_json::to_value(three_tasks()).unwrap();
        json.as_object_mut().unwrap().remove("calibration");
        assert_eq!(serde_json::from_value::<RoutingAnalysis>(json).unwrap().calibration, None);
    }

    #[test]
    fn load_imbalance_is_the_variance_over_the_squared_ideal_share() {
        // Usage ¾ and ¼: the variance is 1/16, the squared ideal share ¼.
        let analysis = RoutingAnalysis::new(names(2), &[sample(0, &[0.75, 0.25], 1.0)]).unwrap();
        close(analysis.load_imbalance, 0.25);
        let uniform = RoutingAnalysis::new(names(4), &[sample(2, &[0.25; 4], 0.25)]).unwrap();
        close(uniform.load_imbalance, 0.0);
        close(uniform.entropy.normalized_mean, 1.0);
        assert_eq!(uniform.entropy.histogram.counts[BINS - 1], 1);
        let collapsed = RoutingAnalysis::new(names(4), &[sample(2, &[0.0, 1.0, 0.0, 0.0], 1.0)]).unwrap();
        close(collapsed.load_imbalance, 3.0);
    }

    #[test]
    fn equal_gates_count_for_the_first() {
        let analysis = RoutingAnalysis::new(names(2), &[sample(1, &[0.5, 0.5], 0.5)]).unwrap();
        assert_eq!(analysis.confusion, [[0, 0], [1, 0]]);
    }

    #[test]
    fn one_task_is_always_right_and_never_undecided() {
        let analysis = RoutingAnalysis::new(names(1), &[sample(0, &[1.0], 1.0)]).unwrap();
        assert_eq!((analysis.accuracy, analysis.load_imbalance), (1.0, 0.0));
        assert_eq!((analysis.entropy.mean, analysis.entropy.normalized_mean), (0.0, 0.0));
        assert_eq!(analysis.confidence.mean_wrong, None);
    }

    #[test]
    fn half_precision_gates_are_scaled_to_sum_to_one() {
        let analysis = RoutingAnalysis::new(names(2), &[sample(0, &[0.7, 0.304], 0.7)]).unwrap();
        close(analysis.usage.iter().sum(), 1.0);
        close(analysis.usage[0], 0.7 / 1.004);
    }

    #[test]
    fn what_is_no_routing_is_refused_by_the_name_of_the_sample() {
        let good = sample(0, &[0.5, 0.5], 0.5);
        for (bad, says) in [
            (sample(0, &[f32::NAN, 1.0], 0.5), "sample 1: gate 0 is NaN"),
            (sample(0, &[-0.5, 1.5], 0.5), "sample 1: gate 0 is -0.5"),
            (sample(0, &[0.5, 0.25], 0.5), "sample 1: its gates sum to 0.75"),
            (sample(0, &[1.0], 0.5), "sample 1: it has 1 gates for 2 tasks"),
            (sample(2, &[0.5, 0.5], 0.5), "sample 1: it is of task 2"),
            (sample(0, &[0.5, 0.5], f32::NAN), "sample 1: its confidence is NaN"),
            (sample(0, &[0.5, 0.5], 1.5), "sample 1: its confidence is 1.5"),
        ] {
            let error = RoutingAnalysis::new(names(2), &[good.clone(), bad]).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn nothing_to_count_is_refused() {
        assert!(RoutingAnalysis::new(vec![], &[]).unwrap_err().to_string().contains("at least one task"));
        assert!(RoutingAnalysis::new(names(2), &[]).unwrap_err().to_string().contains("at least one sample"));
    }

    #[test]
    fn json_gives_the_same_analysis_back() {
        let analysis = three_tasks();
        let json = serde_json::to_string(&analysis).unwrap();
        assert!(json.contains(r#""task_accuracy":[0.5,1.0,null]"#), "{json}");
        assert_eq!(serde_json::from_str::<RoutingAnalysis>(&json).unwrap(), analysis);
    }

    proptest! {
        #[test]
        fn shares_sum_to_one_and_stay_in_bounds(
            raw in prop::collection::vec((0usize..4, prop::array::uniform4(0f32..1.0), 0f32..=1.0), 1..40)
        ) {
            let samples: Vec<RoutedSample> = raw
                .iter()
                .map(|(task, weights, confidence)| {
                    let sum: f32 = weights.iter().sum::<f32>() + 0.004;
                    sample(*task, &weights.map(|weight| (weight + 0.001) / sum), *confidence)
                })
                .collect();
            let analysis = RoutingAnalysis::new(names(4), &samples).unwrap();
            prop_assert!((analysis.usage.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!((0.0..=1.0).contains(&analysis.entropy.normalized_mean));
            prop_assert!((0.0..=3.0 + 1e-9).contains(&analysis.load_imbalance));
            prop_assert_eq!(analysis.entropy.histogram.total(), samples.len());
            prop_assert_eq!(analysis.confidence.right.total() + analysis.confidence.wrong.total(), samples.len());
            prop_assert!((0.0..=1.0).contains(&analysis.calibration.unwrap().error));
        }
    }
}
