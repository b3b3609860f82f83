//! The page of one training: a plain run, or a stage of a run with tasks.

mod difference;
pub(crate) mod page;
pub(crate) mod pictures;
pub(crate) mod records;
