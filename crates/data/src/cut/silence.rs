//! Search for places where audio can be cut.

use std::ops::Range;

use crate::features::HOP;
use crate::level::energy;

/// Number of hops of 10 ms over which the level is averaged: 50 ms smooth out the single periods of a voice and keep
/// its pauses.
const SMOOTH: usize = 5;
/// Minimum length of a silence in hops, 150 ms: longer than the closure of a stop consonant.
const SHORTEST: usize = 15;
/// Distance below the loud parts from which on audio is silence, in decibels, even if most of the clip is quieter
/// still.
const DEEPEST_DB: f64 = 50.0;
/// Minimum difference between loud and quiet, in decibels; with less, nothing is silence.
const LEAST_CONTRAST_DB: f64 = 10.0;
/// A silence begins when the level falls below the first share of the way from quiet to loud, and ends above the
/// second.
const ENTER_LEAVE: [f64; 2] = [0.25, 0.4];

/// Cuts 16 kHz audio into pieces of at most `window` samples, at silences where there are any.
///
/// Every sample is in exactly one piece, and the pieces are in order; nothing is trimmed. Audio that fits is one piece,
/// and empty audio has no pieces. Each piece ends in the middle of the longest silence of the last third of the window,
/// or else of the last silence before that. Only a stretch as long as the window without any silence is cut at the
/// quietest place in its last third.
///
/// Silence is relative to the audio itself. The quiet level is the one that the audio is below for a hundredth of the
/// time, the loud level the one that it is above for a twentieth. A silence begins at a quarter of the way, in
/// decibels, from quiet to loud, ends at two fifths, and lasts 150 ms or more.
pub fn pieces(audio: &[f32], window: usize) -> Vec<Range<usize>> {
    let window = window.max(1);
    if audio.len() <= window {
        return if audio.is_empty() { Vec::new() } else { vec![0..audio.len(); 1] };
    }
    let levels = levels(audio);
    let silences = silences(&levels);
    let (mut pieces, mut start) = (Vec::new(), 0);
    while audio.len() - start > window {
        let end = cut(&levels, &silences, start, window);
        pieces.push(start..end);
        start = end;
    }
    pieces.push(start..audio.len());
    pieces
}

/// Returns the end of the piece that starts at a sample: after the start, and at most a window away.
fn cut(levels: &[f64], silences: &[Range<usize>], start: usize, window: usize) -> usize {
    let late = (start + window - window / 3).div_ceil(HOP)..(start + window) / HOP;
    let within = |silence: &Range<usize>| silence.start.max(late.start)..silence.end.min(late.end);
    // At the very start of a silence the last sound still decays.
    let longest = silences.iter().map(within).filter(|silence| silence.len() > SHORTEST / 2).max_by_key(Range::len);
    // A silence in which the piece begins would give an empty piece.
    let reachable = |silence: &&Range<usize>| silence.start * HOP > start && silence.end <= late.end;
    let found = longest.or_else(|| silences.iter().rfind(reachable).cloned());
    let hop = match found {
        Some(silence) => silence.start + silence.len() / 2,
        None => late.clone().min_by(|a, b| levels[*a].total_cmp(&levels[*b])).unwrap_or(late.end),
    };
    // A window shorter than a few hops contains no hop to cut at.
    if hop * HOP > start { (hop * HOP).min(start + window) } else { start + window }
}

/// Returns the level around each hop, in decibels.
fn levels(audio: &[f32]) -> Vec<f64> {
    let mut sums = vec![0.0];
    for hop in audio.chunks(HOP) {
        sums.push(sums[sums.len() - 1] + energy(hop));
    }
    let hops = sums.len() - 1;
    let level = |hop: usize| {
        let around = hop.saturating_sub(SMOOTH / 2)..(hop + SMOOTH / 2 + 1).min(hops);
        // Large running sums lose precision, and their difference may be negative.
        let power = (sums[around.end] - sums[around.start]).max(0.0) / (around.len() * HOP) as f64;
        10.0 * (power + 1e-10).log10()
    };
    (0..hops).map(level).collect()
}

