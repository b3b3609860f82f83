//! The page of one training: a run without tasks, or a stage of a run with tasks.

pub(crate) mod page;
pub(crate) mod pictures;
pub(crate) mod records;
