//! Audio that arrives on standard input.

use crate::failure::Failure;
use crate::output;
use undertone::data::audio::LiveAudio;
use undertone::transcribe::{LiveTranscriber, Transcriber};

/// Number of samples per block of live audio: a quarter of a second.
const BLOCK: usize = 4_000;

/// Writes the text of audio while it arrives.
pub fn transcribe(transcriber: &Transcriber, rate: Option<u32>, least_confidence: f32) -> Result<(), Failure> {
    let mut audio = LiveAudio::new(std::io::stdin().lock(), rate).map_err(Failure::bad_input)?;
    let mut live = LiveTranscriber::new(transcriber, least_confidence);
    let mut begun = false;
    let mut write = |text: &str| {
        // No space before the first word.
        let text = if begun { text } else { text.trim_start() };
        begun |= !text.is_empty();
        output::text(text)
    };
    loop {
        let block = audio.next(BLOCK).map_err(Failure::bad_input)?;
        if block.is_empty() {
            return write(&live.finish()).and_then(|()| write("\n"));
        }
        write(&live.push(&block))?;
    }
}
