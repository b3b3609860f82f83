//! The header of a safetensors file.

use crate::host::{Dtype, HostTensor};
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;

/// Maximum length of a header in bytes, which is also the limit of the safetensors library.
const LONGEST: u64 = 100_000_000;

/// Length in bytes of the field before the header, which holds the header's length.
const LENGTH: usize = 8;

/// Content of a file: each tensor's type, shape and place.
#[derive(Debug)]
pub(crate) struct Header {
    metadata: Metadata,
    /// Offset of the first tensor.
    data: usize,
}

impl Header {
    /// Parses and checks the header of a file. Do it once per file: with a million tensors it takes seconds.
    ///
    /// # Errors
    /// A message, when there is no header or it does not fit the file: a name occurs twice, tensors overlap, or bytes
    /// of the file belong to no tensor.
    pub fn read(file: &[u8]) -> Result<Self, String> {
        let length = u64::from_le_bytes(*file.first_chunk().ok_or("it has less than 8 bytes")?);
        if length > LONGEST {
            return Err(format!("its header has {length} bytes, more than the {LONGEST} of any"));
        }
        let data = LENGTH + length as usize;
        let json = file.get(LENGTH..data).ok_or("it ends within its header")?;
        let Entries(mut entries) = serde_json::from_slice(json).map_err(|e| format!("its header: {e}"))?;
        entries.sort_by_key(|(_, info)| info.data_offsets);
        let metadata = Metadata::new(None, entries).map_err(|e| format!("its header: {e}"))?;
        let (says, has) = (metadata.data_len(), file.len() - data);
        if says != has {
            return Err(format!("its header is for {says} bytes of tensors, and {has} are there"));
        }
        Ok(Self { metadata, data })
    }

    /// Tensor names in the order of the file.
    pub fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// Returns a tensor's type and shape, and its byte range in the file.
    pub fn find(&self, name: &str) -> Option<(&TensorInfo, Range<usize>)> {
        let info = self.metadata.info(name)?;
        let (start, end) = info.data_offsets;
        Some((info, self.data + start..self.data + end))
    }
}

/// Returns the beginning of a file that holds these tensors in this type, in their order, up to the first tensor.
pub(crate) fn written(tensors: &BTreeMap<String, HostTensor>, dtype: Dtype) -> Result<Vec<u8>, String> {
    let (dtype, mut end) = (dtype.in_file(), 0);
    let infos = tensors.iter().map(|(name, tensor)| {
        let start = end;
        end += tensor.data.len() * (dtype.bitsize() / 8);
        (name.clone(), TensorInfo { dtype, shape: tensor.shape.clone(), data_offsets: (start, end) })
    });
    // Transformers refuses files whose metadata does not name the framework whose layout they hold.
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = Metadata::new(Some(format), infos.collect()).map_err(|e| e.to_string())?;
    let mut json = serde_json::to_vec(&metadata).map_err(|e| e.to_string())?;
    // So that tensors begin at a multiple of 8 bytes.
    json.resize(json.len().next_multiple_of(LENGTH), b' ');
    Ok([&(json.len() as u64).to_le_bytes()[..], &json].concat())
}

/// The tensors that a header lists. The library's own reader keeps the last of two tensors with one name, and holds a
/// second copy of the whole header in memory.
struct Entries(Vec<(String, TensorInfo)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let (mut entries, mut names) = (Vec::new(), HashSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("tensor `{name}` is there twice")));
            }
            entries.push((name, map.next_value()?));
        }
        Ok(Entries(entries))
    }
}
