//! Batches by cost and by length.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};

use super::*;

/// Lengths of speech: a median of 5 s, a sixth of the clips over 9.1 s, none over 30 s.
fn speech(samples: usize) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let lengths = LogNormal::new(5.0_f64.ln(), 0.6).unwrap();
    lengths.sample_iter(&mut rng).map(|length: f64| length.min(30.0)).take(samples).collect()
}

/// Returns the samples of an epoch's batches, without loading any.
fn plan(config: &LoaderConfig, lengths: &[f64], epoch: u64) -> Vec<Vec<usize>> {
    let order =
        if config.shuffle { epoch_order(lengths.len(), config.seed, epoch) } else { (0..lengths.len()).collect() };
    let plan = Planner::new(config, lengths.to_vec()).plan(epoch, order);
    let batches: Vec<_> = (0..plan.batches()).map(|batch| plan.samples(batch).to_vec()).collect();
    assert_eq!(plan.len(), batches.concat().len());
    batches
}

fn longest(batch: &[usize], lengths: &[f64]) -> f64 {
    batch.iter().map(|index| lengths[*index]).fold(0.0, f64::max)
}

/// Returns the share of padding in the computation.
fn padding(batches: &[Vec<usize>], lengths: &[f64]) -> f64 {
    let sound: f64 = batches.iter().flatten().map(|index| lengths[*index]).sum();
    let padded: f64 = batches.iter().map(|batch| batch.len() as f64 * longest(batch, lengths)).sum();
    1.0 - sound / padded
}

fn modes() -> impl Strategy<Value = LoaderConfig> {
    let budget = prop::option::of((1.0_f64..60.0, 0.0_f64..0.2));
    (1_usize..9, budget, any::<bool>(), any::<bool>(), any::<u64>()).prop_map(
        |(batch_size, budget, group_by_length, shuffle, seed)| LoaderConfig {
            batch_size,
            budget: budget.map(|(max, quadratic)| Budget { max, quadratic }),
            group_by_length,
            shuffle,
            seed,
            ..LoaderConfig::default()
        },
    )
}

