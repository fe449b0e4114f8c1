//! What the volumes of one group share.

use crate::epochs::Epochs;
use crate::numbers::Numbers;
use crate::pins::Pins;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use store::ChunkStore;

/// What only the writer of a group uses.
pub(crate) struct Writer {
    pub(crate) epochs: Epochs,
    pub(crate) files: Numbers,
    pub(crate) directories: Numbers,
}

/// A read-write volume and its clones.
pub(crate) struct Group {
    pub(crate) id: u64,
    /// Held while a change is built and committed, never while anything waits for the medium or the
    /// network. Whoever holds it may read the store and fill caches without `publish`.
    pub(crate) writer: Mutex<Writer>,
    /// Guards the agreement of store, caches and headers in memory: written while a commit takes
    /// effect, read by whoever reads more than one record or fills a cache. Taken after `writer`.
    pub(crate) publish: RwLock<()>,
    pub(crate) pins: Pins,
}

impl Group {
    pub(crate) fn new(id: u64, epochs: Epochs, chunks: Arc<dyn ChunkStore>) -> Group {
        let writer = Writer { epochs, files: Numbers::files(), directories: Numbers::directories() };
        Group { id, writer: Mutex::new(writer), publish: RwLock::new(()), pins: Pins::new(chunks) }
    }
}
