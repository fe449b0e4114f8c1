//! Reading one chunk from its file.

use super::codec;
use super::files::Files;
use super::header::HEADER_BYTES;
use super::record::{RECORD_BYTES, Record};
use crate::chunk::CHUNK_BYTES_MAX;
use crate::home::failed;
use crate::{ChunkAddress, StoreError};
use bytes::Bytes;
use std::io::ErrorKind;

/// The chunk's bytes, decoded and verified.
pub(super) fn read(files: &Files, address: ChunkAddress) -> Result<Bytes, StoreError> {
    let damaged =
        |what: String| StoreError::Damaged { place: files.place(address.segment, address.offset), what };
    let length = address.stored_bytes as usize;
    if address.offset < HEADER_BYTES || !(RECORD_BYTES..=RECORD_BYTES + CHUNK_BYTES_MAX).contains(&length) {
        return Err(damaged(format!("no record can have {length} bytes here")));
    }
    let mut bytes = vec![0; length];
    let file = files.get(address.segment)?;
    file.read_exact_at(&mut bytes, address.offset).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => damaged(format!("the file ends before its {length} bytes")),
        _ => failed("read", &files.path(address.segment), error),
    })?;
    decode_record(bytes, address).map_err(damaged)
}

fn decode_record(bytes: Vec<u8>, address: ChunkAddress) -> Result<Bytes, String> {
    let mut stored = Bytes::from(bytes);
    let header = stored.split_to(RECORD_BYTES);
    let header = header.as_ref().try_into().map_err(|_| "too short for a header".to_owned())?;
    let record = Record::parse(header, address.segment, address.offset)?;
    if record.stored_bytes as usize != stored.len() {
        return Err(format!("expected {} stored bytes, got {}", stored.len(), record.stored_bytes));
    }
    codec::decode(&record, stored)
}
