//! Padded and mirrored audio for the frames of a window.

/// Audio as a window of `len` samples: silence after its end, mirrored beyond the window's edges.
pub(super) struct Padded<'a> {
    audio: &'a [f32],
    len: usize,
}

impl<'a> Padded<'a> {
    pub(super) fn new(audio: &'a [f32], len: usize) -> Self {
        Self { audio: &audio[..audio.len().min(len)], len }
    }

    /// Returns the number of samples before the padding.
    pub(super) fn sounding(&self) -> usize {
        self.audio.len()
    }

    /// Returns as many samples from `start` as `edge` holds. `edge` is only written if they are not all samples of the
    /// audio.
    pub(super) fn around<'s>(&'s self, start: isize, edge: &'s mut [f32]) -> &'s [f32] {
        let inside = usize::try_from(start).ok().and_then(|start| self.audio.get(start..start + edge.len()));
        inside.unwrap_or_else(|| {
            for (sample, index) in edge.iter_mut().zip(start..) {
                *sample = self.at(index);
            }
            edge
        })
    }

    /// Returns the sample at any index. Mirroring does not repeat the edge itself, so the period is `2(len - 1)`
    /// samples.
    fn at(&self, index: isize) -> f32 {
        let period = 2 * self.len.saturating_sub(1).max(1);
        let index = index.rem_euclid(period as isize) as usize;
        let index = index.min(period - index);
        self.audio.get(index).copied().unwrap_or(0.0)
    }
}
