use super::Hub;
use super::snapshot::Snapshot;
use super::stream::RemoteFile;
use crate::SourceError;
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use undertone_data::clips::Remote;

/// The branch onto which the hub converts datasets of any format, as `CONFIG/SPLIT/0000.parquet` and so on.
const CONVERSION: &str = "refs/convert/parquet";

impl Hub {
    /// The Parquet files of one split of `dataset` in the cache, in their order, fetched if they are not there.
    ///
    /// By default they are those of the hub's own conversion, which it has of most public datasets whatever their
    /// format: all of a split up to 5 GB, and of a longer one the beginning, as the split `partial-SPLIT`. A `revision`
    /// (branch, tag or commit) names the repository's own files instead, laid out in one of these ways:
    ///
    /// | file | config | split |
    /// |---|---|---|
    /// | `en/train/any.parquet` | `en` | `train` |
    /// | `en/train-00000-of-00002.parquet`, `en/train.parquet` | `en` | `train` |
    /// | `train-00000-of-00002.parquet`, `train.parquet` | `default` | `train` |
    ///
    /// Without `config` it is the only one, or `default` if there are several. Offline it is what the cache has of the
    /// commit that was fetched last.
    ///
    /// # Errors
    /// Names the file that could not be had, or the configs or splits that there are.
    pub fn dataset(
        &self,
        dataset: &str,
        config: Option<&str>,
        split: &str,
        revision: Option<&str>,
    ) -> Result<Vec<PathBuf>, SourceError> {
        let wanted = Wanted { dataset, config, split, revision: revision.unwrap_or(CONVERSION) };
        if self.offline { self.cached_dataset(&wanted) } else { self.fetched_dataset(&wanted) }
    }

    /// The same files, of which parts are read from the hub as they are needed; nothing is stored.
    ///
    /// # Errors
    /// As [`Hub::dataset`]; offline there is nothing to stream.
    pub fn stream(
        &self,
        dataset: &str,
        config: Option<&str>,
        split: &str,
        revision: Option<&str>,
    ) -> Result<Vec<Arc<dyn Remote>>, SourceError> {
        let wanted = Wanted { dataset, config, split, revision: revision.unwrap_or(CONVERSION) };
        if self.offline {
            let reason =
                "cannot be streamed, because HF_HUB_OFFLINE is set: leave out `stream` to read what the cache has";
            return Err(wanted.lacking(reason.into()));
        }
        let (snapshot, shards) = self.listed_dataset(&wanted)?;
        let open = |shard: String| {
            let file = snapshot.address(&shard).and_then(|url| RemoteFile::open(&snapshot.client, url));
            Ok(Arc::new(file.map_err(|e| wanted.failed(&shard, e.to_string()))?) as Arc<dyn Remote>)
        };
        shards.into_iter().map(open).collect()
    }

    fn fetched_dataset(&self, wanted: &Wanted) -> Result<Vec<PathBuf>, SourceError> {
        let (snapshot, shards) = self.listed_dataset(wanted)?;
        // The first comes last: so a split of the conversion that was broken off lacks it, and is known by that.
        let fetch = |shard: &String| snapshot.file(shard).map_err(|e| wanted.failed(shard, e.to_string()));
        let mut paths = shards.iter().rev().map(fetch).collect::<Result<Vec<_>, _>>()?;
        snapshot.name_it().map_err(|e| wanted.failed("the name of the commit", e.to_string()))?;
        paths.reverse();
        Ok(paths)
    }

    /// What there is, and the shards that are wanted of it.
    fn listed_dataset(&self, wanted: &Wanted) -> Result<(Snapshot, Vec<String>), SourceError> {
        let snapshot = self.snapshot(RepoType::Dataset, wanted.dataset, wanted.revision).map_err(|e| {
            let unconverted = match (wanted.revision, e.is_missing()) {
                (CONVERSION, true) => {
                    "; where the hub has not converted it, a `revision` such as main may hold Parquet files"
                }
                _ => "",
            };
            wanted.failed(&format!("the list of files at {}", wanted.revision), format!("{e}{unconverted}"))
        })?;
        let shards = wanted.shards(snapshot.files.iter().cloned()).map_err(|e| wanted.lacking(e))?;
        Ok((snapshot, shards))
    }

