//! Whisper's tokenizer: text to ids and back, and the special tokens around them.

use super::language::{language_code, named};
use super::{GenerationConfig, vocabulary};
use crate::tokenizer_file;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tokenizers::Tokenizer;

/// A `tokenizer.json` with Whisper's special tokens.
#[derive(Clone, Debug)]
pub struct WhisperTokenizer {
    inner: Tokenizer,
    bytes: Vec<u8>,
    special: BTreeMap<String, u32>,
    special_ids: BTreeSet<u32>,
    /// Words that were added to the vocabulary, by id.
    added: BTreeMap<u32, String>,
    text_end: u32,
    /// Byte that each character of the byte alphabet represents.
    bytes_of: BTreeMap<char, u8>,
    /// Whether it has a token for every byte and changes no text, so that it can encode any text.
    spells_all: bool,
}

/// Reason why text or tokens do not fit a tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The file is not a `tokenizer.json`.
    #[error("not a tokenizer.json: {0}")]
    Format(String),
    /// No vocabulary can be trained.
    #[error("no vocabulary can be trained: {0}")]
    Training(String),
    /// A special token that Whisper's prompts need is not in the vocabulary.
    #[error("the tokenizer has no `{token}`{hint}")]
    NoToken {
        /// Missing token.
        token: String,
        /// Advice.
        hint: String,
    },
    /// The text has a character that the vocabulary cannot encode.
    #[error("the tokenizer cannot spell {character:?} in {text:?}: remove it from the text or use another vocabulary")]
    Unspellable {
        /// The first such character.
        character: char,
        /// The whole text.
        text: String,
    },
    /// The text contains a control token.
    #[error("{text:?} contains the control token `{token}`: remove it from the text, it is added where it belongs")]
    Control {
        /// Control token.
        token: String,
        /// The whole text.
        text: String,
    },
    /// The text needs more positions than the decoder has.
    #[error("the text needs {tokens} tokens and the decoder has room for {room}: shorten or split {text:?}")]
    TooLong {
        /// Number of tokens with prompt and end.
        tokens: usize,
        /// Number of the decoder's positions.
        room: usize,
        /// The whole text.
        text: String,
    },
}

/// Number of times, from 0 s to 30 s in steps of 20 ms.
const TIMES: u32 = 1501;

const SOT: &str = "<|startoftranscript|>";
const EOT: &str = "<|endoftext|>";
const NO_TIMESTAMPS: &str = "<|notimestamps|>";
const FIRST_TIME: &str = "<|0.00|>";
const START_OF_PREVIOUS: &str = "<|startofprev|>";

