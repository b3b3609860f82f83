//! OpenAI's vocabularies, the decoding settings that follow from them, and its list of spellings.

use flate2::read::GzDecoder;
use std::io::Read;
use undertone_model::whisper::{GenerationConfig, TokenizerError, WhisperTokenizer, language_codes};

/// Number of time tokens: from 0 to 30 s in steps of 20 ms.
const TIMES: usize = 1501;

/// Tokens beside times and languages: the end, the start, and six tasks.
const OTHERS: usize = 8;

/// Symbols and names for sounds that are no speech, which transcripts of a read text do not have.
#[rustfmt::skip]
const SYMBOLS: [&str; 45] = [
    "\"", "#", "(", ")", "*", "+", "/", ":", ";", "<", "=", ">", "@", "[", "\\", "]", "^", "_", "`", "{", "|", "}", "~",
    "「", "」", "『", "』", "<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", "(\"", "((", "))", "(((", ")))", "[[", "]]",
    "{{", "}}",
];
const NOTES: [&str; 9] = ["♪♪", "♪♪♪", "♩", "♪", "♫", "♬", "♭", "♮", "♯"];

/// Special tokens that a transcript never has. Languages and times are not among them: they are found by the same decoder.
const CONTROLS: [&str; 6] =
    ["<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"];

/// Whether a vocabulary of this size is that of the multilingual models, whose prompts have language and task.
pub(crate) fn is_multilingual(size: usize) -> bool {
    size >= 51865
}

/// Number of tokens before the first special one, and of languages, of a vocabulary of OpenAI's; `None` for other sizes.
pub(crate) fn layout(size: usize) -> Option<(usize, usize)> {
    let ordinary = 50256 + usize::from(is_multilingual(size));
    let languages = size.checked_sub(ordinary + OTHERS + TIMES)?;
    [99, 100].contains(&languages).then_some((ordinary, languages))
}

/// Returns OpenAI's own vocabulary of a size.
pub(crate) fn of_size(size: usize) -> Result<WhisperTokenizer, String> {
    let bytes = match is_multilingual(size) {
        true => unpacked(include_bytes!("vocabulary/multilingual.gz")),
        false => unpacked(include_bytes!("vocabulary/english.gz")),
    };
    let (mut rest, mut tokens) = (bytes.as_slice(), Vec::new());
    while let Some((&length, after)) = rest.split_first() {
        let (token, after) = after.split_at_checked(length.into()).ok_or("the vocabulary ends early")?;
        tokens.push(token.to_vec());
        rest = after;
    }
    of_tokens(&tokens, size)
}

/// Returns OpenAI's list of British spellings with their American ones, the content of a folder's `normalizer.json`.
pub fn spellings() -> Vec<u8> {
    unpacked(include_bytes!("vocabulary/spellings.gz"))
}

fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).expect("a file that is part of the program");
    bytes
}

/// Returns a vocabulary of OpenAI's size from the bytes of its ordinary tokens by rank.
pub(crate) fn of_tokens(tokens: &[Vec<u8>], size: usize) -> Result<WhisperTokenizer, String> {
    let sizes = "OpenAI's have 51864, 51865 or 51866";
    let (ordinary, languages) = layout(size)
        .ok_or_else(|| format!("its vocabulary has {size} tokens, and {sizes}: give a Hugging Face folder"))?;
    let tokens =
        tokens.get(..ordinary).ok_or_else(|| format!("it has only {} of {ordinary} ordinary tokens", tokens.len()))?;
    WhisperTokenizer::of_ranks(tokens, &language_codes()[..languages], TIMES).map_err(|e: TokenizerError| e.to_string())
}

