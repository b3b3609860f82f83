//! What whisper.cpp can hold. Where its loader does not check, a model outside of this would load and answer nonsense,
//! or end the program.

use super::blocks::BLOCK;
use super::dtype::GgmlType;
use undertone_model::whisper::{PretrainedWhisper, WhisperConfig, WhisperTokenizer};
use undertone_store::HostTensor;

/// Number of languages by vocabulary size: whisper.cpp derives from the size whether a model is multilingual, and the
/// ids of all special tokens.
const LANGUAGES: [(usize, u32); 3] = [(51864, 99), (51865, 99), (51866, 100)];

/// Positions of the encoder: 30 s, which whisper.cpp cuts audio into.
const POSITIONS: usize = 1500;

/// Positions of the decoder that whisper.cpp needs to write one token: it writes at most half of them, less four.
const FEWEST_TOKENS: usize = 10;

/// Returns the reason why whisper.cpp cannot hold a model.
pub(super) fn check(whisper: &PretrainedWhisper, dtype: GgmlType) -> Result<(), String> {
    if let Some(reader) = &whisper.generation.reader {
        return Err(format!("the reader `{reader}` prepares its audio, and whisper.cpp knows speech alone"));
    }
    let languages = check_vocabulary_size(whisper.config.vocab_size)?;
    check_dimensions(&whisper.config)?;
    check_blocks(&whisper.config, dtype)?;
    check_prompt(whisper)?;
    check_special_tokens(&whisper.tokenizer, is_multilingual(&whisper.config), languages)
}

/// Returns the reason why values do not fit a type.
pub(super) fn check_values(path: &str, tensor: &HostTensor, dtype: GgmlType) -> Result<(), String> {
    let most = match dtype {
        GgmlType::F32 => f32::MAX,
        GgmlType::F16 | GgmlType::Q8_0 | GgmlType::Q5_0 => half::f16::MAX.to_f32(),
    };
    match tensor.data.iter().find(|value| !value.is_finite() || value.abs() > most) {
        None => Ok(()),
        Some(value) if value.is_finite() => {
            Err(format!("`{path}` has the value {value}, and 16 bits end at {most}: use --dtype f32"))
        }
        Some(value) => Err(format!("`{path}` has the value {value}: train it again from a sound checkpoint")),
    }
}

fn is_multilingual(config: &WhisperConfig) -> bool {
    config.vocab_size > 51864
}

/// Returns the number of languages.
fn check_vocabulary_size(size: usize) -> Result<u32, String> {
    let found = LANGUAGES.iter().find(|(known, _)| *known == size);
    found.map(|(_, languages)| *languages).ok_or_else(|| {
        format!(
            "`vocab_size` is {size}, and whisper.cpp computes the ids of special tokens from 51864 (English), 51865 or \
             51866 (multilingual): export a model that keeps OpenAI's vocabulary"
        )
    })
}

fn check_dimensions(config: &WhisperConfig) -> Result<(), String> {
    let width = 4 * config.d_model;
    let rules = [
        ("max_source_positions", config.max_source_positions, POSITIONS, "windows of 30 s have 1500"),
        ("encoder_ffn_dim", config.encoder_ffn_dim, width, "it takes four times `d_model`"),
        ("decoder_ffn_dim", config.decoder_ffn_dim, width, "it takes four times `d_model`"),
    ];
    for (key, value, needed, why) in rules {
        if value != needed {
            return Err(format!("`{key}` is {value} and must be {needed}: {why}"));
        }
    }
    if ![80, 128].contains(&config.num_mel_bins) {
        return Err(format!("`num_mel_bins` is {} and must be 80 or 128", config.num_mel_bins));
    }
    if config.max_target_positions < FEWEST_TOKENS {
        let positions = config.max_target_positions;
        return Err(format!("`max_target_positions` is {positions} and must be at least {FEWEST_TOKENS}"));
    }
    if config.scale_embedding {
        return Err("`scale_embedding` is true, and whisper.cpp does not scale embeddings".into());
    }
    Ok(())
}

fn check_blocks(config: &WhisperConfig, dtype: GgmlType) -> Result<(), String> {
    match dtype.is_quantised() && !config.d_model.is_multiple_of(BLOCK) {
        true => Err(format!(
            "`d_model` is {}, and quantised rows are whole blocks of {BLOCK} values: use --dtype f16",
            config.d_model
        )),
        false => Ok(()),
    }
}

/// Checks that whisper.cpp's prompt is the model's.
fn check_prompt(whisper: &PretrainedWhisper) -> Result<(), String> {
    let size = whisper.config.vocab_size;
    match (is_multilingual(&whisper.config), whisper.generation.is_multilingual) {
        (true, false) => Err(format!(
            "by its `vocab_size`, {size}, whisper.cpp gives it language and task, and its generation_config.json says \
             that it takes neither: set `is_multilingual` there to true if it was trained with them"
        )),
        (false, true) => Err(format!(
            "by its `vocab_size`, {size}, whisper.cpp gives it neither language nor task, and its \
             generation_config.json says that it takes them: set `is_multilingual` there to false if it was trained without"
        )),
        _ => Ok(()),
    }
}

/// Checks that the special tokens have the ids that whisper.cpp computes.
fn check_special_tokens(tokenizer: &WhisperTokenizer, multilingual: bool, languages: u32) -> Result<(), String> {
    let end = 50256 + u32::from(multilingual);
    let after = end + 2 + languages;
    let expected = [
        ("<|endoftext|>", end),
        ("<|startoftranscript|>", end + 1),
        ("<|en|>", end + 2),
        ("<|translate|>", after),
        ("<|transcribe|>", after + 1),
        ("<|startofprev|>", after + 3),
        ("<|notimestamps|>", after + 5),
    ];
    for (token, id) in expected {
        match tokenizer.special_token(token) {
            Some(found) if found != id => {
                return Err(format!(
                    "its token `{token}` is {found}, and whisper.cpp takes {id} for it: export a model that keeps \
                     OpenAI's vocabulary"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}
