mod batching;
mod skipping;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

/// Samples that are their own index, take different times to load, and may be bad.
#[derive(Default)]
struct Numbers {
    len: usize,
    /// Maximum time that a sample takes, in microseconds.
    delay: u64,
    fails: HashSet<usize>,
    lengths: Vec<f64>,
    panics: Option<usize>,
    calls: AtomicUsize,
}

impl Numbers {
    fn new(len: usize) -> Self {
        Self { len, ..Self::default() }
    }
}

impl Dataset for Numbers {
    type Item = (usize, u64);

    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize, epoch: u64) -> Result<Self::Item, SampleError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.delay > 0 {
            let mixed = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            sleep(Duration::from_micros(mixed % self.delay));
        }
        if self.fails.contains(&index) {
            return Err("the header is cut off".into());
        }
        assert!(self.panics != Some(index), "index {index} out of range");
        Ok((index, epoch))
    }

    fn name(&self, index: usize) -> String {
        format!("clip-{index:03}.wav")
    }

    fn length(&self, index: usize) -> Option<f64> {
        self.lengths.get(index).copied()
    }
}

/// Collects the samples; every sample counts as 100 bytes.
#[derive(Default)]
struct Collect {
    fails: bool,
    panics: bool,
    made: AtomicUsize,
}

impl Collate<(usize, u64)> for Collect {
    type Batch = Vec<(usize, u64)>;

    fn collate(&self, items: Vec<(usize, u64)>) -> Result<Self::Batch, SampleError> {
        if self.fails {
            return Err("the rates differ".into());
        }
        assert!(!self.panics, "shapes differ");
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(items)
    }

    fn bytes(batch: &Self::Batch) -> usize {
        100 * batch.len()
    }
}

type Numbered = Loader<Numbers, Collect>;

fn config(batch_size: usize, workers: usize) -> LoaderConfig {
    LoaderConfig { batch_size, workers: Workers::Count(workers), ..LoaderConfig::default() }
}

fn loader(numbers: Numbers, config: LoaderConfig) -> Numbered {
    Loader::new(Arc::new(numbers), Arc::new(Collect::default()), config).unwrap()
}

fn read(loader: &Numbered, epoch: u64, start: usize) -> Vec<Vec<(usize, u64)>> {
    loader.epoch(epoch, start).map(Result::unwrap).collect()
}

