use super::*;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokenizers::{NormalizedString, Normalizer};

/// A tokenizer of letters with this key and value.
fn with(key: &str, value: &Value) -> Vec<u8> {
    let mut file = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}, "post_processor": null,
        "model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 9, "vocab": {"?": 0, "a": 1}},
    });
    file[key] = value.clone();
    file.to_string().into_bytes()
}

fn refusal(key: &str, value: &Value) -> String {
    read(&with(key, value)).expect_err(&value.to_string())
}

fn replace(pattern: &Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

#[test]
fn a_file_that_ends_or_breaks_anywhere_is_refused() {
    let whole = with("normalizer", &Value::Null);
    assert!(read(&whole).is_ok());
    for at in 0..whole.len() {
        assert!(read(&whole[..at]).is_err(), "cut at {at}");
        let mut broken = whole.clone();
        broken[at] = b'\x01';
        assert!(read(&broken).is_err(), "broken at {at}");
    }
}

#[test]
fn normalizers_that_make_much_out_of_little_are_refused() {
    let eight = replace(&json!({"String": "a"}), "aaaaaaaa");
    let mut untyped = eight.clone();
    untyped.as_object_mut().expect("an object").remove("type");
    let sequence = |steps: Vec<Value>| json!({"type": "Sequence", "normalizers": steps});
    for bomb in [
        sequence(vec![eight.clone(); 4]),
        sequence(vec![sequence(vec![eight.clone(); 2]), sequence(vec![eight.clone(); 2])]),
        sequence(vec![untyped; 4]),
        json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(5000), "normalizers": []}),
        replace(&json!({"String": "a"}), &"a".repeat(5000)),
        replace(&json!({"Regex": "a|b"}), &"a".repeat(5000)),
        sequence(vec![replace(&json!({"Regex": "."}), "aaaaaaa"); 4]),
        sequence(vec![json!({"type": "Prepend", "prepend": "aaaaaaa"}); 4]),
        sequence((0..3).flat_map(|_| [replace(&json!({"String": "a"}), "ﷺ"), json!({"type": "NFKD"})]).collect()),
    ] {
        let error = refusal("normalizer", &bomb);
        assert!(error.starts_with("`normalizer`: with its step `"), "{error}");
    }
    let error = refusal(
        "pre_tokenizer",
        &json!({"type": "Sequence", "pretokenizers": vec![
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}); 4]}),
    );
    assert!(error.starts_with("`pre_tokenizer`: with its step `ByteLevel`"), "{error}");
    let error = refusal("decoder", &json!({"type": "Sequence", "decoders": vec![eight; 4]}));
    assert!(error.starts_with("`decoder`: with its step `Replace`"), "{error}");
}

#[test]
fn normalizers_of_models_that_there_are_are_read() {
    let albert = json!({"type": "Sequence", "normalizers": [
        replace(&json!({"String": "``"}), "\""), replace(&json!({"String": "''"}), "\""), {"type": "NFKD"},
        {"type": "StripAccents"}, {"type": "Lowercase"}, replace(&json!({"Regex": " {2,}"}), " "),
    ]});
    let bert = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                      "strip_accents": null, "lowercase": true});
    let llama = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, replace(&json!({"String": " "}), "▁"),
    ]});
    for normalizer in [albert, bert, llama, json!({"type": "NFC"}), Value::Null] {
        read(&with("normalizer", &normalizer)).expect("a tokenizer");
    }
    let llama = json!({"type": "Sequence", "decoders": [
        replace(&json!({"String": "▁"}), " "), {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]});
    read(&with("decoder", &llama)).expect("a tokenizer");
}

#[test]
fn what_is_read_makes_no_more_of_a_character_than_was_counted() {
    let steps = vec![replace(&json!({"String": "a"}), "aaaaaaaa"); 3];
    let tokenizer = read(&with("normalizer", &json!({"type": "Sequence", "normalizers": steps}))).expect("a tokenizer");
    let mut text = NormalizedString::from("a");
    tokenizer.get_normalizer().expect("a normalizer").normalize(&mut text).expect("normalized");
    assert_eq!(text.get(), "a".repeat(512));
}

