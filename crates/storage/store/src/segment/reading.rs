//! Reads chunks from segment files.

use super::codec;
use super::files::Files;
use super::header::HEADER_BYTES;
use super::pool::Buffer;
use super::record::{RECORD_AND_STORED_BYTES_MAX, RECORD_BYTES_MIN, Record};
use crate::home::failed;
use crate::{ChunkAddress, KeyRing, StoreError};
use bytes::Bytes;
use disk::DIRECT_ALIGNMENT;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the last chunk read was stored in plain form; usually the next one is too.
static WAS_PLAIN: AtomicBool = AtomicBool::new(false);

/// Reads, decodes and verifies a chunk.
pub(super) fn read(files: &Files, address: ChunkAddress) -> Result<Bytes, StoreError> {
    let was_plain = WAS_PLAIN.load(Relaxed);
    let (chunk, is_plain) = if was_plain {
        read_as_plain(files, address)?
    } else {
        with_stored(files, address, |record, stored| {
            Ok((codec::decode(record, stored, files.keys.as_deref())?, codec::is_plain(record)))
        })?
    };
    if is_plain != was_plain {
        WAS_PLAIN.store(is_plain, Relaxed);
    }
    Ok(chunk)
}

/// Reads into memory that becomes the chunk if it is stored in plain form; returns whether it is.
fn read_as_plain(files: &Files, address: ChunkAddress) -> Result<(Bytes, bool), StoreError> {
    let mut bytes = vec![0; length_of(files, address)?];
    fill(files, address, &mut bytes)?;
    let done = decode(&Bytes::from(bytes), address, files.keys.as_deref());
    done.map_err(|what| damaged(files, address, what))
}

/// Decodes and verifies the chunk of a whole record; returns whether it is stored in plain form. If so, the chunk
/// shares the record's memory. The error describes what is wrong with the record.
pub(super) fn decode(
    bytes: &Bytes,
    address: ChunkAddress,
    keys: Option<&KeyRing>,
) -> Result<(Bytes, bool), String> {
    let (record, stored) = split(bytes, address)?;
    let is_plain = codec::is_plain(&record);
    let chunk = if is_plain {
        codec::take_plain(&record, bytes.slice_ref(stored))?
    } else {
        codec::decode(&record, stored, keys)?
    };
    Ok((chunk, is_plain))
}

/// Verifies a chunk and returns its length before encoding. If it is encrypted and there is no key, verifies
/// only the checksum.
///
/// Bypasses the system's cache where possible: the cache may still hold data that the disk has lost, and data
/// read for verification is rarely needed again.
pub(super) fn verify(files: &Files, address: ChunkAddress) -> Result<u32, StoreError> {
    let length = length_of(files, address)?;
    let before = (address.offset % DIRECT_ALIGNMENT as u64) as usize;
    let mut buffer = Buffer::of((before + length).next_multiple_of(DIRECT_ALIGNMENT));
    let file = files.get(address.segment)?;
    file.read_exact_direct_at(&mut buffer, before + length, address.offset - before as u64)
        .map_err(|error| unreadable(files, address, error))?;
    let verified = verify_record(&buffer[before..before + length], address, files.keys.as_deref());
    verified.map_err(|what| damaged(files, address, what))
}

/// Verifies a whole record and returns the length of its chunk. The error describes what is wrong with it.
pub(super) fn verify_record(
    bytes: &[u8],
    address: ChunkAddress,
    keys: Option<&KeyRing>,
) -> Result<u32, String> {
    let (record, stored) = split(bytes, address)?;
    if record.key != 0 && keys.is_none() {
        codec::check(&record, stored)?;
    } else {
        codec::decode(&record, stored, keys)?;
    }
    Ok(record.raw_bytes)
}

/// Returns the chunk's header and the bytes after it, both verified by checksums.
pub(super) fn read_stored(files: &Files, address: ChunkAddress) -> Result<(Record, Bytes), StoreError> {
    with_stored(files, address, |record, stored| {
        codec::check(record, stored)?;
        Ok((*record, Bytes::copy_from_slice(stored)))
    })
}

/// Calls `work` with the chunk's header, which is verified, and the bytes after it, which are not. The error
/// of `work` describes what is wrong with them.
fn with_stored<T>(
    files: &Files,
    address: ChunkAddress,
    work: impl FnOnce(&Record, &[u8]) -> Result<T, String>,
) -> Result<T, StoreError> {
    let length = length_of(files, address)?;
    let mut buffer = Buffer::of(length);
    fill(files, address, &mut buffer)?;
    let done = split(&buffer, address).and_then(|(record, stored)| work(&record, stored));
    done.map_err(|what| damaged(files, address, what))
}

fn length_of(files: &Files, address: ChunkAddress) -> Result<usize, StoreError> {
    record_length(address).map_err(|what| damaged(files, address, what))
}

/// Returns the bytes of the record, if a record can have that length.
pub(super) fn record_length(address: ChunkAddress) -> Result<usize, String> {
    let length = address.stored_bytes as usize;
    if address.offset < HEADER_BYTES || !(RECORD_BYTES_MIN..=RECORD_AND_STORED_BYTES_MAX).contains(&length) {
        return Err(format!("a record cannot have {length} bytes here"));
    }
    Ok(length)
}

fn fill(files: &Files, address: ChunkAddress, buffer: &mut [u8]) -> Result<(), StoreError> {
    let file = files.get(address.segment)?;
    file.read_exact_at(buffer, address.offset).map_err(|error| unreadable(files, address, error))
}

fn unreadable(files: &Files, address: ChunkAddress, error: io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::UnexpectedEof => {
            damaged(files, address, format!("the file ends before its {} bytes", address.stored_bytes))
        }
        _ => failed("read", &files.path(address.segment), error),
    }
}

pub(super) fn damaged(files: &Files, address: ChunkAddress, what: String) -> StoreError {
    StoreError::Damaged { place: files.place(address.segment, address.offset), what }
}

/// Splits a record into its verified header and the bytes after it.
pub(super) fn split(bytes: &[u8], address: ChunkAddress) -> Result<(Record, &[u8]), String> {
    let record = Record::parse(bytes, address.segment, address.offset)?;
    let stored = bytes.get(record.layout.bytes()..).unwrap_or_default();
    if record.stored_bytes as usize != stored.len() {
        return Err(format!("expected {} stored bytes, got {}", stored.len(), record.stored_bytes));
    }
    Ok((record, stored))
}