proptest! {
    #[test]
    fn every_sample_comes_once_and_no_batch_costs_too_much(
        config in modes(), lengths in prop::collection::vec(0.0_f64..40.0, 0..200), epoch: u64,
    ) {
        let batches = plan(&config, &lengths, epoch);
        let mut all = batches.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
        for batch in &batches {
            prop_assert!((1..=config.batch_size).contains(&batch.len()));
            let cost = config.budget.map_or(0.0, |budget| batch.len() as f64 * budget.cost(longest(batch, &lengths)));
            prop_assert!(batch.len() == 1 || cost <= config.budget.map_or(0.0, |budget| budget.max));
        }
        if let (true, Some(first)) = (config.group_by_length, batches.first()) {
            prop_assert_eq!(longest(first, &lengths), longest(&batches.concat(), &lengths));
        }
    }

    #[test]
    fn only_what_fills_no_batch_is_dropped(
        config in modes(), lengths in prop::collection::vec(0.1_f64..40.0, 0..200), epoch: u64,
    ) {
        let config = LoaderConfig { drop_last: true, ..config };
        let batches = plan(&config, &lengths, epoch);
        let mut all = batches.concat();
        all.sort_unstable();
        all.dedup();
        prop_assert_eq!(all.len(), batches.concat().len());
        let left = lengths.len() - all.len();
        match config.budget {
            None => {
                prop_assert_eq!(left, lengths.len() % config.batch_size);
                prop_assert!(batches.iter().all(|batch| batch.len() == config.batch_size));
            }
            Some(budget) if !config.group_by_length => {
                let all = plan(&LoaderConfig { drop_last: false, ..config.clone() }, &lengths, epoch);
                prop_assert_eq!(&batches[..], &all[..batches.len()]);
                prop_assert!(all.len() - batches.len() <= 1);
                for batch in &all[batches.len()..] {
                    prop_assert!(batch.len() < config.batch_size);
                    prop_assert!((batch.len() + 1) as f64 * budget.cost(longest(batch, &lengths)) <= budget.max);
                }
            }
            Some(budget) => {
                let room = |batch: &Vec<usize>| {
                    batch.len() < config.batch_size
                        && (batch.len() + 1) as f64 * budget.cost(longest(batch, &lengths)) <= budget.max
                };
                prop_assert!(!batches.iter().any(room));
                let all = plan(&LoaderConfig { drop_last: false, ..config.clone() }, &lengths, epoch);
                prop_assert!(all.iter().filter(|batch| room(batch)).count() <= 1);
            }
        }
    }

    #[test]
    fn equal_lengths_are_batched_as_if_they_did_not_matter(len in 0_usize..100, batch_size in 1_usize..9, seed: u64) {
        // A budget with room for `batch_size` samples, and one more for half of a sample.
        let budget = Some(Budget { max: 2.0 * batch_size as f64 + 1.0, quadratic: 0.0 });
        let count = LoaderConfig { batch_size, seed, ..LoaderConfig::default() };
        let cost = LoaderConfig { batch_size: 1000, budget, ..count.clone() };
        prop_assert_eq!(plan(&count, &vec![2.0; len], 3), plan(&cost, &vec![2.0; len], 3));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn batches_by_length_are_the_same_for_any_number_of_workers_and_resume_anywhere(
        config in modes(),
        drop_last: bool,
        mixed: bool,
        lengths in prop::collection::vec(0.0_f64..40.0, 1..80),
        workers in 1_usize..=5,
        epoch in 0_u64..1000,
        start in 0_usize..30,
    ) {
        let config = LoaderConfig { drop_last, workers: Workers::Count(workers), ..config };
        let numbers = |delay| Numbers { delay, lengths: lengths.clone(), ..Numbers::new(lengths.len()) };
        let make = |delay, config| {
            let loader = loader(numbers(delay), config);
            if mixed {
                let half = lengths.len() / 2;
                loader.with_order(Mixture::tempered(vec![half, lengths.len() - half], 2.0, 5).unwrap())
            } else {
                loader
            }
        };
        let (alone, several) =
            (make(0, LoaderConfig { workers: Workers::Count(1), ..config.clone() }), make(300, config));
        let mut expected = read(&alone, epoch, 0);
        prop_assert_eq!(several.batches(epoch), expected.len());
        prop_assert_eq!(&read(&several, epoch, 0), &expected);
        prop_assert_eq!(read(&several, epoch, start), expected.split_off(start.min(expected.len())));
    }
}

#[test]
fn grouping_leaves_little_padding() {
    let lengths = speech(20_000);
    let share = |batch_size, budget, group_by_length| {
        let config = LoaderConfig { batch_size, budget, group_by_length, ..LoaderConfig::default() };
        padding(&plan(&config, &lengths, 0), &lengths)
    };
    // 160 s are what sixteen clips padded to 10 s take.
    let budget = Some(Budget { max: 160.0, quadratic: 1.0 / 30.0 });
    let (plain, grouped) = (share(16, None, false), share(16, None, true));
    let (plain_cost, grouped_cost) = (share(1000, budget, false), share(1000, budget, true));
    println!("padding: {plain:.3} → {grouped:.3} by number, {plain_cost:.3} → {grouped_cost:.3} by cost");
    assert!(plain > 0.5 && grouped < 0.06, "{plain}, {grouped}");
    assert!(plain_cost > 0.4 && grouped_cost < 0.06, "{plain_cost}, {grouped_cost}");
}

#[test]
fn a_budget_evens_out_what_batches_cost() {
    let lengths = speech(20_000);
    let budget = Budget { max: 160.0, quadratic: 1.0 / 30.0 };
    let config =
        LoaderConfig { batch_size: 1000, budget: Some(budget), group_by_length: true, ..LoaderConfig::default() };
    let batches = plan(&config, &lengths, 0);
    let filled = |batch: &Vec<usize>| batch.len() as f64 * budget.cost(longest(batch, &lengths)) / budget.max;
    let mean = batches.iter().map(filled).sum::<f64>() / batches.len() as f64;
    let low = batches.iter().filter(|batch| filled(batch) < 0.7).count();
    println!("{} batches, filled to {mean:.3} on average, {low} below 0.7", batches.len());
    // A 30 s clip costs 60, and two of them leave a quarter of the budget; short clips fill it to the last second.
    assert!(mean > 0.9, "{mean}");
    assert!(low * 50 < batches.len(), "{low}");
}

#[test]
fn groups_differ_from_epoch_to_epoch_even_in_small_datasets() {
    let lengths = speech(200);
    let config = LoaderConfig { group_by_length: true, ..LoaderConfig::default() };
    let sets = |epoch| -> HashSet<Vec<usize>> {
        let sorted = |mut batch: Vec<usize>| {
            batch.sort_unstable();
            batch
        };
        plan(&config, &lengths, epoch).into_iter().map(sorted).collect()
    };
    assert_eq!(sets(0), sets(0));
    assert!(sets(0).is_disjoint(&sets(1)));
}

#[test]
fn dropping_does_not_always_strike_the_shortest() {
    let lengths: Vec<f64> = (0..30).map(f64::from).collect();
    for budget in [None, Some(Budget { max: 250.0, quadratic: 0.0 })] {
        let config =
            LoaderConfig { batch_size: 16, budget, group_by_length: true, drop_last: true, ..LoaderConfig::default() };
        let seen: HashSet<usize> = (0..40).flat_map(|epoch| plan(&config, &lengths, epoch).concat()).collect();
        assert_eq!(seen.len(), 30, "in forty epochs every sample comes at some time");
    }
}

#[test]
fn grouping_keeps_to_the_order_it_is_given() {
    // Without shuffling, samples stay within a quarter of the epoch; the batch with the longest sample comes first.
    let lengths = vec![1.0; 1000];
    let config = LoaderConfig { batch_size: 10, group_by_length: true, shuffle: false, ..LoaderConfig::default() };
    assert_eq!(plan(&config, &lengths, 0).concat(), (0..1000).collect::<Vec<_>>());
    let shuffled = LoaderConfig { shuffle: true, ..config.clone() };
    let batches = Planner::new(&shuffled, lengths).plan(0, (0..1000).collect());
    for batch in 1..batches.batches() {
        let moved = batches.samples(batch)[0].abs_diff(10 * batch);
        assert!(moved < 260, "batch {batch} moved by {moved} samples");
    }
}

#[test]
fn samples_without_a_length_are_named() {
    let budget = LoaderConfig { budget: Some(Budget::default()), ..config(4, 1) };
    let grouped = LoaderConfig { group_by_length: true, ..config(4, 1) };
    for config in [budget, grouped] {
        for (lengths, culprit) in
            [(vec![], 0), (vec![1.0, 2.0], 2), (vec![1.0, f64::NAN, 1.0], 1), (vec![-1.0, 1.0, 1.0], 0)]
        {
            let numbers = Numbers { lengths, ..Numbers::new(3) };
            let error = Loader::new(Arc::new(numbers), Arc::new(Collect::default()), config.clone()).err().unwrap();
            assert!(matches!(&error, LoaderError::Length { index, .. } if *index == culprit), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("clip-{culprit:03}.wav")) && text.contains("group_by_length"), "{text}");
        }
    }
}
