//! The facade that research code imports: every crate of Undertone under one name.
pub use undertone_data as data;
pub use undertone_model as model;
pub use undertone_ops as ops;
pub use undertone_phases as phases;
pub use undertone_store as store;
pub use undertone_train as train;
