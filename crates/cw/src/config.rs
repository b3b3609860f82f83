//! Settings of the synthesiser. A pair of numbers is a range: each sample draws its own value from it, uniformly.

use super::{CwHabits, CwIdle, CwSource, CwTask, CwTransmitter};
use crate::radio::{Drift, Fading, Interference, Path, Receiver, ReceiverFilter, Recorder, Static};
use serde::{Deserialize, Serialize};
use undertone_data::effect;
use undertone_data::random::Range;

/// All settings of the CW synthesiser. The default is a general mix: hand and machine keying at 15 to 30 words per
/// minute, clean or 10 to 30 dB over the noise in 500 Hz, with some fading, static and interference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CwConfig {
    /// Task, which selects the label and the kind of texts.
    pub task: CwTask,
    /// Texts: the weight of each kind of text, or a list of texts.
    pub text: CwText,
    /// Length of a clip, in seconds. For all tasks but `copy`, and for fixed texts, a clip is longer than the drawn
    /// value if its text needs it, up to the upper end.
    pub duration_s: Range,
    /// Silence before the first key-down, in seconds.
    pub lead_s: Range,
    /// Minimum silence after the last key-up, in seconds; for the task `copy` the text fills the clip up to here.
    pub tail_s: Range,
    /// Speed of the characters, in words per minute (PARIS: a dit lasts 1.2/wpm seconds).
    pub wpm: Range,
    /// Characters at full speed with longer gaps between them.
    pub farnsworth: CwFarnsworth,
    /// Timing of keying by hand instead of an electronic keyer.
    pub hand: CwHand,
    /// Habits of a sender beyond jitter.
    pub habits: CwHabits,
    /// Clips from the middle of a transmission.
    pub cut: CwCut,
    /// Probability of a clip with only one or two words, at any position; for the task `copy`, but not for fixed texts.
    pub brief: f32,
    /// Time in which the carrier rises and falls (raised cosine), in milliseconds. Key-down and key-up are the
    /// half-amplitude points, so the edges do not change the timing. Below about 4 ms the keying clicks.
    pub rise_ms: Range,
    /// Pitch of the carrier, in hertz.
    pub pitch_hz: Range,
    /// Drift of the carrier's frequency.
    pub drift: Drift,
    /// Chirp: an error of the carrier's pitch at each key-down that decays.
    pub chirp: CwChirp,
    /// Faults of the transmitter.
    pub transmitter: CwTransmitter,
    /// Slow fading.
    pub qsb: Fading,
    /// Flutter and echoes of the wanted signal.
    pub path: Path,
    /// Static crashes.
    pub qrn: Static,
    /// Other stations.
    pub qrm: Interference,
    /// Power of the carrier, key down and unfaded, over the noise power in `snr_bandwidth_hz`, in decibels.
    pub snr_db: Range,
    /// Bandwidth that `snr_db` is stated in, in hertz. The noise itself is white from 0 to 8 kHz.
    pub snr_bandwidth_hz: f32,
    /// The receiver's filter.
    pub filter: ReceiverFilter,
    /// Muting of the receiver while its own transmitter sends.
    pub muting: CwMuting,
    /// Receiver effects after `filter`.
    pub receiver: Receiver,
    /// Recorder of the clip.
    pub recorder: Recorder,
    /// Probability of a clip with only the keyed carrier: no noise, fading, static, other stations or filter, no
    /// effects of `path`, `muting`, `receiver` and `recorder`, and a transmitter without backwave and clicks.
    pub clean: f32,
    /// Probability of a clip without the noise of `snr_db`: its gaps contain the effects of other keys of the
    /// configuration, or silence.
    pub noiseless: f32,
    /// Probability of a clip that is narrowed to its tone by [`narrowed`](crate::narrowed), as audio is that
    /// [`MorseReader`](crate::MorseReader) prepares for a model.
    pub narrowed: f32,
    /// Probability of a clip without a sender, whose text is empty.
    pub noise_only: f32,
    /// Sound of a clip without a sender.
    pub idle: CwIdle,
    /// Peak level of a clip, in decibels relative to full scale.
    pub level_dbfs: Range,
}

