//! Checks of names that become paths in the cache and parts of addresses. They come from the Hub and from users.

/// Maximum length of a part of a path, in bytes, on common file systems, less room for suffixes.
const LONGEST_PART: usize = 240;

/// Maximum length of a path in a repository.
const LONGEST_PATH: usize = 4096;

/// Returns whether this is a commit: 40 hexadecimal digits, or 64 in repositories with longer hashes.
pub(crate) fn is_commit(sha: &str) -> bool {
    matches!(sha.len(), 40 | 64) && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether this is the path of a file in a repository, or the name of a branch, that does not lead out of its
/// folder.
pub(crate) fn is_path(path: &str) -> bool {
    let stays = |part: &str| {
        let leads_elsewhere = matches!(part, "" | "." | "..");
        let is_odd = part.contains(|c: char| c == '\\' || c.is_control());
        // A drive on Windows.
        let is_drive = cfg!(windows) && part.contains(':');
        !leads_elsewhere && !is_odd && !is_drive && part.len() <= LONGEST_PART
    };
    path.len() <= LONGEST_PATH && path.split('/').all(stays)
}

/// Returns whether this is the name of a repository: `NAME` or `OWNER/NAME`.
pub(crate) fn is_repository(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    is_path(name) && name.split('/').count() <= 2 && name.chars().all(|c| letters(c) || c == '/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    #[test]
    fn what_leads_elsewhere_is_no_name() {
        for commit in ["0123456789abcdef0123456789abcdef01234567", &"A".repeat(64)] {
            assert!(is_commit(commit), "{commit}");
        }
        for other in ["", "main", "../../x", &"g".repeat(40), &"a".repeat(41), &format!("{}/", "a".repeat(39))] {
            assert!(!is_commit(other), "{other}");
        }
        for path in ["config.json", "default/train/0000.parquet", "refs/convert/parquet", "übung 1.csv", "...", "v1.0"]
        {
            assert!(is_path(path), "{path}");
        }
        for path in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".", "a\\b", "a\0b", "a\nb", &"a".repeat(241)] {
            assert!(!is_path(path), "{path:?}");
        }
        for name in ["gpt2", "openai/whisper-tiny.en", "a-b/c_d"] {
            assert!(is_repository(name), "{name}");
        }
        for name in ["", "a/b/c", "../a", "a/..", "/a", "a b", "a?b", "a#b", "é/a"] {
            assert!(!is_repository(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_path_stays_below_where_it_begins(path in "([a.\\\\:é \\x00]{0,3}/?){0,5}") {
            let below = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
            prop_assert!(!is_path(&path) || (below && !path.contains('\\')), "{path:?}");
        }
    }
}
