//! Parameters of one clip, drawn before the synthesis and returned with the clip.

use super::{
    CwChirpInfo, CwConfig, CwHabitsInfo, CwHandInfo, CwIdleSound, CwMuting, CwSource, CwTransmitterInfo, keying::Fist,
    stream::Stream, text,
};
use crate::radio::{DrawnDrift, DrawnFading, DrawnPath, DrawnReceiver, DrawnRecorder, DrawnStatic, DrawnStation};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use undertone_data::random::{between, chance, whole};

/// Parameters with which a clip was made. An effect that the clip does not have is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CwInfo {
    /// Kind of text that was sent; `None` without a sender, and then none of the sender's parameters below has an
    /// effect.
    pub source: Option<CwSource>,
    /// Speed of the characters, in words per minute.
    pub wpm: f32,
    /// Speed of the text, in words per minute: lower than `wpm` with Farnsworth spacing.
    pub effective_wpm: f32,
    /// Timing of keying by hand.
    pub hand: Option<CwHandInfo>,
    /// Habits of the sender beyond jitter.
    pub habits: Option<CwHabitsInfo>,
    /// Whether the clip starts while somebody sends, and whether it ends so.
    pub cut: [bool; 2],
    /// Whether only one or two words are sent.
    pub brief: bool,
    /// Sound of a clip without a sender; `None` with one.
    pub idle: Option<CwIdleSound>,
    /// Rise and fall time, in milliseconds.
    pub rise_ms: f32,
    /// Pitch of the carrier at the start, in hertz.
    pub pitch_hz: f32,
    /// Drift of the carrier.
    pub drift: Option<DrawnDrift>,
    /// Chirp at key-down.
    pub chirp: Option<CwChirpInfo>,
    /// Faults of the transmitter.
    pub transmitter: CwTransmitterInfo,
    /// Flutter and echoes.
    pub path: DrawnPath,
    /// Fading.
    pub qsb: Option<DrawnFading>,
    /// Static.
    pub qrn: Option<DrawnStatic>,
    /// Other stations.
    pub qrm: Vec<DrawnStation>,
    /// Power of the unfaded carrier over that of the noise in `snr_bandwidth_hz`, in decibels; `None` without noise.
    pub snr_db: Option<f32>,
    /// Bandwidth that `snr_db` is stated in, in hertz.
    pub snr_bandwidth_hz: f32,
    /// Width of the receiver's filter, in hertz.
    pub filter_hz: Option<f32>,
    /// Time for which the receiver is muted after key-up, in milliseconds.
    pub muting_ms: Option<f32>,
    /// Receiver effects after the filter.
    pub receiver: DrawnReceiver,
    /// Recorder of the clip.
    pub recorder: DrawnRecorder,
    /// Whether the clip is narrowed to its tone.
    pub narrowed: bool,
    /// Peak level, in decibels relative to full scale.
    pub level_dbfs: f32,
    /// Amplitude of the unfaded carrier in the clip at the receiver's input, full scale being 1.
    pub carrier_amplitude: f32,
}

impl CwInfo {
    /// Draws everything but the text: the first effects from `rng` one after the other, each of the others from a
    /// stream of its own that is derived from `draw`.
    pub(super) fn draw(config: &CwConfig, draw: u64, rng: &mut ChaCha8Rng) -> Self {
        let c = config;
        let silent = chance(rng, c.noise_only);
        let clean = chance(rng, c.clean) && !silent;
        let source = text::draw_source(c.task, &c.text, rng);
        let wpm = between(rng, c.wpm);
        let ratio = if chance(rng, c.farnsworth.probability) { between(rng, c.farnsworth.ratio) } else { 1.0 };
        let pitch_hz = between(rng, c.pitch_hz);
        let mut info = Self {
            source: (!silent).then_some(source),
            wpm,
            effective_wpm: wpm * ratio,
            hand: c.hand.draw(rng),
            habits: c.habits.draw(draw),
            cut: draw_cut(c.cut.probability, &mut Stream::Cut.of(draw)),
            brief: chance(&mut Stream::Brief.of(draw), c.brief),
            idle: silent.then(|| c.idle.draw(&mut Stream::Idle.of(draw))),
            rise_ms: between(rng, c.rise_ms),
            pitch_hz,
            drift: c.drift.draw(rng),
            chirp: c.chirp.draw(rng),
            transmitter: c.transmitter.draw(draw),
            path: c.path.draw(draw),
            qsb: if clean { None } else { c.qsb.draw(rng) },
            qrn: if clean { None } else { c.qrn.draw(rng) },
            // Without a sender, another station would be the one to copy, and the empty text would be wrong.
            qrm: if clean || silent { Vec::new() } else { c.qrm.draw(pitch_hz, rng) },
            snr_db: (!clean).then(|| between(rng, c.snr_db)),
            snr_bandwidth_hz: c.snr_bandwidth_hz,
            filter_hz: (!clean && chance(rng, c.filter.probability)).then(|| between(rng, c.filter.width_hz)),
            muting_ms: draw_muting(&c.muting, &mut Stream::Muting.of(draw)),
            receiver: c.receiver.draw(pitch_hz, draw),
            recorder: c.recorder.draw(draw),
            narrowed: chance(&mut Stream::Narrowed.of(draw), c.narrowed),
            level_dbfs: between(rng, c.level_dbfs),
            carrier_amplitude: 1.0,
        };
        if clean {
            info.leave_the_carrier_alone();
        }
        if chance(&mut Stream::Noiseless.of(draw), c.noiseless) {
            info.snr_db = None;
        }
        if info.idle == Some(CwIdleSound::Silence) {
            (info.snr_db, info.qrn) = (None, None);
        }
        info
    }

    /// Removes everything except the keyed carrier.
    fn leave_the_carrier_alone(&mut self) {
        self.transmitter = CwTransmitterInfo { backwave: None, clicks: None, ..self.transmitter.clone() };
        self.path = DrawnPath::default();
        self.muting_ms = None;
        self.receiver = DrawnReceiver::default();
        self.recorder = DrawnRecorder::default();
    }

    pub(super) fn fist(&self) -> Fist {
        let machine = Fist::machine(self.wpm.into(), self.effective_wpm.into());
        let machine = self.habits.as_ref().map_or(machine.clone(), |habits| habits.of(machine));
        match self.hand {
            None => machine,
            Some(hand) => Fist {
                mark_jitter: hand.mark_jitter.into(),
                gap_jitter: hand.gap_jitter.into(),
                weighting: hand.weighting.into(),
                swing: hand.swing.into(),
                ..machine
            },
        }
    }
}

fn draw_cut(probability: f32, rng: &mut ChaCha8Rng) -> [bool; 2] {
    if chance(rng, probability) { [[true, false], [false, true], [true, true]][whole(rng, 0..3)] } else { [false; 2] }
}

fn draw_muting(muting: &CwMuting, rng: &mut ChaCha8Rng) -> Option<f32> {
    chance(rng, muting.probability).then(|| between(rng, muting.hold_ms))
}