/// Kinds of text. Each weight is relative to the sum of all. If a configuration gives any weights, those that it does
/// not give are 0.
///
/// The task `copy` draws from all of them, `callsigns` from contacts, contests and `callsigns`, `log` from the five
/// contests, `expand` and `traffic` from none, because they have texts of their own. A weight that the task does not
/// draw from is refused, unless `text` is left out altogether, and so are `fixed` and `group_length` for any task but
/// `copy`. `portable` and `cut_numbers` also affect the texts of other stations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CwText {
    /// Weight of common English words mixed with abbreviations, Q-codes, numbers and punctuation.
    #[serde(default)]
    pub words: f32,
    /// Weight of random groups: letters, figures, both, or everything that can be keyed.
    #[serde(default)]
    pub groups: f32,
    /// Weight of callsigns from all over the world.
    #[serde(default)]
    pub callsigns: f32,
    /// Weight of ordinary contacts: report, name, place, rig, weather, with their prosigns.
    #[serde(default)]
    pub qso: f32,
    /// Weight of CQ World Wide contacts: report and CQ zone.
    #[serde(default)]
    pub cqww: f32,
    /// Weight of ARRL International DX contacts: report, and state or province one way, power the other.
    #[serde(default)]
    pub arrl_dx: f32,
    /// Weight of CQ WPX contacts: report and serial number.
    #[serde(default)]
    pub cqwpx: f32,
    /// Weight of ARRL Field Day contacts: class and section.
    #[serde(default)]
    pub field_day: f32,
    /// Weight of ARRL Sweepstakes contacts: serial number, precedence, callsign, check and section.
    #[serde(default)]
    pub sweepstakes: f32,
    /// Weight of beacons: `VVV DE W1AW/B FN31`, repeated.
    #[serde(default)]
    pub beacons: f32,
    /// Weight of groups of figures, frequencies, times, dates.
    #[serde(default)]
    pub numbers: f32,
    /// Weight of random strings of everything that can be keyed, with uniformly distributed symbols.
    #[serde(default)]
    pub scatter: f32,
    /// Weight of sentences of plain English in their natural word order.
    #[serde(default)]
    pub sentences: f32,
    /// Texts to send instead, each as a whole and equally often; a clip becomes as long as its text needs. If this list
    /// is not empty, the weights have no effect.
    #[serde(default)]
    pub fixed: Vec<String>,
    /// Minimum and maximum number of characters in a random group.
    #[serde(default = "group_length")]
    pub group_length: [usize; 2],
    /// Probability that a callsign ends in `/P`, `/M`, `/QRP` and the like.
    #[serde(default = "portable")]
    pub portable: f32,
    /// Probability that a contest report or number is sent with cut numbers: N for 9, T for 0.
    #[serde(default = "cut_numbers")]
    pub cut_numbers: f32,
}

effect! {
    /// Farnsworth spacing, timed by the ARRL's formula.
    pub struct CwFarnsworth at "farnsworth" {
        /// Probability that a clip has Farnsworth spacing.
        pub probability: f32 = 0.15, probability();
        /// Speed of the text as a fraction of the speed of its characters.
        pub ratio: Range = [0.5, 0.9], range(0.1, 1.0);
    }
}

effect! {
    /// Keying by hand. Jitter is normally distributed, truncated at 2.5 standard deviations.
    pub struct CwHand at "hand" {
        /// Probability that a clip is sent by hand.
        pub probability: f32 = 0.5, probability();
        /// Standard deviation of the length of dits and dahs, as a fraction of it.
        pub mark_jitter: Range = [0.02, 0.08], range(0.0, 0.3) => between;
        /// Standard deviation of the length of gaps, as a fraction of it.
        pub gap_jitter: Range = [0.02, 0.1], range(0.0, 0.3) => between;
        /// Share of a dit in a dit and its gap: 0.5 is even, more is heavy (every mark is longer by the amount that every
        /// gap is shorter).
        pub weighting: Range = [0.46, 0.56], range(0.3, 0.7) => between;
        /// Swing of a bug (a semi-automatic key): every dah is longer by this fraction, and the last one of a character by
        /// the fraction again.
        pub swing: Range = [0.0, 0.1], range(0.0, 0.5) => between;
    }

    /// Timing of keying by hand in one clip.
    pub struct CwHandInfo;
}

