use crate::error::HubError;
use crate::hub::Hub;
use crate::remote::RemoteFile;
use crate::snapshot::{Snapshot, repository};
use crate::split::{CONVERSION, DatasetSplit};
use hf_hub::{Cache, RepoType};
use std::path::{Path, PathBuf};

impl Hub {
    /// Returns the Parquet files of one split of `dataset` in the cache, in order; missing ones are downloaded.
    ///
    /// By default they are those of the Hub's own conversion, which exists for most public datasets in any format: the
    /// whole split up to 5 GB, and the beginning of a longer one, as the split `partial-SPLIT`. A `revision` (branch,
    /// tag or commit) selects the repository's own files instead, in one of these layouts:
    ///
    /// | file | config | split |
    /// |---|---|---|
    /// | `en/train/any.parquet` | `en` | `train` |
    /// | `en/train-00000-of-00002.parquet`, `en/train.parquet` | `en` | `train` |
    /// | `train-00000-of-00002.parquet`, `train.parquet` | `default` | `train` |
    ///
    /// Without `config` it is the only one, or `default` if there are several. Offline, the files are those in the
    /// cache for the commit that was fetched last.
    ///
    /// # Errors
    /// The error names the file that could not be fetched, or the available configs or splits.
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

    /// Returns the same files as remote files, of which parts are read from the Hub as needed; nothing is stored.
    ///
    /// # Errors
    /// As [`Hub::dataset`], and always if the Hub is offline.
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
        // The first shard is downloaded last. So an interrupted download of a converted split lacks it, and is detected
        // by that.
        let fetch = |shard: &String| snapshot.file(shard).map_err(|e| wanted.failed(shard, e.to_string()));
        let mut paths = shards.iter().rev().map(fetch).collect::<Result<Vec<_>, _>>()?;
        snapshot.name_it().map_err(|e| wanted.failed("the name of the commit", e.to_string()))?;
        paths.reverse();
        Ok(paths)
    }

    /// Returns the repository's content, and the wanted shards.
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
        // Python's libraries do not record a name for a revision that is a commit.
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

/// Returns every file below a folder, with the Hub's names relative to it; links to folders are not followed.
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
