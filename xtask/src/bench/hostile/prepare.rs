//! Cases: each a copy of a good input in which one file is changed.

use super::case::Case;
use super::kind::Kind;
use super::{generate, mutate, repair};
use crate::bench::random::Random;
use std::io::Result;
use std::path::{Path, PathBuf};

/// Good inputs of a kind, each a folder, and what is changed in them.
pub struct Seeds {
    kind: Kind,
    folders: Vec<Folder>,
}

struct Folder {
    path: PathBuf,
    /// All files, as paths in the folder.
    files: Vec<PathBuf>,
    /// Those that are changed.
    changed: Vec<PathBuf>,
}

impl Seeds {
    /// Finds what [`super::seeds::write`] wrote.
    pub fn open(kind: Kind, dir: &Path) -> Result<Self> {
        let folder = |path: PathBuf| {
            let files = below(&path)?;
            let changed = files.iter().filter(|file| kind.changes(file)).cloned().collect();
            Ok(Folder { path, files, changed })
        };
        Ok(Self { kind, folders: listed(dir)?.into_iter().map(folder).collect::<Result<_>>()? })
    }

    /// Every good input as it is.
    pub fn whole(&self, scratch: &Path) -> impl Iterator<Item = Result<Case>> {
        let copy = move |folder: &Folder, file: &PathBuf| {
            folder.copy(scratch)?;
            Ok(Case { dir: scratch.to_owned(), file: scratch.join(file) })
        };
        self.folders.iter().flat_map(move |folder| folder.changed.first().map(|file| copy(folder, file)))
    }

    /// The case of this number, in `scratch`; what is there is deleted.
    pub fn case(&self, seed: u64, number: u64, scratch: &Path) -> Result<Case> {
        let random = &mut Random::new(seed, &format!("{:?}", self.kind), number);
        // Trials are there to be made, each as it is.
        let trial = self.kind == Kind::Trial;
        let folder =
            if trial { &self.folders[number as usize % self.folders.len()] } else { random.pick(&self.folders) };
        let file = random.pick(&folder.changed);
        let mut bytes = std::fs::read(folder.path.join(file))?;
        let another = random.pick(&self.folders);
        let other = std::fs::read(another.path.join(random.pick(&another.changed)))?;
        if !trial {
            change(file, &mut bytes, &other, random);
        }
        folder.copy(scratch)?;
        let case = Case { dir: scratch.to_owned(), file: scratch.join(file) };
        std::fs::write(&case.file, &bytes)?;
        if random.below(4) > 0 {
            repair::checkpoint(&case.file, &bytes)?;
        }
        Ok(case)
    }
}

impl Folder {
    fn copy(&self, to: &Path) -> Result<()> {
        if to.exists() {
            std::fs::remove_dir_all(to)?;
        }
        std::fs::create_dir_all(to)?;
        self.files.iter().try_for_each(|file| {
            std::fs::create_dir_all(to.join(file).parent().unwrap_or(to))?;
            std::fs::copy(self.path.join(file), to.join(file)).map(drop)
        })
    }
}

/// Changes a file as its kind asks for. Most of what has checksums gets new ones.
fn change(file: &Path, bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let repaired = random.below(4) > 0;
    let is_tokenizer = file.file_name().is_some_and(|name| name == "tokenizer.json");
    match file.extension().unwrap_or_default().to_string_lossy().as_ref() {
        "json" if is_tokenizer && random.below(3) == 0 => generate::tokenizer(bytes, random),
        "http" => match random.below(2) {
            0 => generate::answer(bytes, random),
            _ => {
                mutate::text(bytes, other, random);
                if repaired {
                    repair::answer(bytes);
                }
            }
        },
        "safetensors" if random.below(3) == 0 => generate::header(bytes, random),
        "yaml" | "json" | "jsonl" | "csv" | "tsv" | "conll" | "txt" | "" => match random.below(8) {
            0 => mutate::binary(bytes, other, random),
            _ => mutate::text(bytes, other, random),
        },
        "safetensors" if random.below(2) == 0 && bytes.len() > 8 => {
            let length = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length) as usize);
            let end = length.saturating_add(8).min(bytes.len());
            let mut header = bytes[8..end].to_vec();
            mutate::text(&mut header, other.get(8..).unwrap_or_default(), random);
            if repaired {
                bytes[..8].copy_from_slice(&(header.len() as u64).to_le_bytes());
            }
            bytes.splice(8..end, header);
        }
        "tar" => {
            mutate::binary(bytes, other, random);
            if repaired {
                repair::tar(bytes);
            }
        }
        "flac" if repaired => {
            let frames = repair::frames(bytes);
            let frame = random.pick(&frames);
            mutate::in_place(&mut bytes[frame.place.clone()], random);
            repair::flac(bytes, frame);
        }
        "ogg" => {
            mutate::binary(bytes, other, random);
            if repaired {
                repair::ogg(bytes);
            }
        }
        _ => mutate::binary(bytes, other, random),
    }
}

/// What lies in a folder, in the order of names.
fn listed(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}

/// Every file below a folder, as a path in it, in the order of names.
fn below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for path in listed(&next)? {
            match path.is_dir() {
                true => open.push(path),
                false => found.extend(path.strip_prefix(dir).map(Path::to_owned)),
            }
        }
    }
    found.sort();
    Ok(found)
}
