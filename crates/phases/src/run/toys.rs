//! Recordings for tests.

use std::path::Path;

/// Writes a list `name`.csv of recordings of a tone of 1.5 s, one for each text, and the recordings themselves.
pub fn recordings(dir: &Path, name: &str, texts: &[&str]) {
    let audio: Vec<f32> = (0..24_000).map(|n| 0.3 * (n as f32 * 0.2).sin()).collect();
    let mut list = String::from("audio,text\n");
    for text in texts {
        undertone_data::audio::write_wav(&dir.join(format!("{text}.wav")), &audio).expect("written");
        list += &format!("{text}.wav,{text}\n");
    }
    std::fs::write(dir.join(format!("{name}.csv")), &list).expect("written");
}
