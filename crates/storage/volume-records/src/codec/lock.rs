//! Records of the locks of files.

use super::{Fields, Record};

/// Encodes the locks of a file: the number of readers, or -1 for a writer.
pub fn put_lock(count: i32) -> Vec<u8> {
    Record::new().i32(count).0
}

/// Decodes the locks of a file.
pub fn get_lock(value: &[u8]) -> Option<i32> {
    let mut fields = Fields::open(value)?;
    let count = fields.i32()?;
    (fields.0.is_empty() && (count == -1 || count > 0)).then_some(count)
}
