//! The page of a run with tasks as a whole: the results of its analysis, in tables and pictures.

#[cfg(test)]
mod fixture;
pub(crate) mod overview;
pub(crate) mod page;
pub(crate) mod pictures;
