use crate::http::{Client, Entity, HttpError};
use crate::names::{is_commit, is_path, is_repository};
use hf_hub::api::RepoInfo;
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use ureq::http::Uri;

/// A repository of the Hub at one commit.
pub(crate) struct Snapshot {
    pub client: Client,
    /// The repository under the requested revision.
    cached: CacheRepo,
    url: String,
    pub commit: String,
    pub files: Vec<String>,
}

impl Snapshot {
    /// Lists the content of a repository at its revision. The revision may move at any time, which would mix files of
    /// two commits; so the commit is used, which does not change.
    ///
    /// # Errors
    /// If there is no such repository, or its list of files cannot be fetched or contains names that lead out of the
    /// cache.
    pub fn list(client: Client, cache: &Cache, kind: RepoType, name: &str, revision: &str) -> Result<Self, HttpError> {
        let repo = repository(kind, name, revision)?;
        let listed = match kind {
            RepoType::Dataset => repo.url(),
            _ => format!("models/{}", repo.url()),
        };
        let parts = ["api"].into_iter().chain(listed.split('/')).chain(["revision", revision]);
        let RepoInfo { siblings, sha } = client.json(&client.url(parts)?)?;
        let files: Vec<String> = siblings.into_iter().map(|sibling| sibling.rfilename).collect();
        let unfit =
            |name: &str, of: &str| Err(HttpError::Unfit(format!("the hub lists an invalid name of a {of}: {name:?}")));
        if !is_commit(&sha) {
            return unfit(&sha, "commit");
        }
        if let Some(file) = files.iter().find(|file| !is_path(file)) {
            return unfit(file, "file");
        }
        Ok(Self { client, url: repo.url(), cached: cache.repo(repo), commit: sha, files })
    }

    /// Returns the address of a file, whose content never changes.
    ///
    /// # Errors
    /// If its name cannot be part of an address.
    pub fn address(&self, file: &str) -> Result<Uri, HttpError> {
        let parts = self.url.split('/').chain(["resolve", &self.commit]).chain(file.split('/'));
        self.client.url(parts)
    }

    /// Returns a file in the cache; a missing one is downloaded, and an interrupted download is resumed.
    ///
    /// # Errors
    /// If it cannot be fetched or written.
    pub fn file(&self, file: &str) -> Result<PathBuf, HttpError> {
        let pointer = self.cached.pointer_path(&self.commit).join(file);
        if pointer.exists() {
            return Ok(pointer);
        }
        let url = self.address(file)?;
        let entity = self.client.entity(&url)?;
        let blob = self.cached.blob_path(&entity.etag);
        make_parent(&blob)?;
        // The same lock file as in hf-hub, so that two processes do not write the same file.
        let lock = File::create(blob.with_extension("lock"))?;
        lock.lock()?;
        if std::fs::metadata(&blob).map_or(true, |metadata| metadata.len() != entity.size) {
            let part = blob.with_extension("part");
            download(&self.client, &url, &entity, &part, file)?;
            std::fs::rename(part, &blob)?;
        }
        make_parent(&pointer)?;
        point(&pointer, &blob, file)?;
        Ok(pointer)
    }

    /// Records in the cache that the revision is this commit.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn name_it(&self) -> io::Result<()> {
        self.cached.create_ref(&self.commit)
    }
}

/// Returns a repository in the cache's layout.
pub(crate) fn repository(kind: RepoType, name: &str, revision: &str) -> Result<Repo, HttpError> {
    if !is_repository(name) {
        return Err(HttpError::Unfit(format!("{name:?} is not a repository name: write OWNER/NAME")));
    }
    if !is_path(revision) {
        return Err(HttpError::Unfit(format!("{revision:?} is not a branch, tag or commit")));
    }
    Ok(Repo::with_revision(name.to_owned(), kind, revision.to_owned()))
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

/// Downloads the missing part of a file.
fn download(client: &Client, url: &Uri, entity: &Entity, part: &Path, name: &str) -> Result<(), HttpError> {
    let mut file = OpenOptions::new().create(true).append(true).open(part)?;
    if file.metadata()?.len() > entity.size {
        file.set_len(0)?;
    }
    let mut have = file.metadata()?.len();
    let bar = ProgressBar::new(entity.size).with_position(have).with_message(name.to_owned());
    let style = ProgressStyle::with_template("{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    while have < entity.size {
        let before = have;
        // An attempt that received bytes counts as successful, even if it was interrupted; the next one continues from
        // there.
        client.retried(|| match append(client, url, entity, &mut file, &mut have, &bar) {
            Err(error) if error.is_passing() && have > before => Ok(()),
            other => other,
        })?;
    }
    bar.finish_and_clear();
    file.sync_all()?;
    if !is_intact(part, &entity.etag)? {
        std::fs::remove_file(part)?;
        return Err(HttpError::Unfit("the download does not match its SHA-256; run the command again".into()));
    }
    Ok(())
}

/// Makes one attempt to fetch the rest of a file.
fn append(
    client: &Client,
    url: &Uri,
    entity: &Entity,
    file: &mut File,
    have: &mut u64,
    bar: &ProgressBar,
) -> Result<(), HttpError> {
    let (mut body, _) = match client.part(url, entity, *have, None) {
        // All of it comes again.
        Err(HttpError::NoParts(_)) => {
            file.set_len(0)?;
            *have = 0;
            client.part(url, entity, 0, None)?
        }
        answer => answer?,
    };
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match body.read(&mut buffer) {
            Ok(0) if *have < entity.size => return Err(HttpError::Broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) => return Err(HttpError::Broken(error)),
        };
        if *have + count as u64 > entity.size {
            return Err(HttpError::Unfit("the answer is longer than the file".into()));
        }
        file.write_all(&buffer[..count])?;
        *have += count as u64;
        bar.set_position(*have);
    }
}

/// Returns whether a file matches its name, if that is a SHA-256 as for large files.
fn is_intact(path: &Path, etag: &str) -> io::Result<bool> {
    if etag.len() != 64 || !etag.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(true);
    }
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(format!("{:x}", hash.finalize()) == etag.to_ascii_lowercase())
}

/// Links `pointer`, the path of `file` in its snapshot, to `blob`.
fn point(pointer: &Path, blob: &Path, file: &str) -> io::Result<()> {
    if std::fs::symlink_metadata(pointer).is_ok() {
        std::fs::remove_file(pointer)?;
    }
    #[cfg(unix)]
    {
        // Relative, so that the cache can be moved: up from the file's folders, its commit and `snapshots`.
        let up = "../".repeat(file.split('/').count() + 1);
        let name = blob.file_name().unwrap_or_default();
        std::os::unix::fs::symlink(Path::new(&up).join("blobs").join(name), pointer)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        std::fs::hard_link(blob, pointer)
    }
}
