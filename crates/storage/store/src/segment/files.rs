//! The files of a partition's segments.

use super::frame;
use super::header::{self, HEADER_BYTES};
use super::leaving::Leaving;
use crate::home::failed;
use crate::{KeyRing, StoreError};
use disk::{DIRECT_ALIGNMENT, Disk, File};
use quick_cache::sync::Cache;
use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Layout of the records in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// Each directly after the previous one.
    Dense,
    /// Each at a multiple of [`DIRECT_ALIGNMENT`], with fillers between them.
    Aligned,
}

impl Packing {
    /// Returns the offset of the first record.
    pub(super) fn first_offset(self) -> u64 {
        match self {
            Packing::Dense => HEADER_BYTES,
            Packing::Aligned => DIRECT_ALIGNMENT as u64,
        }
    }

    /// Returns the size of the filler after a record of `record_bytes` bytes.
    pub(super) fn filler_bytes(self, record_bytes: u32) -> u32 {
        match self {
            Packing::Dense => 0,
            Packing::Aligned => frame::filler_bytes(record_bytes),
        }
    }
}

/// A folder of segments, with a bounded number of them open.
pub(super) struct Files {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folder: PathBuf,
    /// Keys of encrypted chunks, if the partition is encrypted.
    pub(super) keys: Option<Arc<KeyRing>>,
    open: Cache<u64, Arc<dyn File>>,
}

impl Files {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        folder: &Path,
        keys: Option<Arc<KeyRing>>,
        open_max: usize,
    ) -> Files {
        Files { disk, folder: folder.to_owned(), keys, open: Cache::new(open_max) }
    }

    pub(super) fn path(&self, id: u64) -> PathBuf {
        self.folder.join(header::file_name(id))
    }

    /// Returns file and offset, for messages.
    pub(super) fn place(&self, id: u64, offset: u64) -> String {
        format!("{} at offset {offset}", self.path(id).display())
    }

    /// Returns the ids of all segments, ascending.
    pub(super) fn list(&self) -> Result<Vec<u64>, StoreError> {
        let names = self.disk.list(&self.folder).map_err(|error| failed("list", &self.folder, error))?;
        let mut ids: Vec<u64> = names.iter().filter_map(|name| header::parse_name(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Creates a segment. When this returns, its name, its header and the filler before the first record are
    /// durable.
    pub(super) fn create(&self, id: u64, packing: Packing) -> Result<Arc<dyn File>, StoreError> {
        let path = self.path(id);
        let fail = |error| failed("create", &path, error);
        let mut head = vec![0; packing.first_offset() as usize];
        let (header, filler) = head.split_at_mut(HEADER_BYTES as usize);
        header.copy_from_slice(&header::build(id));
        frame::fill(filler, id, HEADER_BYTES);
        let file = self.disk.create(&path).map_err(fail)?;
        file.write_all_at(&mut [IoSlice::new(&head)], 0).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        self.disk.sync_dir(&self.folder).map_err(fail)?;
        self.open.insert(id, Arc::clone(&file));
        Ok(file)
    }

    /// Opens a segment for reading.
    pub(super) fn get(&self, id: u64) -> Result<Arc<dyn File>, StoreError> {
        self.open.get_or_insert_with(&id, || self.open(id))
    }

    fn open(&self, id: u64) -> Result<Arc<dyn File>, StoreError> {
        let path = self.path(id);
        let file = self.disk.open(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                StoreError::Damaged { place: path.display().to_string(), what: "no such segment".into() }
            }
            _ => failed("open", &path, error),
        })?;
        let mut head = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut head, 0).map_err(|error| failed("read", &path, error))?;
        header::check(&head, id, &path.display().to_string())?;
        Ok(file)
    }

    /// Checks a segment's header; unlike reading, this fails if its checksum is wrong.
    pub(super) fn check_header(&self, id: u64) -> Result<(), StoreError> {
        let path = self.path(id);
        let fail = |error| failed("read", &path, error);
        let mut head = [0; HEADER_BYTES as usize];
        self.disk.open(&path).map_err(fail)?.read_exact_at(&mut head, 0).map_err(fail)?;
        if header::is_header(&head, id) {
            return Ok(());
        }
        let what = format!("the header is not that of segment {id}");
        Err(StoreError::Damaged { place: path.display().to_string(), what })
    }

    /// Returns the length of a segment's file.
    pub(super) fn length(&self, id: u64) -> Result<u64, StoreError> {
        let path = self.path(id);
        let length = self.disk.open(&path).and_then(|file| file.length());
        length.map_err(|error| failed("look at", &path, error))
    }

    /// Removes the name of a segment's file. Current readers can finish. Its space is freed when the returned
    /// value is dropped, unless it is still being read.
    pub(super) fn remove(&self, id: u64) -> Result<Leaving, StoreError> {
        let path = self.path(id);
        // A file that cannot be opened, for example because its header is damaged, is freed in one piece.
        let file = self.get(id).ok();
        match self.disk.remove(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("remove", &path, error)),
            _ => {}
        }
        // Not earlier: readers that arrive in the meantime share the handle, and so are counted.
        self.open.remove(&id);
        Ok(Leaving::new(file, path))
    }

    /// Makes removals durable.
    pub(super) fn sync_names(&self) -> Result<(), StoreError> {
        self.disk.sync_dir(&self.folder).map_err(|error| failed("sync", &self.folder, error))
    }
}
