use crate::error::HubError;
use std::collections::BTreeMap;

/// Branch with the Hub's conversion of datasets of any format, as `CONFIG/SPLIT/0000.parquet` and so on.
pub(crate) const CONVERSION: &str = "refs/convert/parquet";

/// A requested split of a dataset.
pub(crate) struct DatasetSplit<'a> {
    pub dataset: &'a str,
    pub config: Option<&'a str>,
    pub split: &'a str,
    pub revision: &'a str,
}

impl DatasetSplit<'_> {
    /// Returns the error of a file that could not be fetched.
    pub fn failed(&self, file: &str, reason: String) -> HubError {
        HubError::DatasetFile { dataset: self.dataset.to_owned(), file: file.to_owned(), reason }
    }

    /// Returns the error of a dataset without this split.
    pub fn lacking(&self, reason: String) -> HubError {
        HubError::DatasetPart { dataset: self.dataset.to_owned(), revision: self.revision.to_owned(), reason }
    }

    /// Returns the split's shards among these files, ordered by name; otherwise a text with the available content.
    pub fn shards(&self, files: impl Iterator<Item = String>) -> Result<Vec<String>, String> {
        let mut configs: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        for file in files {
            if let Some((config, split)) = config_and_split(&file) {
                configs.entry(config.to_owned()).or_default().entry(split.to_owned()).or_default().push(file);
            }
        }
        let config = match (self.config, configs.keys().next()) {
            (_, None) => return Err("has no Parquet files: name a revision that has some".into()),
            (Some(config), _) => config.to_owned(),
            (None, Some(only)) if configs.len() == 1 => only.clone(),
            (None, _) if configs.contains_key("default") => "default".into(),
            (None, _) => return Err(format!("has several configs: give one of {}", names(&configs))),
        };
        let splits = configs.get(&config);
        let splits = splits.ok_or_else(|| format!("has no config `{config}`: give one of {}", names(&configs)))?;
        let no_split = || format!("has no split `{}` in config `{config}`: give one of {}", self.split, names(splits));
        let mut shards = splits.get(self.split).ok_or_else(no_split)?.clone();
        shards.sort();
        if self.is_whole(&shards) {
            Ok(shards)
        } else {
            let (count, split) = (shards.len(), self.split);
            Err(format!(
                "does not have each shard of split `{split}` once, but {count}, the first of them {}",
                shards[0]
            ))
        }
    }

    /// Returns whether no shard is missing or duplicated, as far as names show; the names of the conversion do not give
    /// the number of shards.
    fn is_whole(&self, shards: &[String]) -> bool {
        shards.iter().enumerate().all(|(at, file)| match shard_of(stem(file).unwrap_or_default()) {
            Some(shard) => (shard.number, shard.total) == (at, shards.len()),
            None if self.revision == CONVERSION => stem(file).and_then(|stem| stem.parse().ok()) == Some(at),
            None => true,
        })
    }
}

fn names<T>(of: &BTreeMap<String, T>) -> String {
    of.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// A name like `train-00000-of-00002`, which may be followed by a hash.
struct Shard<'a> {
    split: &'a str,
    number: usize,
    total: usize,
}

fn shard_of(stem: &str) -> Option<Shard<'_>> {
    let (before, after) = stem.rsplit_once("-of-")?;
    let (split, number) = before.rsplit_once('-')?;
    Some(Shard { split, number: number.parse().ok()?, total: after.split('-').next()?.parse().ok()? })
}

/// Returns the name of a Parquet file without folder and extension.
fn stem(file: &str) -> Option<&str> {
    file.rsplit('/').next()?.strip_suffix(".parquet")
}

