//! Files are read back by a reader of their own, written from the description of the format.

use super::*;
use burn::tensor::Device;
use std::collections::BTreeMap;
use undertone_model::whisper::{GenerationConfig, WhisperTokenizer};

/// A vocabulary of OpenAI's English size and ids: all bytes, and pairs of them.
fn tokenizer(size: usize, languages: usize) -> WhisperTokenizer {
    let symbol = |byte: u32| char::from_u32(0x100 + byte).expect("a letter").to_string();
    let bytes: Vec<String> = ('!'..='~').map(String::from).chain((0..=32).map(symbol)).collect();
    let pairs = bytes.iter().flat_map(|a| bytes.iter().map(move |b| format!("{a}{b}")));
    let triples = bytes.iter().flat_map(|a| bytes.iter().map(move |b| format!("{a}{b}!")));
    let fours = bytes.iter().flat_map(|a| bytes.iter().map(move |b| format!("{a}{b}!?")));
    let fives = bytes.iter().flat_map(|a| bytes.iter().map(move |b| format!("{a}{b}!??")));
    let ordinary = size - 1501 - 8 - languages;
    let mut words = std::collections::BTreeSet::new();
    let all = bytes.iter().cloned().chain(pairs).chain(triples).chain(fours).chain(fives);
    let vocab: Vec<String> = all.filter(|word| words.insert(word.clone())).take(ordinary).collect();
    assert_eq!(vocab.len(), ordinary);
    let vocab: Vec<String> = vocab.iter().enumerate().map(|(id, word)| format!("{word:?}:{id}")).collect();
    let mut special = vec!["<|endoftext|>".to_owned(), "<|startoftranscript|>".into(), "<|en|>".into()];
    special.extend((1..languages).map(|n| format!("<|language {n}|>")));
    let tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"];
    special.extend(tasks.map(|name| format!("<|{name}|>")));
    special.extend((0..1501).map(|n| format!("<|{}.{:02}|>", n / 50, n % 50 * 2)));
    let added: Vec<String> = special
        .iter()
        .enumerate()
        .map(|(at, token)| {
            let id = ordinary + at;
            format!(
                r#"{{"id":{id},"content":"{token}","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}}"#
            )
        })
        .collect();
    let json = format!(
        r#"{{"version":"1.0","added_tokens":[{}],"model":{{"type":"BPE","vocab":{{{}}},"merges":[]}}}}"#,
        added.join(","),
        vocab.join(",")
    );
    WhisperTokenizer::from_bytes(json.into_bytes()).expect("a tokenizer")
}

fn small() -> WhisperConfig {
    WhisperConfig { decoder_attention_heads: 4, max_target_positions: 20, ..WhisperConfig::new(32, 128, 2, [1, 2]) }
}

fn whisper(config: WhisperConfig) -> PretrainedWhisper {
    PretrainedWhisper::init(config, tokenizer(51864, 99), GenerationConfig::new(false), &Device::default())
        .expect("a model")
}

