use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use half::f16;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::audio;
use crate::features::Mel;

const GB: u64 = 1_000_000_000;

/// Opens an empty cache in a directory of its own.
fn opened() -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path(), GB).unwrap();
    (dir, cache)
}

fn key(i: usize) -> Key {
    Key::new(&[b"test", &i.to_le_bytes()])
}

/// Features that differ by clip, of 80 bins × 10 frames unless said otherwise: 1664 bytes as an entry.
fn mel(i: usize, frames: usize) -> Mel {
    let data = (0..80 * frames).map(|at| ((at * 31 + i * 17) % 1009) as f32 / 503.0 - 0.7).collect();
    Mel { bins: 80, frames, data }
}

/// Returns the values as rounded by the cache.
fn rounded(mel: Mel) -> Mel {
    Mel { data: mel.data.into_iter().map(|value| f16::from_f32(value).to_f32()).collect(), ..mel }
}

fn compute(cache: &Cache, i: usize, frames: usize) -> Mel {
    cache.get_or_compute(&key(i), || Ok::<_, CacheError>(mel(i, frames))).unwrap()
}

fn must_not_compute<T>() -> Result<T, CacheError> {
    panic!("the entry is in the cache")
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The only entry of a cache.
fn only_file(dir: &Path) -> PathBuf {
    let files: Vec<_> = entries(dir);
    assert_eq!(files.len(), 1);
    files[0].clone()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let shards = fs::read_dir(dir).unwrap().map(|shard| shard.unwrap().path());
    shards.flat_map(|shard| fs::read_dir(shard).unwrap().map(|file| file.unwrap().path())).collect()
}

fn make_older(path: &Path, seconds: u64) {
    File::open(path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

/// Returns a separate key for each case.
fn fresh(serial: &Cell<usize>) -> Key {
    key(serial.replace(serial.get() + 1))
}

#[test]
fn features_come_back_as_f16_rounds_them() {
    let (_dir, cache) = opened();
    let serial = Cell::new(0);
    let value = prop_oneof![-2.0f32..2.0, -65_519.0f32..65_519.0, -1e-7f32..1e-7];
    proptest!(|(data in vec(value, 0..400))| {
        let (key, mel) = (fresh(&serial), Mel { bins: 1, frames: data.len(), data });
        let first = cache.get_or_compute(&key, || Ok::<_, CacheError>(mel.clone())).unwrap();
        let second = cache.get_or_compute(&key, must_not_compute::<Mel>).unwrap();
        prop_assert_eq!(bits(&first.data), bits(&rounded(mel).data));
        prop_assert_eq!(bits(&second.data), bits(&first.data));
        prop_assert_eq!((second.bins, second.frames), (1, first.frames));
    });
}

#[test]
fn sixteen_bit_audio_comes_back_bit_for_bit() {
    let (_dir, cache) = opened();
    let serial = Cell::new(0);
    let sample = prop_oneof![any::<i16>(), -100i16..100, Just(i16::MIN), Just(i16::MAX)];
    proptest!(|(samples in vec(sample, 0..400), quiet in 0u32..16)| {
        let key = fresh(&serial);
        let samples: Vec<f32> = samples.into_iter().map(|sample| f32::from(sample >> quiet) / 32768.0).collect();
        prop_assert!(cache.put(&key, &samples).unwrap());
        prop_assert_eq!(bits(&cache.get::<Vec<f32>>(&key).unwrap()), bits(&samples));
    });
}

#[test]
fn other_audio_loses_at_most_a_sixteen_thousandth_of_its_peak() {
    let (_dir, cache) = opened();
    let serial = Cell::new(0);
    let sample = prop_oneof![-1.0f32..=1.0, -1e-3f32..1e-3];
    let scale = prop_oneof![Just(1.0f32), Just(1e-20), Just(1e20), Just(3.0)];
    proptest!(|(samples in vec(sample, 1..400), scale in scale)| {
        let key = fresh(&serial);
        let samples: Vec<f32> = samples.into_iter().map(|sample| sample * scale).collect();
        let first = cache.get_or_compute(&key, || Ok::<_, CacheError>(samples.clone())).unwrap();
        let second = cache.get_or_compute(&key, must_not_compute::<Vec<f32>>).unwrap();
        prop_assert_eq!(bits(&first), bits(&second));
        let peak = samples.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
        for (sample, kept) in samples.iter().zip(&first) {
            prop_assert!((sample - kept).abs() <= peak / 16384.0, "{sample} became {kept}");
        }
        // Rounding twice is rounding once.
        cache.put(&key, &first).unwrap();
        prop_assert_eq!(cache.get::<Vec<f32>>(&key).unwrap(), first);
    });
}

#[test]
fn a_sixteen_bit_recording_is_kept_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let wav = dir.path().join("clip.wav");
    let samples: Vec<i16> = (i16::MIN..=i16::MAX).collect();
    fs::write(&wav, crate::testing::wav(1, 16_000, 16, &samples)).unwrap();

    let clip = audio::load(&wav).unwrap();
    assert_eq!(clip.len(), 1 << 16);
    let cache = Cache::open(&dir.path().join("cache"), GB).unwrap();
    for (i, clip) in [&clip[..], &clip[1..], &clip[32_000..33_000]].into_iter().enumerate() {
        cache.put(&key(i), &clip.to_vec()).unwrap();
        assert_eq!(cache.get::<Vec<f32>>(&key(i)).unwrap(), clip);
    }
}

#[test]
fn extreme_audio_stays_finite() {
    let (_dir, cache) = opened();
    for clip in [vec![8.5e37, -8.5e37], vec![-8.5e37], vec![1e-45, -1e-45], vec![0.0, -0.0], vec![f32::MIN_POSITIVE]] {
        let kept =
            cache.get_or_compute(&key(clip[0].to_bits() as usize), || Ok::<_, CacheError>(clip.clone())).unwrap();
        for (kept, given) in kept.iter().zip(&clip) {
            assert!((kept - given).abs() <= (clip[0].abs() / 16384.0).max(1e-37), "{given:e} became {kept:e}");
        }
    }
}

#[test]
fn what_sixteen_bits_cannot_hold_is_refused_by_name() {
    let (_dir, cache) = opened();
    let features = |value| Mel { bins: 1, frames: 3, data: vec![0.0, 1.0, value] };
    for value in [65_520.0, -1e9, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let error = cache.put(&key(0), &features(value)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("value 2 of the features is {value}")), "{error}");
    }
    cache.put(&key(1), &features(65_519.0)).unwrap();
    assert_eq!(cache.get::<Mel>(&key(1)).unwrap().data[2], 65_504.0);
    for value in [f32::INFINITY, f32::NAN, f32::MAX, f32::MIN] {
        let error = cache.put(&key(0), &vec![0.5, value]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("value 1 of the audio is {value}")), "{error}");
    }
    let wrong = Mel { bins: 80, frames: 2, data: vec![0.0; 3] };
    assert!(matches!(cache.put(&key(0), &wrong), Err(CacheError::Shape { given: 3, rows: 80, columns: 2 })));
    assert!(cache.get::<Mel>(&key(0)).is_none());
}

