//! Reads totals.

use crate::VolumeError;
use crate::core::volume::Volume;
use crate::interface::error::damage;
use base::{Fid, VnodeId};
use std::collections::HashMap;
use std::sync::Arc;
use volume_records::totals::{Totals, spread};
use volume_records::{codec, epochs, families, keys};

impl Volume {
    /// Returns the sums over a directory and everything below it. Reads one record, whatever the size of the
    /// tree.
    pub fn totals(&self, directory: Fid) -> Result<Totals, VolumeError> {
        let _publish = self.group.publish.read();
        let vnode = self.directory_vnode(directory)?.status.vnode;
        let overlay = self.overlay()?;
        let stored = self.stored_totals(vnode)?;
        Ok(overlay.get(&vnode).map_or(stored, |more| stored.plus(*more)))
    }

    /// Returns whether the totals are known. If not, they are being counted, or the volume is a clone that
    /// was made before they were counted.
    pub fn is_counted(&self) -> bool {
        self.read_live(|live| live.unfolded.is_some())
    }

    /// Returns the amounts to add to the records of directories. Callers hold `publish` or are the writer,
    /// here and below.
    fn overlay(&self) -> Result<Arc<HashMap<VnodeId, Totals>>, VolumeError> {
        let (unfolded, known) = self.read_live(|live| (live.unfolded, live.overlay.clone()));
        let unfolded = unfolded.ok_or(VolumeError::NotCounted(self.id()))?;
        if let Some(known) = known {
            return Ok(known);
        }
        let overlay = spread(unfolded.iter().collect(), |at| self.directory_above(at))?;
        let overlay = Arc::new(overlay);
        self.change_live(|live| live.overlay = Some(Arc::clone(&overlay)));
        Ok(overlay)
    }

    fn directory_above(&self, directory: VnodeId) -> Result<Option<VnodeId>, VolumeError> {
        let vnode = self.vnode_by_number(directory)?;
        let above = vnode.ok_or_else(|| self.totals_damage(directory, "of no directory"))?.status.parent;
        Ok(Some(above).filter(|above| *above != VnodeId(0)))
    }

    /// Returns the totals in a directory's record.
    pub(crate) fn stored_totals(&self, directory: VnodeId) -> Result<Totals, VolumeError> {
        let view = self.view();
        if let Some(totals) = self.shared.caches.totals(view.instance, directory) {
            return Ok(totals);
        }
        let prefix = keys::vnode(self.group.id, directory);
        let value = epochs::get(self.meta(), families::TOTALS, &prefix, &view.read_view)?;
        let totals = value.and_then(|(_, value)| codec::get_totals(&value));
        let totals = totals.ok_or_else(|| self.totals_damage(directory, "the totals of the directory"))?;
        self.shared.caches.put_totals(view.instance, directory, Some(totals), 0);
        Ok(totals)
    }

    pub(crate) fn totals_damage(&self, directory: VnodeId, what: &'static str) -> VolumeError {
        damage(families::TOTALS, &keys::vnode(self.group.id, directory), what)
    }
}
