//! What the synthesiser can be told. A pair of numbers is a range: each sample draws its own value from it, evenly.

use super::{CwSource, CwTask};
use serde::{Deserialize, Serialize};
use undertone_data::radio::{Drift, Fading, Interference, ReceiverFilter, Static};
use undertone_data::random::Range;

/// Everything the CW synthesiser can vary. The default is a general mix: hand and machine keying at 15 to 30 words
/// per minute, clean or 10 to 30 dB over the noise in 500 Hz, with some fading, static and interference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CwConfig {
    /// What is to be written down, and so what is sent.
    pub task: CwTask,
    /// What is sent: the weight of each kind of text, or a list of texts.
    pub text: CwText,
    /// Length of a clip, in seconds. For all tasks but `copy`, and for fixed texts, a clip is longer than what was drawn
    /// when its text needs it, up to the upper end.
    pub duration_s: Range,
    /// Silence before the first key-down, in seconds.
    pub lead_s: Range,
    /// Least silence after the last key-up, in seconds; for the task `copy` the text fills the clip up to here.
    pub tail_s: Range,
    /// Speed of the characters, in words per minute (PARIS: a dit lasts 1.2/wpm seconds).
    pub wpm: Range,
    /// Characters at full speed with longer gaps between them.
    pub farnsworth: CwFarnsworth,
    /// Timing of a human hand instead of an electronic keyer.
    pub hand: CwHand,
    /// Time in which the carrier rises and falls (raised cosine), in milliseconds. Key-down and key-up are the
    /// half-amplitude points, so the edges do not change the timing. Below about 4 ms the keying clicks.
    pub rise_ms: Range,
    /// Pitch of the carrier, in hertz.
    pub pitch_hz: Range,
    /// A carrier that wanders.
    pub drift: Drift,
    /// A carrier whose pitch is off at each key-down and settles.
    pub chirp: CwChirp,
    /// Slow fading.
    pub qsb: Fading,
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
    /// Probability of a clip with nothing but the keyed carrier: no noise, fading, static, other stations or filter.
    pub clean: f32,
    /// Probability of a clip in which nobody sends: noise and static only, and an empty text.
    pub noise_only: f32,
    /// Level of the loudest instant of a clip, in decibels relative to full scale.
    pub level_dbfs: Range,
}

/// What is sent. Each weight is relative to the sum of all; where a configuration names any, those it does not name
/// are 0 and left out.
///
/// The task `copy` draws from all of them, `callsigns` from those with calls in them (all but `words` and `groups`),
/// `log` from the five contests, `expand` and `traffic` from none: they have texts of their own. A weight that the task
/// does not draw from is refused, unless `text` is left out altogether, and so are `fixed` and `group_length` for any
/// task but `copy`. `portable` and `cut_numbers` also shape what other stations send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Texts to send instead, each whole and equally often; a clip becomes as long as its text needs. When this list
    /// is not empty the weights do not matter.
    #[serde(default)]
    pub fixed: Vec<String>,
    /// Least and most characters in a random group.
    #[serde(default = "group_length")]
    pub group_length: [usize; 2],
    /// Probability that a callsign ends in `/P`, `/M`, `/QRP` and the like.
    #[serde(default = "portable")]
    pub portable: f32,
    /// Probability that a contest report or number is sent with cut numbers: N for 9, T for 0.
    #[serde(default = "cut_numbers")]
    pub cut_numbers: f32,
}

/// Farnsworth spacing, timed by the ARRL's formula.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CwFarnsworth {
    /// Probability that a clip is sent so.
    pub probability: f32,
    /// Speed of the text as a fraction of the speed of its characters.
    pub ratio: Range,
}

/// A hand on the key. Jitter is normal, cut off at 2.5 standard deviations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CwHand {
    /// Probability that a clip is sent by hand.
    pub probability: f32,
    /// Standard deviation of the length of dits and dahs, as a fraction of it.
    pub mark_jitter: Range,
    /// Standard deviation of the length of gaps, as a fraction of it.
    pub gap_jitter: Range,
    /// Share of a dit in a dit and its gap: 0.5 is even, more is heavy (every mark gains what every gap loses).
    pub weighting: Range,
    /// Swing of a bug: every dah is longer by this fraction, and the last one of a character by the fraction again.
    pub swing: Range,
}

/// A carrier that is pulled at key-down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CwChirp {
    /// Probability that a clip has it.
    pub probability: f32,
    /// How far the pitch is off at key-down, in hertz, upwards or downwards.
    pub hz: Range,
    /// Time constant with which it settles, in milliseconds.
    pub settle_ms: Range,
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
            rise_ms: [4.0, 8.0],
            pitch_hz: [400.0, 1000.0],
            drift: Drift::default(),
            chirp: CwChirp::default(),
            qsb: Fading::default(),
            qrn: Static::default(),
            qrm: Interference::default(),
            snr_db: [10.0, 30.0],
            snr_bandwidth_hz: 500.0,
            filter: ReceiverFilter::default(),
            clean: 0.1,
            noise_only: 0.02,
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
            fixed: Vec::new(),
            group_length: group_length(),
            portable: portable(),
            cut_numbers: cut_numbers(),
        }
    }
}

impl CwText {
    /// The kinds of text that have a weight, with it.
    pub(super) fn weights(&self) -> [(CwSource, f32); 9] {
        [
            (CwSource::Words, self.words),
            (CwSource::Groups, self.groups),
            (CwSource::Callsigns, self.callsigns),
            (CwSource::Qso, self.qso),
            (CwSource::Cqww, self.cqww),
            (CwSource::ArrlDx, self.arrl_dx),
            (CwSource::Cqwpx, self.cqwpx),
            (CwSource::FieldDay, self.field_day),
            (CwSource::Sweepstakes, self.sweepstakes),
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

impl Default for CwFarnsworth {
    fn default() -> Self {
        Self { probability: 0.15, ratio: [0.5, 0.9] }
    }
}

impl Default for CwHand {
    fn default() -> Self {
        Self {
            probability: 0.5,
            mark_jitter: [0.02, 0.08],
            gap_jitter: [0.02, 0.1],
            weighting: [0.46, 0.56],
            swing: [0.0, 0.1],
        }
    }
}

impl Default for CwChirp {
    fn default() -> Self {
        Self { probability: 0.05, hz: [5.0, 40.0], settle_ms: [10.0, 40.0] }
    }
}