#[test]
fn an_error_of_the_computation_is_passed_on_and_nothing_kept() {
    let (_dir, cache) = opened();
    let error = cache.get_or_compute::<Mel, Box<dyn std::error::Error + Send + Sync>>(&key(0), || Err("broken".into()));
    assert_eq!(error.unwrap_err().to_string(), "broken");
    assert_eq!(cache.usage().unwrap(), CacheUsage::default());
}

#[test]
fn a_damaged_entry_is_noticed_removed_and_computed_anew() {
    let (dir, cache) = opened();
    let expected = compute(&cache, 0, 10);
    let path = only_file(dir.path());
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len(), 64 + 80 * 10 * 2);

    let flipped = (0..whole.len()).filter(|at| *at < 70 || at % 97 == 0 || at + 2 > whole.len()).map(|at| {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        damaged
    });
    let cut = [0, 1, 63, 64, 65, 66, whole.len() / 2, whole.len() - 2, whole.len() - 1];
    let cut = cut.map(|length| whole[..length].to_vec());
    let longer = [[&whole[..], &[0; 2]].concat(), [&whole[..], &[0; 4096]].concat()];
    let zeroed = [vec![0; whole.len()], [&whole[..whole.len() - 512], &[0; 512]].concat()];

    let mut count = 0;
    for damaged in flipped.chain(cut).chain(longer).chain(zeroed) {
        fs::write(&path, &damaged).unwrap();
        count += 1;
        assert!(cache.get::<Mel>(&key(0)).is_none());
        assert!(!path.exists());
        assert_eq!(cache.counts().corrupted, count);
        fs::write(&path, &damaged).unwrap();
        count += 1;
        assert_eq!(compute(&cache, 0, 10), expected);
        assert_eq!(fs::read(&path).unwrap(), whole);
        assert_eq!(cache.get_or_compute(&key(0), must_not_compute::<Mel>).unwrap(), expected);
    }
    assert_eq!(cache.counts().corrupted, count);
}

