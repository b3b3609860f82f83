//! Audio as the frames of a window see it.

/// Audio seen as a window of `len` samples: silence after its end, mirrored beyond the window's edges.
pub(super) struct Padded<'a> {
    audio: &'a [f32],
    len: usize,
}

impl<'a> Padded<'a> {
    pub(super) fn new(audio: &'a [f32], len: usize) -> Self {
        Self { audio: &audio[..audio.len().min(len)], len }
    }

    /// Samples before the padding starts.
    pub(super) fn sounding(&self) -> usize {
        self.audio.len()
    }

    /// As many samples from `start` as `edge` holds; it is written to where they are not all of the audio.
    pub(super) fn around<'s>(&'s self, start: isize, edge: &'s mut [f32]) -> &'s [f32] {
        let inside = usize::try_from(start).ok().and_then(|start| self.audio.get(start..start + edge.len()));
        inside.unwrap_or_else(|| {
            for (sample, index) in edge.iter_mut().zip(start..) {
                *sample = self.at(index);
            }
            edge
        })
    }

    /// The sample at any index. Mirroring leaves the edge itself single, so it repeats every `2(len - 1)` samples.
    fn at(&self, index: isize) -> f32 {
        let period = 2 * self.len.saturating_sub(1).max(1);
        let index = index.rem_euclid(period as isize) as usize;
        let index = index.min(period - index);
        self.audio.get(index).copied().unwrap_or(0.0)
    }
}
