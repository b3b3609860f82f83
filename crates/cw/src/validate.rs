//! Checks of a configuration, whose errors say how to correct it.

use super::{
    CwConfig, CwTask, CwText, compose,
    keying::{self, Fist},
    morse::{self, Symbol},
    text,
};
use undertone_data::bounds::{BoundsError, count, number, probability, range};

/// Error of an invalid [`CwConfig`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CwError {
    /// A number or a range of numbers is out of bounds.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// A weight is negative or not a number.
    #[error("{field} is {value}: give a weight of 0 (never) or more")]
    Weight {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Value given.
        value: f32,
    },
    /// There are no texts to send.
    #[error("every weight under text is 0, so there is nothing to send: raise one, or list texts in text.fixed")]
    NoText,
    /// None of the weights that the task uses is positive.
    #[error("no weight under text that the task `{task}` draws from is above 0: raise one of {useful}")]
    NoTextForTask {
        /// The task.
        task: CwTask,
        /// Weights that the task draws from.
        useful: String,
    },
    /// A key under `text` has no effect on the task.
    #[error(
        "{field} says nothing about the task `{task}`: leave it out, or set task to one that uses it, such as copy"
    )]
    NotForTask {
        /// Name of the field, as in the configuration.
        field: String,
        /// The task.
        task: CwTask,
    },
    /// Even the shortest message of the task does not fit.
    #[error(
        "the shortest message of the task `{task}`{of}, {sent:?}, can last {needed:.2} s at its slowest, and the \
         longest duration_s leaves {room:.2} s between lead_s and tail_s: raise duration_s or wpm, set \
         farnsworth.probability to 0{or}"
    )]
    MessageTooLong {
        /// The task.
        task: CwTask,
        /// Weight that selects the message, in words; empty if the task has only one kind.
        of: String,
        /// The message.
        sent: String,
        /// Required time, in seconds.
        needed: f64,
        /// Available time, in seconds.
        room: f64,
        /// Another remedy, in words.
        or: String,
    },
    /// A given text is blank.
    #[error("text.fixed[{index}] is blank: give it something to send, or take it out and use noise_only for silence")]
    Blank {
        /// Index in the list, from 0.
        index: usize,
    },
    /// A given text contains characters without a code.
    #[error(
        "text.fixed[{index}] {text:?} holds {piece:?}, which has no Morse code here: use A-Z, 0-9, . , ? / = - + @, \
         space and the prosigns <SK> <KN> <AS> <BK>"
    )]
    Unkeyable {
        /// Index in the list, from 0.
        index: usize,
        /// The text.
        text: String,
        /// Piece without a code.
        piece: String,
    },
    /// A given text does not fit.
    #[error(
        "text.fixed[{index}] {text:?} can last {needed:.2} s at its slowest, and the longest duration_s leaves \
         {room:.2} s between lead_s and tail_s: raise duration_s or wpm, or shorten the text"
    )]
    TextTooLong {
        /// Index in the list, from 0.
        index: usize,
        /// The text.
        text: String,
        /// Required time, in seconds.
        needed: f64,
        /// Available time, in seconds.
        room: f64,
    },
    /// Even the shortest characters do not fit.
    #[error(
        "a single dah can last {needed:.2} s at its slowest, and the shortest duration_s leaves {room:.2} s between \
         lead_s and tail_s: raise duration_s or wpm, or lower lead_s, tail_s or the jitter under hand"
    )]
    TooShort {
        /// Time that a dah requires, in seconds.
        needed: f64,
        /// Available time, in seconds.
        room: f64,
    },
    /// The edges are too long for a dit.
    #[error("rise_ms goes up to {rise_ms} ms, and a dit at {wpm} wpm lasts {dit_ms:.1} ms: lower rise_ms or wpm")]
    RiseTooLong {
        /// Upper end of `rise_ms`.
        rise_ms: f32,
        /// Upper end of `wpm`.
        wpm: f32,
        /// Length of a dit at that speed, in milliseconds.
        dit_ms: f32,
    },
}

