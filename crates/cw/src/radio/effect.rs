//! How an effect is written: as a part of a configuration, with its defaults and bounds.

/// Defines the settings of an effect that clips have with some probability: a struct, its default and its check.
///
/// The name of the struct is followed by its key in the configuration, which error messages begin with. The type of a field is
/// followed by its default, and by the function of [`undertone_data::bounds`] that checks it, with the bounds.
macro_rules! effect {
    (
        $(#[$about:meta])*
        pub struct $effect:ident at $key:literal {
            $(
                $(#[$doc:meta])*
                pub $field:ident: $type:ty = $default:expr $(, $check:ident($($bound:literal),*))?;
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $effect {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $effect {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl $effect {
            /// Checks every field.
            ///
            /// # Errors
            /// Returns an error that names the invalid key.
            pub fn validate(&self) -> Result<(), undertone_data::bounds::BoundsError> {
                $($(
                    let key = concat!($key, ".", stringify!($field));
                    undertone_data::bounds::$check(key, self.$field, $($bound),*)?;
                )?)*
                Ok(())
            }
        }
    };
}
pub(crate) use effect;
