//! Keeps chunks that metadata no longer names until no reader uses them.
//!
//! A reader notes where a file's chunks are and fetches them while the file may be overwritten. It holds a
//! [`Pin`]; superseded chunks are released when every pin taken before has been dropped. Pins form a chain of
//! generations: each keeps the next one alive, so that a generation's chunks are released only after those of
//! earlier ones.

use parking_lot::Mutex;
use std::mem;
use std::sync::Arc;
use store::{ChunkAddress, ChunkStore};

struct Generation {
    chunks: Arc<dyn ChunkStore>,
    /// Chunks to release when this generation ends.
    obsolete: Mutex<Vec<ChunkAddress>>,
    /// Set once, when the next generation begins.
    next: Mutex<Option<Arc<Generation>>>,
}

impl Drop for Generation {
    fn drop(&mut self) {
        for address in mem::take(self.obsolete.get_mut()) {
            self.chunks.release(address);
        }
        // Iterative, because a slow reader may have let the chain grow long.
        let mut next = self.next.get_mut().take();
        while let Some(mut generation) = next.and_then(Arc::into_inner) {
            for address in mem::take(generation.obsolete.get_mut()) {
                generation.chunks.release(address);
            }
            next = generation.next.get_mut().take();
        }
    }
}

/// While it exists, no chunk is released that was named when the pin was taken.
#[derive(Clone)]
pub(crate) struct Pin(#[allow(dead_code, reason = "held for its Drop")] Arc<Generation>);

/// The newest generation of one group.
pub(crate) struct Pins {
    chunks: Arc<dyn ChunkStore>,
    newest: Mutex<Arc<Generation>>,
}

fn generation(chunks: &Arc<dyn ChunkStore>) -> Arc<Generation> {
    let (obsolete, next) = (Mutex::default(), Mutex::default());
    Arc::new(Generation { chunks: Arc::clone(chunks), obsolete, next })
}

impl Pins {
    pub(crate) fn new(chunks: Arc<dyn ChunkStore>) -> Pins {
        let newest = Mutex::new(generation(&chunks));
        Pins { chunks, newest }
    }

    /// Takes a pin. Call this before looking up chunk addresses.
    pub(crate) fn pin(&self) -> Pin {
        Pin(Arc::clone(&self.newest.lock()))
    }

    /// Releases chunks as soon as no reader can know them. Call this when the commit that superseded them is
    /// durable and visible.
    pub(crate) fn release(&self, addresses: Vec<ChunkAddress>) {
        if addresses.is_empty() {
            return;
        }
        let fresh = generation(&self.chunks);
        let old = {
            let mut newest = self.newest.lock();
            mem::replace(&mut *newest, Arc::clone(&fresh))
        };
        old.obsolete.lock().extend(addresses);
        *old.next.lock() = Some(fresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use store::{Codec, MemoryChunks};

    #[test]
    fn chunks_outlive_the_readers_that_may_know_them() {
        let store = Arc::new(MemoryChunks::new());
        let append = || store.append(&[Bytes::from_static(b"data")], Codec::Raw).unwrap();
        let pins = Pins::new(store.clone());
        let (a, b, c) = (append(), append(), append());
        pins.release(vec![a]);
        assert_eq!(store.live_chunks(), 2);
        let early = pins.pin();
        pins.release(vec![b]);
        let late = pins.pin();
        pins.release(vec![c]);
        assert_eq!(store.live_chunks(), 2);
        drop(late);
        assert_eq!(store.live_chunks(), 2);
        drop(early);
        assert_eq!(store.live_chunks(), 0);
    }

    #[test]
    fn a_slow_reader_does_not_overflow_the_stack() {
        let store = Arc::new(MemoryChunks::new());
        let pins = Pins::new(store.clone());
        let slow = pins.pin();
        for _ in 0..200_000 {
            pins.release(vec![store.append(&[], Codec::Raw).unwrap()]);
        }
        drop(slow);
        assert_eq!(store.live_chunks(), 0);
    }
}
