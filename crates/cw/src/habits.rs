//! Habits of a sender beyond the jitter of a hand: lengths of dahs and gaps, a varying speed, hesitations.

use super::{keying::Fist, stream::Stream};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use undertone_data::effect;
use undertone_data::random::{Range, between, chance, whole};

effect! {
    /// Habits of a sender (`habits`), with keying by hand or machine. Off by default.
    pub struct CwHabits at "habits" {
        /// Probability that a clip has them.
        pub probability: f32 = 0.0, probability();
        /// Length of a dah, in dits.
        pub dah: Range = [2.5, 4.5], range(2.0, 6.0);
        /// Additional standard deviation of dahs, as a fraction: with a sideswiper (cootie) they vary most.
        pub dah_jitter: Range = [0.0, 0.2], range(0.0, 0.3);
        /// Gap between characters, in dits: with 1.8 they run together.
        pub letter_gap: Range = [1.8, 5.0], range(1.5, 20.0);
        /// Gap between words, in dits.
        pub word_gap: Range = [4.5, 10.0], range(3.0, 50.0);
        /// Amplitude of the speed's variation, as a fraction of it.
        pub sway: Range = [0.0, 0.15], range(0.0, 0.5);
        /// Minimum and maximum number of hesitations, between characters or words.
        pub hesitations: [usize; 2] = [0, 2], count(0, 20);
        /// Length of each hesitation, in seconds.
        pub hesitation_s: Range = [0.5, 2.5], range(0.0, 60.0);
        /// Minimum and maximum number of characters that run into the next, with only the gap of an element between them:
        /// AN as P.
        pub run_ons: [usize; 2] = [0, 0], count(0, 20);
    }
}

/// Habits in one clip.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CwHabitsInfo {
    /// Length of a dah, in dits.
    pub dah: f32,
    /// Additional standard deviation of dahs, as a fraction.
    pub dah_jitter: f32,
    /// Gap between characters, in dits.
    pub letter_gap: f32,
    /// Gap between words, in dits.
    pub word_gap: f32,
    /// Amplitude of the speed's variation, as a fraction.
    pub sway: f32,
    /// Period of the speed's variation, in seconds.
    pub sway_period_s: f32,
    /// Position in that period at which the clip starts, from 0 to 1.
    pub sway_phase: f32,
    /// Hesitations: the number of characters before each, and its length in seconds.
    pub hesitations: Vec<(usize, f32)>,
    /// Characters that run into the next: the number of characters sent before each.
    pub run_ons: Vec<usize>,
}

/// Period of the speed's variation, in seconds; and characters from one hesitation or run-on to the next.
const SWAY_S: Range = [3.0, 20.0];
const APART: usize = 8;

impl CwHabits {
    pub(super) fn draw(&self, draw: u64) -> Option<CwHabitsInfo> {
        let rng = &mut Stream::Habits.of(draw);
        chance(rng, self.probability).then(|| {
            let [least, most] = self.hesitations;
            let (hesitations, mut after) = (whole(rng, least..=most), 0);
            CwHabitsInfo {
                dah: between(rng, self.dah),
                dah_jitter: between(rng, self.dah_jitter),
                letter_gap: between(rng, self.letter_gap),
                word_gap: between(rng, self.word_gap),
                sway: between(rng, self.sway),
                sway_period_s: between(rng, SWAY_S),
                sway_phase: between(rng, [0.0, 1.0]),
                hesitations: (0..hesitations)
                    .map(|_| {
                        after += whole(rng, 1..=APART);
                        (after, between(rng, self.hesitation_s))
                    })
                    .collect(),
                run_ons: self.draw_run_ons(rng),
            }
        })
    }

    fn draw_run_ons(&self, rng: &mut ChaCha8Rng) -> Vec<usize> {
        let [least, most] = self.run_ons;
        let mut after = 0;
        (0..whole(rng, least..=most))
            .map(|_| {
                after += whole(rng, 1..=APART);
                after
            })
            .collect()
    }

    /// Returns the slowest timing that these habits can give, and the maximum length of all hesitations, in seconds.
    pub(super) fn slowest(&self, fist: Fist) -> (Fist, f64) {
        let hesitating = self.hesitations[1] as f64 * f64::from(self.hesitation_s[1]);
        let fist = Fist {
            dah: f64::from(self.dah[1]).max(fist.dah),
            dah_jitter: self.dah_jitter[1].into(),
            letter_gap: f64::from(self.letter_gap[1]).max(fist.letter_gap),
            word_gap: f64::from(self.word_gap[1]).max(fist.word_gap),
            // Without a period, this is the slowest speed.
            sway: self.sway[1].into(),
            sway_phase: 0.25,
            sway_period_s: f64::INFINITY,
            ..fist
        };
        (fist, hesitating)
    }
}

impl CwHabitsInfo {
    pub(super) fn of(&self, fist: Fist) -> Fist {
        Fist {
            dah: self.dah.into(),
            dah_jitter: self.dah_jitter.into(),
            letter_gap: self.letter_gap.into(),
            word_gap: self.word_gap.into(),
            sway: self.sway.into(),
            sway_period_s: self.sway_period_s.into(),
            sway_phase: self.sway_phase.into(),
            hesitations: self.hesitations.iter().map(|(after, seconds)| (*after, f64::from(*seconds))).collect(),
            run_ons: self.run_ons.clone(),
            ..fist
        }
    }
}