/// Returns the silences, in hops.
fn silences(levels: &[f64]) -> Vec<Range<usize>> {
    let mut sorted = levels.to_vec();
    sorted.sort_by(f64::total_cmp);
    let share = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let loud = share(0.95);
    let quiet = share(0.01).max(loud - DEEPEST_DB);
    let contrast = loud - quiet;
    if contrast < LEAST_CONTRAST_DB {
        return Vec::new();
    }
    let [enter, leave] = ENTER_LEAVE.map(|share| quiet + share * contrast);
    let (mut silences, mut since) = (Vec::new(), None);
    for (hop, level) in levels.iter().chain([&f64::INFINITY]).enumerate() {
        match since {
            None if *level < enter => since = Some(hop),
            Some(start) if *level > leave => {
                if hop - start >= SHORTEST {
                    silences.push(start..hop);
                }
                since = None;
            }
            _ => {}
        }
    }
    silences
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a second of sound or silence for each character: `s` is speech, `.` silence, a digit speech that ends
    /// with this number of tenths of a second of silence.
    fn audio(plan: &str) -> Vec<f32> {
        let mut state = 1u32;
        let mut noise = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut audio = Vec::new();
        for kind in plan.chars() {
            let quiet = kind.to_digit(10).map_or(if kind == '.' { 16_000 } else { 0 }, |tenths| tenths as usize * 1600);
            audio.extend((0..16_000).map(|n| noise() * if n < 16_000 - quiet { 0.3 } else { 0.002 }));
        }
        audio
    }

    fn seconds(pieces: &[Range<usize>]) -> Vec<f64> {
        pieces.iter().map(|piece| piece.end as f64 / 16_000.0).collect()
    }

    #[test]
    fn audio_that_fits_is_one_piece() {
        assert_eq!(pieces(&audio("s.s"), 48_000), vec![0..48_000; 1]);
        assert!(pieces(&[], 16_000).is_empty());
    }

    #[test]
    fn the_longest_silence_of_the_last_third_is_cut_in_its_middle() {
        // With 9 s, from 6 s to 9 s: silences of 0.2 s and 0.6 s; the one of a second at 3 s is too early.
        let cut = seconds(&pieces(&audio("sss.ss26ssssss"), 9 * 16_000));
        assert_eq!(cut.len(), 2);
        assert!((cut[0] - 7.7).abs() < 0.03, "{cut:?}");
    }

    #[test]
    fn an_earlier_silence_is_better_than_none() {
        let cut = seconds(&pieces(&audio("s2s2ssssssssssss"), 9 * 16_000));
        assert!((cut[0] - 3.9).abs() < 0.03, "{cut:?}");
    }

    #[test]
    fn without_silence_the_quietest_place_is_cut() {
        let mut audio = audio("ssssssssssss");
        for sample in &mut audio[7 * 16_000 + 4000..7 * 16_000 + 5000] {
            *sample *= 0.5;
        }
        let cut = seconds(&pieces(&audio, 9 * 16_000));
        assert!((cut[0] - 7.28).abs() < 0.04, "{cut:?}");
    }

    #[test]
    fn a_long_silence_is_cut_and_not_lost() {
        let audio = audio("ss............ss");
        let cut = pieces(&audio, 4 * 16_000);
        assert_eq!(cut.iter().map(Range::len).sum::<usize>(), audio.len());
        assert!(cut.iter().all(|piece| piece.len() <= 64_000));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_sample_is_in_one_piece_and_no_piece_is_too_long(plan in "[s.1-9]{1,40}", window in 1usize..200_000) {
            let audio = audio(&plan);
            let pieces = pieces(&audio, window.max(audio.len() / 200));
            prop_assert_eq!(pieces.first().map(|piece| piece.start), Some(0));
            prop_assert_eq!(pieces.last().map(|piece| piece.end), Some(audio.len()));
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= window.max(audio.len() / 200)));
        }

        #[test]
        fn sound_is_not_cut_where_there_is_silence(plan in "(s{1,3}[3-8]){8,20}") {
            // Silences are at most 4 s apart, so a window of 9 s has one in its last third or before.
            let audio = audio(&plan);
            for piece in &pieces(&audio, 9 * 16_000)[1..] {
                let around = &audio[piece.start - 160..piece.start + 160];
                prop_assert!(around.iter().all(|sample| sample.abs() < 0.01), "cut at {} s", piece.start as f64 / 16e3);
            }
        }
    }
}
