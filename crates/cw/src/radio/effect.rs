//! How an effect is written: as a part of a configuration, with its defaults and bounds.

/// Defines the settings of an effect that clips have with some probability: a struct, its default and its check.
///
/// The name of the struct is followed by its key in the configuration, which error messages begin with. The type of a field is
/// followed by its default, and by the function of [`undertone_data::bounds`] that checks it, with the bounds.
///
/// If every setting but the probability is a range that a clip draws a number from, the bounds may be followed by the function of
/// [`undertone_data::random`] that draws, and the settings by the name of a second struct: it has the numbers drawn as its
/// fields, and the first one gets a function `draw`. A clip draws them in the order of the fields.
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
    (
        $(#[$about:meta])*
        pub struct $effect:ident at $key:literal {
            $(#[$probability_doc:meta])*
            pub probability: f32 = $probability:literal, probability();
            $(
                $(#[$doc:meta])*
                pub $field:ident: $type:ty = $default:expr, range($least:literal, $most:literal) => $draw:ident;
            )*
        }

        $(#[$about_drawn:meta])*
        pub struct $drawn:ident;
    ) => {
        effect! {
            $(#[$about])*
            pub struct $effect at $key {
                $(#[$probability_doc])*
                pub probability: f32 = $probability, probability();
                $(
                    $(#[$doc])*
                    pub $field: $type = $default, range($least, $most);
                )*
            }
        }

        $(#[$about_drawn])*
        #[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
        pub struct $drawn {
            $($(#[$doc])* pub $field: f32,)*
        }

        impl $effect {
            /// Draws whether a clip has this effect, and its strength.
            pub fn draw(&self, rng: &mut rand_chacha::ChaCha8Rng) -> Option<$drawn> {
                undertone_data::random::chance(rng, self.probability)
                    .then(|| $drawn { $($field: undertone_data::random::$draw(rng, self.$field)),* })
            }
        }
    };
}
pub(crate) use effect;