/// Returns the settings that OpenAI's program decodes with: without symbols that stand for no speech, and not beginning with
/// a space or the end.
pub(crate) fn generation(tokenizer: &WhisperTokenizer) -> GenerationConfig {
    let mut generation = GenerationConfig::new(is_multilingual(tokenizer.vocab_size()));
    let encoded = |text: &str| tokenizer.encode(text).unwrap_or_default();
    // A dash or an apostrophe inside a word stays allowed.
    let mut suppressed: Vec<u32> = [" -", " '"].iter().filter_map(|text| encoded(text).first().copied()).collect();
    for symbol in SYMBOLS.iter().chain(&NOTES) {
        for ids in [encoded(symbol), encoded(&format!(" {symbol}"))] {
            // A single note has tokens of several bytes, of which the first is found nowhere else.
            let is_note = symbol.chars().count() == 1 && NOTES.contains(symbol);
            suppressed.extend(ids.first().filter(|_| ids.len() == 1 || is_note));
        }
    }
    suppressed.extend(CONTROLS.iter().filter_map(|token| tokenizer.special_token(token)));
    suppressed.sort_unstable();
    suppressed.dedup();
    generation.suppress_tokens = suppressed;
    generation.begin_suppress_tokens = encoded(" ").into_iter().take(1).chain([tokenizer.end()]).collect();
    generation
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `get_tokenizer(multilingual).non_speech_tokens` of openai-whisper 20250625.
    #[rustfmt::skip]
    const ENGLISH: [u32; 84] = [
        1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93, 357, 366, 438, 532,
        685, 705, 796, 930, 1058, 1220, 1267, 1279, 1303, 1343, 1377, 1391, 1635, 1782, 1875, 2162, 2361, 2488,
        3467, 4008, 4211, 4600, 4808, 5299, 5855, 6329, 7203, 9609, 9959, 10563, 10786, 11420, 11709, 11907, 13163,
        13697, 13700, 14808, 15306, 16410, 16791, 17992, 19203, 19510, 20724, 22305, 22935, 27007, 30109, 30420,
        33409, 34949, 40283, 40493, 40549, 47282, 49146,
    ];
    #[rustfmt::skip]
    const MULTILINGUAL: [u32; 82] = [
        1, 2, 7, 8, 9, 10, 14, 25, 26, 27, 28, 29, 31, 58, 59, 60, 61, 62, 63, 90, 91, 92, 93, 359, 503, 522, 542,
        873, 893, 902, 918, 922, 931, 1350, 1853, 1982, 2460, 2627, 3246, 3253, 3268, 3536, 3846, 3961, 4183, 4667,
        6585, 6647, 7273, 9061, 9383, 10428, 10929, 11938, 12033, 12331, 12562, 13793, 14157, 14635, 15265, 15618,
        16553, 16604, 18362, 18956, 20075, 21675, 22520, 26130, 26161, 26435, 28279, 29464, 31650, 32302, 32470,
        36865, 42863, 47425, 49870, 50254,
    ];

    #[test]
    fn vocabularies_and_settings_are_openais() {
        for (size, end, expected) in
            [(51864, 50256, ENGLISH.as_slice()), (51865, 50257, &MULTILINGUAL), (51866, 50257, &MULTILINGUAL)]
        {
            let tokenizer = of_size(size).expect("a vocabulary");
            assert_eq!((tokenizer.vocab_size(), tokenizer.end(), tokenizer.start()), (size, end, end + 1));
            let languages = tokenizer.languages();
            assert_eq!((languages["<|en|>"], languages["<|su|>"]), (end + 2, end + 100));
            assert_eq!(languages.contains_key("<|yue|>"), size == 51866);
            assert_eq!(tokenizer.special_token("<|30.00|>"), Some(size as u32 - 1));
            let generation = generation(&tokenizer);
            let speech: Vec<u32> = generation.suppress_tokens.iter().copied().filter(|id| *id < end).collect();
            assert_eq!(speech, expected);
            assert_eq!(generation.suppress_tokens.len(), expected.len() + CONTROLS.len());
            assert_eq!(generation.begin_suppress_tokens, [220, end]);
            assert_eq!(generation.is_multilingual, size != 51864);
        }
        assert!(of_size(51870).expect_err("refused").contains("51870"));
    }

    #[test]
    fn the_vocabulary_is_that_of_the_whole_file() {
        let Some(dir) = undertone_testing::shared("models/whisper-tokenizer") else { return };
        let whole = std::fs::read(dir.join("tokenizer.json")).expect("read");
        let whole = WhisperTokenizer::from_bytes(whole).expect("a tokenizer");
        let own = of_size(whole.vocab_size()).expect("a vocabulary");
        assert_eq!(own.languages(), whole.languages());
        for text in ["Printing, in 1450.", "  Đường đi 道 🙂\n\n", "don't  it's", "ẞ\u{301}e"] {
            assert_eq!(own.encode(text).expect(text), whole.encode(text).expect(text), "{text:?}");
        }
    }
}