/// Waits until `count` reaches `expected`, and checks that it then stays there.
fn assert_settles(count: &AtomicUsize, expected: usize) {
    let start = Instant::now();
    while count.load(Ordering::SeqCst) < expected && start.elapsed() < Duration::from_secs(10) {
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_millis(40));
    assert_eq!(count.load(Ordering::SeqCst), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn order_is_the_same_for_any_number_of_workers(
        len in 0usize..60,
        batch_size in 1usize..8,
        workers in 1usize..=6,
        prefetch_batches in 1usize..6,
        prefetch_bytes in 1usize..3000,
        shuffle: bool,
        drop_last: bool,
        seed: u64,
        epoch: u64,
        start in 0usize..12,
    ) {
        let numbers = Numbers { delay: 300, ..Numbers::new(len) };
        let config = LoaderConfig {
            prefetch_batches, prefetch_bytes, shuffle, drop_last, seed, ..config(batch_size, workers)
        };
        let loader = loader(numbers, config);

        let order = if shuffle { epoch_order(len, seed, epoch) } else { (0..len).collect() };
        let samples: Vec<_> = order.into_iter().map(|index| (index, epoch)).collect();
        let mut expected: Vec<Vec<_>> = samples.chunks(batch_size).map(<[_]>::to_vec).collect();
        expected.retain(|batch| !drop_last || batch.len() == batch_size);

        prop_assert_eq!(loader.batches(epoch), expected.len());
        prop_assert_eq!(read(&loader, epoch, 0), expected.clone());
        prop_assert_eq!(read(&loader, epoch, start), expected.split_off(start.min(expected.len())));
    }

    #[test]
    fn an_order_is_a_permutation(len in 0usize..200, seed: u64, epoch: u64) {
        let mut order = epoch_order(len, seed, epoch);
        order.sort_unstable();
        prop_assert_eq!(order, (0..len).collect::<Vec<_>>());
    }
}

#[test]
fn the_order_never_changes() {
    // Checkpoints hold a cursor into this order: another one would repeat and leave out samples on resume.
    // The expected order was computed from the words of `epoch_order`'s documentation, in another language.
    assert_eq!(epoch_order(10, 42, 0), ORDER_42_0);
    assert_ne!(epoch_order(10, 42, 1), ORDER_42_0);
    assert_ne!(epoch_order(10, 43, 0), ORDER_42_0);
}

const ORDER_42_0: [usize; 10] = [9, 2, 5, 0, 8, 4, 3, 1, 6, 7];

#[test]
fn steps_are_as_large_as_their_batches() {
    let steps =
        |samples, config: LoaderConfig, batches| loader(Numbers::new(samples), config).samples_per_step(0, batches);
    // Ten batches of 4 and one of 2: in steps of three batches the last step has two of them.
    assert_eq!([1, 3, 11, 99].map(|batches| steps(42, config(4, 1), batches)), [4.0, 12.0, 42.0, 42.0]);
    assert_eq!(steps(3, config(4, 1), 2), 3.0);
    // As long as their number says: at most 8 together, wherever they meet.
    let budget = Some(Budget { max: 8.0, quadratic: 0.0 });
    let of = |lengths: Vec<f64>| Numbers { len: lengths.len(), lengths, ..Numbers::default() };
    let by_cost = loader(of(vec![1.0; 64]), LoaderConfig { budget, ..config(64, 1) });
    assert_eq!(by_cost.samples_per_step(0, 2), 16.0);
    let mixed = loader(of((0..400).map(|n| [1.0, 7.0][n % 2]).collect()), LoaderConfig { budget, ..config(64, 1) });
    let (batches, mean) = (mixed.batches(0), mixed.samples_per_step(0, 1));
    assert!((mean - 400.0 / batches as f64).abs() < 0.1 && mean < 2.1, "{mean} in {batches}");
}

#[test]
fn resuming_loads_nothing_before_the_cursor() {
    let loader = loader(Numbers::new(20), config(4, 2));
    let whole = read(&loader, 7, 0);
    let calls = loader.dataset().calls.swap(0, Ordering::SeqCst);
    assert_eq!(calls, 20);

    let mut tail = loader.epoch(7, 3);
    assert_eq!((tail.cursor(), tail.size_hint()), (3, (0, Some(2))));
    assert_eq!(tail.next().unwrap().unwrap(), whole[3]);
    assert_eq!(tail.cursor(), 4);
    assert_eq!(tail.next().unwrap().unwrap(), whole[4]);
    assert!(tail.next().is_none());
    assert_eq!(loader.dataset().calls.load(Ordering::SeqCst), 8);
    assert_eq!(loader.epoch(7, 99).count(), 0);
}

#[test]
fn ranks_share_an_epoch_and_load_their_own_batches_alone() {
    let loader = loader(Numbers::new(43), config(4, 2));
    let whole = read(&loader, 3, 0);
    for (start, count) in [(0, 3), (5, 2), (4, 4), (11, 2), (2, 20)] {
        let mut found = Vec::new();
        for rank in 0..count {
            loader.dataset().calls.store(0, Ordering::SeqCst);
            let mut share = loader.share(3, start, BatchShare { rank, count, window: count });
            let mut own = 0;
            while let Some(batch) = share.next() {
                let batch = batch.unwrap();
                assert_eq!((share.cursor() - 1) % count, rank);
                own += batch.len();
                found.push((share.cursor() - 1, batch));
            }
            assert_eq!(loader.dataset().calls.load(Ordering::SeqCst), own);
        }
        found.sort_by_key(|(number, _)| *number);
        let wanted: Vec<_> = whole.iter().cloned().enumerate().skip(start).collect();
        assert_eq!(found, wanted, "{count} ranks from batch {start}");
    }
}

#[test]
fn epochs_may_be_dropped_midway_and_read_side_by_side() {
    let loader = loader(Numbers { delay: 200, ..Numbers::new(40) }, config(3, 3));
    let (first, second) = (read(&loader, 0, 0), read(&loader, 1, 0));
    for _ in 0..20 {
        let mut dropped = loader.epoch(5, 0);
        dropped.next().unwrap().unwrap();
    }
    let both: Vec<_> = loader.epoch(0, 0).zip(loader.epoch(1, 0)).collect();
    for (index, (a, b)) in both.into_iter().enumerate() {
        assert_eq!((a.unwrap(), b.unwrap()), (first[index].clone(), second[index].clone()));
    }
}

#[test]
fn prefetch_is_bounded_in_batches() {
    let collect = Arc::new(Collect::default());
    let config = LoaderConfig { prefetch_batches: 5, ..config(2, 3) };
    let loader = Loader::new(Arc::new(Numbers::new(100)), collect.clone(), config).unwrap();
    let mut epoch = loader.epoch(0, 0);
    assert_settles(&collect.made, 5);
    epoch.next().unwrap().unwrap();
    assert_settles(&collect.made, 6);
}

#[test]
fn prefetch_is_bounded_in_bytes() {
    let collect = Arc::new(Collect::default());
    // Two samples are 200 bytes, so 799 bytes hold three batches.
    let config = LoaderConfig { prefetch_batches: 64, prefetch_bytes: 799, ..config(2, 6) };
    let loader = Loader::new(Arc::new(Numbers::new(100)), collect.clone(), config).unwrap();
    let mut epoch = loader.epoch(0, 0);
    assert_settles(&collect.made, 3);
    epoch.next().unwrap().unwrap();
    assert_settles(&collect.made, 4);
}

#[test]
fn a_batch_larger_than_the_budget_passes() {
    let loader = loader(Numbers::new(9), LoaderConfig { prefetch_bytes: 1, ..config(2, 4) });
    assert_eq!(read(&loader, 0, 0).len(), 5);
}

#[test]
fn a_bad_sample_is_named_and_the_epoch_goes_on() {
    for workers in [1, 4] {
        let numbers = Numbers { fails: HashSet::from([5]), ..Numbers::new(12) };
        let loader = loader(numbers, LoaderConfig { shuffle: false, ..config(2, workers) });
        let batches: Vec<_> = loader.epoch(3, 0).collect();
        let bad: Vec<_> = batches.iter().map(Result::is_err).collect();
        assert_eq!(bad, [false, false, true, false, false, false]);
        let error = batches[2].as_ref().unwrap_err();
        assert!(matches!(error, LoaderError::Sample { index: 5, epoch: 3, .. }));
        let text = error.to_string();
        assert!(text.contains("clip-005.wav") && text.contains("the header is cut off"), "{text}");
    }
}

#[test]
fn a_panicking_sample_is_named_and_the_loader_stays_usable() {
    let numbers = Numbers { panics: Some(7), ..Numbers::new(12) };
    let loader = loader(numbers, LoaderConfig { shuffle: false, ..config(3, 2) });
    for epoch in 0..3 {
        let batches: Vec<_> = loader.epoch(epoch, 0).collect();
        assert_eq!(batches.iter().filter(|batch| batch.is_ok()).count(), 3);
        let error = batches[2].as_ref().unwrap_err();
        assert!(matches!(error, LoaderError::SamplePanic { index: 7, .. }));
        let text = error.to_string();
        assert!(text.contains("clip-007.wav") && text.contains("index 7 out of range"), "{text}");
    }
}

#[test]
fn a_batch_that_cannot_be_collated_names_its_samples() {
    let cases = [
        (Collect { fails: true, ..Collect::default() }, "the rates differ"),
        (Collect { panics: true, ..Collect::default() }, "shapes differ"),
    ];
    for (collect, reason) in cases {
        let config = LoaderConfig { shuffle: false, ..config(10, 2) };
        let loader = Loader::new(Arc::new(Numbers::new(12)), Arc::new(collect), config).unwrap();
        let texts: Vec<_> = loader.epoch(0, 0).map(|batch| batch.unwrap_err().to_string()).collect();
        assert!(texts[0].contains(reason), "{}", texts[0]);
        assert!(texts[0].contains("`clip-000.wav`") && texts[0].ends_with("`clip-007.wav` and 2 more"), "{}", texts[0]);
        assert!(texts[1].ends_with("`clip-010.wav`, `clip-011.wav`"), "{}", texts[1]);
    }
}

/// Dataset whose samples block after `begun` was sent, until `release` is set.
struct Stuck {
    begun: mpsc::SyncSender<()>,
    release: Arc<AtomicBool>,
}

impl Dataset for Stuck {
    type Item = (usize, u64);

    fn len(&self) -> usize {
        1000
    }

    fn get(&self, index: usize, epoch: u64) -> Result<Self::Item, SampleError> {
        let _ = self.begun.try_send(());
        while !self.release.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(5));
        }
        Ok((index, epoch))
    }

    fn name(&self, index: usize) -> String {
        index.to_string()
    }
}

