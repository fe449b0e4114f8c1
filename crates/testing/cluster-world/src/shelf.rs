//! A bucket in memory, as two processes see it.

use crate::memory;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use store::{Bucket, BucketError, KeyRing, MemoryMeta, ObjectChunks, ObjectConfig, ObjectPart, VisitObject};
use volume::PartitionHandle;

/// Identity of the partition in the bucket.
pub const IDENTITY: [u8; 16] = [9; 16];

/// The objects of a partition. Clones are the same bucket.
#[derive(Clone, Default)]
pub struct Shelf {
    /// The objects by name; nothing waits under the lock.
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    /// Those whose creation has begun; nothing waits under the lock.
    begun: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

impl Shelf {
    /// Returns the second node's partition, with its file data here.
    pub fn partition(&self, keys: Option<&Arc<KeyRing>>) -> PartitionHandle {
        let meta = Arc::new(MemoryMeta::new());
        let config = ObjectConfig { object_bytes_max: 1 << 20, ..ObjectConfig::default() };
        let (bucket, keys) = (Arc::new(self.clone()), keys.cloned());
        let chunks =
            ObjectChunks::open(bucket, Arc::clone(&meta) as _, config, keys).expect("an empty bucket");
        PartitionHandle { meta, chunks: Arc::new(chunks.shared_as(IDENTITY, "chunks")), ..memory(1) }
    }

    /// Returns the names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    /// Replaces the contents of every object by what `change` makes of them.
    pub fn replace(&self, change: impl Fn(&Bytes) -> Bytes) {
        for contents in self.objects.lock().values_mut() {
            *contents = change(contents);
        }
    }

    /// Creates an object as another process, unless it exists.
    pub fn put(&self, name: &str, contents: Bytes) {
        self.objects.lock().entry(name.to_owned()).or_insert(contents);
    }
}

/// Returns a part of an object.
pub fn part(object: &Bytes, range: Range<u64>) -> ObjectPart {
    let end = object.len().min(usize::try_from(range.end).unwrap_or(usize::MAX));
    let start = end.min(usize::try_from(range.start).unwrap_or(usize::MAX));
    ObjectPart { bytes: object.slice(start..end), object_bytes: object.len() as u64 }
}

impl Bucket for Shelf {
    fn begin(&self, name: &str, contents: &Bytes) {
        self.begun.lock().insert(name.to_owned(), contents.clone());
    }

    fn finish(&self, names: &[String]) -> Result<(), BucketError> {
        for name in names {
            let contents = self.begun.lock().remove(name).expect("it was begun");
            assert_eq!(self.objects.lock().insert(name.clone(), contents), None, "names are used once");
        }
        Ok(())
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        let objects = self.objects.lock();
        let object = objects.get(name).ok_or_else(|| BucketError::Missing { name: name.to_owned() })?;
        Ok(part(object, range))
    }

    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.read(from, range)
    }

    fn copy(&self, _: &str, _: &str) -> Result<u64, BucketError> {
        Err(BucketError::Refused("nothing is copied here".into()))
    }

    fn remove(&self, names: &[String]) -> Result<(), BucketError> {
        let mut objects = self.objects.lock();
        for name in names {
            objects.remove(name);
        }
        Ok(())
    }

    fn list(&self, after: &str, visit: VisitObject<'_>) -> Result<(), BucketError> {
        let objects = self.objects.lock().clone();
        for (name, contents) in objects.iter().filter(|(name, _)| name.as_str() > after) {
            if visit(name, contents.len() as u64).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn place(&self) -> String {
        "shelf".into()
    }
}