#[test]
fn an_entry_of_another_name_or_kind_is_not_served() {
    let (_dir, cache) = opened();
    compute(&cache, 0, 10);
    fs::create_dir_all(cache.folder.path(&key(1)).parent().unwrap()).unwrap();
    fs::copy(cache.folder.path(&key(0)), cache.folder.path(&key(1))).unwrap();
    assert!(cache.get::<Mel>(&key(1)).is_none());
    assert!(cache.get::<Mel>(&key(0)).is_some());
    assert!(cache.get::<Vec<f32>>(&key(0)).is_none());
    assert_eq!(cache.counts().corrupted, 2);
}

#[test]
fn ten_thousand_clips_of_five_seconds_take_less_than_a_gigabyte() {
    let (_dir, cache) = opened();
    cache.put(&key(0), &mel(0, 500)).unwrap();
    let usage = cache.usage().unwrap();
    assert_eq!(usage, CacheUsage { entries: 1, bytes: 81_920 });
    assert!(usage.bytes * 10_000 < GB);
}

#[test]
fn the_cap_holds_and_the_oldest_entries_of_earlier_runs_go_first() {
    let dir = tempfile::tempdir().unwrap();
    // 50 entries of one block each.
    let cap = 50 * 4096;
    let earlier = Cache::open(dir.path(), cap).unwrap();
    for i in 0..50 {
        compute(&earlier, i, 10);
        // The lower the number, the older.
        make_older(&earlier.folder.path(&key(i)), 1000 - i as u64);
    }
    let cache = Cache::open(dir.path(), cap).unwrap();
    // This run uses entry 0, which is the oldest.
    assert!(cache.get::<Mel>(&key(0)).is_some());
    for i in 100..130 {
        compute(&cache, i, 10);
        assert!(cache.usage().unwrap().bytes <= cap);
    }
    let left: Vec<usize> = (0..50).filter(|i| cache.folder.path(&key(*i)).exists()).collect();
    let gone = 50 - left.len() as u64;
    assert_eq!(cache.counts().evicted, gone);
    assert!((30..=34).contains(&gone), "{gone}");
    assert_eq!(left[0], 0);
    assert!(left[1..].iter().copied().eq(50 - (left.len() - 1)..50), "{left:?}");
    assert!((100..130).all(|i| cache.get::<Mel>(&key(i)) == Some(rounded(mel(i, 10)))));
}

#[test]
fn with_room_for_half_of_the_samples_every_epoch_finds_half_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path(), 100 * 4096).unwrap();
    for epoch in 0..3 {
        let before = cache.counts();
        for step in 0..200 {
            // 77 and 200 have no common factor: each epoch has an order of its own.
            let i = (step * 77usize.pow(epoch) + 3 * epoch as usize) % 200;
            assert_eq!(compute(&cache, i, 10), rounded(mel(i, 10)), "whether it was in the cache or not");
        }
        let hits = cache.counts().hits - before.hits;
        assert_eq!(hits, if epoch == 0 { 0 } else { 100 });
    }
    assert_eq!((cache.counts().written, cache.counts().declined, cache.counts().evicted), (100, 300, 0));
    assert!(cache.usage().unwrap().bytes <= 100 * 4096);
}

