//! Reading one chunk from its file.

use super::codec;
use super::files::Files;
use super::header::HEADER_BYTES;
use super::record::{RECORD_AND_STORED_BYTES_MAX, RECORD_BYTES_MIN, Record};
use crate::home::failed;
use crate::{ChunkAddress, StoreError};
use bytes::Bytes;
use std::io::ErrorKind;

/// The chunk's bytes, decoded and verified.
pub(super) fn read(files: &Files, address: ChunkAddress) -> Result<Bytes, StoreError> {
    let (record, stored) = read_stored(files, address)?;
    codec::decode(&record, stored, files.keys.as_deref()).map_err(|what| damaged(files, address, what))
}

/// Verifies a chunk, if it is encrypted and there is no key then only by its checksum; answers its
/// length before encoding.
pub(super) fn verify(files: &Files, address: ChunkAddress) -> Result<u32, StoreError> {
    let (record, stored) = read_stored(files, address)?;
    let verified = if record.key != 0 && files.keys.is_none() {
        codec::check(&record, &stored)
    } else {
        codec::decode(&record, stored, files.keys.as_deref()).map(|_| ())
    };
    verified.map(|()| record.raw_bytes).map_err(|what| damaged(files, address, what))
}

/// The chunk's header and the bytes behind it; only the header is verified.
pub(super) fn read_stored(files: &Files, address: ChunkAddress) -> Result<(Record, Bytes), StoreError> {
    let length = address.stored_bytes as usize;
    if address.offset < HEADER_BYTES || !(RECORD_BYTES_MIN..=RECORD_AND_STORED_BYTES_MAX).contains(&length) {
        return Err(damaged(files, address, format!("no record can have {length} bytes here")));
    }
    let mut bytes = vec![0; length];
    let file = files.get(address.segment)?;
    file.read_exact_at(&mut bytes, address.offset).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => {
            damaged(files, address, format!("the file ends before its {length} bytes"))
        }
        _ => failed("read", &files.path(address.segment), error),
    })?;
    split(bytes, address).map_err(|what| damaged(files, address, what))
}

pub(super) fn damaged(files: &Files, address: ChunkAddress, what: String) -> StoreError {
    StoreError::Damaged { place: files.place(address.segment, address.offset), what }
}

fn split(bytes: Vec<u8>, address: ChunkAddress) -> Result<(Record, Bytes), String> {
    let mut stored = Bytes::from(bytes);
    let record = Record::parse(&stored, address.segment, address.offset)?;
    let stored = stored.split_off(record.layout.bytes());
    if record.stored_bytes as usize != stored.len() {
        return Err(format!("expected {} stored bytes, got {}", stored.len(), record.stored_bytes));
    }
    Ok((record, stored))
}
