use serde::{Deserialize, Serialize};

/// Column of a file that holds a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum Column {
    /// The column's number, from 0.
    Number(usize),
    /// Its name, or a dotted path.
    Name(String),
    /// None, written as null: an optional field is not read, although the file has a column of its name.
    Absent,
}

impl From<&str> for Column {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

impl From<usize> for Column {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

impl std::fmt::Display for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => write!(f, "{name}"),
            Self::Absent => f.write_str("null"),
        }
    }
}
