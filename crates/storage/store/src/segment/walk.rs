//! Walks a segment file record by record, for checks and tools; normal operation does not need it.

use super::header::{self, HEADER_BYTES};
use super::record::{RECORD_BYTES, RECORD_BYTES_MIN, Record};
use crate::{ChunkAddress, StoreError};
use disk::File;
use std::io::ErrorKind;

/// The end of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkEnd {
    /// End offset of the last record visited.
    pub offset: u64,
    /// Why the walk stopped, or `None` at the end of the file. If several threads were writing when the power
    /// failed, complete records may follow a hole.
    pub why: Option<String>,
}

/// Calls `visit` with the address of each record of segment `id`, starting with the first. Only headers are
/// read; read the chunk to check it.
pub fn walk(file: &dyn File, id: u64, mut visit: impl FnMut(ChunkAddress)) -> Result<WalkEnd, StoreError> {
    let place = header::file_name(id);
    let fail = |source| StoreError::Io { doing: "read", path: place.clone(), source };
    let length = file.length().map_err(fail)?;
    let mut head = [0; HEADER_BYTES as usize];
    if read_whole(file, &mut head, 0).map_err(fail)? {
        header::check(&head, id, &place)?;
    }
    let mut offset = HEADER_BYTES;
    while offset < length {
        let mut head = [0; RECORD_BYTES];
        let left = (length - offset).min(RECORD_BYTES as u64) as usize;
        if left < RECORD_BYTES_MIN || !read_whole(file, &mut head[..left], offset).map_err(fail)? {
            return Ok(WalkEnd { offset, why: Some("a header is cut off".into()) });
        }
        let record = match Record::parse(&head[..left], id, offset) {
            Ok(record) => record,
            Err(why) => return Ok(WalkEnd { offset, why: Some(why) }),
        };
        let stored_bytes = record.layout.bytes() as u32 + record.stored_bytes;
        if offset + u64::from(stored_bytes) > length {
            return Ok(WalkEnd { offset, why: Some("data is cut off".into()) });
        }
        visit(ChunkAddress { segment: id, offset, stored_bytes });
        offset += u64::from(stored_bytes);
    }
    Ok(WalkEnd { offset, why: None })
}

fn read_whole(file: &dyn File, buffer: &mut [u8], offset: u64) -> std::io::Result<bool> {
    match file.read_exact_at(buffer, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
