//! Listing volumes without loading them.

use crate::{VolumeError, VolumeHeader, VolumeState, Volumes, loading};
use base::{PartitionId, VolumeId};
use std::ops::ControlFlow;

/// Headers read at once.
const PAGE: usize = 1000;

/// What a list tells of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// As it is now.
    pub header: VolumeHeader,
    /// Whether file service may use it.
    pub state: VolumeState,
}

impl Volumes {
    /// Calls `visit` with every volume of a partition in the order of their ids, until it breaks.
    /// Needs memory for a thousand headers and loads no volume. Those that cannot be read are left out,
    /// and the log says so; volumes that are made or deleted meanwhile may be among them or not.
    ///
    /// # Errors
    /// `NoPartition`, `Store`.
    pub fn list_headers(
        &self,
        partition: PartitionId,
        visit: &mut dyn FnMut(Listed) -> ControlFlow<()>,
    ) -> Result<(), VolumeError> {
        let home = self.partition(partition)?;
        let mut next = Some(VolumeId(0));
        while let Some(from) = next {
            let (page, behind) = loading::headers(home, from, PAGE)?;
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

    /// What is known in memory goes before what was stored.
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
