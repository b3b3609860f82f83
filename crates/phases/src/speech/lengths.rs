//! Durations of recordings. They are read from headers where possible. Some recordings must be read as a whole: those
//! in Parquet files, local or on the hub, and those whose header has no length, such as files written to a pipe.

use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use undertone_data::clips::Clips;

/// Returns the duration of every clip in seconds; `None` if it cannot be read, or if reading the whole clip is not
/// necessary. If the header has no length, reading is always necessary, because otherwise a recording longer than the
/// window would be noticed only in training. Clips in Parquet files are read only if `keys` of `data` need it.
pub(crate) fn lengths(clips: &Clips, keys: &[&str], said: impl FnOnce(&str) -> ProgressBar) -> Vec<Option<f64>> {
    let near = |index: usize| clips.header_is_near(index);
    let mut seconds: Vec<Option<f64>> =
        (0..clips.len()).into_par_iter().map(|index| if near(index) { clips.seconds(index) } else { None }).collect();
    let untold = (0..clips.len()).filter(|index| seconds[*index].is_none() && near(*index) && clips.is_untold(*index));
    let far = (0..clips.len()).filter(|index| !keys.is_empty() && !near(*index));
    let (untold, far): (Vec<usize>, Vec<usize>) = (untold.collect(), far.collect());
    if untold.is_empty() && far.is_empty() {
        return seconds;
    }
    let bar = said(&sentence(untold.len(), far.len(), keys));
    let read = |index: &usize| {
        let counted = (*index, clips.counted_seconds(*index));
        bar.inc(1);
        counted
    };
    bar.set_length((untold.len() + far.len()) as u64);
    let counted: Vec<(usize, Option<f64>)> = [untold, far].concat().par_iter().map(read).collect();
    bar.finish_and_clear();
    counted.into_iter().for_each(|(index, counted)| seconds[index] = counted);
    seconds
}

/// Logs what is about to be read, and returns a progress bar for a terminal.
pub(super) fn aloud(sentence: &str) -> ProgressBar {
    tracing::info!("{sentence}");
    let style = ProgressStyle::with_template("{msg}  {bar:28} {pos}/{len}  ETA {eta}");
    ProgressBar::no_length().with_message("lengths").with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn sentence(untold: usize, far: usize, keys: &[&str]) -> String {
    let recordings = untold + far;
    let them = if recordings == 1 { "it" } else { "them" };
    let what = if recordings == 1 { "recording once for its length" } else { "recordings once for their lengths" };
    let needed = keys.iter().map(|key| format!("data.{key}")).collect::<Vec<_>>().join(" and ");
    let needs = if keys.len() == 1 { "needs" } else { "need" };
    let why = match (untold, far) {
        (1, 0) => "its header does not tell".to_owned(),
        (_, 0) => "their headers do not tell".to_owned(),
        (0, _) => format!("{needed} {needs} {them}"),
        _ => format!("{} headers do not tell, and {needed} {needs} those in Parquet files", grouped(untold)),
    };
    format!("reading {} {what} ({why})", grouped(recordings))
}

/// Formats a number with commas between thousands.
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
        assert_eq!(sentence(0, 12_345, &["group_by_length"]), expected);
        let expected = "reading 1 recording once for its length (data.pack and data.long_audio need it)";
        assert_eq!(sentence(0, 1, &["pack", "long_audio"]), expected);
        let expected = "reading 1 recording once for its length (its header does not tell)";
        assert_eq!(sentence(1, 0, &["pack"]), expected);
        let expected = "reading 7 recordings once for their lengths (3 headers do not tell, and data.pack needs those in Parquet files)";
        assert_eq!(sentence(3, 4, &["pack"]), expected);
        assert_eq!([0, 999, 1000, 1_000_001].map(grouped), ["0", "999", "1,000", "1,000,001"]);
    }
}
