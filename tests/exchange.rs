//! `export` in the formats of other programs: what it refuses, in a sentence and before anything is written.

use undertone_tests::{Place, write_model};

/// A command that ends with the last argument, which is the output file.
fn ggml<'a>(more: &[&'a str], out: &'a str) -> Vec<&'a str> {
    [&["export", "--format", "ggml"], more, &["--out", out]].concat()
}

#[test]
fn a_file_of_whisper_cpp_is_refused_where_it_cannot_be() {
    let place = Place::default();
    write_model(&place.path("model"));
    place.write("mine.bin", "mine");
    let nano = ["--model", "whisper-nano-cw"];
    place.run(&ggml(&nano, "nano.bin")).assert_refusal(&["whisper.cpp", "reader `cw`"]);
    place.run(&ggml(&["--model", "model"], "model.bin")).assert_refusal(&["whisper.cpp", "`vocab_size`", "51864"]);
    place.run(&ggml(&nano, "mine.bin")).assert_refusal(&["`mine.bin` already exists"]);
    place.run(&ggml(&nano, "model")).assert_refusal(&["`model` already exists"]);
    place.run(&ggml(&nano, "none/nano.bin")).assert_refusal(&["`none/nano.bin`", "`none`"]);
    place.run(&ggml(&["--model", "nono"], "x.bin")).assert_refusal(&["`nono`"]);
    let bf16 = [&nano[..], &["--dtype", "bf16"]].concat();
    place.run(&ggml(&bf16, "nano.bin")).assert_refusal(&["bf16", "--dtype f16"]);
    assert_eq!(std::fs::read(place.path("mine.bin")).expect("read"), b"mine");
    assert!(!place.path("nano.bin").exists() && !place.path("model.bin").exists() && !place.path("none").exists());
}

#[test]
fn types_of_whisper_cpp_are_refused_for_folders() {
    let place = Place::default();
    for dtype in ["q8_0", "q5_0"] {
        let export = ["export", "--model", "whisper-nano-cw", "--dtype", dtype, "--out", "nano"];
        place.run(&export).assert_refusal(&["q8_0", "--format ggml"]);
    }
    assert!(!place.path("nano").exists());
}
