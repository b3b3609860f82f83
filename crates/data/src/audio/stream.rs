//! Audio that is decoded block by block, so that a recording of any length needs little memory.

use super::decode::{Decoding, caught};
use super::{AudioError, SAMPLE_RATE, Stored};

/// Audio of a file, block by block, at 16 kHz.
pub struct AudioStream<'a> {
    stored: &'a Stored,
    /// None after the last block.
    decoding: Option<Decoding<'a>>,
    /// Error after the last block.
    failed: Option<AudioError>,
}

/// Length of a block, in seconds, except for the last one. A block may be longer, for a packet is decoded as a whole.
const BLOCK: f64 = 1.0;

impl Stored {
    /// Opens the audio to be read block by block. There is no limit to its length.
    ///
    /// # Errors
    /// If the audio is missing, empty, or not audio.
    pub fn stream(&self) -> Result<AudioStream<'_>, AudioError> {
        let decoding = caught(self, || Decoding::begin(self, 0.0, None, f64::INFINITY))?;
        Ok(AudioStream { stored: self, decoding: Some(decoding), failed: None })
    }

    /// Decodes as much as can be read, at 16 kHz. The error says why there is no more of it.
    pub fn readable(&self) -> (Vec<f32>, Option<AudioError>) {
        let mut samples = Vec::new();
        let read = self.stream().and_then(|stream| {
            for block in stream {
                samples.extend(block?);
            }
            Ok(())
        });
        (samples, read.err())
    }
}

impl AudioStream<'_> {
    /// Returns the next block, about a second; `None` at the end.
    fn block(&mut self) -> Result<Option<Vec<f32>>, AudioError> {
        let Some(mut decoding) = self.decoding.take() else { return self.failed.take().map_or(Ok(None), Err) };
        let least = (BLOCK * f64::from(SAMPLE_RATE)) as usize;
        let mut block = Vec::new();
        while block.len() < least {
            match caught(self.stored, || decoding.step()) {
                Ok(true) => block.append(&mut decoding.drain()),
                Ok(false) => {
                    block.extend(caught(self.stored, || decoding.finish())?.samples);
                    return Ok(Some(block).filter(|block| !block.is_empty()));
                }
                // What was decoded before comes first.
                Err(error) => {
                    block.extend(caught(self.stored, || decoding.finish()).map_or(Vec::new(), |rest| rest.samples));
                    if block.is_empty() {
                        return Err(error);
                    }
                    self.failed = Some(error);
                    return Ok(Some(block));
                }
            }
        }
        self.decoding = Some(decoding);
        Ok(Some(block))
    }
}

/// Blocks of about a second. An error, of audio that is damaged or truncated, is the last item.
impl Iterator for AudioStream<'_> {
    type Item = Result<Vec<f32>, AudioError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.block().transpose()
    }
}
