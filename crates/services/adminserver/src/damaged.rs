//! Results of the scrubbers.

use crate::AdminServer;
use crate::checks::cut;
use afs_idl::cellar::{DAMAGES_MAX, DamagedPlace, GetDamagedPlacesReply, GetDamagedPlacesRequest};
use base::{AbortCode, Caller, PartitionId};
use volume::Quarantined;

impl AdminServer {
    /// GetDamagedPlaces (opcode 334).
    pub(crate) fn get_damaged_places(
        &self,
        caller: &Caller,
        request: GetDamagedPlacesRequest,
    ) -> Result<GetDamagedPlacesReply, AbortCode> {
        self.administer(caller, "GetDamagedPlaces")?;
        let volumes = &self.parts.volumes;
        let partition = PartitionId::from_index(request.partition);
        let partition =
            partition.filter(|id| volumes.partitions().contains(id)).ok_or(AbortCode::UAENODEV)?;
        let scrubbed = volumes.scrub_statistics(partition).map_err(|error| error.abort_code())?;
        let found = volumes.quarantine(partition).map_err(|error| error.abort_code())?;
        Ok(GetDamagedPlacesReply {
            running: scrubbed.is_running.into(),
            started: scrubbed.started.0,
            finished: scrubbed.finished.0,
            passes: scrubbed.passes,
            records: scrubbed.records,
            chunks: scrubbed.chunks,
            bytes: scrubbed.bytes,
            places: found.iter().skip(request.from as usize).take(DAMAGES_MAX).map(place).collect(),
        })
    }
}

fn place(found: &Quarantined) -> DamagedPlace {
    let fid = found.fid.unwrap_or_default();
    DamagedPlace {
        volume: fid.volume.0,
        vnode: fid.vnode.0,
        unique: fid.unique,
        offset: found.offset,
        length: found.length,
        place: cut(&found.place).into(),
        what: cut(&found.what).into(),
        first_seen: found.first_seen.0,
        last_seen: found.last_seen.0,
    }
}