impl CwConfig {
    /// Checks every field, and that the texts fit into a clip.
    pub fn validate(&self) -> Result<(), CwError> {
        self.text.validate()?;
        self.validate_task()?;
        self.validate_sender()?;
        self.validate_channel()?;
        self.validate_room()
    }

    /// Checks that keys under `text` have an effect on the task; a `text` that is left out is accepted.
    fn validate_task(&self) -> Result<(), CwError> {
        let (task, text, default) = (self.task, &self.text, CwText::default());
        if task == CwTask::Copy {
            return Ok(());
        }
        let refused = |field: String| Err(CwError::NotForTask { field, task });
        if !text.fixed.is_empty() {
            return refused("text.fixed".to_owned());
        }
        if text.group_length != default.group_length {
            return refused("text.group_length".to_owned());
        }
        let weights = text.weights();
        if weights != default.weights()
            && let Some((_, key, weight)) = weights.iter().find(|(s, _, weight)| *weight > 0.0 && !task.draws_from(*s))
        {
            return refused(format!("{key}, {weight},"));
        }
        if task.own_source().is_none() && weights.iter().all(|(s, _, weight)| *weight == 0.0 || !task.draws_from(*s)) {
            let useful: Vec<_> = weights.iter().filter(|(s, ..)| task.draws_from(*s)).map(|(_, key, _)| *key).collect();
            return Err(CwError::NoTextForTask { task, useful: useful.join(", ") });
        }
        Ok(())
    }

    /// Checks that the longest clip can contain each of the shortest messages of the possible kinds.
    fn validate_messages(&self, around: f64) -> Result<(), CwError> {
        let task = self.task;
        let own = task.own_source().map(|source| (source, None));
        let weighted = self.text.weights().into_iter().filter(|(s, _, weight)| *weight > 0.0 && task.draws_from(*s));
        let room = f64::from(self.duration_s[1]) - around;
        for (source, key) in own.into_iter().chain(weighted.map(|(source, key, _)| (source, Some(key)))) {
            for message in compose::shortest(task, source, &self.text) {
                let needed = self.longest_s(&morse::parse(&message.sent).unwrap_or_default());
                if needed > room {
                    let of = key.map_or(String::new(), |key| format!(" from {key}"));
                    let or = key.map_or(String::new(), |key| format!(", or give {key} no weight"));
                    return Err(CwError::MessageTooLong { task, of, sent: message.sent, needed, room, or });
                }
            }
        }
        Ok(())
    }

    fn validate_sender(&self) -> Result<(), CwError> {
        range("duration_s", self.duration_s, 0.1, 600.0)?;
        range("lead_s", self.lead_s, 0.0, 600.0)?;
        range("tail_s", self.tail_s, 0.0, 600.0)?;
        range("wpm", self.wpm, 5.0, 60.0)?;
        self.farnsworth.validate()?;
        self.hand.validate()?;
        self.habits.validate()?;
        probability("cut.probability", self.cut.probability)?;
        probability("brief", self.brief)?;
        range("rise_ms", self.rise_ms, 0.0, 50.0)?;
        let (rise_ms, wpm, dit_ms) = (self.rise_ms[1], self.wpm[1], 1200.0 / self.wpm[1]);
        if rise_ms > dit_ms {
            return Err(CwError::RiseTooLong { rise_ms, wpm, dit_ms });
        }
        range("pitch_hz", self.pitch_hz, 200.0, 2000.0)?;
        self.drift.validate()?;
        self.chirp.validate()?;
        self.transmitter.validate()?;
        Ok(())
    }