/// Clips that start and end while somebody sends, as pieces of a long recording do: between characters, or in the
/// middle of a dit or a dah. A character is in the text if the clip contains all of it.
///
/// Their length is the one drawn from `duration_s`; `lead_s` or `tail_s` applies to the end that is not cut. For the
/// task `copy`, but not for fixed texts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CwCut {
    /// Probability that a clip is cut: at its start, at its end or at both, equally often.
    pub probability: f32,
}

effect! {
    /// Muting of the receiver by the transmitter beside it (`muting`): noise, static and other stations are only audible
    /// while the key is up.
    pub struct CwMuting at "muting" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.0, probability();
        /// Time from key-up until the receiver is audible again, in milliseconds.
        pub hold_ms: Range = [0.0, 500.0], range(0.0, 5000.0);
    }
}

effect! {
    /// Chirp: a carrier whose pitch is off at key-down.
    pub struct CwChirp at "chirp" {
        /// Probability that a clip has this effect.
        pub probability: f32 = 0.05, probability();
        /// Error of the pitch at key-down, in hertz, upwards or downwards.
        pub hz: Range = [5.0, 40.0], range(0.0, 200.0) => either_way;
        /// Time constant with which it decays, in milliseconds.
        pub settle_ms: Range = [10.0, 40.0], range(1.0, 500.0) => between;
    }

    /// Chirp in one clip.
    pub struct CwChirpInfo;
}

impl Default for CwConfig {
    fn default() -> Self {
        Self {
            task: CwTask::default(),
            text: CwText::default(),
            duration_s: [4.0, 8.0],
            lead_s: [0.1, 0.5],
            tail_s: [0.1, 0.3],
            wpm: [15.0, 30.0],
            farnsworth: CwFarnsworth::default(),
            hand: CwHand::default(),
            habits: CwHabits::default(),
            cut: CwCut::default(),
            brief: 0.0,
            rise_ms: [4.0, 8.0],
            pitch_hz: [400.0, 1000.0],
            drift: Drift::default(),
            chirp: CwChirp::default(),
            transmitter: CwTransmitter::default(),
            qsb: Fading::default(),
            path: Path::default(),
            qrn: Static::default(),
            qrm: Interference::default(),
            snr_db: [10.0, 30.0],
            snr_bandwidth_hz: 500.0,
            filter: ReceiverFilter::default(),
            muting: CwMuting::default(),
            receiver: Receiver::default(),
            recorder: Recorder::default(),
            clean: 0.1,
            noiseless: 0.0,
            narrowed: 0.0,
            noise_only: 0.02,
            idle: CwIdle::default(),
            level_dbfs: [-20.0, -1.0],
        }
    }
}

impl Default for CwText {
    fn default() -> Self {
        Self {
            words: 1.0,
            groups: 0.5,
            callsigns: 1.0,
            qso: 1.0,
            cqww: 0.5,
            arrl_dx: 0.5,
            cqwpx: 0.5,
            field_day: 0.5,
            sweepstakes: 0.5,
            beacons: 0.0,
            numbers: 0.0,
            scatter: 0.0,
            sentences: 0.0,
            fixed: Vec::new(),
            group_length: group_length(),
            portable: portable(),
            cut_numbers: cut_numbers(),
        }
    }
}

impl CwText {
    /// Returns the kinds of text that have a weight, with its key in the configuration and the weight.
    pub(super) fn weights(&self) -> [(CwSource, &'static str, f32); 13] {
        [
            (CwSource::Words, "text.words", self.words),
            (CwSource::Groups, "text.groups", self.groups),
            (CwSource::Callsigns, "text.callsigns", self.callsigns),
            (CwSource::Qso, "text.qso", self.qso),
            (CwSource::Cqww, "text.cqww", self.cqww),
            (CwSource::ArrlDx, "text.arrl_dx", self.arrl_dx),
            (CwSource::Cqwpx, "text.cqwpx", self.cqwpx),
            (CwSource::FieldDay, "text.field_day", self.field_day),
            (CwSource::Sweepstakes, "text.sweepstakes", self.sweepstakes),
            (CwSource::Beacons, "text.beacons", self.beacons),
            (CwSource::Numbers, "text.numbers", self.numbers),
            (CwSource::Scatter, "text.scatter", self.scatter),
            (CwSource::Sentences, "text.sentences", self.sentences),
        ]
    }
}

fn group_length() -> [usize; 2] {
    [5, 5]
}

fn portable() -> f32 {
    0.08
}

fn cut_numbers() -> f32 {
    0.5
}
