//! Names of choices on the command line.

use clap::ValueEnum;

/// Returns the name of a value on the command line.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
