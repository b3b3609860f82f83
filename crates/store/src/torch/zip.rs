//! The archive around tensors of torch: a ZIP whose entries are not compressed, so that they can be read in place.

use std::collections::HashMap;
use std::ops::Range;

/// Returns the place of each entry by name.
///
/// # Errors
/// A message, when the archive is cut short, damaged, compressed or too large for the plain format (4 GiB).
pub(crate) fn entries(file: &[u8]) -> Result<HashMap<String, Range<usize>>, String> {
    // The end record has 22 bytes and a comment of at most 64 KiB.
    let from = file.len().saturating_sub(22 + 0xffff);
    let end = file[from..].windows(4).rposition(|w| w == b"PK\x05\x06").ok_or("it is no whole ZIP archive")? + from;
    if end + 22 + number(file, end + 20, 2)? != file.len() {
        return Err("it is no whole ZIP archive".into());
    }
    let (count, mut at) = (number(file, end + 10, 2)?, number(file, end + 16, 4)?);
    let mut entries = HashMap::new();
    for _ in 0..count {
        if slice(file, at, 4)? != b"PK\x01\x02" {
            return Err("its directory is damaged".into());
        }
        let (method, size, stored) = (number(file, at + 10, 2)?, number(file, at + 24, 4)?, number(file, at + 20, 4)?);
        let (name, extra, comment) = (number(file, at + 28, 2)?, number(file, at + 30, 2)?, number(file, at + 32, 2)?);
        let local = number(file, at + 42, 4)?;
        if [size, stored, local].contains(&0xffff_ffff) {
            return Err("it is larger than 4 GiB".into());
        }
        if method != 0 || size != stored {
            return Err("it is compressed".into());
        }
        if slice(file, local, 4)? != b"PK\x03\x04" {
            return Err("an entry is not where its directory says".into());
        }
        let data = local + 30 + number(file, local + 26, 2)? + number(file, local + 28, 2)?;
        slice(file, data, size)?;
        let key = String::from_utf8(slice(file, at + 46, name)?.to_vec()).map_err(|e| e.to_string())?;
        if entries.insert(key, data..data + size).is_some() {
            return Err("two of its entries have one name".into());
        }
        at += 46 + name + extra + comment;
    }
    Ok(entries)
}

fn slice(file: &[u8], at: usize, count: usize) -> Result<&[u8], String> {
    let end = at.checked_add(count).ok_or("a place in it is beyond its end")?;
    file.get(at..end).ok_or_else(|| "a place in it is beyond its end".into())
}

fn number(file: &[u8], at: usize, count: usize) -> Result<usize, String> {
    Ok(slice(file, at, count)?.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte)))
}
