//! Lengths that are known only after all audio has been read: of recordings in Parquet files, here or on the hub.

use indicatif::{ProgressBar, ProgressStyle};
use undertone_data::clips::Clips;

/// Reading recordings for their lengths, as far as it takes a while: it is said before it begins, and on a terminal there
/// is a bar until it is done.
pub(super) struct Reading(Option<ProgressBar>);

impl Reading {
    /// Begins what `keys` of `data` need. Nothing is said where there are none, or every length is in a header that is
    /// near.
    pub fn begin(clips: &Clips, keys: &[&str]) -> Self {
        let far = (0..clips.len()).filter(|index| !clips.header_is_near(*index)).count();
        if keys.is_empty() || far == 0 {
            return Self(None);
        }
        eprintln!("{}", sentence(far, keys));
        let bar = ProgressBar::new(far as u64).with_message("lengths");
        let style = ProgressStyle::with_template("{msg}  {bar:28} {pos}/{len}  ETA {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(Some(bar))
    }

    /// One more is read.
    pub fn step(&self) {
        self.0.iter().for_each(|bar| bar.inc(1));
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

fn sentence(recordings: usize, keys: &[&str]) -> String {
    let needed = keys.iter().map(|key| format!("data.{key}")).collect::<Vec<_>>().join(" and ");
    let (needs, them) = (if keys.len() == 1 { "needs" } else { "need" }, if recordings == 1 { "it" } else { "them" });
    let what = if recordings == 1 { "recording once for its length" } else { "recordings once for their lengths" };
    format!("reading {} {what} ({needed} {needs} {them})", grouped(recordings))
}

/// With a comma between thousands.
fn grouped(number: usize) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_how_many_are_read_and_for_what() {
        let expected = "reading 12,345 recordings once for their lengths (data.group_by_length needs them)";
        assert_eq!(sentence(12_345, &["group_by_length"]), expected);
        let expected = "reading 1 recording once for its length (data.pack and data.long_audio need it)";
        assert_eq!(sentence(1, &["pack", "long_audio"]), expected);
        assert_eq!([0, 999, 1000, 1_000_001].map(grouped), ["0", "999", "1,000", "1,000,001"]);
    }
}
