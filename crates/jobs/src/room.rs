//! Whether a volume has room where it goes.

use crate::calls::{Run, Step, failed};
use crate::traffic::size;
use crate::{Place, Trouble, World};
use afs_idl::vol::{self, VolintInfo, volume_state};
use base::{AbortCode, PartitionId};

impl<W: World> Run<'_, W> {
    /// Refuses a partition that has less room than the volume has. On a Cellar server much depends on what is there already
    /// and on compression, so it tells by itself when it is full; the others would tell after hours. Returns the KiB
    /// that are free.
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
        Err(Trouble::Refused(format!("{to} has {free} free, and {name} has {needed}")))
    }

    /// KiB that are free on a partition.
    pub(crate) fn free_kib(&self, place: Place) -> Step<u64> {
        let doing = || format!("find out how much room {place} has");
        let partition = u32::try_from(place.partition).ok().and_then(PartitionId::from_index);
        let partition = partition.ok_or(AbortCode::VOLSERILLEGAL_PARTITION).map_err(failed(doing()))?;
        let (name, server) = (partition.to_string(), self.world.volumes(place.server));
        let request = vol::PartitionInfo64Request { name: name.as_str().into() };
        let free = match vol::partition_info64(&*server, &request) {
            // Servers from before OpenAFS 1.6.
            Err(AbortCode::RXGEN_OPCODE) => {
                let request = vol::PartitionInfoRequest { name: name.as_str().into() };
                vol::partition_info(&*server, &request).map(|reply| reply.partition.free.into())
            }
            wide => wide.map(|reply| reply.partition.free),
        };
        Ok(u64::try_from(free.map_err(failed(doing()))?).unwrap_or(0))
    }
}

/// Whether a listing tells more than that there is such a volume.
pub(crate) fn has_figures(info: &VolintInfo) -> bool {
    info.status == volume_state::OK
}

/// What a volume has.
pub(crate) fn size_kib(info: &VolintInfo) -> u64 {
    u64::try_from(info.size).unwrap_or(0)
}
