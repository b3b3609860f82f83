use crate::error::HubError;
use crate::hub::Hub;
use crate::remote::RemoteFile;
use crate::snapshot::{Snapshot, repository};
use crate::split::{CONVERSION, DatasetSplit};
use hf_hub::{Cache, RepoType};
use std::path::{Path, PathBuf};

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
    ) -> Result<Vec<PathBuf>, HubError> {
        let wanted = DatasetSplit { dataset, config, split, revision: revision.unwrap_or(CONVERSION) };
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
    ) -> Result<Vec<RemoteFile>, HubError> {
        let wanted = DatasetSplit { dataset, config, split, revision: revision.unwrap_or(CONVERSION) };
        if self.offline {
            let reason =
                "cannot be streamed, because HF_HUB_OFFLINE is set: leave out `stream` to read what the cache has";
            return Err(wanted.lacking(reason.into()));
        }
        let (snapshot, shards) = self.listed_dataset(&wanted)?;
        let open = |shard: String| {
            let file = snapshot.address(&shard).and_then(|url| RemoteFile::open(&snapshot.client, url));
            file.map_err(|e| wanted.failed(&shard, e.to_string()))
        };
        shards.into_iter().map(open).collect()
    }

    fn fetched_dataset(&self, wanted: &DatasetSplit) -> Result<Vec<PathBuf>, HubError> {
        let (snapshot, shards) = self.listed_dataset(wanted)?;
        // The first comes last: so a split of the conversion that was broken off lacks it, and is known by that.
        let fetch = |shard: &String| snapshot.file(shard).map_err(|e| wanted.failed(shard, e.to_string()));
        let mut paths = shards.iter().rev().map(fetch).collect::<Result<Vec<_>, _>>()?;
        snapshot.name_it().map_err(|e| wanted.failed("the name of the commit", e.to_string()))?;
        paths.reverse();
        Ok(paths)
    }

    /// What there is, and the shards that are wanted of it.
    fn listed_dataset(&self, wanted: &DatasetSplit) -> Result<(Snapshot, Vec<String>), HubError> {
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

    fn cached_dataset(&self, wanted: &DatasetSplit) -> Result<Vec<PathBuf>, HubError> {
        let listed = format!("the list of files at {}", wanted.revision);
        let repo = repository(RepoType::Dataset, wanted.dataset, wanted.revision);
        let repo = repo.map_err(|e| wanted.failed(&listed, e.to_string()))?;
        let named = self.cache.join(repo.folder_name()).join("refs").join(wanted.revision);
        // A commit has no name of its own if it was Python that fetched it.
        let commit = std::fs::read_to_string(named).unwrap_or_else(|_| wanted.revision.to_owned());
        let snapshot = Cache::new(self.cache.clone()).repo(repo).pointer_path(commit.trim());
        if !snapshot.is_dir() {
            let reason = "HF_HUB_OFFLINE is set and nothing of it is in the cache".to_owned();
            return Err(wanted.failed(&listed, reason));
        }
        let shards = wanted.shards(files_below(&snapshot).into_iter()).map_err(|reason| {
            wanted.lacking(format!("{reason} (HF_HUB_OFFLINE is set, so the cache alone is asked)"))
        })?;
        match shards.iter().find(|shard| !snapshot.join(shard).exists()) {
            Some(shard) => Err(wanted.failed(shard, "HF_HUB_OFFLINE is set and it is not in the cache".into())),
            None => Ok(shards.into_iter().map(|shard| snapshot.join(shard)).collect()),
        }
    }
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