    fn validate_channel(&self) -> Result<(), CwError> {
        self.qsb.validate()?;
        self.qrn.validate()?;
        self.qrm.validate()?;
        range("snr_db", self.snr_db, -40.0, 100.0)?;
        number("snr_bandwidth_hz", self.snr_bandwidth_hz, 1.0, 8000.0)?;
        self.filter.validate()?;
        self.path.validate()?;
        self.muting.validate()?;
        self.receiver.validate()?;
        self.recorder.validate()?;
        probability("clean", self.clean)?;
        probability("noiseless", self.noiseless)?;
        probability("narrowed", self.narrowed)?;
        probability("noise_only", self.noise_only)?;
        self.idle.validate()?;
        range("level_dbfs", self.level_dbfs, -100.0, 0.0)?;
        Ok(())
    }

    /// Checks that a clip can contain a fixed text at its longest, and any single character if the text is drawn to
    /// fit.
    fn validate_room(&self) -> Result<(), CwError> {
        let around = f64::from(self.lead_s[1]) + f64::from(self.tail_s[1]) + f64::from(self.rise_ms[1]) / 1000.0;
        if self.task != CwTask::Copy {
            return self.validate_messages(around);
        }
        for (index, text) in self.text.fixed.iter().enumerate() {
            let room = f64::from(self.duration_s[1]) - around;
            let needed = self.longest_s(&parse_fixed(index, text)?);
            if needed > room {
                return Err(CwError::TextTooLong { index, text: text.clone(), needed, room });
            }
        }
        if self.text.fixed.is_empty() {
            let room = f64::from(self.duration_s[0]) - around;
            let words = text::SHORTEST.iter().filter_map(|text| morse::parse(text).ok());
            let needed = words.map(|words| self.longest_s(&words)).fold(0.0, f64::max);
            if needed > room {
                return Err(CwError::TooShort { needed, room });
            }
        }
        Ok(())
    }

    /// Returns the maximum time that `words` can take to send, in seconds, plus a millisecond for rounding. The length
    /// increases with every parameter of the hand except the weighting, in which it is linear: marks become longer as
    /// gaps become shorter. So the maximum is at one end of its range.
    fn longest_s(&self, words: &[Vec<Symbol>]) -> f64 {
        let by_hand = self.hand.probability > 0.0;
        let ratio = if self.farnsworth.probability > 0.0 { self.farnsworth.ratio[0] } else { 1.0 };
        let weightings = if by_hand { self.hand.weighting } else { [0.5, 0.5] };
        let lengths = weightings.map(|weighting| {
            let mut fist = Fist::machine(self.wpm[0].into(), (self.wpm[0] * ratio).into());
            if by_hand {
                fist.mark_jitter = self.hand.mark_jitter[1].into();
                fist.gap_jitter = self.hand.gap_jitter[1].into();
                fist.swing = self.hand.swing[1].into();
                fist.weighting = weighting.into();
            }
            let (fist, hesitating) =
                if self.habits.probability > 0.0 { self.habits.slowest(fist) } else { (fist, 0.0) };
            // A single symbol has no gap for a hesitation.
            let hesitating = if words.iter().map(Vec::len).sum::<usize>() > 1 { hesitating } else { 0.0 };
            keying::key(words, &fist, 0.0..f64::INFINITY, || keying::JITTER_LIMIT).end() + hesitating
        });
        lengths[0].max(lengths[1]) + 0.001
    }
}

impl CwText {
    fn validate(&self) -> Result<(), CwError> {
        let weights = self.weights();
        for (_, field, value) in weights {
            if !(0.0..f32::INFINITY).contains(&value) {
                return Err(CwError::Weight { field, value });
            }
        }
        if self.fixed.is_empty() && weights.iter().all(|(.., value)| *value == 0.0) {
            return Err(CwError::NoText);
        }
        for (index, text) in self.fixed.iter().enumerate() {
            parse_fixed(index, text)?;
        }
        count("text.group_length", self.group_length, 1, 20)?;
        probability("text.portable", self.portable)?;
        probability("text.cut_numbers", self.cut_numbers)?;
        Ok(())
    }
}

