//! Properties of scripts.

/// Returns whether a character belongs to a script without spaces between words: Chinese, Japanese, Thai, Lao, Burmese,
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

/// Appends a text to another, with a space between them unless their script has none.
///
/// The letters nearest to the joint decide, whatever marks and digits are between them: `你好。` and `世界` are joined
/// directly, so are `今年は` and `2024年`, and `Hello.` and `World` get a space. A side without letters is treated like the
/// other side, and an ideographic mark at the joint needs no space. The language would be a worse criterion: lists
/// often give none, or one for recordings of several languages, and a Chinese recording may have English lines.
pub fn append(text: &mut String, more: &str) {
    let letter = |c: &char| is_unspaced(*c) || c.is_alphabetic();
    let unspaced = |c: Option<char>| c.map(is_unspaced);
    let [before, after] = [text.chars().rev().find(letter), more.chars().find(letter)].map(unspaced);
    let joined = before.or(after) == Some(true) && after.or(before) == Some(true);
    let marked = text.ends_with(is_wide_mark) || more.starts_with(is_wide_mark);
    if !(text.is_empty() || more.is_empty() || joined || marked) {
        text.push(' ');
    }
    text.push_str(more);
}

/// Returns whether this is a mark as wide as an ideograph, which includes its space.
fn is_wide_mark(character: char) -> bool {
    matches!(
        u32::from(character),
        0x3000..=0x3003 | 0x3008..=0x301f // of ideographic scripts
        | 0xff01..=0xff0f | 0xff1a..=0xff20 | 0xff3b..=0xff40 | 0xff5b..=0xff65 // full-width forms
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_joined_as_their_script_has_it() {
        for (before, after, joined) in [
            ("Hello.", "World", "Hello. World"),
            ("CQ", "DE K1ABC", "CQ DE K1ABC"),
            ("", "a", "a"),
            ("a", "", "a"),
            ("5", "7", "5 7"),
            ("안녕", "하세요", "안녕 하세요"),
            ("你好", "世界", "你好世界"),
            ("你好。", "世界", "你好。世界"),
            ("こんにちは!", "「はい」", "こんにちは!「はい」"),
            ("今年は", "2024年", "今年は2024年"),
            ("三", "3", "三3"),
            ("สวัสดีครับ", "ขอบคุณ", "สวัสดีครับขอบคุณ"),
            ("សួស្តី", "អរគុណ", "សួស្តីអរគុណ"),
            ("ສະບາຍດີ", "ຂອບໃຈ", "ສະບາຍດີຂອບໃຈ"),
            ("မင်္ဂလာပါ", "ကျေးဇူး", "မင်္ဂလာပါကျေးဇူး"),
            ("谢谢。", "OK", "谢谢。OK"),
            ("我用", "Python", "我用 Python"),
            ("Python", "好", "Python 好"),
        ] {
            let mut text = before.to_owned();
            append(&mut text, after);
            assert_eq!(text, joined);
        }
    }
}
