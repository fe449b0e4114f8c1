//! Reading of objects for a check, which goes through them in order.

use super::super::audit::Medium;
use super::super::header::{self, HEADER_BYTES};
use super::super::reading;
use super::bucket::{Bucket, BucketError};
use super::name::{object_name, parse_name};
use crate::{ChunkAddress, KeyRing, StoreError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Objects up to this size are read as a whole.
const WHOLE_BYTES_MAX: u64 = 16 << 20;

/// Returns the ids and lengths of all objects, also of the borrowed ones with these ids.
///
/// # Errors
/// `Unavailable`.
pub(in super::super) fn lengths(
    bucket: &dyn Bucket,
    borrowed: &[u64],
) -> Result<BTreeMap<u64, u64>, StoreError> {
    let mut lengths = BTreeMap::new();
    let listed = bucket.list("", &mut |name, bytes| {
        lengths.extend(parse_name(name).map(|id| (id, bytes)));
        ControlFlow::Continue(())
    });
    let unavailable =
        |error: BucketError| StoreError::Unavailable { place: bucket.place(), what: error.to_string() };
    listed.map_err(unavailable)?;
    for id in borrowed {
        lengths.remove(id);
        match bucket.read(&object_name(*id), 0..1) {
            Err(BucketError::Missing { .. }) => {}
            read => _ = lengths.insert(*id, read.map_err(unavailable)?.object_bytes),
        }
    }
    Ok(lengths)
}

/// The objects of a bucket.
pub(in super::super) struct ObjectReader {
    bucket: Arc<dyn Bucket>,
    keys: Option<Arc<KeyRing>>,
    lengths: BTreeMap<u64, u64>,
    /// The ids in the records of copies.
    origins: BTreeMap<u64, u64>,
    /// The object that was read last: the next chunk is probably in it, too.
    last: Mutex<Option<(u64, Bytes)>>,
}

impl ObjectReader {
    /// Reads objects that had these lengths when they were listed. `origins` has the ids in the records of copies.
    pub(in super::super) fn new(
        bucket: Arc<dyn Bucket>,
        keys: Option<Arc<KeyRing>>,
        lengths: BTreeMap<u64, u64>,
        origins: BTreeMap<u64, u64>,
    ) -> ObjectReader {
        ObjectReader { bucket, keys, lengths, origins, last: Mutex::default() }
    }

    /// Returns the id in the records of an object.
    fn origin(&self, id: u64) -> u64 {
        self.origins.get(&id).copied().unwrap_or(id)
    }

    fn damaged(&self, id: u64, offset: u64, what: String) -> StoreError {
        StoreError::Damaged { place: format!("{} at offset {offset}", self.place(id)), what }
    }

    /// Reads a part of an object, which may end before.
    fn read(&self, id: u64, range: Range<u64>) -> Result<Bytes, StoreError> {
        let read = self.bucket.read(&object_name(id), range.clone()).map_err(|error| match error {
            BucketError::Missing { .. } => self.damaged(id, range.start, "no such object".into()),
            other => StoreError::Unavailable { place: self.bucket.place(), what: other.to_string() },
        })?;
        Ok(read.bytes)
    }

    /// Returns a whole object; `None` if it is too large.
    fn whole(&self, id: u64) -> Result<Option<Bytes>, StoreError> {
        if let Some((last, contents)) = &*self.last.lock()
            && *last == id
        {
            return Ok(Some(contents.clone()));
        }
        let length = self.lengths.get(&id).copied().unwrap_or(0);
        if length == 0 || length > WHOLE_BYTES_MAX {
            return Ok(None);
        }
        let contents = self.read(id, 0..length)?;
        *self.last.lock() = Some((id, contents.clone()));
        Ok(Some(contents))
    }
}

impl Medium for ObjectReader {
    fn verify(&self, address: ChunkAddress) -> Result<u32, StoreError> {
        let ChunkAddress { segment, offset, .. } = address;
        let damaged = |what| self.damaged(segment, offset, what);
        let length = reading::record_length(address).map_err(damaged)? as u64;
        let Some(end) = offset.checked_add(length) else {
            return Err(damaged("no object is that long".into()));
        };
        let record = match self.whole(segment)? {
            Some(contents) => {
                let end = end.min(contents.len() as u64);
                contents.slice(offset.min(end) as usize..end as usize)
            }
            None => self.read(segment, offset..end)?,
        };
        if record.len() as u64 != length {
            return Err(damaged(format!("the object ends before its {length} bytes")));
        }
        let written = ChunkAddress { segment: self.origin(segment), ..address };
        reading::verify_record(&record, written, self.keys.as_deref()).map_err(damaged)
    }

    fn is_there(&self, id: u64) -> bool {
        !matches!(self.bucket.read(&object_name(id), 0..1), Err(BucketError::Missing { .. }))
    }

    fn check_header(&self, id: u64) -> Result<(), StoreError> {
        let head = self.read(id, 0..HEADER_BYTES)?;
        let fixed: Option<&[u8; HEADER_BYTES as usize]> = head[..].try_into().ok();
        if fixed.is_some_and(|head| header::is_header(head, self.origin(id))) {
            return Ok(());
        }
        let what = format!("the header is not that of object {}", object_name(id));
        Err(StoreError::Damaged { place: self.place(id), what })
    }

    fn place(&self, id: u64) -> String {
        format!("{}/{}", self.bucket.place(), object_name(id))
    }
}
