//! What the volumes of one group share.

use crate::epochs::Epochs;
use crate::numbers::Numbers;
use crate::pins::Pins;
use crate::totals::Step;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use store::ChunkStore;
use waits::{Lock, LockName, SharedLock};

/// What only the writer of a group uses.
pub(crate) struct Writer {
    pub(crate) epochs: Epochs,
    pub(crate) files: Numbers,
    pub(crate) directories: Numbers,
    /// While totals are counted: what changed since that began.
    pub(crate) noted: Option<Vec<Step>>,
}

/// A read-write volume and its clones.
pub(crate) struct Group {
    pub(crate) id: u64,
    /// Held while a change is built and committed, never while anything waits for the medium or the
    /// network. Whoever holds it may read the store and fill caches without `publish`.
    pub(crate) writer: Lock<Writer>,
    /// Guards the agreement of store, caches and headers in memory: written while a commit takes
    /// effect, read by whoever reads more than one record or fills a cache. Taken after `writer`.
    pub(crate) publish: SharedLock<()>,
    pub(crate) pins: Pins,
    /// Somebody asked for one of its volumes since it was last looked at for unloading.
    is_used: AtomicBool,
}

impl Group {
    pub(crate) fn new(id: u64, epochs: Epochs, chunks: Arc<dyn ChunkStore>) -> Group {
        let (files, directories) = (Numbers::files(), Numbers::directories());
        let writer = Writer { epochs, files, directories, noted: None };
        Group {
            id,
            writer: Lock::new(LockName::Volume, writer),
            publish: SharedLock::new(LockName::Publish, ()),
            pins: Pins::new(chunks),
            is_used: AtomicBool::new(true),
        }
    }

    pub(crate) fn set_used(&self) {
        // A store only where it changes something: everybody who uses a volume comes by.
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
    }

    pub(crate) fn take_used(&self) -> bool {
        self.is_used.swap(false, Relaxed)
    }
}
