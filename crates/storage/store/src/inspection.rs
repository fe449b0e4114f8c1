//! A partition opened for inspection only.

use crate::home::{Home, Kind};
use crate::{KeyRing, MasterKey, MetaDatabase, MetaEngine, MetaStore, SegmentAudit, StoreError, engines};
use disk::{Disk, Lock, RealDisk};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// A partition that no server has open, for checks and tools. Nothing in it is changed: the state after a
/// crash is seen as the next start will find it.
pub struct Inspection {
    meta: Arc<dyn MetaDatabase>,
    segments: SegmentAudit,
    uuid: Uuid,
    _lock: Option<Box<dyn Lock>>,
}

impl Inspection {
    /// Opens the partition in `path` (`/vicepX`) and prevents servers from opening it.
    ///
    /// # Errors
    /// `Io` if there is none or a server has it open; `Damaged`, `Meta`.
    pub fn open(path: &Path) -> Result<Inspection, StoreError> {
        Inspection::open_encrypted(path, None)
    }

    /// Opens the partition with its master key. Without a key, only the checksums of encrypted file data are
    /// checked.
    ///
    /// # Errors
    /// Those of [`Inspection::open`]; `Key` if the key is wrong.
    pub fn open_encrypted(path: &Path, key: Option<&MasterKey>) -> Result<Inspection, StoreError> {
        Inspection::open_with(&*engines::local(), Arc::new(RealDisk), path, key)
    }

    /// [`Inspection::open_encrypted`] with the engine of the metadata, and the disk of the file data.
    pub fn open_with(
        engine: &dyn MetaEngine,
        disk: Arc<dyn Disk>,
        path: &Path,
        key: Option<&MasterKey>,
    ) -> Result<Inspection, StoreError> {
        let home = Home::open(&*disk, &path.join(crate::partition::FOLDER), Kind::Partition, false)?;
        let keys = KeyRing::look(&*disk, &home.path, home.uuid, key)?.map(Arc::new);
        let meta = engine.open_read_only(&home.path.join("meta"))?;
        let segments = SegmentAudit::open_encrypted(disk, &home.path.join("segments"), &*meta, keys)?;
        Ok(Inspection { meta, segments, uuid: home.uuid, _lock: Some(home.into_lock()) })
    }

    /// Combines stores of a partition that is not in a folder, open for reading only.
    pub fn of(meta: Arc<dyn MetaDatabase>, segments: SegmentAudit, uuid: Uuid) -> Inspection {
        Inspection { meta, segments, uuid, _lock: None }
    }

    /// Returns the metadata.
    pub fn meta(&self) -> &dyn MetaStore {
        &*self.meta
    }

    /// Returns the file data.
    pub fn segments(&self) -> &SegmentAudit {
        &self.segments
    }

    /// Returns the UUID generated when the partition was created.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }
}