impl WhisperTokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// When the file is not a tokenizer, or lacks the tokens that start and end a transcript.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, TokenizerError> {
        let inner = tokenizer_file::read(&bytes).map_err(TokenizerError::Format)?;
        // Words that somebody has added to the vocabulary are text like any other.
        let (special, added): (Vec<_>, Vec<_>) = inner
            .get_added_tokens_decoder()
            .into_iter()
            .partition(|(_, token)| token.special || vocabulary::is_control(&token.content));
        let special: BTreeMap<String, u32> = special.into_iter().map(|(id, token)| (token.content, id)).collect();
        let added: BTreeMap<u32, String> = added.into_iter().map(|(id, token)| (id, token.content)).collect();
        let special_ids: BTreeSet<u32> = special.values().copied().collect();
        let is_text = |id: &u32| !special_ids.contains(id) && !added.contains_key(id);
        let text_end = inner.get_vocab(false).into_values().filter(is_text).max().map_or(0, |id| id + 1);
        let spells_all = inner.get_normalizer().is_none()
            && byte_alphabet().all(|(_, s)| inner.token_to_id(&s.to_string()).is_some());
        let bytes_of = byte_alphabet().map(|(byte, symbol)| (symbol, byte)).collect();
        let this = Self { inner, bytes, special, special_ids, added, text_end, bytes_of, spells_all };
        for token in [SOT, EOT, NO_TIMESTAMPS] {
            this.special(token, ": it is not a Whisper tokenizer")?;
        }
        Ok(this)
    }

    /// Creates a vocabulary of single characters (with the space if it is in `characters`), followed by Whisper's
    /// special tokens in Whisper's order.
    ///
    /// # Errors
    /// When a character is outside the printable range of ASCII, whose bytes represent themselves in Whisper's
    /// alphabet.
    pub fn of_characters(characters: &str, languages: &[&str]) -> Result<Self, TokenizerError> {
        let mut vocab = serde_json::Map::new();
        for character in characters.chars() {
            if !(' '..='~').contains(&character) {
                return Err(TokenizerError::Unspellable { character, text: characters.to_owned() });
            }
            // GPT-2's byte alphabet writes the space, which is not printable, as U+0120.
            let symbol = if character == ' ' { 'Ġ' } else { character };
            let id = vocab.len();
            vocab.entry(symbol.to_string()).or_insert(id.into());
        }
        // Byte-pair encoding without merges keeps single characters.
        let merges = serde_json::json!([]);
        Self::from_bytes(vocabulary::file(vocab, merges, false, special_tokens(languages)))
    }

    /// Trains a byte-level vocabulary of `vocab_size` bytes and merges on `texts` (byte-pair encoding, as in GPT-2 and
    /// Whisper). Whisper's special tokens for these languages follow, and one token for each of `timestamps` times from
    /// 0 s on, 20 ms apart. The vocabulary is smaller if the texts have too few pairs that occur twice. The same texts
    /// give the same vocabulary.
    ///
    /// # Errors
    /// When `vocab_size` is too small for all bytes.
    pub fn train<'a>(
        texts: impl Iterator<Item = &'a str> + Send,
        vocab_size: usize,
        languages: &[&str],
        timestamps: usize,
    ) -> Result<Self, TokenizerError> {
        let (vocab, merges) = vocabulary::train(texts, vocab_size).map_err(TokenizerError::Training)?;
        Self::from_bytes(vocabulary::file(vocab, merges, true, with_times(languages, timestamps)))
    }

    /// Creates a byte-level vocabulary from the bytes of its tokens, in the order in which they were merged, as tiktoken has
    /// them. Special tokens follow as for [`train`](Self::train).
    ///
    /// # Errors
    /// When two tokens are the same, or one is too long.
    pub fn of_ranks(tokens: &[Vec<u8>], languages: &[&str], timestamps: usize) -> Result<Self, TokenizerError> {
        let symbols: BTreeMap<u8, char> = byte_alphabet().collect();
        let special = with_times(languages, timestamps);
        let file = vocabulary::of_ranks(tokens, |byte| symbols[&byte], special).map_err(TokenizerError::Format)?;
        Self::from_bytes(file)
    }

    /// Returns the file that this tokenizer was read from.
    pub fn to_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Vocabulary size: one more than the highest id, special tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// Returns the ids of `text`, without special tokens.
    ///
    /// # Errors
    /// When the vocabulary cannot encode it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.inner.encode_fast(text, false).map_err(|e| TokenizerError::Format(e.to_string()))?;
        let ids = encoding.get_ids().to_vec();
        if let Some(id) = ids.iter().find(|id| self.special_ids.contains(id)) {
            let token = self.inner.id_to_token(*id).unwrap_or_default();
            return Err(TokenizerError::Control { token, text: text.to_owned() });
        }
        if self.spells_all {
            return Ok(ids);
        }
        // A byte-pair model without an unknown token drops what it cannot encode; only a round trip detects that.
        let back = self.decode(&ids);
        if back == text {
            return Ok(ids);
        }
        let character = text.chars().find(|c| self.decode(&self.raw_ids(&c.to_string())) != c.to_string());
        match character {
            Some(character) => Err(TokenizerError::Unspellable { character, text: text.to_owned() }),
            // A normaliser changed the text on purpose; all its characters can be encoded.
            None => Ok(ids),
        }
    }

    /// Returns the text of `ids` without special tokens.
    pub fn decode(&self, ids: &[u32]) -> String {
        // Words that were added are not spelled in symbols of bytes.
        let runs = ids.chunk_by(|a, b| !self.added.contains_key(a) && !self.added.contains_key(b));
        let text = |run: &[u32]| match self.added.get(&run[0]) {
            Some(word) => word.clone(),
            None => self.inner.decode(run, true).unwrap_or_default(),
        };
        runs.map(text).collect()
    }

    /// Returns the bytes of a token of byte-level byte-pair encoding, which need not be whole characters. `None` if there
    /// is no such token, or its spelling does not represent bytes.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(word) = self.added.get(&id) {
            return Some(word.clone().into_bytes());
        }
        let symbols = self.inner.id_to_token(id)?;
        symbols.chars().map(|symbol| self.bytes_of.get(&symbol).copied()).collect()
    }

    /// Returns the bytes that a token of byte-level byte-pair encoding stands for. `None` if a character of it stands for no
    /// byte.
    pub fn spelled(token: &str) -> Option<Vec<u8>> {
        let bytes: BTreeMap<char, u8> = byte_alphabet().map(|(byte, symbol)| (symbol, byte)).collect();
        token.chars().map(|symbol| bytes.get(&symbol).copied()).collect()
    }

    /// Returns the tokens before the text: start, language and task in a multilingual model, no timestamps.
    ///
    /// # Errors
    /// When the vocabulary has no token for the language or task.
    pub fn prompt(
        &self,
        generation: &GenerationConfig,
        language: Option<&str>,
        task: Option<&str>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut prompt = vec![self.special(SOT, "")?];
        if generation.is_multilingual {
            let given = language.or(generation.language.as_deref()).unwrap_or("en");
            let own = self.special.get(&format!("<|{given}|>")).copied();
            // A vocabulary may have a language of its own under a code that elsewhere is another name of one of OpenAI's.
            let by_code = || {
                let code = language_code(given);
                self.special(
                    &format!("<|{}|>", named(&code).unwrap_or(&code)),
                    ": give the language as a code it knows, like `en`",
                )
            };
            prompt.push(own.map_or_else(by_code, Ok)?);
            let task = task.or(generation.task.as_deref()).unwrap_or("transcribe");
            prompt.push(self.special(&format!("<|{task}|>"), ": the task is `transcribe` or `translate`")?);
        }
        prompt.push(self.special(NO_TIMESTAMPS, "")?);
        Ok(prompt)
    }

    /// Token of the time 0 s in models with timestamps. The next one stands for 20 ms, and so on to 30 s. In OpenAI's vocabularies
    /// the timestamps follow the token for no timestamps, and not every `tokenizer.json` lists them. `None` if that token is not the last
    /// of the vocabulary either, as where training programs put special tokens before those of text.
    pub fn timestamp_begin(&self) -> Option<u32> {
        let listed = self.special.get(FIRST_TIME).copied();
        listed.or_else(|| self.special.get(NO_TIMESTAMPS).map(|id| id + 1).filter(|id| *id >= self.text_end()))
    }

    /// First token after those of text, which special tokens and words that somebody has added are not counted among.
    pub fn text_end(&self) -> u32 {
        self.text_end
    }

    /// Tokens of times, up to words that somebody has added after them; none in a vocabulary without.
    pub fn times(&self) -> Range<u32> {
        let Some(begin) = self.timestamp_begin() else { return 0..0 };
        let end = self.added.range(begin..).next().map_or(u32::MAX, |(id, _)| *id);
        begin..end.min(begin + TIMES)
    }

    /// Token before the previous text, which gives context.
    ///
    /// # Errors
    /// When the vocabulary has no such token.
    pub fn start_of_previous(&self) -> Result<u32, TokenizerError> {
        self.special(START_OF_PREVIOUS, "")
    }

    /// Token that starts a transcript.
    pub fn start(&self) -> u32 {
        self.special.get(SOT).copied().unwrap_or_default()
    }

    /// Token that ends a transcript.
    pub fn end(&self) -> u32 {
        self.special.get(EOT).copied().unwrap_or_default()
    }

    /// Token for no speech; CTC uses it as its blank.
    pub fn no_speech(&self) -> Option<u32> {
        ["<|nospeech|>", "<|nocaptions|>"].iter().find_map(|token| self.special.get(*token).copied())
    }

    /// Special tokens except the end token: greedy decoding of plain text must not produce them.
    pub fn control_tokens(&self) -> Vec<u32> {
        let end = self.end();
        self.special.values().copied().filter(|id| *id != end).collect()
    }

    /// Id of a special token such as `<|transcribe|>`.
    pub fn special_token(&self, token: &str) -> Option<u32> {
        self.special.get(token).copied()
    }

    /// Language tokens, such as `<|en|>`: special tokens of two or three lower-case letters.
    pub fn languages(&self) -> BTreeMap<String, u32> {
        let code = |token: &str| token.strip_prefix("<|").and_then(|t| t.strip_suffix("|>")).map(str::to_owned);
        let is_language = |code: &str| (2..=3).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase());
        let all = self.special.iter().filter(|(token, _)| code(token).is_some_and(|code| is_language(&code)));
        all.map(|(token, id)| (token.clone(), *id)).collect()
    }

    fn special(&self, token: &str, hint: &str) -> Result<u32, TokenizerError> {
        let missing = || TokenizerError::NoToken { token: token.to_owned(), hint: hint.to_owned() };
        self.special.get(token).copied().ok_or_else(missing)
    }

    fn raw_ids(&self, text: &str) -> Vec<u32> {
        self.inner.encode_fast(text, false).map(|e| e.get_ids().to_vec()).unwrap_or_default()
    }
}

