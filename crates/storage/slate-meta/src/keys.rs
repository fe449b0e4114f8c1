//! Keys of the one key space: the family's number, then the key. The number 255 is for the engine's own records.

use store::{Family, KeyRange};

/// The record with the families that the database has: a line for each, number and name.
pub(crate) const FAMILIES: [u8; 2] = [OWN, b'f'];

/// Precedes the engine's own keys; no family has this number.
pub(crate) const OWN: u8 = u8::MAX;

pub(crate) fn key(family: Family, key: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(1 + key.len());
    whole.push(family.number());
    whole.extend_from_slice(key);
    whole
}

pub(crate) fn range(family: Family, range: KeyRange<'_>) -> std::ops::Range<Vec<u8>> {
    key(family, range.from)..key(family, range.to)
}

/// Returns the record of these families.
pub(crate) fn families_record(families: &[(u8, String)]) -> String {
    let lines: Vec<String> = families.iter().map(|(number, name)| format!("{number} {name}\n")).collect();
    lines.concat()
}

/// Parses a record of families; `None` if it is not one.
pub(crate) fn parse_families(record: &[u8]) -> Option<Vec<(u8, String)>> {
    let line = |line: &str| {
        let (number, name) = line.split_once(' ')?;
        Some((number.parse().ok()?, name.to_owned()))
    };
    std::str::from_utf8(record).ok()?.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_families_reads_back_and_garbage_does_not() {
        let families = vec![(0, "system".to_owned()), (200, "two words".to_owned())];
        assert_eq!(parse_families(families_record(&families).as_bytes()), Some(families));
        assert_eq!(parse_families(b""), Some(vec![]));
        for garbage in [&b"300 many\n"[..], b"5", b"\xff 5", b"x system\n"] {
            assert_eq!(parse_families(garbage), None);
        }
    }
}