#[test]
fn steps_at_which_the_library_panics_are_refused() {
    let error = refusal("decoder", &json!({"type": "Strip", "content": "a", "start": 0, "stop": 1}));
    assert!(error.contains("`decoder`: `Strip`"), "{error}");
    let error = refusal("pre_tokenizer", &json!({"type": "FixedLength", "length": 0}));
    assert!(error.contains("`FixedLength`"), "{error}");
}

#[test]
fn what_has_no_characters_is_not_replaced() {
    for pattern in [
        json!({"String": ""}),
        json!({"Regex": ""}),
        json!({"Regex": "(a*)*"}),
        json!({"Regex": "^"}),
        json!({"Regex": "(?=a)"}),
        json!({"Regex": r"\b"}),
    ] {
        let error = refusal("normalizer", &replace(&pattern, "  "));
        assert!(error.contains("between two characters"), "{error}");
    }
    let error = refusal("normalizer", &json!({"type": "Prepend", "prepend": ""}));
    assert!(error.contains("`Prepend`"), "{error}");
}

#[test]
fn expressions_that_are_large_as_machines_are_refused() {
    for expression in [
        r"\w{99999}".to_owned(),
        r"((\w{99}){99}){99}".into(),
        r"(?=a)\w{99}".repeat(1000),
        "a{9,99999999999999999999}".into(),
    ] {
        let split = json!({"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false});
        let error = refusal("pre_tokenizer", &split);
        assert!(error.contains("regular expressions"), "{error}");
    }
    let gpt = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+|[\x{3000}]";
    let split = json!({"type": "Split", "pattern": {"Regex": gpt}, "behavior": "Isolated", "invert": false});
    read(&with("pre_tokenizer", &split)).expect("a tokenizer");
}

#[test]
fn templates_that_repeat_texts_or_name_no_token_are_refused() {
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let token = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let processor = |single: Vec<Value>, tokens: Value| json!({"type": "TemplateProcessing", "single": single, "pair": [text("A"), text("B")], "special_tokens": tokens});
    let known = json!({"a": {"id": "a", "ids": [1], "tokens": ["a"]}});
    let good = processor(vec![token("a"), text("A"), token("a")], known.clone());
    let list = |processors: &[&Value]| json!({"type": "Sequence", "processors": processors});
    for one in [&good, &list(&[&good])] {
        read(&with("post_processor", one)).expect("read");
    }
    // The second gets the output of the first, three pieces, at which the library panics.
    for several in [list(&[&good, &good]), list(&[&list(&[&good]), &good])] {
        let error = refusal("post_processor", &several);
        assert!(error.contains("several templates"), "{error}");
    }
    let thousand = json!({"a": {"id": "a", "ids": vec![1; 1000], "tokens": vec!["a"; 1000]}});
    let uneven = json!({"a": {"id": "a", "ids": [1, 2], "tokens": ["a"]}});
    for (single, tokens, said) in [
        (vec![token("a"); 100], known.clone(), "adds 100 tokens"),
        (vec![token("a"), text("A")], thousand, "adds 1000 tokens"),
        (vec![text("A"), text("A")], known.clone(), "the text A"),
        (vec![text("B")], known.clone(), "the text B"),
        (vec![token("b"), text("A")], known.clone(), "`b`"),
        (vec![token("a"), text("A")], uneven, "`a`"),
    ] {
        let template = processor(single, tokens);
        for processor in [template.clone(), json!({"type": "Sequence", "processors": [template]})] {
            let error = refusal("post_processor", &processor);
            assert!(error.starts_with("`post_processor`: the template `single`") && error.contains(said), "{error}");
        }
    }
}

#[test]
fn a_token_as_long_as_a_book_is_refused() {
    let book = "a".repeat(1 << 20);
    let added = json!([{"id": 2, "content": book, "single_word": false, "lstrip": false, "rstrip": false,
                        "normalized": false, "special": true}]);
    assert!(refusal("added_tokens", &added).contains("1048576 bytes"));
    let model = json!({"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 9, "vocab": {"?": 0, book.clone(): 1}});
    assert!(refusal("model", &model).contains("1048576 bytes"));
    let model = json!({"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], [book, -1.0]]});
    assert!(refusal("model", &model).contains("1048576 bytes"));
}

#[test]
fn padding_and_truncation_of_the_file_are_set_aside() {
    let padding = json!({"strategy": {"Fixed": 1_000_000_000_000_u64}, "direction": "Right", "pad_to_multiple_of": null,
                         "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    let encoding = read(&with("padding", &padding)).expect("a tokenizer").encode("a a", true).expect("encoded");
    assert_eq!(encoding.get_ids(), [1, 1]);
    let truncation = json!({"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"});
    let encoding = read(&with("truncation", &truncation)).expect("a tokenizer").encode("a a", true).expect("encoded");
    assert_eq!(encoding.get_ids(), [1, 1]);
}

/// Bytes of a table whose tree has these units in a block of 256, followed by its texts.
fn table_of(length: u32, units: &[(usize, u32)], texts: &[u8]) -> Value {
    let mut tree = [0_u32; 256];
    units.iter().for_each(|(at, unit)| tree[*at] = *unit);
    let bytes = [&length.to_le_bytes()[..], &tree.map(u32::to_le_bytes).concat(), texts].concat();
    json!({"type": "Precompiled", "precompiled_charsmap": BASE64_STANDARD.encode(bytes)})
}

/// `a` leads to node 1, whose leaf refers to the text from `text` on.
fn a_becomes(text: u32, texts: &[u8]) -> Value {
    // The root is node 0. The node of `a` has its label, a leaf, and the offset to 1.
    let a = usize::from(b'a');
    table_of(1024, &[(a, u32::from(b'a') | 1 << 8 | ((a as u32 ^ 1) << 10)), (1, text | 1 << 31)], texts)
}

#[test]
fn a_table_of_characters_that_is_none_is_refused() {
    for table in [json!("AAAA"), json!("?"), json!(3), Value::Null] {
        let table = json!({"type": "Precompiled", "precompiled_charsmap": table});
        for normalizer in [table.clone(), json!({"type": "Sequence", "normalizers": [table]})] {
            let error = refusal("normalizer", &normalizer);
            assert!(error.contains("precompiled_charsmap"), "{error}");
        }
    }
}

#[test]
fn a_table_of_characters_is_gone_through_before_it_is_used() {
    let a = u32::from(b'a');
    let tokenizer = read(&with("normalizer", &a_becomes(2, b"x\0?\0"))).expect("a tokenizer");
    assert_eq!(tokenizer.encode("a", false).expect("encoded").get_ids(), [0], "`?` is the unknown token");
    for (table, said) in [
        (table_of(u32::MAX, &[], b""), "not a table"),
        (table_of(1024, &[(0, 1 << 20)], b""), "leads out of it"),
        (table_of(1024, &[(97, a | 1 << 20)], b""), "leads out of it"),
        (table_of(1024, &[(97, a | 1 << 20 | 1 << 8)], b""), "leads out of it"),
        (a_becomes(9, b"x\0?\0"), "a text that is not there"),
        (a_becomes(1, "é\0".as_bytes()), "a text that is not there"),
    ] {
        let error = refusal("normalizer", &table);
        assert!(error.contains("precompiled_charsmap") && error.contains(said), "{error}");
    }
    let error = refusal("normalizer", &a_becomes(0, &[b'a'; 5000]));
    assert!(error.contains("its step `Precompiled`"), "{error}");
}
