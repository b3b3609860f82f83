//! Options of a run outside its configuration.

use crate::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where a run writes and shows what it does, and by what it is interrupted.
pub(super) struct RunOptions {
    pub dir: PathBuf,
    /// Whether the state before an error is saved.
    pub saves_on_error: bool,
    /// The whole configuration as YAML.
    pub configuration: Option<String>,
    pub display: Display,
    pub interrupt: Arc<AtomicBool>,
}

impl RunOptions {
    /// Name of the run for messages: that of its directory.
    pub fn name(&self) -> String {
        self.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