#[test]
fn dropping_takes_less_than_a_second_even_when_a_sample_hangs() {
    let (begun, wait) = mpsc::sync_channel(1);
    let release = Arc::new(AtomicBool::new(false));
    let stuck = Stuck { begun, release: release.clone() };
    let loader = Loader::new(Arc::new(stuck), Arc::new(Collect::default()), config(4, 3)).unwrap();
    drop(loader.epoch(0, 0));
    let epoch = loader.epoch(1, 0);
    wait.recv().unwrap();
    drop(epoch);
    let start = Instant::now();
    drop(loader);
    assert!(start.elapsed() < Duration::from_secs(1));
    release.store(true, Ordering::SeqCst);
}

#[test]
fn waiting_for_a_sample_that_hangs_is_given_up_when_asked_and_goes_on_from_there() {
    let (begun, wait) = mpsc::sync_channel(1);
    let release = Arc::new(AtomicBool::new(false));
    let stuck = Stuck { begun, release: release.clone() };
    let given_up = Arc::new(AtomicBool::new(false));
    let asked = given_up.clone();
    let loader = Loader::new(Arc::new(stuck), Arc::new(Collect::default()), config(4, 2)).unwrap();
    let loader = loader.until(move || asked.load(Ordering::SeqCst));
    let mut epoch = loader.epoch(7, 3);
    wait.recv().unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(300));
            given_up.store(true, Ordering::SeqCst);
        });
        assert!(matches!(epoch.next(), Some(Err(LoaderError::GivenUp { batch: 3, epoch: 7 }))));
    });
    let waited = start.elapsed();
    assert!((300..1000).contains(&waited.as_millis()), "{waited:?}");
    assert_eq!(epoch.cursor(), 3, "the batch that did not come is still to come");
    release.store(true, Ordering::SeqCst);
    given_up.store(false, Ordering::SeqCst);
    assert_eq!(epoch.filter(Result::is_ok).count(), 247);
}