/// A file as its description says it.
struct File {
    dimensions: Vec<u32>,
    filters: (u32, u32, Vec<f32>),
    vocabulary: Vec<Vec<u8>>,
    /// Axes, type and bytes by name.
    tensors: BTreeMap<String, (Vec<u32>, u32, Vec<u8>)>,
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes"))
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

impl File {
    fn read(bytes: &[u8]) -> Self {
        let mut bytes = Bytes(bytes);
        assert_eq!(bytes.take(4), b"lmgg");
        let dimensions = (0..11).map(|_| bytes.word()).collect();
        let (bins, frequencies) = (bytes.word(), bytes.word());
        let filters = (bins, frequencies, floats(bytes.take((4 * bins * frequencies) as usize)));
        let tokens = bytes.word();
        let token = |bytes: &mut Bytes| {
            let length = bytes.word();
            bytes.take(length as usize).to_vec()
        };
        let vocabulary = (0..tokens).map(|_| token(&mut bytes)).collect();
        let mut tensors = BTreeMap::new();
        while !bytes.0.is_empty() {
            let (axes, length, dtype) = (bytes.word(), bytes.word(), bytes.word());
            let axes: Vec<u32> = (0..axes).map(|_| bytes.word()).collect();
            let name = String::from_utf8(bytes.take(length as usize).to_vec()).expect("a name");
            let values: u32 = axes.iter().product();
            // Bytes of a block, and its values.
            let (size, block) = match dtype {
                0 => (4, 1),
                1 => (2, 1),
                6 => (22, 32),
                8 => (34, 32),
                other => panic!("type {other}"),
            };
            assert_eq!(axes[0] % block, 0, "{name}");
            let data = bytes.take((values / block * size) as usize).to_vec();
            assert!(tensors.insert(name, (axes, dtype, data)).is_none());
        }
        Self { dimensions, filters, vocabulary, tensors }
    }
}

fn written(whisper: &PretrainedWhisper, dtype: GgmlType) -> File {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("model.bin");
    write(&path, whisper, dtype).expect("written");
    File::read(&std::fs::read(path).expect("read"))
}

#[test]
fn a_file_has_the_model_to_the_bit() {
    let whisper = whisper(small());
    let file = written(&whisper, GgmlType::F32);
    assert_eq!(file.dimensions, [51864, 1500, 32, 2, 1, 20, 32, 4, 2, 80, 0]);
    assert_eq!((file.filters.0, file.filters.1), (80, 201));
    assert_eq!(file.filters.2, mel_weights(80).expect("80 bins"));
    assert_eq!(file.vocabulary.len(), 50256);
    assert_eq!((file.vocabulary[0].as_slice(), file.vocabulary[94 + 32].as_slice()), (&b"!"[..], &b" "[..]));
    let tensors = whisper.tensors();
    assert_eq!(file.tensors.len(), tensors.len());
    assert_eq!(file.tensors.len(), 10 + 1 + 15 + 2 * 24, "as many as whisper.cpp looks for");
    for (path, tensor) in tensors {
        let (axes, dtype, data) = &file.tensors[&names::of(&path).expect("a name")];
        assert_eq!(*dtype, 0);
        assert_eq!(floats(data), tensor.data, "{path}");
        let mut expected: Vec<u32> = tensor.shape.iter().rev().map(|length| *length as u32).collect();
        if path.starts_with("encoder.conv") && path.ends_with(".bias") {
            expected = vec![1, 32];
        }
        assert_eq!(*axes, expected, "{path}");
    }
}

#[test]
fn each_tensor_has_the_type_that_whisper_cpp_expects() {
    let whisper = whisper(small());
    for (dtype, file_type, matrix, kernel) in
        [(GgmlType::F16, 1, 1, 1), (GgmlType::Q8_0, 2007, 8, 1), (GgmlType::Q5_0, 2008, 6, 1)]
    {
        let file = written(&whisper, dtype);
        assert_eq!(file.dimensions[10], file_type);
        for (name, (axes, found, _)) in &file.tensors {
            let expected = match axes.len() {
                _ if name.ends_with("positional_embedding") => 0,
                1 => 0,
                2 if name.ends_with(".bias") => 0,
                2 => matrix,
                _ => kernel,
            };
            assert_eq!(*found, expected, "{name} of {dtype:?}");
        }
        assert_eq!(file.tensors["decoder.token_embedding.weight"].1, matrix);
    }
}

#[test]
fn names_are_those_of_openai() {
    for (path, name) in [
        ("encoder.conv1.weight", "encoder.conv1.weight"),
        ("encoder.layers.11.self_attn_layer_norm.bias", "encoder.blocks.11.attn_ln.bias"),
        ("decoder.layers.0.encoder_attn.k_proj.weight", "decoder.blocks.0.cross_attn.key.weight"),
        ("decoder.layers.3.final_layer_norm.weight", "decoder.blocks.3.mlp_ln.weight"),
        ("decoder.layer_norm.weight", "decoder.ln.weight"),
    ] {
        assert_eq!(names::of(path).as_deref(), Some(name));
    }
    assert_eq!(names::of("decoder.router.weight"), None);
}

/// Refusal of a model that is changed after it was made; nothing may be written.
fn refusal(change: impl FnOnce(&mut PretrainedWhisper), dtype: GgmlType) -> String {
    let mut whisper = whisper(small());
    change(&mut whisper);
    let dir = tempfile::tempdir().expect("a directory");
    let error = write(&dir.path().join("model.bin"), &whisper, dtype).expect_err("refused");
    assert!(matches!(error, ExchangeError::Unfit { .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    error.to_string()
}

#[test]
fn what_whisper_cpp_cannot_hold_is_refused_in_a_sentence() {
    type Change = fn(&mut PretrainedWhisper);
    let changes: [(Change, &[&str]); 12] = [
        (|w| w.generation.reader = Some("cw".into()), &["reader `cw`"]),
        (|w| w.config.decoder_key_value_heads = Some(2), &["`decoder_key_value_heads` is 2", "--format undertone"]),
        (|w| w.config.vocab_size = 51870, &["51870", "51864", "OpenAI's vocabulary"]),
        (|w| w.config.vocab_size = 51865, &["is_multilingual", "true"]),
        (|w| w.generation.is_multilingual = true, &["is_multilingual", "false"]),
        (|w| w.config.max_source_positions = 750, &["`max_source_positions` is 750", "1500"]),
        (|w| w.config.max_target_positions = 8, &["`max_target_positions` is 8"]),
        (|w| w.config.encoder_ffn_dim = 64, &["`encoder_ffn_dim` is 64", "128"]),
        (|w| w.config.decoder_ffn_dim = 64, &["`decoder_ffn_dim` is 64"]),
        (|w| w.config.num_mel_bins = 40, &["`num_mel_bins` is 40", "80 or 128"]),
        (|w| w.config.scale_embedding = true, &["`scale_embedding`"]),
        (|w| w.tokenizer = tokenizer(51864, 90), &["`<|endoftext|>` is 50265", "50256"]),
    ];
    for (change, culprits) in changes {
        let text = refusal(change, GgmlType::F16);
        for culprit in culprits {
            assert!(text.contains(culprit), "{culprit}: {text}");
        }
        assert!(text.starts_with("whisper.cpp cannot hold this model: "), "{text}");
    }
}

#[test]
fn rows_that_are_no_whole_blocks_are_refused_for_quantised_types_alone() {
    let narrow = || WhisperConfig { d_model: 16, encoder_ffn_dim: 64, decoder_ffn_dim: 64, ..small() };
    let text = refusal(|w| *w = whisper(narrow()), GgmlType::Q8_0);
    assert!(text.contains("`d_model` is 16") && text.contains("--dtype f16"), "{text}");
    assert_eq!(written(&whisper(narrow()), GgmlType::F16).dimensions[2], 16);
}

#[test]
fn values_beyond_16_bits_are_refused_where_there_are_16() {
    let tensor = |value: f32| HostTensor { shape: vec![2], data: vec![1.0, value] };
    let check = |value, dtype| fit::check_values("decoder.fc1", &tensor(value), dtype);
    assert_eq!(check(1e5, GgmlType::F32), Ok(()));
    assert_eq!(check(65504.0, GgmlType::F16), Ok(()));
    for dtype in [GgmlType::F16, GgmlType::Q8_0] {
        let text = check(1e5, dtype).expect_err("refused");
        assert!(text.contains("`decoder.fc1`") && text.contains("--dtype f32"), "{text}");
    }
    assert!(check(f32::NAN, GgmlType::F32).expect_err("refused").contains("NaN"));
}

#[test]
fn a_place_that_is_none_is_an_error_of_the_file_system() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = write(&dir.path().join("none/model.bin"), &whisper(small()), GgmlType::F16).expect_err("refused");
    assert!(matches!(&error, ExchangeError::Store(_)) && error.to_string().contains("none/model.bin"), "{error}");
}

#[test]
fn a_file_is_read_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("model.bin");
    let whisper = whisper(small());
    let tensors = whisper.tensors();
    for dtype in [GgmlType::F32, GgmlType::F16, GgmlType::Q8_0, GgmlType::Q5_0] {
        write(&path, &whisper, dtype).expect("written");
        let back = read(&path, &Device::default()).expect("a model");
        assert_eq!(back.tokenizer.vocab_size(), 51864);
        assert_eq!(back.tokenizer.token_bytes(300), whisper.tokenizer.token_bytes(300));
        assert_eq!((back.config.d_model, back.config.decoder_attention_heads), (32, 4));
        assert!(!back.generation.is_multilingual);
        for (name, found) in back.tensors() {
            let stored = stored_type(&names::of(&name).expect("a name"), found.shape.len(), dtype);
            assert_eq!(found.shape, tensors[&name].shape, "{name}");
            let encoded = stored.encode(&tensors[&name].data);
            let number = stored.of_tensor() as usize;
            let expected = dtype::Stored::of_number(number).expect("a type").decode(&encoded);
            assert_eq!(found.data, expected, "{name} of {dtype:?}");
        }
        std::fs::remove_file(&path).expect("removed");
    }
}

#[test]
fn damaged_files_are_refused_in_a_sentence() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("model.bin");
    write(&path, &whisper(small()), GgmlType::Q8_0).expect("written");
    let whole = std::fs::read(&path).expect("read");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("written");
        read(&path, &Device::default()).expect_err("refused").to_string()
    };
    for length in [4, 40, 50, 1000, 70_000, 1_000_000, whole.len() - 1] {
        assert!(refused(&whole[..length]).contains("ends early"), "{length}");
    }
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        refused(&bytes)
    };
    // Vocabulary, width of the encoder, layers, bins.
    assert!(changed(4, 0).contains("tokens, and OpenAI's have"));
    assert!(changed(12, 33).contains("33 and 32"));
    assert!(changed(20, 2).contains("encoder.layers.1"));
    assert!(changed(40, 81).contains("num_mel_bins"));
}
