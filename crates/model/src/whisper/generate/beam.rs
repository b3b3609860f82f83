//! Beam search, with the candidates, penalties and end conditions of transformers, or with those of openai-whisper if there
//! is a [`patience`](GenerateOptions::patience).

use super::generated::Generated;
use super::options::GenerateOptions;
use super::rules::{Rules, Sums};
use crate::whisper::{DecoderCache, WhisperDecoder};
use burn::tensor::activation::log_softmax;
use burn::tensor::{FloatDType, Tensor};
use rayon::prelude::*;

/// Returns each sample's prompt and the tokens of its best hypothesis, without the end token.
pub(super) fn generate(
    decoder: &WhisperDecoder,
    mut cache: DecoderCache,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    rules: &Rules,
) -> Vec<Generated> {
    let mut searches: Vec<Search> = prompts.iter().map(|prompt| Search::new(prompt, options)).collect();
    // Every running hypothesis has a row: first only the prompts, later up to `beams` of each unfinished sample.
    let mut next = prompts.to_vec();
    let mut owners = rows_of(&searches);
    // No sample continues if the prompt has the maximum length.
    while !owners.is_empty() {
        let logits = decoder.next_logits(&next, &mut cache);
        let so_far: Vec<&[u32]> = running(&searches).map(|(_, hypothesis)| hypothesis.tokens.as_slice()).collect();
        let scores = scores(logits.cast(FloatDType::F32), &so_far, options, rules);
        let parents = advance(&mut searches, &scores);
        let previous = std::mem::replace(&mut owners, rows_of(&searches));
        if owners.is_empty() {
            break;
        }
        let rows = decoder.row_ids(&parents);
        cache = if owners == previous { cache.branch(rows) } else { cache.select(rows) };
        next = running(&searches)
            .map(|(_, hypothesis)| hypothesis.tokens[hypothesis.tokens.len() - 1..].to_vec())
            .collect();
    }
    searches.into_iter().map(Search::best).collect()
}

/// Scores of the next token of each row.
struct Scores {
    /// Log probabilities up to a constant of each row, `[rows, vocab_size]`; minus infinity where a token is forbidden.
    logits: Vec<f32>,
    /// Constants of the rows.
    sums: Vec<Sums>,
}

impl Scores {
    /// Scores of some rows.
    fn rows(&self, rows: std::ops::Range<usize>) -> (&[f32], &[Sums]) {
        let vocab_size = self.logits.len() / self.sums.len();
        (&self.logits[rows.start * vocab_size..rows.end * vocab_size], &self.sums[rows])
    }
}

/// Returns the scores of the next token. transformers suppresses tokens after the softmax, openai-whisper before it.
fn scores(logits: Tensor<2>, so_far: &[&[u32]], options: &GenerateOptions, rules: &Rules) -> Scores {
    if options.patience.is_none() && rules.fit_device() {
        let logits = undertone_ops::read(rules.apply(log_softmax(logits, 1), so_far));
        return Scores { logits, sums: vec![Sums { all: 0.0, allowed: 0.0 }; so_far.len()] };
    }
    let vocab_size = logits.dims()[1];
    let mut logits = undertone_ops::read(logits);
    let rows = logits.par_chunks_mut(vocab_size).zip(so_far);
    let sums = rows.map(|(row, tokens)| rules.apply_to_row(row, tokens)).collect();
    Scores { logits, sums }
}

/// Advances every running search by one step. Returns the row that each new one continues.
fn advance(searches: &mut [Search], scores: &Scores) -> Vec<usize> {
    let (mut parents, mut row) = (Vec::new(), 0);
    for search in searches.iter_mut().filter(|search| !search.done) {
        let own = row..row + search.running.len();
        let (logits, sums) = scores.rows(own.clone());
        let continued = search.advance(logits, sums);
        if !search.done {
            parents.extend(continued.into_iter().map(|parent| own.start + parent));
        }
        row = own.end;
    }
    parents
}

/// Running hypotheses in the order of their rows, each with its sample.
fn running(searches: &[Search]) -> impl Iterator<Item = (usize, &Hypothesis)> {
    let open = searches.iter().enumerate().filter(|(_, search)| !search.done);
    open.flat_map(|(sample, search)| search.running.iter().map(move |hypothesis| (sample, hypothesis)))
}

/// Sample of each row.
fn rows_of(searches: &[Search]) -> Vec<usize> {
    running(searches).map(|(sample, _)| sample).collect()
}

/// Search of one sample.
struct Search {
    beams: usize,
    length_penalty: f64,
    early_stopping: bool,
    /// Number of finished hypotheses that end the search, as in openai-whisper.
    enough: Option<usize>,
    end: u32,
    max_length: usize,
    prompt_length: usize,
    /// Best first, at most `beams`.
    running: Vec<Hypothesis>,
    /// Best first.
    finished: Vec<Hypothesis>,
    done: bool,
}

