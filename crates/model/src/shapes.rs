//! The tensors that a configuration asks for, without a single one being made.

use crate::folder::{FolderError, Weights, WrongSize};
use std::path::Path;
use undertone_store::StoreError;

/// A tensor of a model: its path, and the lengths of its axes with the keys that say them; an empty key is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub path: String,
    pub axes: Vec<(&'static str, usize)>,
}

/// A length with its key.
pub(crate) type Axis = (&'static str, usize);

impl Asked {
    pub fn new(path: impl Into<String>, axes: &[Axis]) -> Self {
        Self { path: path.into(), axes: axes.to_vec() }
    }

    pub fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|(_, length)| *length).collect()
    }

    /// How many numbers it holds. Lengths are below 2²⁴ and axes at most three.
    pub fn count(&self) -> u128 {
        self.axes.iter().map(|(_, length)| *length as u128).product()
    }
}

/// Weight and bias of a linear map.
pub(crate) fn linear(path: &str, out: Axis, into: Axis) -> [Asked; 2] {
    [Asked::new(format!("{path}.weight"), &[out, into]), Asked::new(format!("{path}.bias"), &[out])]
}

/// Scale and shift of a norm.
pub(crate) fn norm(path: &str, width: Axis) -> [Asked; 2] {
    ["weight", "bias"].map(|name| Asked::new(format!("{path}.{name}"), &[width]))
}

/// Makes sure that the weights are those that `config.json` describes, by their header: nothing is read, and nothing is
/// allocated by the numbers of a configuration. `names` are what a file may call a tensor.
///
/// # Errors
/// Names the first tensor that is missing or of another shape, and the key that is at odds with it.
pub(crate) fn compare(
    dir: &Path,
    weights: &Weights,
    asked: impl Iterator<Item = Asked>,
    names: impl Fn(&str) -> Vec<String>,
) -> Result<(), FolderError> {
    for asked in asked {
        let names = names(&asked.path);
        let Some((name, found)) = names.iter().find_map(|name| Some((name, weights.shape(name)?))) else {
            let name = names.into_iter().next().unwrap_or_default();
            return Err(FolderError::Weights { path: dir.to_owned(), source: weights.missing(&name) });
        };
        let expected = asked.shape();
        if expected == *found {
            continue;
        }
        let (name, found) = (name.clone(), found.to_vec());
        let differs =
            |((key, length), there): (&Axis, &usize)| (length != there && !key.is_empty()).then_some((*key, *length));
        let culprit = asked.axes.iter().zip(&found).find_map(differs).filter(|_| found.len() == expected.len());
        return Err(match culprit {
            Some((key, value)) => {
                let path = dir.join("config.json");
                FolderError::Size(Box::new(WrongSize { path, key, value, tensor: name, expected, found }))
            }
            None => FolderError::Weights { path: dir.to_owned(), source: StoreError::Shape { name, expected, found } },
        });
    }
    Ok(())
}
