//! State shared by the volumes of one group.

use crate::core::numbers::Numbers;
use crate::dedup::pins::Pins;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use store::ChunkStore;
use volume_records::epochs::Epochs;
use volume_records::totals::Step;
use waits::{Lock, LockName, SharedLock};

/// State that only the writer of a group uses.
pub(crate) struct Writer {
    pub(crate) epochs: Epochs,
    pub(crate) files: Numbers,
    pub(crate) directories: Numbers,
    /// Changes since a count of totals began, while it runs.
    pub(crate) noted: Option<Vec<Step>>,
}

/// A read-write volume and its clones.
pub(crate) struct Group {
    pub(crate) id: u64,
    /// Held while a change is built and committed, never during a wait for the disk or the network. The
    /// holder may read the store and fill caches without `publish`.
    pub(crate) writer: Lock<Writer>,
    /// Keeps store, caches and headers in memory consistent. Locked exclusively while a commit takes effect,
    /// shared while reading more than one record or filling a cache. Taken after `writer`.
    pub(crate) publish: SharedLock<()>,
    pub(crate) pins: Pins,
    /// Whether one of its volumes was used since the last scan for unloading.
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
        // Stores only on a change, because every use of a volume comes through here.
        if !self.is_used.load(Relaxed) {
            self.is_used.store(true, Relaxed);
        }
    }

    pub(crate) fn take_used(&self) -> bool {
        self.is_used.swap(false, Relaxed)
    }
}
