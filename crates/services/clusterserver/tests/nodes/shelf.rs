//! A bucket in memory, as two processes see it.

use crate::world::memory;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Bucket, BucketError, ForeignChunks, KeyRing, MemoryMeta, ObjectChunks, ObjectConfig, ObjectPart,
    VisitObject,
};
use volume::PartitionHandle;

/// Identity of the partition in the bucket.
pub(crate) const IDENTITY: [u8; 16] = [9; 16];

/// Called with the number of a read, from 1, and the name of the object. Returns what the reader sees instead.
type Meddle = dyn FnMut(u64, &str) -> Option<Result<Bytes, BucketError>> + Send;

/// The objects of a partition. Clones are the same bucket.
#[derive(Clone, Default)]
pub(crate) struct Shelf {
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    begun: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

/// The bucket as a front uses it.
#[derive(Clone)]
pub(crate) struct View {
    shelf: Shelf,
    /// Number of objects that it has created, or tried to.
    creations: Arc<Mutex<u64>>,
    /// The creations with these numbers, from 1, fail.
    failing: Arc<Mutex<Range<u64>>>,
    /// How long each creation takes.
    delay: Arc<Mutex<Duration>>,
    reads: Arc<Mutex<u64>>,
    meddle: Arc<Mutex<Option<Box<Meddle>>>>,
}

impl Shelf {
    /// Returns the second node's partition, with its file data here.
    pub(crate) fn partition(&self, keys: Option<&Arc<KeyRing>>) -> PartitionHandle {
        let meta = Arc::new(MemoryMeta::new());
        let config = ObjectConfig { object_bytes_max: 1 << 20, ..ObjectConfig::default() };
        let (bucket, keys) = (Arc::new(self.clone()), keys.cloned());
        let chunks = ObjectChunks::open(bucket, Arc::clone(&meta) as _, config, keys).unwrap();
        PartitionHandle { meta, chunks: Arc::new(chunks.shared_as(IDENTITY, "chunks")), ..memory(1) }
    }

    pub(crate) fn view(&self) -> View {
        View {
            shelf: self.clone(),
            creations: Arc::default(),
            failing: Arc::new(Mutex::new(0..0)),
            delay: Arc::default(),
            reads: Arc::default(),
            meddle: Arc::default(),
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    /// Changes every object.
    pub(crate) fn damage(&self) {
        for contents in self.objects.lock().values_mut() {
            *contents = damaged(contents);
        }
    }
}

/// Returns a part of an object.
fn part(object: &Bytes, range: Range<u64>) -> ObjectPart {
    let end = object.len().min(range.end as usize);
    ObjectPart { bytes: object.slice(end.min(range.start as usize)..end), object_bytes: object.len() as u64 }
}

/// Returns an object with a wrong bit in every kilobyte.
pub(crate) fn damaged(contents: &Bytes) -> Bytes {
    let mut contents = contents.to_vec();
    for byte in contents.iter_mut().skip(500).step_by(1000) {
        *byte ^= 4;
    }
    contents.into()
}

impl View {
    pub(crate) fn chunks(&self, keys: Option<&Arc<KeyRing>>) -> ForeignChunks {
        ForeignChunks::new(Arc::new(self.clone()), keys.cloned(), 64 << 20)
    }

    /// Returns the number of objects that the front has created, or tried to.
    pub(crate) fn creations(&self) -> u64 {
        *self.creations.lock()
    }

    /// Lets the creations with these numbers fail, counted from now on, from 1.
    pub(crate) fn fail(&self, failing: Range<u64>) {
        *self.creations.lock() = 0;
        *self.failing.lock() = failing;
    }

    /// Lets each creation take this long.
    pub(crate) fn delay(&self, delay: Duration) {
        *self.delay.lock() = delay;
    }

    /// Returns the number of reads.
    pub(crate) fn reads(&self) -> u64 {
        *self.reads.lock()
    }

    pub(crate) fn meddle(
        &self,
        meddle: impl FnMut(u64, &str) -> Option<Result<Bytes, BucketError>> + Send + 'static,
    ) {
        *self.reads.lock() = 0;
        *self.meddle.lock() = Some(Box::new(meddle));
    }
}

impl Bucket for Shelf {
    fn begin(&self, name: &str, contents: &Bytes) {
        self.begun.lock().insert(name.to_owned(), contents.clone());
    }

    fn finish(&self, names: &[String]) -> Result<(), BucketError> {
        for name in names {
            let contents = self.begun.lock().remove(name).unwrap();
            assert_eq!(self.objects.lock().insert(name.clone(), contents), None);
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

impl Bucket for View {
    fn begin(&self, name: &str, contents: &Bytes) {
        self.shelf.begin(name, contents);
    }

    fn finish(&self, names: &[String]) -> Result<(), BucketError> {
        let number = {
            let mut creations = self.creations.lock();
            *creations += 1;
            *creations
        };
        let delay = *self.delay.lock();
        std::thread::sleep(delay);
        if self.failing.lock().contains(&number) {
            return Err(BucketError::Unavailable("no answer".into()));
        }
        self.shelf.finish(names)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        let number = {
            let mut reads = self.reads.lock();
            *reads += 1;
            *reads
        };
        let instead = self.meddle.lock().as_mut().and_then(|meddle| meddle(number, name));
        match instead {
            Some(Err(error)) => Err(error),
            Some(Ok(object)) => Ok(part(&object, range)),
            None => self.shelf.read(name, range),
        }
    }

    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.read(from, range)
    }

    fn copy(&self, _: &str, _: &str) -> Result<u64, BucketError> {
        panic!("a front copies nothing");
    }

    fn remove(&self, _: &[String]) -> Result<(), BucketError> {
        panic!("a front removes nothing");
    }

    fn list(&self, _: &str, _: VisitObject<'_>) -> Result<(), BucketError> {
        panic!("a front lists nothing");
    }

    fn place(&self) -> String {
        "shelf".into()
    }
}
