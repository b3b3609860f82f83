//! x
pub mod audio;
pub mod cw;
pub mod features;
pub mod loader;
pub mod manifest;
pub mod text;