#[test]
fn an_entry_larger_than_the_cap_drives_nothing_out() {
    let dir = tempfile::tempdir().unwrap();
    let earlier = Cache::open(dir.path(), 1_000_000).unwrap();
    compute(&earlier, 0, 10);
    make_older(&earlier.folder.path(&key(0)), 100);
    let cache = Cache::open(dir.path(), 1_000_000).unwrap();
    assert!(!cache.put(&key(1), &mel(1, 10_000)).unwrap());
    assert!(cache.get::<Mel>(&key(0)).is_some());
}

#[test]
fn a_disk_that_refuses_stops_the_writing_and_nothing_else() {
    let (_dir, cache) = opened();
    assert!(cache.put(&key(0), &mel(0, 10)).unwrap());
    // A file in place of the folder: nothing can be written there, not even by root.
    let shard = cache.folder.path(&key(1)).parent().unwrap().to_owned();
    assert_ne!(shard, cache.folder.path(&key(0)).parent().unwrap());
    fs::write(&shard, "").unwrap();
    assert_eq!(compute(&cache, 1, 10), rounded(mel(1, 10)));
    assert!(!cache.put(&key(1), &mel(1, 10)).unwrap());
    // No second attempt, even if there is room; existing entries are still read.
    assert!(!cache.put(&key(2), &mel(2, 10)).unwrap());
    assert!(cache.get::<Mel>(&key(0)).is_some());
    assert_eq!((cache.counts().written, cache.counts().declined), (1, 3));
}

#[test]
fn a_folder_removed_in_the_meantime_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&dir.path().join("cache"), GB).unwrap();
    compute(&cache, 0, 10);
    fs::remove_dir_all(dir.path().join("cache")).unwrap();
    assert_eq!(compute(&cache, 0, 10), rounded(mel(0, 10)));
    assert_eq!(cache.usage().unwrap().entries, 1);
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Cache::open(&file, GB).err().unwrap().to_string();
    assert!(error.contains(&file.display().to_string()) && error.contains("`dir`"), "{error}");
}

#[test]
fn clearing_and_verifying_touch_only_what_the_cache_wrote() {
    let (dir, cache) = opened();
    (0..20).for_each(|i| drop(compute(&cache, i, 10)));
    let foreign = dir.path().join("00/notes.txt");
    fs::create_dir_all(dir.path().join("00")).unwrap();
    fs::write(&foreign, "mine").unwrap();
    assert_eq!(cache.verify().unwrap(), CacheUsage { entries: 20, bytes: 20 * 4096 });

    let path = cache.folder.path(&key(7));
    let mut damaged = fs::read(&path).unwrap();
    damaged[500] ^= 1;
    fs::write(&path, damaged).unwrap();
    let before = cache.counts();
    assert_eq!(cache.verify().unwrap().entries, 19);
    assert_eq!(cache.counts(), CacheCounts { corrupted: 1, ..before });

    assert_eq!(cache.clear().unwrap().entries, 19);
    assert_eq!(cache.usage().unwrap(), CacheUsage::default());
    assert_eq!(fs::read_to_string(foreign).unwrap(), "mine");
    assert_eq!(compute(&cache, 3, 10), rounded(mel(3, 10)));
    assert_eq!(cache.usage().unwrap().entries, 1);
}

/// How many clips the processes below share, and how large: up to 20 blocks, 10 on average.
const SHARED: usize = 200;

fn shared_frames(i: usize) -> usize {
    i % 50 * 10
}

/// Reads and writes the shared clips in an order of its own, each checked, until told to stop.
fn hammer(cache: &Cache, seed: usize, go_on: impl Fn(usize) -> bool) {
    let mut round = 0;
    while go_on(round) {
        for step in 0..SHARED {
            let i = (step * 77 + seed + round) % SHARED;
            assert_eq!(compute(cache, i, shared_frames(i)), rounded(mel(i, shared_frames(i))));
        }
        round += 1;
    }
}

