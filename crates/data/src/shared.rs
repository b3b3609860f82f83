//! Kinds that are trait objects, for a registry.

/// Defines `Entry`, a shared object of a trait that has a `name`. Each object is a kind of its own.
macro_rules! entry {
    ($kind:ident) => {
        #[derive(Clone)]
        struct Entry(std::sync::Arc<dyn $kind>);

        impl undertone_registry::Kind for Entry {
            fn name(&self) -> &str {
                self.0.name()
            }
        }

        impl PartialEq for Entry {
            fn eq(&self, other: &Self) -> bool {
                std::sync::Arc::ptr_eq(&self.0, &other.0)
            }
        }
    };
}

pub(crate) use entry;
