//! Bad samples that are left out.

use super::*;

fn skip(max_bad_share: f64, config: LoaderConfig) -> LoaderConfig {
    LoaderConfig { on_bad_sample: OnBadSample::Skip, max_bad_share, ..config }
}

fn bad(len: usize, fails: impl IntoIterator<Item = usize>) -> Numbers {
    Numbers { fails: fails.into_iter().collect(), ..Numbers::new(len) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_left_out_is_the_same_for_any_number_of_workers_and_after_resuming(
        len in 1_usize..80,
        fails in prop::collection::hash_set(0_usize..80, 0..40),
        batch_size in 1_usize..5,
        group_by_length: bool,
        share in 0.0_f64..0.6,
        workers in 2_usize..=5,
        start in 0_usize..30,
    ) {
        let make = |workers, delay| {
            let lengths = (0..len).map(|index| (index * 7 % 13) as f64).collect();
            let config = LoaderConfig { group_by_length, ..skip(share, config(batch_size, workers)) };
            loader(Numbers { delay, lengths, ..bad(len, fails.clone()) }, config)
        };
        // Results of a reader: the batches or their errors, each with the cursor after it.
        let stream = |loader: &Numbered, start| {
            let mut epoch = loader.epoch(2, start);
            let mut seen = Vec::new();
            while let Some(batch) = epoch.next() {
                seen.push((epoch.cursor(), batch.map_err(|error| error.to_string())));
            }
            seen
        };
        let (alone, several) = (make(1, 0), make(workers, 300));
        let whole = stream(&alone, 0);
        prop_assert_eq!(&stream(&several, 0), &whole);
        prop_assert_eq!(alone.skipped(), several.skipped());

        let mut good: Vec<_> = whole.iter().filter_map(|(_, batch)| batch.as_ref().ok()).flatten().collect();
        good.sort_unstable();
        let within = fails.iter().filter(|index| **index < len).count() as f64 <= share * len as f64;
        prop_assert_eq!(whole.iter().all(|(_, batch)| batch.is_ok()), within);
        if within {
            let expected: Vec<_> = (0..len).filter(|index| !fails.contains(index)).map(|index| (index, 2)).collect();
            prop_assert_eq!(good, expected.iter().collect::<Vec<_>>());
            let rest: Vec<_> = whole.into_iter().filter(|(cursor, _)| *cursor > start).collect();
            prop_assert_eq!(stream(&several, start), rest);
        }
    }
}

#[test]
fn a_bad_sample_is_left_out_and_noted() {
    let loader = loader(bad(8, [2, 5]), LoaderConfig { shuffle: false, ..skip(0.5, config(4, 2)) });
    for epoch in [0, 1] {
        let batches: Vec<Vec<usize>> = read(&loader, epoch, 0)
            .into_iter()
            .map(|batch| batch.into_iter().map(|(index, _)| index).collect())
            .collect();
        assert_eq!(batches, [vec![0, 1, 3], vec![4, 6, 7]]);
    }
    let sample = |index| Skipped {
        index,
        name: format!("clip-00{index}.wav"),
        epoch: 0,
        reason: "the header is cut off".to_string(),
    };
    let expected = Skips { samples: 2, times: 4, first: vec![sample(2), sample(5)], more: Vec::new() };
    assert_eq!(loader.skipped(), expected, "each is tried again in the second epoch and listed once");
}

#[test]
fn a_batch_without_samples_is_passed_over_and_the_cursor_knows() {
    let loader = loader(bad(10, [2, 3, 8, 9]), LoaderConfig { shuffle: false, ..skip(1.0, config(2, 2)) });
    assert_eq!(loader.batches(0), 5);
    let mut epoch = loader.epoch(0, 0);
    let mut seen = Vec::new();
    while let Some(batch) = epoch.next() {
        seen.push((batch.unwrap()[0].0, epoch.cursor()));
    }
    assert_eq!(seen, [(0, 1), (4, 3), (6, 4)]);
    assert_eq!(epoch.cursor(), 5);
}

#[test]
fn an_epoch_of_which_nothing_can_be_read_is_an_error_that_names_the_first() {
    let loader = loader(bad(10, 0..10), LoaderConfig { shuffle: false, ..skip(1.0, config(4, 2)) });
    for epoch in [0, 1] {
        let mut batches = loader.epoch(epoch, 0);
        assert_eq!(
            batches.next().unwrap().unwrap_err().to_string(),
            format!(
                "not one of the 10 samples of epoch {epoch} can be loaded: `clip-000.wav` (the header is cut off), \
                 `clip-001.wav` (the header is cut off), `clip-002.wav` (the header is cut off) and 7 more; repair or \
                 replace them"
            )
        );
        assert!(batches.next().is_none(), "once");
        assert_eq!(batches.cursor(), 3);
    }
    assert!(loader.epoch(2, 1).next().is_none(), "the rest of an epoch may be unreadable");
    assert_eq!(loader.skipped().samples, 10);
}

#[test]
fn too_many_bad_samples_are_an_error_at_the_same_batch_for_any_number_of_workers() {
    for workers in 1..=5 {
        // Every fifth is bad, and of a hundred thousand the first thousand may have ten: the eleventh is number 50.
        let loader = loader(
            bad(100_000, (0..100_000).step_by(5)),
            LoaderConfig { shuffle: false, ..skip(0.01, config(4, workers)) },
        );
        let mut epoch = loader.epoch(0, 0);
        let error = epoch.find_map(Result::err).unwrap();
        assert_eq!(epoch.cursor(), 13, "number 50 is in the batch of 48 to 51");
        assert_eq!(
            error.to_string(),
            "11 of the first 52 samples of epoch 0 (of 100000) cannot be loaded, more than the 1% that `max_bad_share` \
             allows: `clip-000.wav` (the header is cut off), `clip-005.wav` (the header is cut off), `clip-010.wav` \
             (the header is cut off) and 8 more; repair or remove them, or raise `max_bad_share`"
        );
    }
}

#[test]
fn the_share_is_of_the_samples_seen() {
    // One in a hundred, but none in the second half: allowed. A resumed epoch has as much leave as a whole one.
    let allowed =
        loader(bad(4000, (99..4000).step_by(100)), LoaderConfig { shuffle: false, ..skip(0.01, config(8, 2)) });
    assert_eq!(read(&allowed, 0, 0).len(), 500);
    assert_eq!(read(&allowed, 0, 450).len(), 50);
    assert_eq!((allowed.skipped().samples, allowed.skipped().times), (40, 44));
    assert_eq!(allowed.skipped().first.len(), 40);

    // Twenty-one of two thousand, all of them late: twenty of the first 1999 are one too many.
    let late = loader(bad(2000, 1979..2000), LoaderConfig { shuffle: false, ..skip(0.01, config(1, 2)) });
    let mut epoch = late.epoch(0, 0);
    let mut errors = Vec::new();
    while let Some(batch) = epoch.next() {
        batch.err().into_iter().for_each(|_| errors.push(epoch.cursor()));
    }
    assert_eq!(errors, [1999, 2000]);
}

#[test]
fn a_panic_is_an_error_even_where_bad_samples_are_skipped() {
    let numbers = Numbers { panics: Some(7), ..bad(12, [6]) };
    let loader = loader(numbers, LoaderConfig { shuffle: false, ..skip(1.0, config(3, 2)) });
    let batches: Vec<_> = loader.epoch(0, 0).collect();
    assert!(matches!(batches[2], Err(LoaderError::SamplePanic { index: 7, .. })));
    assert_eq!(loader.skipped().samples, 1);
}

#[test]
fn a_batch_that_cannot_be_collated_does_not_name_those_left_out() {
    let collect = Arc::new(Collect { fails: true, ..Collect::default() });
    let config = LoaderConfig { shuffle: false, ..skip(1.0, config(4, 1)) };
    let loader = Loader::new(Arc::new(bad(4, [1])), collect, config).unwrap();
    let text = loader.epoch(0, 0).next().unwrap().unwrap_err().to_string();
    assert!(text.ends_with("its samples are `clip-000.wav`, `clip-002.wav`, `clip-003.wav`"), "{text}");
}
