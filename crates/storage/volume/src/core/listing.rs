//! Lists volumes without loading them.

use crate::core::loader;
use crate::{VolumeError, VolumeHeader, VolumeState, Volumes};
use base::{PartitionId, VolumeId};
use std::ops::ControlFlow;

/// Headers read in one batch.
const PAGE: usize = 1000;

/// A volume in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Current header.
    pub header: VolumeHeader,
    /// State that decides whether file service may use it.
    pub state: VolumeState,
}

impl Volumes {
    /// Calls `visit` with every volume of a partition in id order, until it breaks. Needs memory for a
    /// thousand headers and loads no volume. Unreadable headers are logged and skipped; volumes created or
    /// deleted meanwhile may or may not be included.
    pub fn list_headers(
        &self,
        partition: PartitionId,
        visit: &mut dyn FnMut(Listed) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        let home = self.partition(partition)?;
        let mut next = Some(VolumeId(0));
        while let Some(from) = next {
            let (page, behind) = loader::headers(&home, from, PAGE)?;
            next = behind;
            for (id, header) in page {
                if let Some(listed) = self.listed(partition, id, header)
                    && visit(listed).is_break()
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the entry of a volume, preferring the state in memory to the stored one.
    fn listed(&self, partition: PartitionId, id: VolumeId, stored: Option<VolumeHeader>) -> Option<Listed> {
        let index = self.index.read();
        let loaded = index.find_loaded(id).filter(|volume| volume.partition() == partition);
        if let Some(volume) = loaded {
            return Some(Listed { header: volume.header(), state: volume.state() });
        }
        let header = stored.filter(|_| index.is_on(id, partition))?;
        Some(Listed { header, state: VolumeState::Online })
    }
}
