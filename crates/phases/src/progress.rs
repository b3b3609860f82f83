//! Progress of long operations.

/// Display of the progress of an operation, for example a bar on a terminal.
pub trait Progress: Sync {
    /// Called when an operation with `of` pieces of work starts.
    fn begin(&self, what: &str, of: usize);
    /// Called when a piece is done.
    fn step(&self);
    /// Called when all pieces are done.
    fn end(&self);
}

/// Progress without a display.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn begin(&self, _: &str, _: usize) {}
    fn step(&self) {}
    fn end(&self) {}
}
