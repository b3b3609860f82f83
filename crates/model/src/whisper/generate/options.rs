//! Options of decoding.

/// Options of [`WhisperDecoder::generate`](super::super::WhisperDecoder::generate).
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Token that ends a sequence.
    pub end: u32,
    /// Maximum number of tokens of a sequence, prompt included; at most the decoder's positions.
    pub max_length: usize,
    /// Tokens that are never generated.
    pub suppress: Vec<u32>,
    /// Tokens that are never generated first.
    pub begin_suppress: Vec<u32>,
    /// Size of n-grams that must not repeat in prompt and output together; 0 allows all repetitions.
    pub no_repeat_ngram: usize,
    /// Number of beams per sample; up to 1 is greedy decoding.
    pub beams: usize,
    /// Exponent of a finished hypothesis' length, by which its log probability is divided: above 0 favours long outputs,
    /// below 0 short ones. Greedy decoding ignores it.
    pub length_penalty: f64,
    /// Whether the search ends as soon as `beams` hypotheses are finished. Otherwise it continues while the best
    /// running hypothesis, with the penalty of its present length, scores higher than the worst finished one.
    pub early_stopping: bool,
    /// Beam search as in openai-whisper: it ends once `beams · patience` hypotheses are finished (Kasai et al., 2022), and
    /// the end token does not count as length. `None` searches as transformers does.
    pub patience: Option<f64>,
    /// Temperature of sampling; 0 selects the most probable token. Above 0 there are no beams.
    pub temperature: f64,
    /// Number of sequences that are sampled, of which the most probable is returned. Temperature 0 needs only one.
    pub best_of: usize,
    /// Seed of sampling.
    pub seed: u64,
    /// Rules for timestamps; `None` for text without them.
    pub timestamps: Option<TimestampRules>,
    /// Probability to report beside each sequence: that of a token after the first tokens of the prompt.
    pub no_speech: Option<NoSpeech>,
}

/// Rules for timestamps (Radford et al., 2022): they come in pairs and do not decrease, and one is generated wherever
/// timestamps together are more probable than any other token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampRules {
    /// Token of the time 0 s. All later tokens are timestamps, 20 ms apart.
    pub begin: u32,
    /// Maximum of the first timestamp, in steps of 20 ms.
    pub max_initial: Option<u32>,
    /// Number of tokens at the end of the prompts that are the beginning of the text, which starts with a timestamp.
    pub begun: usize,
}

/// The probability that a stretch of audio has no speech.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpeech {
    /// Token for no speech.
    pub token: u32,
    /// Position in the prompt of the token that it would follow: the start of the transcript.
    pub position: usize,
}

impl GenerateOptions {
    /// Greedy decoding without suppressed tokens; the other values are the defaults of transformers.
    pub fn new(end: u32, max_length: usize) -> Self {
        Self {
            end,
            max_length,
            suppress: Vec::new(),
            begin_suppress: Vec::new(),
            no_repeat_ngram: 0,
            beams: 1,
            length_penalty: 1.0,
            early_stopping: false,
            patience: None,
            temperature: 0.0,
            best_of: 1,
            seed: 0,
            timestamps: None,
            no_speech: None,
        }
    }
}