    fn cached_dataset(&self, wanted: &Wanted) -> Result<Vec<PathBuf>, SourceError> {
        let named = self.cache.join(wanted.repo(wanted.revision).folder_name()).join("refs").join(wanted.revision);
        // A commit has no name of its own if it was Python that fetched it.
        let commit = std::fs::read_to_string(named).unwrap_or_else(|_| wanted.revision.to_owned());
        let snapshot = self.cached(wanted).pointer_path(commit.trim());
        if !snapshot.is_dir() {
            let reason = "HF_HUB_OFFLINE is set and nothing of it is in the cache".to_owned();
            return Err(wanted.failed(&format!("the list of files at {}", wanted.revision), reason));
        }
        let shards = wanted.shards(files_below(&snapshot).into_iter()).map_err(|reason| {
            wanted.lacking(format!("{reason} (HF_HUB_OFFLINE is set, so the cache alone is asked)"))
        })?;
        match shards.iter().find(|shard| !snapshot.join(shard).exists()) {
            Some(shard) => Err(wanted.failed(shard, "HF_HUB_OFFLINE is set and it is not in the cache".into())),
            None => Ok(shards.into_iter().map(|shard| snapshot.join(shard)).collect()),
        }
    }

    fn cached(&self, wanted: &Wanted) -> CacheRepo {
        Cache::new(self.cache.clone()).repo(wanted.repo(wanted.revision))
    }
}

/// One split of a dataset.
struct Wanted<'a> {
    dataset: &'a str,
    config: Option<&'a str>,
    split: &'a str,
    revision: &'a str,
}

impl Wanted<'_> {
    fn repo(&self, revision: &str) -> Repo {
        Repo::with_revision(self.dataset.to_owned(), RepoType::Dataset, revision.to_owned())
    }

    fn failed(&self, file: &str, reason: String) -> SourceError {
        SourceError::DatasetFile { dataset: self.dataset.to_owned(), file: file.to_owned(), reason }
    }

    fn lacking(&self, reason: String) -> SourceError {
        SourceError::DatasetPart { dataset: self.dataset.to_owned(), revision: self.revision.to_owned(), reason }
    }

    /// The split's shards among these files, in the order of their names; otherwise what there is instead.
    fn shards(&self, files: impl Iterator<Item = String>) -> Result<Vec<String>, String> {
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

    /// Whether no shard is missing or there twice, as far as names tell; the conversion's do not say how many there are.
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

/// A name like `train-00000-of-00002`, which a hash may follow.
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

/// The name of a Parquet file without folder and extension.
fn stem(file: &str) -> Option<&str> {
    file.rsplit('/').next()?.strip_suffix(".parquet")
}

/// Whose file this is, if it is a Parquet file; [`Hub::dataset`] has the table.
fn config_and_split(file: &str) -> Option<(&str, &str)> {
    let stem = stem(file)?;
    let folder = file.rsplit_once('/').map_or("default", |(folder, _)| folder);
    Some(match (shard_of(stem), folder.rsplit_once('/')) {
        (Some(shard), _) => (folder, shard.split),
        (None, Some((config, split))) => (config, split),
        (None, None) => (folder, stem),
    })
}

/// Every file below a folder, named from there as the hub does; links to folders are not followed.
fn files_below(root: &Path) -> Vec<String> {
    let (mut files, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if let Ok(Some(name)) = path.strip_prefix(root).map(Path::to_str) {
                files.push(name.replace(std::path::MAIN_SEPARATOR, "/"));
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shards(files: &[&str], config: Option<&str>, split: &str, revision: &str) -> Result<Vec<String>, String> {
        Wanted { dataset: "a/b", config, split, revision }.shards(files.iter().map(|file| (*file).to_owned()))
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
