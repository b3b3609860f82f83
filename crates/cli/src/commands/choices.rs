//! Values of arguments that have a name each.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use undertone::phases::Split;

/// Splits by their names.
pub const SPLITS: [(&str, Split); 3] = [("train", Split::Train), ("valid", Split::Valid), ("test", Split::Test)];

/// Format of results on standard output.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Returns a parser of one of these names.
pub fn one_of<T, const N: usize>(values: [(&'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names = values.map(|(name, _)| name);
    let value = move |name: String| values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    PossibleValuesParser::new(names).map(move |name| value(name).expect("one of the names"))
}
