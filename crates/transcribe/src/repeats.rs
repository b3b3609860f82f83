//! Characters that were sent more often in a row than a model wrote.

use crate::compression::compression_ratio;
use crate::decoded::Decoded;
use crate::transcriber::Transcriber;

impl Transcriber {
    /// Adds to the decoding of a piece what its reader counts more of, with the probabilities of what is there. It is for models whose
    /// tokens are characters.
    pub(crate) fn count_repeats(&self, decoded: &mut Decoded, audio: &[f32]) {
        let Some(reader) = self.reader().filter(|_| !decoded.text.is_empty()) else { return };
        let tokenizer = &self.whisper.tokenizer;
        let generated = &mut decoded.generated;
        let texts: Vec<String> = generated.tokens.iter().map(|token| tokenizer.decode(&[*token])).collect();
        if texts.iter().any(|text| text.chars().count() > 1) {
            return;
        }
        let missing = reader.missing(&texts.concat(), audio);
        if missing.iter().all(|more| *more == 0) {
            return;
        }
        let mut missing = missing.into_iter();
        let copies: Vec<usize> =
            texts.iter().map(|text| if text.is_empty() { 1 } else { 1 + missing.next().unwrap_or_default() }).collect();
        let more = copies.iter().zip(&generated.log_probs).map(|(copies, p)| (copies - 1) as f64 * f64::from(*p));
        generated.total += more.sum::<f64>();
        generated.tokens = repeated(&generated.tokens, &copies);
        generated.log_probs = repeated(&generated.log_probs, &copies);
        decoded.text = tokenizer.decode(&self.text_tokens(&generated.tokens)).trim().to_owned();
        decoded.compression_ratio = compression_ratio(&decoded.text);
    }
}

fn repeated<T: Copy>(values: &[T], copies: &[usize]) -> Vec<T> {
    values.iter().zip(copies).flat_map(|(value, copies)| std::iter::repeat_n(*value, *copies)).collect()
}
