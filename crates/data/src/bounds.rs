//! Checks of numbers in a configuration, their error messages, and a macro for settings with defaults and bounds.

use crate::random::Range;

/// Error of a number in a configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BoundsError {
    /// A range is out of bounds, reversed or not a number.
    #[error("{field} is [{low}, {high}]: give two numbers from {least} to {most}, the smaller one first")]
    Range {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Lower end, as given.
        low: f32,
        /// Upper end, as given.
        high: f32,
        /// Smallest value accepted.
        least: f32,
        /// Largest value accepted.
        most: f32,
    },
    /// A range of whole numbers is out of bounds or reversed.
    #[error("{field} is [{low}, {high}]: give two whole numbers from {least} to {most}, the smaller one first")]
    Count {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Lower end, as given.
        low: usize,
        /// Upper end, as given.
        high: usize,
        /// Smallest value accepted.
        least: usize,
        /// Largest value accepted.
        most: usize,
    },
    /// A number is out of bounds.
    #[error("{field} is {value}: give a number from {least} to {most}")]
    Number {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Value given.
        value: f32,
        /// Smallest value accepted.
        least: f32,
        /// Largest value accepted.
        most: f32,
    },
    /// A probability is not between 0 and 1.
    #[error("{field} is {value}: give a probability from 0 (never) to 1 (always)")]
    Probability {
        /// Name of the field, as in the configuration.
        field: &'static str,
        /// Value given.
        value: f32,
    },
}

// The checks are written so that a NaN fails them.

/// Checks a range: within `least` and `most`, the smaller end first.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn range(field: &'static str, [low, high]: Range, least: f32, most: f32) -> Result<(), BoundsError> {
    let fits = least <= low && low <= high && high <= most;
    if fits { Ok(()) } else { Err(BoundsError::Range { field, low, high, least, most }) }
}

/// Checks a range of whole numbers: within `least` and `most`, the smaller end first.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn count(field: &'static str, [low, high]: [usize; 2], least: usize, most: usize) -> Result<(), BoundsError> {
    let fits = least <= low && low <= high && high <= most;
    if fits { Ok(()) } else { Err(BoundsError::Count { field, low, high, least, most }) }
}

/// Checks that a number is within `least` and `most`.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn number(field: &'static str, value: f32, least: f32, most: f32) -> Result<(), BoundsError> {
    let fits = least <= value && value <= most;
    if fits { Ok(()) } else { Err(BoundsError::Number { field, value, least, most }) }
}

/// Checks that a number is from 0 to 1.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn probability(field: &'static str, value: f32) -> Result<(), BoundsError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(BoundsError::Probability { field, value }) }
}

/// Checks that a whole number is within `least` and `most`.
///
/// # Errors
/// Returns an error that names the field and the accepted values.
pub fn whole(field: &'static str, value: usize, least: u16, most: u16) -> Result<(), BoundsError> {
    number(field, value as f32, least.into(), most.into())
}

/// Defines the settings of an effect that clips have with some probability: a struct, its default and its check.
///
/// The name of the struct is followed by its key in the configuration, which error messages begin with. The type of a field is
/// followed by its default, and by the function of [`crate::bounds`] that checks it, with the bounds.
///
/// If every setting but the probability is a range that a clip draws a number from, the bounds may be followed by the function of
/// [`crate::random`] that draws, and the settings by the name of a second struct: it has the numbers drawn as its
/// fields, and the first one gets a function `draw`. A clip draws them in the order of the fields.
#[doc(hidden)]
#[macro_export]
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
            pub fn validate(&self) -> Result<(), $crate::bounds::BoundsError> {
                $($(
                    let key = concat!($key, ".", stringify!($field));
                    $crate::bounds::$check(key, self.$field, $($bound),*)?;
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
        $crate::effect! {
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
                $crate::random::chance(rng, self.probability)
                    .then(|| $drawn { $($field: $crate::random::$draw(rng, self.$field)),* })
            }
        }
    };
}