fn parse_fixed(index: usize, text: &str) -> Result<Vec<Vec<Symbol>>, CwError> {
    let words = morse::parse(text).map_err(|piece| CwError::Unkeyable { index, text: text.to_owned(), piece })?;
    if words.is_empty() { Err(CwError::Blank { index }) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut CwConfig)) -> String {
        let mut config = CwConfig::default();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_accepted() {
        assert_eq!(CwConfig::default().validate(), Ok(()));
    }

    #[test]
    fn sentences_name_the_field_and_the_way_out() {
        let said = refusal(|c| c.wpm = [30.0, 20.0]);
        assert_eq!(said, "wpm is [30, 20]: give two numbers from 5 to 60, the smaller one first");
        assert!(refusal(|c| c.snr_db = [f32::NAN, 3.0]).starts_with("snr_db is [NaN, 3]"));
        assert!(refusal(|c| c.lead_s = [-1.0, 0.0]).starts_with("lead_s is [-1, 0]"));
        let said = refusal(|c| c.qsb.probability = 1.5);
        assert_eq!(said, "qsb.probability is 1.5: give a probability from 0 (never) to 1 (always)");
        assert!(refusal(|c| c.text.words = -1.0).starts_with("text.words is -1: give a weight"));
        assert!(refusal(|c| c.qrm.stations = [3, 1]).starts_with("qrm.stations is [3, 1]"));
        assert!(
            refusal(|c| c.transmitter.clicks.decay_ms = [0.0, 1.0]).starts_with("transmitter.clicks.decay_ms is [0,")
        );
        assert!(refusal(|c| c.habits.dah = [1.0, 3.0]).starts_with("habits.dah is [1, 3]"));
        assert!(refusal(|c| c.receiver.band.width_hz = [1.0, 3.0]).starts_with("receiver.band.width_hz is [1, 3]"));
        assert!(refusal(|c| c.idle.noise = 0.0).starts_with("the sum of the weights under idle is 0"));
        assert!(refusal(|c| c.muting.hold_ms = [9.0, 3.0]).starts_with("muting.hold_ms is [9, 3]"));
        assert!(refusal(|c| c.snr_bandwidth_hz = 0.0).starts_with("snr_bandwidth_hz is 0"));
        assert!(refusal(|c| c.rise_ms = [5.0, 45.0]).contains("a dit at 30 wpm lasts 40.0 ms"));
    }

    #[test]
    fn there_must_be_something_to_send() {
        let none = "words groups callsigns qso cqww arrl_dx cqwpx field_day sweepstakes";
        let json = format!("{{{}}}", none.split(' ').map(|k| format!("{k:?}: 0")).collect::<Vec<_>>().join(","));
        let text: CwText = serde_json::from_str(&json).unwrap();
        assert!(refusal(|c| c.text = text.clone()).contains("nothing to send"));
        let fixed = CwText { fixed: vec!["CQ".into()], ..text };
        assert_eq!(CwConfig { text: fixed, ..CwConfig::default() }.validate(), Ok(()));
        assert!(refusal(|c| c.text.fixed = vec!["CQ".into(), " ".into()]).starts_with("text.fixed[1] is blank"));
        assert!(refusal(|c| c.text.fixed = vec!["CQ!".into()]).contains("holds \"!\""));
    }

    #[test]
    fn what_is_sent_must_fit() {
        assert!(refusal(|c| c.duration_s = [0.9, 8.0]).starts_with("a single dah can last"));
        assert!(refusal(|c| c.text.fixed = vec!["PARIS ".repeat(9)]).contains("can last"));
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let said = serde_json::from_str::<CwConfig>(r#"{"wmp": [10, 20]}"#).unwrap_err().to_string();
        assert!(said.contains("unknown field `wmp`"), "{said}");
        assert_eq!(serde_json::from_str::<CwConfig>("{}").unwrap(), CwConfig::default());
    }
}
