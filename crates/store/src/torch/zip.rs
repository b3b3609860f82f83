//! The archive around tensors of torch: a ZIP whose entries are not compressed, so that they can be read in place.

use std::collections::HashMap;
use std::ops::Range;

/// Beginning of files of torch before 1.6: a number, as a pickle.
const BEFORE_ZIP: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// Returns the place of each entry by name.
pub(crate) fn entries(file: &[u8]) -> Result<HashMap<String, Range<usize>>, String> {
    if file.starts_with(BEFORE_ZIP) {
        return Err("it has the layout of torch before 1.6: load it with torch, and save it again".into());
    }
    // The end record has 22 bytes and a comment of at most 64 KiB.
    let from = file.len().saturating_sub(22 + 0xffff);
    let end =
        file[from..].windows(4).rposition(|w| w == b"PK\x05\x06").ok_or("it is not a complete ZIP archive")? + from;
    if end + 22 + number(file, end + 20, 2)? != file.len() {
        return Err("it is not a complete ZIP archive".into());
    }
    let (count, mut at) = directory(file, end)?;
    let mut entries = HashMap::new();
    for _ in 0..count {
        if slice(file, at, 4)? != b"PK\x01\x02" {
            return Err("its directory is damaged".into());
        }
        let (name, extra, comment) = (number(file, at + 28, 2)?, number(file, at + 30, 2)?, number(file, at + 32, 2)?);
        let method = number(file, at + 10, 2)?;
        let mut places = [at + 24, at + 20, at + 42].map(|at| number(file, at, 4));
        widen(&mut places, slice(file, at + 46 + name, extra)?)?;
        let [size, stored, local] = places;
        let (size, stored, local) = (size?, stored?, local?);
        if method != 0 || size != stored {
            return Err("it is compressed".into());
        }
        if slice(file, local, 4)? != b"PK\x03\x04" {
            return Err("an entry is not where its directory says".into());
        }
        // `local` is in the file, so sums with it are small.
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

/// Value of a field of 32 bits whose number needs 64, and is elsewhere.
const ELSEWHERE: usize = 0xffff_ffff;

/// Returns the number of entries and the place of the first one's description, for the end record at `end`.
fn directory(file: &[u8], end: usize) -> Result<(usize, usize), String> {
    let (count, at) = (number(file, end + 10, 2)?, number(file, end + 16, 4)?);
    if count != 0xffff && at != ELSEWHERE {
        return Ok((count, at));
    }
    // Right before it is where the record of an archive above 4 GiB, or of 65,535 entries, is.
    let locator = end.checked_sub(20).filter(|at| file[*at..].starts_with(b"PK\x06\x07"));
    let Some(locator) = locator else { return Ok((count, at)) };
    let record = number(file, locator + 8, 8)?;
    if slice(file, record, 4)? != b"PK\x06\x06" {
        return Err("its directory is damaged".into());
    }
    Ok((number(file, record + 32, 8)?, number(file, record + 48, 8)?))
}

/// Replaces the numbers that need 64 bits by those in the extra field of an entry, which has them in this order.
fn widen(numbers: &mut [Result<usize, String>; 3], extra: &[u8]) -> Result<(), String> {
    let mut at = 0;
    while at + 4 <= extra.len() {
        let (kind, length) = (number(extra, at, 2)?, number(extra, at + 2, 2)?);
        if kind == 1 {
            let mut wide = at + 4;
            for field in numbers.iter_mut().filter(|field| **field == Ok(ELSEWHERE)) {
                *field = number(extra, wide, 8);
                wide += 8;
            }
        }
        at += 4 + length;
    }
    Ok(())
}

fn slice(file: &[u8], at: usize, count: usize) -> Result<&[u8], String> {
    let end = at.checked_add(count).ok_or("a place in it is beyond its end")?;
    file.get(at..end).ok_or_else(|| "a place in it is beyond its end".into())
}

fn number(file: &[u8], at: usize, count: usize) -> Result<usize, String> {
    Ok(slice(file, at, count)?.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte)))
}
