//! Tensors that a configuration describes, without allocating any.

use crate::folder::{FolderError, WrongSize};
use std::path::Path;
use undertone_store::{StoreError, TensorSource};

/// A tensor of a model: its path, and the lengths of its axes, each with its configuration key; an empty key means
/// none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub path: String,
    pub axes: Vec<(&'static str, usize)>,
}

/// Key and length of an axis.
pub(crate) type Axis = (&'static str, usize);

impl Asked {
    pub fn new(path: impl Into<String>, axes: &[Axis]) -> Self {
        Self { path: path.into(), axes: axes.to_vec() }
    }

    pub fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|(_, length)| *length).collect()
    }

    /// Number of elements. Lengths are below 2²⁴ and there are at most three axes.
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

/// Checks by the file header that the weights are those that `config.json` describes. Nothing is read, and the numbers
/// of the configuration cause no allocation. `names` are the names that a file may use for a tensor.
pub(crate) fn compare(
    dir: &Path,
    weights: &dyn TensorSource,
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
        if expected == found {
            continue;
        }
        let name = name.clone();
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
