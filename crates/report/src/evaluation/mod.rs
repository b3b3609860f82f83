//! The results of an evaluation: as a file of a run, and as a part of its page.

pub(crate) mod page;
pub(crate) mod record;