const CHILD_DIR: &str = "UNDERTONE_TEST_CACHE_DIR";
const CHILD_CAP: &str = "UNDERTONE_TEST_CACHE_CAP";

/// Writes to the folder that the environment names, and clears it sometimes so that there is always something to write.
#[test]
#[ignore = "started as a process of its own by the tests below"]
fn child_process() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let cap = std::env::var(CHILD_CAP).unwrap().parse().unwrap();
    let cache = Cache::open(Path::new(&dir), cap).unwrap();
    hammer(&cache, std::process::id() as usize, |round| {
        if round % 3 == 2 {
            cache.clear().unwrap();
        }
        true
    });
}

fn spawn(dir: &Path, cap: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["cache::tests::child_process", "--exact", "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_CAP, cap.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn processes_and_threads_share_a_folder_that_is_too_small_for_them() {
    let dir = tempfile::tempdir().unwrap();
    // A third of the required room; every entry of an earlier handle may be evicted by a later one.
    let cap = 600 * 4096;
    let mut children = [spawn(dir.path(), cap), spawn(dir.path(), cap)];
    let (done, evicted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (dir, done, evicted) = (dir.path(), &done, &evicted);
            scope.spawn(move || {
                for turn in 0..8 {
                    let cache = Cache::open(dir, cap).unwrap();
                    hammer(&cache, seed * 50 + turn, |round| round < 2);
                    assert_eq!(cache.counts().corrupted, 0);
                    evicted.fetch_add(cache.counts().evicted, Relaxed);
                }
                done.store(true, Relaxed);
            });
        }
        let watch = Cache::open(dir.path(), cap).unwrap();
        while !done.load(Relaxed) {
            // Four write at once, and a sixteenth is what each of the others may not have seen. Unfinished files,
            // one a writer, are not in the sum of any.
            let used = watch.usage().unwrap().bytes;
            assert!(used <= cap + 4 * cap / 16 + 4 * 21 * 4096, "{used} of {cap}");
        }
    });
    assert!(evicted.load(Relaxed) > 0);
    for child in &mut children {
        assert!(child.try_wait().unwrap().is_none(), "a child found a wrong value, and said so above");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let cache = Cache::open(dir.path(), cap).unwrap();
    cache.verify().unwrap();
    assert_eq!(cache.counts().corrupted, 0);
}

#[test]
fn a_process_killed_while_writing_leaves_entries_whole_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let mut found = 0;
    for round in 0..20 {
        let mut child = spawn(dir.path(), GB);
        // Until it is at work, then for a moment that differs.
        let cache = Cache::open(dir.path(), GB).unwrap();
        let before = cache.usage().unwrap();
        let start = std::time::Instant::now();
        while cache.usage().unwrap() == before && start.elapsed() < Duration::from_secs(10) {}
        std::thread::sleep(Duration::from_micros(1300 * round));
        child.kill().unwrap();
        child.wait().unwrap();

        found += cache.verify().unwrap().entries;
        assert_eq!(cache.counts().corrupted, 0);
        hammer(&cache, 0, |round| round < 1);
        cache.clear().unwrap();
    }
    assert!(found > 0, "no child ever wrote");

    // Their unfinished files are no entries; they count until they are old, and are then removed.
    let cache = Cache::open(dir.path(), GB).unwrap();
    fs::create_dir_all(dir.path().join("00")).unwrap();
    fs::write(dir.path().join("00/.partial-test"), [0; 5000]).unwrap();
    let usage = cache.usage().unwrap();
    assert!(usage.entries == 0 && usage.bytes >= 8192, "{usage:?}");
    entries(dir.path()).iter().for_each(|path| make_older(path, 7200));
    assert_eq!(cache.usage().unwrap(), CacheUsage::default());
    assert_eq!(entries(dir.path()), Vec::<PathBuf>::new());
}
