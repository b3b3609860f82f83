//! Composition of whole messages, by task.

use super::{
    CwSource, CwTask, CwText, calls, expand, log,
    message::{LONGEST_TEXT, Message, Room},
    traffic,
};
use rand_chacha::ChaCha8Rng;
use undertone_data::random::whole;

/// Returns a whole message that should fit, or none: then the caller tries again, or sends one of [`shortest`].
pub(super) fn compose(
    task: CwTask,
    source: CwSource,
    text: &CwText,
    room: &Room<'_>,
    rng: &mut ChaCha8Rng,
) -> Option<Message> {
    let message = match task {
        CwTask::Copy => None,
        CwTask::Callsigns => calls::compose(source, text, room, rng),
        CwTask::Log => log::compose(source, text, room, rng),
        CwTask::Expand => expand::compose(text, room, rng),
        CwTask::Traffic => traffic::compose(room, rng),
    };
    message.filter(|message| message.written.len() <= LONGEST_TEXT)
}

/// Returns messages for a clip in which nothing that was drawn fits: [`super::CwConfig::validate`] checks that each of
/// these does.
pub(super) fn shortest(task: CwTask, source: CwSource, text: &CwText) -> Vec<Message> {
    let cut = text.cut_numbers > 0.0;
    let messages: &[(&str, &str)] = match (task, source) {
        (CwTask::Copy, _) => &[],
        (CwTask::Callsigns, _) => &[("TU N5EE", "N5EE"), ("DE EA5E", "EA5E"), ("K4IT K", "K4IT"), ("R W6EI", "W6EI")],
        (CwTask::Log, CwSource::FieldDay) => &[("W5EE 1E ME", "W5EE 1E ME"), ("K4IT 2A TN", "K4IT 2A TN")],
        (CwTask::Log, CwSource::Sweepstakes) => &[("5 A N5EE 56 MS", "N5EE 005 A 56 MS")],
        (CwTask::Log, CwSource::ArrlDx) if cut => &[("K1EE 5NN ME", "K1EE 599 ME"), ("EA5E 5NN K", "EA5E 599 K")],
        (CwTask::Log, CwSource::ArrlDx) => &[("K1EE 599 ME", "K1EE 599 ME"), ("EA5E 599 K", "EA5E 599 K")],
        (CwTask::Log, CwSource::Cqwpx) if cut => &[("N5EE 5NN TTE", "N5EE 599 005"), ("EA5E 5NN TTE", "EA5E 599 005")],
        (CwTask::Log, CwSource::Cqwpx) => &[("N5EE 599 556", "N5EE 599 556"), ("EA5E 599 265", "EA5E 599 265")],
        (CwTask::Log, _) if cut => &[("N5EE 5NN 4", "N5EE 599 04"), ("K4IT 5NN 4", "K4IT 599 04")],
        (CwTask::Log, _) => &[("N5EE 599 4", "N5EE 599 04"), ("K4IT 599 4", "K4IT 599 04")],
        (CwTask::Expand, _) => &[
            ("TU 73", "THANK YOU, BEST REGARDS"),
            ("73 TU", "BEST REGARDS, THANK YOU"),
            ("TU QRT", "THANK YOU, I AM CLOSING DOWN"),
        ],
        (CwTask::Traffic, _) => &[("NR 4 +", "NR 4 <AR>"), ("NR 5 +", "NR 5 <AR>"), ("NR 6 +", "NR 6 <AR>")],
    };
    messages.iter().map(|(sent, written)| Message { sent: (*sent).into(), written: (*written).into() }).collect()
}

/// Draws one of [`shortest`].
pub(super) fn last_resort(task: CwTask, source: CwSource, text: &CwText, rng: &mut ChaCha8Rng) -> Message {
    let messages = shortest(task, source, text);
    messages[whole(rng, 0..messages.len())].clone()
}