#[test]
fn dropping_in_the_middle_of_a_long_batch_joins_the_workers() {
    // A batch takes a minute, a sample at most 20 ms.
    let numbers = Arc::new(Numbers { delay: 20_000, ..Numbers::new(100_000) });
    let loader = Loader::new(numbers.clone(), Arc::new(Collect::default()), config(5_000, 4)).unwrap();
    let epoch = loader.epoch(0, 0);
    sleep(Duration::from_millis(50));
    let start = Instant::now();
    drop(epoch);
    drop(loader);
    assert!(start.elapsed() < Duration::from_millis(500));
    assert_eq!(Arc::strong_count(&numbers), 1, "a worker is still alive");
}

#[test]
fn dropping_joins_workers_that_wait_behind_finished_batches_and_errors() {
    let numbers = Arc::new(Numbers { delay: 2_000, fails: (0..1000).step_by(3).collect(), ..Numbers::new(1000) });
    let collect = Arc::new(Collect::default());
    let config = LoaderConfig { prefetch_batches: 12, shuffle: false, ..config(1, 4) };
    let loader = Loader::new(numbers.clone(), collect.clone(), config).unwrap();
    let mut epoch = loader.epoch(0, 0);
    assert!(matches!(epoch.next(), Some(Err(LoaderError::Sample { index: 0, .. }))));
    // Batches 1 to 12 fill the budget; 3, 6, 9 and 12 are errors: eight are made, then every worker waits.
    assert_settles(&collect.made, 8);
    let start = Instant::now();
    drop(epoch);
    drop(loader);
    assert!(start.elapsed() < Duration::from_millis(500));
    assert_eq!(Arc::strong_count(&numbers), 1, "a worker is still alive");
}

