//! Checks whether a volume fits at its destination.

use crate::calls::{Run, Step, failed};
use crate::traffic::size;
use crate::{JobError, Place, World};
use afs_idl::vol::{self, VolintInfo, volume_state};
use base::{AbortCode, PartitionId};

impl<W: World> Run<'_, W> {
    /// Rejects a partition with less free space than the volume's size, and returns the free KiB. On a Cellar
    /// server the space needed depends on compression and existing data, so the server itself reports when it
    /// is full; other servers would report that only after hours.
    pub(crate) fn check_room(&self, to: Place) -> Step<u64> {
        let free_kib = self.free_kib(to)?;
        let (from, name) = (self.job.from, &self.job.name);
        let size_kib = match self.look(from, self.job.volume)? {
            Some(info) if has_figures(&info) => size_kib(&info),
            _ => 0,
        };
        if free_kib >= size_kib || self.world.restores_at_once(to.server) {
            return Ok(free_kib);
        }
        let (free, needed) = (size(free_kib << 10), size(size_kib << 10));
        Err(JobError::Refused(format!("{to} has {free} free, and {name} has {needed}")))
    }

    /// Returns the free KiB of a partition.
    pub(crate) fn free_kib(&self, place: Place) -> Step<u64> {
        let doing = || format!("find out how much room {place} has");
        let partition = u32::try_from(place.partition).ok().and_then(PartitionId::from_index);
        let partition = partition.ok_or(AbortCode::VOLSERILLEGAL_PARTITION).map_err(failed(doing()))?;
        let (name, server) = (partition.to_string(), self.world.volumes(place.server));
        let request = vol::PartitionInfo64Request { name: name.as_str().into() };
        let free = match vol::partition_info64(&*server, &request) {
            // Servers older than OpenAFS 1.6.
            Err(AbortCode::RXGEN_OPCODE) => {
                let request = vol::PartitionInfoRequest { name: name.as_str().into() };
                vol::partition_info(&*server, &request).map(|reply| reply.partition.free.into())
            }
            wide => wide.map(|reply| reply.partition.free),
        };
        Ok(u64::try_from(free.map_err(failed(doing()))?).unwrap_or(0))
    }
}

/// Returns whether a listing has more than the volume's existence.
pub(crate) fn has_figures(info: &VolintInfo) -> bool {
    info.status == volume_state::OK
}

/// Returns the size of a volume in KiB.
pub(crate) fn size_kib(info: &VolintInfo) -> u64 {
    u64::try_from(info.size).unwrap_or(0)
}