/// Token sequence, prompt included and end token left out.
#[derive(Clone, Debug, PartialEq)]
struct Hypothesis {
    tokens: Vec<u32>,
    /// Log probability of each token among all tokens.
    log_probs: Vec<f32>,
    /// Sum of the log probabilities among the allowed tokens.
    total: f64,
    /// The sum, divided by the length penalty once it is finished.
    score: f64,
}

impl Search {
    fn new(prompt: &[u32], options: &GenerateOptions) -> Self {
        Self {
            beams: options.beams,
            length_penalty: options.length_penalty,
            early_stopping: options.early_stopping,
            enough: options.patience.map(|patience| (options.beams as f64 * patience).round().max(1.0) as usize),
            end: options.end,
            max_length: options.max_length,
            prompt_length: prompt.len(),
            running: vec![Hypothesis { tokens: prompt.to_vec(), log_probs: Vec::new(), total: 0.0, score: 0.0 }],
            finished: Vec::new(),
            done: prompt.len() >= options.max_length,
        }
    }

    /// Extends the hypotheses by one token, given the scores of the next token of each, `[running, vocab_size]`, and their
    /// sums. Returns the index of the hypothesis that each new one continues.
    fn advance(&mut self, logits: &[f32], sums: &[Sums]) -> Vec<usize> {
        let vocab_size = logits.len() / self.running.len();
        let totals =
            self.running.iter().zip(sums).zip(logits.chunks(vocab_size)).flat_map(|((own, sums), row)| {
                row.iter().map(move |logit| own.total + f64::from(logit - sums.allowed))
            });
        // At most one candidate of each hypothesis ends it, so twice the number of beams leaves enough to continue
        // with.
        let candidates = highest(totals, 2 * self.beams);
        if candidates.is_empty() {
            self.done = true;
            return Vec::new();
        }
        let length = self.running[0].tokens.len() + 1;
        let penalty = ((length - self.prompt_length) as f64).powf(self.length_penalty);
        let (mut extended, mut parents) = (Vec::new(), Vec::new());
        for (rank, (index, total)) in candidates.into_iter().enumerate() {
            let (parent, token) = (index / vocab_size, (index % vocab_size) as u32);
            // What ranks below the last beam that goes on is no candidate in openai-whisper.
            if self.enough.is_some() && extended.len() == self.beams {
                break;
            }
            let ends = token == self.end;
            let mut next = Hypothesis { total, score: total, ..self.running[parent].clone() };
            if !ends {
                next.tokens.push(token);
                next.log_probs.push(logits[index] - sums[parent].all);
            }
            if ends || length == self.max_length {
                self.finish(next, ends, rank, penalty);
            } else if extended.len() < self.beams {
                extended.push(next);
                parents.push(parent);
            }
        }
        self.running = extended;
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
        if self.enough.is_none() {
            self.finished.truncate(self.beams);
        }
        self.done = !self.goes_on(penalty);
        parents
    }

    /// Takes a hypothesis that is finished, the candidate of a step with this rank.
    fn finish(&mut self, hypothesis: Hypothesis, ends: bool, rank: usize, penalty: f64) {
        match self.enough {
            Some(enough) if self.finished.len() < enough || !ends => {
                let length = (hypothesis.tokens.len() - self.prompt_length).max(1) as f64;
                let score = hypothesis.total / length.powf(self.length_penalty);
                self.finished.push(Hypothesis { score, ..hypothesis });
            }
            Some(_) => {}
            // Candidates ranked below the first `beams` may only continue.
            None if rank < self.beams => {
                self.finished.push(Hypothesis { score: hypothesis.total / penalty, ..hypothesis });
            }
            None => {}
        }
    }

    /// Whether a running hypothesis may still beat a finished one.
    fn goes_on(&self, penalty: f64) -> bool {
        let Some(best) = self.running.first() else { return false };
        if let Some(enough) = self.enough {
            return self.finished.len() < enough;
        }
        match self.finished.last() {
            Some(worst) if self.finished.len() == self.beams => {
                !self.early_stopping && best.total / penalty > worst.score
            }
            _ => true,
        }
    }

    /// Returns the best finished sequence; if suppression left none, the best running one.
    fn best(self) -> Generated {
        let best = self.finished.into_iter().chain(self.running).next();
        best.map(|Hypothesis { tokens, log_probs, total, .. }| Generated { tokens, log_probs, total, no_speech: None })
            .unwrap_or_default()
    }
}

