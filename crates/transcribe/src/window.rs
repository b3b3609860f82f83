//! Length of the audio that the encoder reads at once.

use crate::error::TranscribeError;
use crate::options::Window;
use undertone_data::audio::SAMPLE_RATE;
use undertone_data::features::HOP;

/// Samples of a position of the encoder: two frames.
const POSITION: usize = 2 * HOP;

impl Window {
    /// Returns the maximum length of a piece, in samples, for a model with a window of `most`.
    pub(crate) fn longest_piece(self, most: usize) -> Result<usize, TranscribeError> {
        let Self::Seconds(seconds) = self else { return Ok(most) };
        let rate = f64::from(SAMPLE_RATE);
        let longest = most as f64 / rate;
        // Also refuses what is not a number.
        if !(1.0..=longest).contains(&seconds) {
            return Err(TranscribeError::Window { seconds, most: longest });
        }
        Ok(((seconds * rate).round() as usize).next_multiple_of(POSITION).min(most))
    }

    /// Returns the length that pieces are padded to, in samples: `longest` is that of the longest of a batch, `most` that
    /// of the longest that is possible.
    pub(crate) fn padded(self, longest: usize, most: usize) -> usize {
        match self {
            Self::Longest => longest.next_multiple_of(POSITION).clamp(POSITION, most),
            Self::OfModel | Self::Seconds(_) => most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_window_holds_what_is_padded_to_it_in_whole_positions(longest in 0_usize..480_001, seconds in 1.0_f64..30.0) {
            for window in [Window::OfModel, Window::Longest, Window::Seconds(seconds)] {
                let most = window.longest_piece(480_000).expect("it fits");
                let longest = longest.min(most);
                let padded = window.padded(longest, most);
                prop_assert!(longest <= padded && padded <= most && padded.is_multiple_of(POSITION) && padded > 0);
            }
        }
    }

    #[test]
    fn a_window_that_does_not_fit_is_refused() {
        for seconds in [0.0, 0.9, 30.1, -1.0, f64::NAN, f64::INFINITY] {
            let error = Window::Seconds(seconds).longest_piece(480_000).expect_err("refused").to_string();
            assert!(error.contains("1 to 30 seconds"), "{error}");
        }
        assert_eq!(Window::Longest.padded(16_001, 480_000), 16_320);
    }
}
