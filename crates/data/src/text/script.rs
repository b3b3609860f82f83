//! Scripts.

/// Whether a character belongs to a script that puts no spaces between words: Chinese, Japanese, Thai, Lao, Burmese,
/// Khmer, Tibetan.
pub fn is_unspaced(character: char) -> bool {
    matches!(
        u32::from(character),
        0x0e00..=0x0eff // Thai, Lao
        | 0x0f00..=0x0fff // Tibetan
        | 0x1000..=0x109f // Myanmar
        | 0x1780..=0x17ff // Khmer
        | 0x2e80..=0x2fdf // radicals
        | 0x3005..=0x3007 // iteration mark, closing mark, zero
        | 0x3040..=0x30ff | 0x31f0..=0x31ff // Hiragana, Katakana
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff // ideographs
        | 0xf900..=0xfaff // compatibility ideographs
        | 0xff66..=0xff9f // half-width Katakana
        | 0x20000..=0x323af // further ideographs
    )
}
