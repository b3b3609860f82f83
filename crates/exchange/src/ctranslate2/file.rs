//! `model.bin`: named variables, after the name of the model's kind.

use half::{bf16, f16};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use undertone_store::{MappedFile, StoreError};

use crate::ExchangeError;
use crate::parts::Input;

/// Versions of the layout that are read: since 4, a variable's type and bytes are in front of it.
const VERSIONS: std::ops::RangeInclusive<usize> = 4..=6;

/// Name of the format in messages.
pub const NAME: &str = "CTranslate2's format";

/// Name of the kind of model.
const KIND: &str = "WhisperSpec";

/// Type of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    F32,
    I8,
    I16,
    I32,
    F16,
    Bf16,
}

impl Type {
    const ALL: [Self; 6] = [Self::F32, Self::I8, Self::I16, Self::I32, Self::F16, Self::Bf16];

    fn width(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
        }
    }

    fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
            Self::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
            Self::Bf16 => bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
            Self::I8 => bytes.iter().map(|b| f32::from(*b as i8)).collect(),
            Self::I16 => bytes.as_chunks().0.iter().map(|b| f32::from(i16::from_le_bytes(*b))).collect(),
            Self::I32 => bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as f32).collect(),
        }
    }
}

/// The variables of a file, mapped into memory.
pub struct Variables {
    path: PathBuf,
    map: MappedFile,
    variables: HashMap<String, Variable>,
}

/// Ending of the name of a variable's scale.
const SCALE: &str = "_scale";

#[derive(Clone)]
struct Variable {
    kind: Type,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

impl Variables {
    pub fn open(path: &Path) -> Result<Self, ExchangeError> {
        let map = MappedFile::open(path, |reason| StoreError::Format { path: path.to_owned(), reason })?;
        let unreadable = |reason| ExchangeError::Unreadable { path: path.to_owned(), format: NAME, reason };
        let variables = read(&map).map_err(unreadable)?;
        Ok(Self { path: path.to_owned(), map, variables })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.variables.get(name).map(|variable| variable.shape.as_slice())
    }

    /// A whole number, which has no axes.
    pub fn integer(&self, name: &str) -> Option<usize> {
        let variable = self.variables.get(name).filter(|variable| variable.shape.is_empty())?;
        variable.kind.decode(&self.map[variable.bytes.clone()]).first().map(|number| *number as usize)
    }

    /// Number of layers of one side.
    pub fn layers(&self, side: &str) -> usize {
        let layer = |name: &String| name.strip_prefix(side)?.strip_prefix("/layer_")?.split_once('/')?.0.parse().ok();
        self.variables.keys().filter_map(layer).max().map_or(0, |last: usize| last.saturating_add(1))
    }

    /// Whether any weights are whole numbers with a scale.
    pub fn is_quantised(&self) -> bool {
        self.variables.keys().any(|name| name.ends_with("_scale"))
    }

    /// Reads one of several equal parts of a variable's rows, with its scale applied. `None` if there is no such variable, or
    /// its scale does not fit.
    pub fn read(&self, name: &str, part: usize, parts: usize) -> Option<Vec<f32>> {
        let mut data = self.part(name, part, parts)?;
        let scale = format!("{name}{SCALE}");
        let Some(scales) = self.variables.get(&scale) else { return Some(data) };
        // A scale for each row, or one for all.
        let scales = match scales.shape.is_empty() {
            true => self.part(&scale, 0, 1)?,
            false => self.part(&scale, part, parts)?,
        };
        let row = data.len().checked_div(scales.len()).filter(|row| row * scales.len() == data.len() && *row > 0)?;
        for (row, scale) in data.chunks_exact_mut(row).zip(scales) {
            row.iter_mut().for_each(|value| *value /= scale);
        }
        Some(data)
    }

    fn part(&self, name: &str, part: usize, parts: usize) -> Option<Vec<f32>> {
        let Variable { kind, bytes, .. } = self.variables.get(name)?;
        let values = bytes.len() / kind.width();
        let length = values / parts * kind.width();
        let start = bytes.start + part * length;
        values.is_multiple_of(parts).then(|| kind.decode(&self.map[start..start + length]))
    }
}

fn read(bytes: &[u8]) -> Result<HashMap<String, Variable>, String> {
    let mut input = Input { all: bytes, at: 0 };
    let version = input.number(4)?;
    if !VERSIONS.contains(&version) {
        return Err(format!("its layout has version {version}, and {VERSIONS:?} are read"));
    }
    let kind = text(&mut input)?;
    if kind != KIND {
        return Err(format!("it holds a `{kind}` and no `{KIND}`"));
    }
    let _revision = input.number(4)?;
    let count = input.number(4)?;
    let mut variables = HashMap::new();
    for _ in 0..count {
        let name = text(&mut input)?;
        let axes = input.number(1)?;
        let shape = (0..axes).map(|_| input.number(4)).collect::<Result<Vec<usize>, String>>()?;
        let kind = input.number(1)?;
        let kind =
            *Type::ALL.get(kind).ok_or_else(|| format!("variable `{name}` has type {kind}, which is not known"))?;
        let length = input.number(4)?;
        let count = shape.iter().try_fold(kind.width(), |bytes, axis| bytes.checked_mul(*axis));
        if count != Some(length) {
            return Err(format!("variable `{name}` has the shape {shape:?} and {length} bytes"));
        }
        let start = input.at;
        input.take(length)?;
        variables.insert(name, Variable { kind, shape, bytes: start..start + length });
    }
    // Of equal variables one is stored, and the others are names of it.
    let aliases = input.number(4)?;
    for _ in 0..aliases {
        let (alias, name) = (text(&mut input)?, text(&mut input)?);
        // The scale of a quantised variable has the same names.
        for ending in ["", SCALE] {
            if let Some(variable) = variables.get(&format!("{name}{ending}")).cloned() {
                variables.insert(format!("{alias}{ending}"), variable);
            }
        }
    }
    Ok(variables)
}

/// Reads a text, which ends with a zero.
fn text(input: &mut Input) -> Result<String, String> {
    let length = input.number(2)?;
    let bytes = input.take(length)?;
    Ok(String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned())
}
