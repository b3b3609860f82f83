//! Packs short recordings into common windows.

use super::pieces::Piece;
use std::ops::Range;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::loader::epoch_order;

/// Silence between clips in one window, in samples: a third of a second, as between two sentences.
pub(super) const GAP: usize = SAMPLE_RATE as usize / 3;

/// Capacity of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Seconds of audio, gaps included.
    pub seconds: f64,
    /// Number of text tokens, without the prompt.
    pub tokens: usize,
}

/// Returns the pieces in a new order, and the ranges of pieces that share a window. They fit the window even if the
/// audio of each becomes longer by the factor `stretch`. Only pieces that are `alike` share a window. `tokens` are the
/// token counts of the pieces.
///
/// The combinations are random and determined by the seed, because neighbours in a file are often alike. First fit over
/// the open windows fills them well. Pieces of unknown duration stay alone. After reordering, a piece no longer follows
/// the one it continues, so its `follows` is cleared.
pub(super) fn packed(
    pieces: Vec<Piece>,
    tokens: &[usize],
    room: Room,
    stretch: f64,
    seed: u64,
    alike: impl Fn(&Piece, &Piece) -> bool,
) -> (Vec<Piece>, Vec<Range<usize>>) {
    let gap = GAP as f64 / f64::from(SAMPLE_RATE);
    let window = room.seconds;
    let mut windows: Vec<(f64, usize, Vec<usize>)> = Vec::new();
    let mut open = 0;
    for index in epoch_order(pieces.len(), seed, 0) {
        let Some(seconds) = pieces[index].seconds else {
            windows.push((f64::INFINITY, tokens[index], vec![index]));
            continue;
        };
        // Resampling may add one sample.
        let seconds = if stretch > 1.0 { seconds * stretch + 1.0 / f64::from(SAMPLE_RATE) } else { seconds };
        let same = |other: usize| alike(&pieces[other], &pieces[index]);
        let fitting = windows[open..].iter_mut().find(|(filled, written, members)| {
            *filled + gap + seconds <= window && written + tokens[index] <= room.tokens && same(members[0])
        });
        match fitting {
            Some((filled, written, members)) => {
                *filled += gap + seconds;
                *written += tokens[index];
                members.push(index);
            }
            None => windows.push((seconds, tokens[index], vec![index])),
        }
        // Nearly full windows are closed, so that the search stays short.
        while windows.get(open).is_some_and(|(filled, ..)| window - filled < window / 20.0) {
            open += 1;
        }
        open = open.max(windows.len().saturating_sub(OPEN));
    }
    let mut places: Vec<Option<Piece>> = pieces.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(places.len());
    let mut ranges = Vec::with_capacity(windows.len());
    for (.., members) in windows {
        let start = ordered.len();
        ordered.extend(
            members.into_iter().filter_map(|index| places[index].take()).map(|p| Piece { follows: false, ..p }),
        );
        ranges.push(start..ordered.len());
    }
    (ordered, ranges)
}

/// Maximum number of windows searched for room.
const OPEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(clip: usize, seconds: f64) -> Piece {
        Piece { clip, seconds: Some(seconds), ..Piece::default() }
    }

    proptest! {
        #[test]
        fn every_piece_is_in_one_window_and_none_is_too_full(
            sizes in prop::collection::vec((0.1_f64..12.0, 0_usize..40), 1..80), stretch in 1.0_f64..1.5, seed: u64,
        ) {
            let (seconds, tokens): (Vec<f64>, Vec<usize>) = sizes.into_iter().unzip();
            let pieces: Vec<Piece> = seconds.iter().enumerate().map(|(clip, s)| piece(clip, *s)).collect();
            let room = Room { seconds: 12.0, tokens: 30 };
            let (ordered, ranges) = packed(pieces, &tokens, room, stretch, seed, |_, _| true);
            let mut clips: Vec<usize> = ordered.iter().map(|piece| piece.clip).collect();
            clips.sort_unstable();
            prop_assert_eq!(clips, (0..seconds.len()).collect::<Vec<_>>());
            prop_assert_eq!(ranges.iter().map(|range| range.len()).sum::<usize>(), seconds.len());
            for range in ranges {
                let gaps = (range.len() - 1) as f64 * GAP as f64 / f64::from(SAMPLE_RATE);
                let filled: f64 = ordered[range.clone()].iter().filter_map(|piece| piece.seconds).sum();
                let written: usize = ordered[range.clone()].iter().map(|piece| tokens[piece.clip]).sum();
                prop_assert!(range.len() == 1 || filled * stretch + gaps <= 12.0 + 1e-9 && written <= 30);
            }
        }
    }

    #[test]
    fn windows_are_filled() {
        let pieces: Vec<Piece> = (0..600).map(|clip| piece(clip, 2.0 + (clip % 7) as f64)).collect();
        let total: f64 = pieces.iter().filter_map(|piece| piece.seconds).sum();
        let (_, ranges) = packed(pieces, &[0; 600], Room { seconds: 30.0, tokens: 1 }, 1.0, 1, |_, _| true);
        let used = total / (30.0 * ranges.len() as f64);
        assert!(used > 0.85, "{used}");
    }
}