#[test]
fn senseless_configs_are_refused() {
    let budget = |max, quadratic| LoaderConfig { budget: Some(Budget { max, quadratic }), ..LoaderConfig::default() };
    let share = |max_bad_share| LoaderConfig { max_bad_share, ..LoaderConfig::default() };
    let cases = [
        (budget(0.0, 0.0), "budget.max"),
        (budget(f64::INFINITY, 0.0), "budget.max"),
        (budget(f64::NAN, 0.0), "budget.max"),
        (budget(1.0, -0.1), "budget.quadratic"),
        (budget(1.0, f64::NAN), "budget.quadratic"),
        (share(-0.1), "max_bad_share"),
        (share(1.1), "max_bad_share"),
        (share(f64::NAN), "max_bad_share"),
        (LoaderConfig { batch_size: 0, ..LoaderConfig::default() }, "batch_size"),
        (LoaderConfig { prefetch_batches: 0, ..LoaderConfig::default() }, "prefetch_batches"),
        (LoaderConfig { prefetch_bytes: 0, ..LoaderConfig::default() }, "prefetch_bytes"),
        (LoaderConfig { workers: Workers::Count(0), ..LoaderConfig::default() }, "workers"),
    ];
    for (config, culprit) in cases {
        let refused = Loader::new(Arc::new(Numbers::new(1)), Arc::new(Collect::default()), config);
        let text = refused.err().unwrap().to_string();
        assert!(text.contains(culprit), "{text}");
    }
    assert_eq!(LoaderConfig::default().validate(), Ok(()));
}

#[test]
fn configs_are_read_and_workers_are_auto_or_a_number() {
    let parse = |text: &str| serde_json::from_str::<LoaderConfig>(text);
    assert_eq!(parse("{}").unwrap(), LoaderConfig::default());
    assert_eq!(parse(r#"{"workers": "auto"}"#).unwrap().workers, Workers::Auto);
    assert_eq!(parse(r#"{"workers": 3}"#).unwrap().workers, Workers::Count(3));
    for wrong in [r#"{"workers": "many"}"#, r#"{"workers": -1}"#] {
        let text = parse(wrong).unwrap_err().to_string();
        assert!(text.contains("`auto` or a number of threads"), "{text}");
    }
    assert!(parse(r#"{"wrokers": 3}"#).is_err());
    let text = r#"{"budget": {"max": 300, "quadratic": 0.02}, "group_by_length": true, "on_bad_sample": "skip"}"#;
    let parsed = parse(text).unwrap();
    assert_eq!(parsed.budget, Some(Budget { max: 300.0, quadratic: 0.02 }));
    assert_eq!((parsed.group_by_length, parsed.on_bad_sample), (true, OnBadSample::Skip));
    for workers in [Workers::Auto, Workers::Count(5)] {
        let config = LoaderConfig { workers, ..LoaderConfig::default() };
        assert_eq!(parse(&serde_json::to_string(&config).unwrap()).unwrap(), config);
    }
    assert!((1..=8).contains(&Workers::Auto.count()));
}