/// Returns the config and split of a Parquet file; see the table at [`Hub::dataset`].
fn config_and_split(file: &str) -> Option<(&str, &str)> {
    let stem = stem(file)?;
    let folder = file.rsplit_once('/').map_or("default", |(folder, _)| folder);
    Some(match (shard_of(stem), folder.rsplit_once('/')) {
        (Some(shard), _) => (folder, shard.split),
        (None, Some((config, split))) => (config, split),
        (None, None) => (folder, stem),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shards(files: &[&str], config: Option<&str>, split: &str, revision: &str) -> Result<Vec<String>, String> {
        DatasetSplit { dataset: "a/b", config, split, revision }.shards(files.iter().map(|file| (*file).to_owned()))
    }

    #[test]
    fn names_tell_config_and_split() {
        for (file, expected) in [
            ("en/train/0000.parquet", Some(("en", "train"))),
            ("data/en/train/any.parquet", Some(("data/en", "train"))),
            ("data/train-00000-of-00002.parquet", Some(("data", "train"))),
            ("data/en/dev-set-00001-of-00002-0a1b.parquet", Some(("data/en", "dev-set"))),
            ("train-00000-of-00001.parquet", Some(("default", "train"))),
            ("en/train.parquet", Some(("en", "train"))),
            ("part-of-speech.parquet", Some(("default", "part-of-speech"))),
            ("README.md", None),
            ("data/train.csv", None),
        ] {
            assert_eq!(config_and_split(file), expected, "{file}");
        }
    }

    #[test]
    fn a_config_is_chosen_only_where_there_is_no_doubt() {
        let files = ["ax/test/0000.parquet", "cola/test/0000.parquet", "cola/train/0000.parquet", "README.md"];
        let of = |files: &[&str], config, split| shards(files, config, split, CONVERSION);
        assert_eq!(of(&files, None, "train").unwrap_err(), "has several configs: give one of ax, cola");
        assert_eq!(of(&files, Some("cola"), "train").unwrap(), ["cola/train/0000.parquet"]);
        assert_eq!(of(&files[1..], None, "test").unwrap(), ["cola/test/0000.parquet"]);
        assert_eq!(of(&files, Some("sst2"), "train").unwrap_err(), "has no config `sst2`: give one of ax, cola");
        assert_eq!(
            of(&files, Some("cola"), "dev").unwrap_err(),
            "has no split `dev` in config `cola`: give one of test, train"
        );
        let default = ["ax/test/0000.parquet", "default/test/0000.parquet"];
        assert_eq!(of(&default, None, "test").unwrap(), ["default/test/0000.parquet"]);
        assert_eq!(
            of(&["README.md"], None, "test").unwrap_err(),
            "has no Parquet files: name a revision that has some"
        );
    }

    #[test]
    fn shards_that_are_missing_or_there_twice_are_noticed() {
        let whole = |files: &[&str], revision| shards(files, None, "train", revision).is_ok();
        assert!(whole(&["a/train/0001.parquet", "a/train/0000.parquet"], CONVERSION));
        assert!(!whole(&["a/train/0001.parquet"], CONVERSION), "the first comes last");
        assert!(!whole(&["a/train/0000.parquet", "a/train/0002.parquet"], CONVERSION));
        assert!(whole(&["a/train/1.parquet", "a/train/x.parquet"], "main"));
        assert!(whole(&["train-00001-of-00002-b.parquet", "train-00000-of-00002-a.parquet"], "main"));
        assert!(!whole(&["train-00000-of-00002.parquet"], "main"));
        assert!(!whole(&["train-00000-of-00001-a.parquet", "train-00000-of-00001-b.parquet"], "main"));
        assert!(!whole(&["train-00000-of-00001.parquet", "train.parquet"], "main"));
    }

    proptest! {
        #[test]
        fn every_shard_of_a_split_is_found_in_order(total in 1usize..40, split in "[a-z_]{1,6}", turn in 0usize..40) {
            let mut names: Vec<_> = (0..total).map(|n| format!("data/{split}-{n:05}-of-{total:05}.parquet")).collect();
            let expected = names.clone();
            names.rotate_left(turn % total);
            names.push("data/OTHER-00000-of-00001.parquet".into());
            let files: Vec<_> = names.iter().map(String::as_str).collect();
            prop_assert_eq!(shards(&files, None, &split, "main").unwrap(), expected);
        }

        #[test]
        fn no_name_makes_it_panic(file in "([a-z0-9é-]{0,5}(/|-of-|-|\\.parquet)?){0,6}") {
            if let Some((config, split)) = config_and_split(&file) {
                let _ = shards(&[&file], Some(config), split, CONVERSION);
                prop_assert!(file.ends_with(".parquet"));
            }
        }
    }
}
