//! Names of choices.

use clap::ValueEnum;

/// What the command line calls a value.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
