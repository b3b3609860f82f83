//! What watches work that takes a while.

/// SharedAnswers what is being done and how far it is; a bar on a terminal, for example.
pub trait Progress: Sync {
    /// So many pieces of work begin.
    fn begin(&self, what: &str, of: usize);
    /// One of them is done.
    fn step(&self);
    /// All are done.
    fn end(&self);
}

/// Nobody is watching.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn begin(&self, _: &str, _: usize) {}
    fn step(&self) {}
    fn end(&self) {}
}
