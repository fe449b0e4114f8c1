//! Reads chunks from their objects, or from copies on the local disk.

use super::super::reading;
use super::bucket::Bucket;
use super::disk_cache::DiskCache;
use super::name::object_name;
use super::windows::Source;
use crate::{ChunkAddress, StoreError};
use bytes::Bytes;
use std::ops::Range;

/// What is wrong with a chunk whose object is not there.
pub(super) const MISSING: &str = "no such object";

/// Returns a chunk from its copy, or from its record, which `fetch` returns and is copied then. `decode` returns the chunk of
/// a record, or what is wrong with the record; `damaged` names the place of that.
///
/// # Errors
/// `Damaged`; those of `fetch`.
pub(super) fn load(
    copies: Option<&DiskCache>,
    address: ChunkAddress,
    fetch: impl Fn(Source) -> Result<Bytes, StoreError>,
    decode: impl Fn(&Bytes) -> Result<Bytes, String>,
    damaged: impl FnOnce(String) -> StoreError,
) -> Result<Bytes, StoreError> {
    if let Some(copies) = copies
        && let Some(record) = copies.get(address)
    {
        match decode(&record) {
            Ok(chunk) => return Ok(chunk),
            Err(what) => copies.reject(address, &what),
        }
    }
    let mut record = fetch(Source::Window)?;
    let mut chunk = decode(&record);
    if chunk.is_err() {
        // What came with another record may be damaged where the bucket is not.
        record = fetch(Source::Request)?;
        chunk = decode(&record);
    }
    let chunk = chunk.map_err(damaged)?;
    if let Some(copies) = copies {
        copies.insert(address, &record);
    }
    Ok(chunk)
}

/// Returns the part of the object that is the chunk's record, or why there can be none.
pub(super) fn range(address: ChunkAddress) -> Result<Range<u64>, String> {
    let length = reading::record_length(address)? as u64;
    let end = address.offset.checked_add(length).ok_or("no object is that long")?;
    Ok(address.offset..end)
}

/// Returns a record if it has this length.
pub(super) fn whole(record: Bytes, length: u64) -> Result<Bytes, String> {
    if record.len() as u64 == length {
        return Ok(record);
    }
    Err(format!("the object ends before its {length} bytes"))
}

/// Returns the error of a record in which something is wrong.
pub(super) fn damaged(bucket: &dyn Bucket, address: ChunkAddress, what: String) -> StoreError {
    let object = object_name(address.segment);
    StoreError::Damaged { place: format!("{}/{object} at offset {}", bucket.place(), address.offset), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const ADDRESS: ChunkAddress = ChunkAddress { segment: 1, offset: 32, stored_bytes: 100 };

    /// Loads a record that has the contents `window` in a window and `request` in a request of its own. Returns it, or `None` if
    /// it is damaged, and the sources in the order of their use.
    fn load_from(window: &'static str, request: &'static str) -> (Option<Bytes>, Vec<Source>) {
        let used = RefCell::default();
        let fetch = |source| {
            RefCell::<Vec<Source>>::borrow_mut(&used).push(source);
            Ok(Bytes::from_static(if source == Source::Window { window } else { request }.as_bytes()))
        };
        let decode = |record: &Bytes| (record == "good").then(|| record.clone()).ok_or("checksum".to_owned());
        let damaged = |what| StoreError::Damaged { place: "here".into(), what };
        let loaded = match load(None, ADDRESS, fetch, decode, damaged) {
            Ok(chunk) => Some(chunk),
            Err(StoreError::Damaged { .. }) => None,
            Err(error) => panic!("{error}"),
        };
        (loaded, used.into_inner())
    }

    #[test]
    fn damage_is_reported_only_if_the_bucket_has_it() {
        use Source::{Request, Window};
        assert_eq!(load_from("good", "bad"), (Some("good".into()), vec![Window]));
        assert_eq!(load_from("bad", "good"), (Some("good".into()), vec![Window, Request]));
        assert_eq!(load_from("bad", "bad"), (None, vec![Window, Request]));
    }
}
