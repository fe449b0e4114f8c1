//! Opens several small files at once, as dumps read them: looking up the records of one costs as much as scanning those
//! of ten neighbours.

use crate::core::read_ahead::Held;
use crate::read::reader::FileReader;
use crate::{Volume, VolumeError};
use base::{Fid, VnodeId};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use volume_records::codec::{Extent, Vnode};
use volume_records::{epochs, families, keys};

/// Maximum number of versions of records per file that the scan reads, so that writers need not wait long for it
/// however many snapshots there are.
const VERSIONS_MAX: u64 = 16;

impl Volume {
    /// Returns a reader for each file or symbolic link of at most one chunk, as [`Volume::reader`] does, in the same
    /// order. Anything else, and whatever cannot be read, is left out; [`Volume::reader`] returns the error. `fids` are in
    /// the order of their numbers; no file with many chunks should be between them.
    ///
    /// # Errors
    /// `NoVolume`, `Store`.
    pub fn small_readers(self: &Arc<Self>, fids: &[Fid]) -> Result<Vec<FileReader>, VolumeError> {
        let mut publish = self.group.publish.read();
        self.read_together(fids, &mut publish);
        let is_small =
            |vnode: &Vnode| !vnode.status.is_directory() && vnode.status.length <= 1 << vnode.chunk_shift;
        let vnodes: Vec<Vnode> =
            fids.iter().filter_map(|fid| self.vnode(*fid).ok()).filter(is_small).collect();
        // Taken before the extents are read.
        let held = Held { group: Arc::clone(&self.group), pins: (self.group.pins.pin(), None) };
        let mut extents = self.extents_of(&vnodes)?;
        self.check_is_there()?;
        let open = |vnode: Vnode| {
            let extent = extents.remove(&(vnode.status.vnode, vnode.status.unique));
            // A file without an extent is a hole, or the scan ended before it.
            let is_known = extent.is_some() || vnode.status.length == 0;
            is_known.then(|| FileReader::of_one_chunk(self, vnode, held.clone(), extent))
        };
        Ok(vnodes.into_iter().filter_map(open).collect())
    }

    /// Returns the first extents of files, without those that are damaged or shared.
    fn extents_of(&self, vnodes: &[Vnode]) -> Result<HashMap<(VnodeId, u32), Extent>, VolumeError> {
        let (Some(first), Some(last)) = (vnodes.first(), vnodes.last()) else { return Ok(HashMap::new()) };
        let (from, to) = (self.file_key(first).extents(0, 0).0, self.file_key(last).extents(0, 0).1);
        let mut found = HashMap::with_capacity(vnodes.len());
        let mut take = |prefix: &[u8], _: u64, value: &[u8]| {
            if let Some((file, 0)) = keys::file_of(prefix).zip(keys::index_of(prefix))
                && let Ok(extent) = self.home.extent(prefix, value)
                && !matches!(extent, Extent::Shared { .. })
            {
                found.insert(file, extent);
            }
            ControlFlow::Continue(())
        };
        let (read_view, versions_max) = (self.view().read_view, VERSIONS_MAX * vnodes.len() as u64);
        epochs::scan_some(self.meta(), families::EXTENTS, (&from, &to), &read_view, versions_max, &mut take)?;
        Ok(found)
    }
}
