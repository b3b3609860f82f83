//! What a run comes to.

/// How a run ended.
#[derive(Debug)]
pub enum End {
    /// In the same bits as one that nothing happened to.
    Same,
    /// With something else: the file that differs first, and how.
    Different(String),
    /// It could not be resumed; what was said.
    Lost(String),
}