/// Whisper's special tokens in its order, for the given languages.
fn special_tokens(languages: &[&str]) -> Vec<String> {
    let mut special = vec![EOT.to_owned(), SOT.to_owned()];
    special.extend(languages.iter().map(|language| format!("<|{language}|>")));
    special.extend(["translate", "transcribe", "startoflm", "startofprev", "nospeech"].map(|t| format!("<|{t}|>")));
    special.push(NO_TIMESTAMPS.to_owned());
    special
}

/// Whisper's special tokens for the given languages, and those of `timestamps` times from 0 s on, 20 ms apart.
fn with_times(languages: &[&str], timestamps: usize) -> Vec<String> {
    let times = (0..timestamps).map(|step| format!("<|{}.{:02}|>", step / 50, step % 50 * 2));
    special_tokens(languages).into_iter().chain(times).collect()
}

/// Characters that represent bytes in the vocabularies of GPT-2 and its successors: printable characters represent
/// themselves, and other bytes are characters from U+0100 on.
fn byte_alphabet() -> impl Iterator<Item = (u8, char)> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=u8::MAX).filter(move |byte| !printable(byte)).zip('\u{100}'..);
    (0..=u8::MAX).filter(printable).map(|byte| (byte, char::from(byte))).chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> WhisperTokenizer {
        WhisperTokenizer::of_characters(" ABC?12", &["en", "de"]).expect("a tokenizer")
    }

    #[test]
    fn characters_round_trip() {
        let t = tokenizer();
        assert_eq!(t.vocab_size(), 7 + 2 + 2 + 6);
        for text in ["CAB 21?", "", " A  B "] {
            assert_eq!(t.decode(&t.encode(text).expect(text)), text);
        }
        assert_eq!(t.encode("A B").expect("spelled"), [1, 0, 2]);
    }

    #[test]
    fn a_trained_vocabulary_spells_everything_and_its_own_texts_in_few_tokens() {
        let texts = ["Xin chào các bạn", "các bạn chào", "xin các bạn"].repeat(20);
        let train = |size, times| WhisperTokenizer::train(texts.iter().copied(), size, &["vi"], times);
        let t = train(300, 101).expect("a tokenizer");
        assert!(t.spells_all);
        for text in ["các bạn chào", "Đường đi 道 🙂", "", " a  b "] {
            assert_eq!(t.decode(&t.encode(text).expect(text)), text);
        }
        let ids = t.encode("Đường đi\n").expect("spelled");
        let bytes: Option<Vec<Vec<u8>>> = ids.iter().map(|id| t.token_bytes(*id)).collect();
        assert_eq!(bytes.map(|tokens| tokens.concat()).as_deref(), Some("Đường đi\n".as_bytes()));
        assert_eq!(t.token_bytes(t.vocab_size() as u32), None);
        assert!(t.encode("các bạn").expect("spelled").len() <= 3, "{:?}", t.encode("các bạn"));
        assert!(t.encode("các bạn").expect("spelled").iter().all(|id| (*id as usize) < 300));
        assert_eq!(t.special_token("<|2.00|>"), t.timestamp_begin().map(|begin| begin + 100));
        assert_eq!(Some(t.vocab_size() as u32), t.timestamp_begin().map(|begin| begin + 101));
        assert_eq!(t.languages().keys().collect::<Vec<_>>(), ["<|vi|>"]);
        let multilingual = GenerationConfig::new(true);
        assert_eq!(t.prompt(&multilingual, Some("vi"), None).expect("a prompt").len(), 4);
        assert_eq!(train(300, 101).expect("again").to_bytes(), t.to_bytes(), "the same texts give the same vocabulary");
        assert!(train(1000, 0).expect("fewer").vocab_size() < 600, "there are no more pairs");
        assert!(train(255, 0).expect_err("refused").to_string().contains("256"));
    }

    #[test]
    fn an_unspellable_character_is_named() {
        let error = tokenizer().encode("AB#C").expect_err("refused");
        assert!(matches!(error, TokenizerError::Unspellable { character: '#', .. }), "{error}");
    }

    #[test]
    fn a_vocabulary_with_special_tokens_first_has_no_times_among_its_text() {
        let trained = WhisperTokenizer::train(["we run it", "run"].into_iter(), 260, &["en"], 0).expect("a tokenizer");
        let mut file: serde_json::Value = serde_json::from_slice(trained.to_bytes()).expect("JSON");
        let added = file["added_tokens"].as_array_mut().expect("tokens");
        let count = added.len() as u64;
        let mut first: BTreeMap<String, u64> = BTreeMap::new();
        for (id, token) in (0..).zip(added) {
            first.insert(token["content"].as_str().expect("a token").to_owned(), id);
            token["id"] = id.into();
        }
        let vocab = file["model"]["vocab"].as_object_mut().expect("a vocabulary");
        vocab.values_mut().for_each(|id| *id = (id.as_u64().expect("an id") + count).into());
        vocab.extend(first.into_iter().map(|(token, id)| (token, id.into())));
        let tokenizer = WhisperTokenizer::from_bytes(file.to_string().into_bytes()).expect("a tokenizer");
        assert_eq!((tokenizer.timestamp_begin(), tokenizer.times()), (None, 0..0));
        assert!(tokenizer.text_end() > tokenizer.end() && trained.text_end() == trained.end());
        let ids = tokenizer.encode("we run it").expect("encoded");
        assert!(ids.iter().all(|id| u64::from(*id) >= count) && tokenizer.decode(&ids) == "we run it", "{ids:?}");
    }

    #[test]
    fn words_that_were_added_are_text() {
        let texts = ["we run it", "run"].repeat(9);
        // Few times, so that the words come where others have times.
        let trained = WhisperTokenizer::train(texts.into_iter(), 260, &["en"], 3).expect("a tokenizer");
        let mut file: serde_json::Value = serde_json::from_slice(trained.to_bytes()).expect("JSON");
        let (id, plain) = (trained.vocab_size() as u32, serde_json::json!(false));
        let added = file["added_tokens"].as_array_mut().expect("tokens");
        let mut token = added[0].clone();
        (token["id"], token["content"], token["special"]) = (id.into(), "Köln".into(), plain);
        added.push(token);
        let tokenizer = WhisperTokenizer::from_bytes(file.to_string().into_bytes()).expect("a tokenizer");
        let ids = tokenizer.encode(" we run Köln it").expect("encoded");
        assert!(ids.contains(&id) && tokenizer.decode(&ids) == " we run Köln it", "{}", tokenizer.decode(&ids));
        assert_eq!(tokenizer.token_bytes(id), Some("Köln".as_bytes().to_vec()));
        assert!(!tokenizer.control_tokens().contains(&id) && !tokenizer.times().contains(&id));
        assert_eq!(tokenizer.times().end, id);
        assert!(tokenizer.encode("<|0.00|>").is_err() && tokenizer.encode("<|en|>").is_err());
    }

    #[test]
    fn transformers_frames_texts_as_openais_tokenizers_do() {
        let tokenizer = tokenizer();
        let framed = tokenizer.inner.encode("AB", true).expect("encoded").get_ids().to_vec();
        let plain = tokenizer.encode("AB").expect("encoded");
        let start = [tokenizer.start(), tokenizer.special_token("<|notimestamps|>").expect("a token")];
        assert_eq!(framed, [&start[..], &plain, &[tokenizer.end()]].concat());
    }

    #[test]
    fn a_control_token_in_the_text_is_refused() {
        let error = tokenizer().encode("AB<|endoftext|>").expect_err("refused");
        assert!(matches!(&error, TokenizerError::Control { token, .. } if token == "<|endoftext|>"), "{error}");
    }

    #[test]
    fn prompts_follow_the_grammar() {
        let t = tokenizer();
        let mut multilingual = GenerationConfig::new(true);
        multilingual.language = Some("de".into());
        let name = |id: &u32| t.inner.id_to_token(*id).expect("a token");
        let names = |p: Vec<u32>| p.iter().map(name).collect::<Vec<_>>().join("");
        let prompt = |g: &GenerationConfig, l, k| names(t.prompt(g, l, k).expect("a prompt"));
        assert_eq!(prompt(&multilingual, None, None), "<|startoftranscript|><|de|><|transcribe|><|notimestamps|>");
        assert_eq!(
            prompt(&multilingual, Some("en"), Some("translate")),
            "<|startoftranscript|><|en|><|translate|><|notimestamps|>"
        );
        assert_eq!(prompt(&GenerationConfig::default(), Some("en"), None), "<|startoftranscript|><|notimestamps|>");
        let norwegian = WhisperTokenizer::of_characters(" AB", &["no"]).expect("a tokenizer");
        assert_eq!(
            norwegian.prompt(&multilingual, Some("nb"), None),
            norwegian.prompt(&multilingual, Some("no"), None)
        );
        for german in ["German", "de-DE", "DE"] {
            assert_eq!(t.prompt(&multilingual, Some(german), None), t.prompt(&multilingual, Some("de"), None));
        }
        let error = t.prompt(&multilingual, Some("xx"), None).expect_err("refused").to_string();
        assert!(error.contains("<|xx|>"), "{error}");
        assert_eq!(t.languages().keys().collect::<Vec<_>>(), ["<|de|>", "<|en|>"]);
        assert!(!t.control_tokens().contains(&t.end()) && t.control_tokens().contains(&t.start()));
    }

    #[test]
    fn a_vocabulary_of_characters_does_not_spell_all() {
        assert!(!tokenizer().spells_all);
        let (bytes, symbols): (BTreeSet<_>, BTreeSet<_>) = byte_alphabet().unzip();
        assert_eq!((byte_alphabet().count(), bytes.len(), symbols.len()), (256, 256, 256));
    }

    #[test]
    fn a_foreign_tokenizer_is_refused() {
        assert!(matches!(WhisperTokenizer::from_bytes(b"{}".to_vec()), Err(TokenizerError::Format(_))));
    }
}
