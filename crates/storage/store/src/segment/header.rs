//! Headers and names of segment files.

use super::record::crc32c;
use crate::StoreError;

/// Length of a segment header in bytes.
pub(super) const HEADER_BYTES: u64 = 32;

const MAGIC: &[u8; 8] = b"CELLSEGM";
/// Version written.
const VERSION: u32 = 2;
/// Oldest version that can be read: its records have headers of version 1.
const VERSION_MIN: u32 = 1;
const SUFFIX: &str = ".seg";
const ID_DIGITS: usize = 16;

/// Builds the header of segment `id`.
pub(super) fn build(id: u64) -> [u8; HEADER_BYTES as usize] {
    build_version(id, VERSION)
}

/// Whether these bytes are a header of segment `id`, in any readable version.
pub(super) fn is_header(bytes: &[u8; HEADER_BYTES as usize], id: u64) -> bool {
    (VERSION_MIN..=VERSION).any(|version| *bytes == build_version(id, version))
}

/// Returns the id in a sound header of any readable version.
pub(super) fn id_of(bytes: &[u8]) -> Option<u64> {
    let fixed: &[u8; HEADER_BYTES as usize] = bytes.try_into().ok()?;
    let id = u64::from_be_bytes(fixed[16..24].try_into().ok()?);
    is_header(fixed, id).then_some(id)
}

fn build_version(id: u64, version: u32) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&version.to_be_bytes());
    header[16..24].copy_from_slice(&id.to_be_bytes());
    let crc = crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_be_bytes());
    header
}

/// Checks whether segment `id` can be read. `place` is used in the error.
pub(super) fn check(header: &[u8; HEADER_BYTES as usize], id: u64, place: &str) -> Result<(), StoreError> {
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if &header[..8] != MAGIC || word(28) != crc32c(&header[..28]) {
        // The records have their own checksums.
        tracing::warn!(place, "the header of this segment is damaged");
        return Ok(());
    }
    let damaged = |what| Err(StoreError::Damaged { place: place.to_owned(), what });
    let found = u64::from(word(16)) << 32 | u64::from(word(20));
    match word(8) {
        VERSION_MIN..=VERSION if found == id => Ok(()),
        VERSION_MIN..=VERSION => damaged(format!("expected segment {id}, got segment {found}")),
        other => damaged(format!("expected segment version {VERSION_MIN} to {VERSION}, got {other}")),
    }
}

/// Returns the file name of segment `id`.
pub(super) fn file_name(id: u64) -> String {
    format!("{id:016x}{SUFFIX}")
}

/// Returns the id in a file name if it is that of a segment.
pub(super) fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == ID_DIGITS)?;
    let id = u64::from_str_radix(digits, 16).ok()?;
    (file_name(id) == name).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back_and_others_are_not() {
        for id in [1, 0xabc, u64::MAX] {
            assert_eq!(parse_name(&file_name(id)), Some(id));
        }
        for name in
            ["", ".seg", "1.seg", "000000000000000A.seg", "+00000000000000a.seg", "000000000000000a.se"]
        {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_header_is_of_one_segment_and_one_version() {
        check(&build(7), 7, "x").unwrap();
        assert!(
            check(&build(7), 8, "x").unwrap_err().to_string().contains("expected segment 8, got segment 7")
        );
        check(&build_version(7, 1), 7, "x").unwrap();
        assert!(is_header(&build_version(7, 1), 7) && is_header(&build(7), 7) && !is_header(&build(8), 7));
        let mut newer = build_version(7, 3);
        assert!(check(&newer, 7, "x").unwrap_err().to_string().contains("got 3"));
        newer[9] ^= 1;
        check(&newer, 7, "x").unwrap();
    }
}