/// Positions and values of the `count` highest scores, highest first; among equal scores the earlier comes first.
/// Suppressed tokens, at minus infinity, are never among them.
fn highest(scores: impl Iterator<Item = f64>, count: usize) -> Vec<(usize, f64)> {
    let mut best: Vec<(usize, f64)> = Vec::with_capacity(count + 1);
    for (index, score) in scores.enumerate().filter(|(_, score)| *score > f64::NEG_INFINITY) {
        if best.len() < count || best.last().is_some_and(|(_, worst)| score > *worst) {
            best.insert(best.partition_point(|(_, other)| *other >= score), (index, score));
            best.truncate(count);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOCAB: usize = 3;
    const STEPS: usize = 3;
    const END: u32 = 0;
    const PROMPT: [u32; 2] = [2, 1];
    const SUMS: Sums = Sums { all: 0.0, allowed: 0.0 };

    fn options(beams: usize, length_penalty: f64, early_stopping: bool) -> GenerateOptions {
        GenerateOptions { beams, length_penalty, early_stopping, ..GenerateOptions::new(END, PROMPT.len() + STEPS) }
    }

    /// Log probabilities of the token after `tokens`: each sequence selects its own row of a table.
    fn log_probs(table: &[f32], tokens: &[u32]) -> Vec<f32> {
        let place = tokens.iter().fold(1, |place, token| place * VOCAB + *token as usize);
        let row = &table[place * VOCAB..][..VOCAB];
        let sum: f32 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x - sum.ln()).collect()
    }

    fn search(table: &[f32], options: &GenerateOptions) -> Vec<u32> {
        let mut search = Search::new(&PROMPT, options);
        while !search.done {
            let scores: Vec<f32> =
                search.running.iter().flat_map(|h| log_probs(table, &h.tokens[PROMPT.len()..])).collect();
            let sums = vec![SUMS; search.running.len()];
            search.advance(&scores, &sums);
        }
        search.best().tokens.split_off(PROMPT.len())
    }

    /// Penalised score of a finished sequence; a sequence shorter than the maximum was ended by the end token.
    fn score(table: &[f32], tokens: &[u32], length_penalty: f64) -> f64 {
        let mut whole = tokens.to_vec();
        if whole.len() < STEPS {
            whole.push(END);
        }
        let sum: f64 = (0..whole.len()).map(|i| f64::from(log_probs(table, &whole[..i])[whole[i] as usize])).sum();
        sum / (whole.len() as f64).powf(length_penalty)
    }

    /// Best score of all sequences that begin with `tokens`.
    fn optimum(table: &[f32], tokens: &[u32], length_penalty: f64) -> f64 {
        if tokens.len() == STEPS {
            return score(table, tokens, length_penalty);
        }
        let longer = (0..VOCAB as u32).filter(|token| *token != END);
        let longer = longer.map(|token| optimum(table, &[tokens, &[token]].concat(), length_penalty));
        longer.fold(score(table, tokens, length_penalty), f64::max)
    }

    proptest! {
        #[test]
        fn beams_for_every_sequence_find_the_best_of_all(
            table in prop::collection::vec(-3.0_f32..3.0, VOCAB * VOCAB.pow(STEPS as u32)),
            length_penalty in -1.0_f64..3.0,
            early_stopping: bool,
        ) {
            let found = search(&table, &options(VOCAB.pow(STEPS as u32), length_penalty, early_stopping));
            let best = optimum(&table, &[], length_penalty);
            prop_assert!((score(&table, &found, length_penalty) - best).abs() < 1e-9, "{found:?} is not of {best}");
        }

        #[test]
        fn one_beam_that_stops_early_takes_the_likeliest_token(
            table in prop::collection::vec(-3.0_f32..3.0, VOCAB * VOCAB.pow(STEPS as u32)),
            length_penalty in -1.0_f64..3.0,
        ) {
            let mut greedy = Vec::new();
            while greedy.len() < STEPS {
                let best = highest(log_probs(&table, &greedy).into_iter().map(f64::from), 1)[0].0 as u32;
                if best == END {
                    break;
                }
                greedy.push(best);
            }
            prop_assert_eq!(search(&table, &options(1, length_penalty, true)), greedy);
        }

        #[test]
        fn the_highest_are_those_that_sorting_puts_first(scores in prop::collection::vec(-3_i8..3, 0..40), count in 1_usize..9) {
            let allowed = scores.iter().map(|s| if *s == 0 { f64::NEG_INFINITY } else { f64::from(*s) });
            let mut sorted: Vec<(usize, f64)> = allowed.clone().enumerate().filter(|(_, s)| s.is_finite()).collect();
            sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
            sorted.truncate(count);
            prop_assert_eq!(highest(allowed, count), sorted);
        }
    }

    #[test]
    fn a_finished_hypothesis_below_the_beams_is_forgotten() {
        let mut search = Search::new(&PROMPT, &options(1, 1.0, true));
        assert_eq!(search.advance(&[-1.0, -0.5, -2.0], &[SUMS]), [0]);
        assert!(search.finished.is_empty() && search.running[0].tokens == [2, 1, 1]);
        search.advance(&[-0.25, -3.0, -3.0], &[SUMS]);
        assert_eq!(
            search.finished,
            [Hypothesis { tokens: vec![2, 1, 1], log_probs: vec![-0.5], total: -0.75, score: -0.375 }]
        );
        assert!(search.done);
    }

    #[test]
    fn where_everything_is_forbidden_the_best_that_ran_is_returned() {
        let mut search = Search::new(&PROMPT, &options(2, 1.0, false));
        search.advance(&[f32::NEG_INFINITY, -1.0, -2.0], &[SUMS]);
        search.advance(&[f32::NEG_INFINITY; 2 * VOCAB], &[SUMS; 2]);
        assert!(search.done);
        assert_eq!(search.best().tokens, [2, 1, 1]);
    }
}
