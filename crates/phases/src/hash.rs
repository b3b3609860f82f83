//! Hashes as text.

use sha2::{Digest, Sha256};

/// Returns a finished hash as hexadecimal digits, for file names.
pub(crate) fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
