//! The bucket in memory, as a front uses it.

use bytes::Bytes;
use cluster_world::part;
pub(crate) use cluster_world::{IDENTITY, Shelf};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use store::{Bucket, BucketError, ForeignChunks, KeyRing, ObjectPart, VisitObject};

/// Called with the number of a read, from 1, and the name of the object. Returns what the reader sees instead.
type Meddle = dyn FnMut(u64, &str) -> Option<Result<Bytes, BucketError>> + Send;

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

/// Returns an object with a wrong bit in every kilobyte.
pub(crate) fn damaged(contents: &Bytes) -> Bytes {
    let mut contents = contents.to_vec();
    for byte in contents.iter_mut().skip(500).step_by(1000) {
        *byte ^= 4;
    }
    contents.into()
}

impl View {
    pub(crate) fn of(shelf: &Shelf) -> View {
        View {
            shelf: shelf.clone(),
            creations: Arc::default(),
            failing: Arc::new(Mutex::new(0..0)),
            delay: Arc::default(),
            reads: Arc::default(),
            meddle: Arc::default(),
        }
    }

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
