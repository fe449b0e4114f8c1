//! What a call of the volume service or of Cellar's own service concerns, by the first words of its request.

use crate::scope::word;
use afs_idl::{cellar, vol};
use base::{PartitionId, VolumeId};
use cluster_proto::{CallKind, Repeat, partition_of_transaction};

/// Maximum length of the full name of a partition: `/vicepiv`.
const PARTITION_NAME_BYTES_MAX: usize = 8;

/// Where a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// At the node that the client has called.
    Here,
    /// At the owner of this partition.
    Partition(PartitionId),
    /// At the owner of this volume.
    Volume(VolumeId),
    /// At all nodes. Each reply is a list.
    Everywhere,
}

/// How a request names what it concerns.
#[derive(Clone, Copy)]
enum Named {
    /// By the number of a partition, at this word.
    Partition(usize),
    /// By the full name of a partition, the first argument.
    PartitionName,
    /// By the number of a transaction, the first argument.
    Transaction,
    /// By the number of a volume, the first argument.
    Volume,
    /// Nothing in particular.
    All,
}

/// Returns what a call of the volume service (Rx number 4) or of Cellar's own service (20011) does to a partition, and
/// whether it may be executed twice; `None` for a call that is not forwarded.
pub fn kind_of_administration(service: u16, opcode: u32) -> Option<(CallKind, Repeat)> {
    named(service, opcode).map(|(_, kind)| match kind {
        CallKind::Read => (CallKind::Read, Repeat::Freely),
        CallKind::Change => (CallKind::Change, Repeat::Once),
    })
}

/// Whether data of any length follows the arguments of a call of a service other than the file service.
pub(crate) fn carries_data(service: u16, opcode: u32) -> bool {
    matches!((service, opcode), (vol::SERVICE_ID, vol::RESTORE) | (cellar::SERVICE_ID, cellar::TAKE_VOLUME))
}

/// Whether calls of this service are those of administration.
pub(crate) fn is_administration(service: u16) -> bool {
    [vol::SERVICE_ID, cellar::SERVICE_ID].contains(&service)
}

fn named(service: u16, opcode: u32) -> Option<(Named, CallKind)> {
    match service {
        vol::SERVICE_ID => of_volumes(opcode),
        cellar::SERVICE_ID => of_cellar(opcode),
        _ => None,
    }
}

/// The calls of the volume service. ListPartitions and XListPartitions are answered by every node for all partitions.
fn of_volumes(opcode: u32) -> Option<(Named, CallKind)> {
    use CallKind::{Change, Read};
    Some(match opcode {
        vol::LIST_VOLUMES | vol::X_LIST_VOLUMES | vol::LIST_ONE_VOLUME | vol::X_LIST_ONE_VOLUME => {
            (Named::Partition(1), Read)
        }
        vol::CREATE_VOLUME | vol::NUKE_VOLUME | vol::CONVERT_RO_TO_RW_VOLUME => (Named::Partition(1), Change),
        vol::TRANS_CREATE => (Named::Partition(2), Change),
        vol::PARTITION_INFO | vol::PARTITION_INFO64 => (Named::PartitionName, Read),
        vol::GET_FLAGS | vol::GET_NAME | vol::GET_STATUS | vol::GET_SIZE | vol::DUMP | vol::DUMP_V2 => {
            (Named::Transaction, Read)
        }
        vol::DELETE_VOLUME
        | vol::RESTORE
        | vol::FORWARD
        | vol::FORWARD_MULTIPLE
        | vol::END_TRANS
        | vol::CLONE_VOLUME
        | vol::RE_CLONE
        | vol::SET_FLAGS
        | vol::SET_FORWARDING
        | vol::SET_IDS_TYPES
        | vol::SET_DATE
        | vol::SET_INFO => (Named::Transaction, Change),
        vol::SPLIT_VOLUME => (Named::Volume, Change),
        vol::MONITOR => (Named::All, Read),
        _ => return None,
    })
}

/// The calls of Cellar's own service that are not about the process. Snapshots of a volume may be in other partitions.
fn of_cellar(opcode: u32) -> Option<(Named, CallKind)> {
    use CallKind::{Change, Read};
    Some(match opcode {
        cellar::GET_SNAPSHOT_SPACE
        | cellar::GET_SNAPSHOT_POLICY
        | cellar::GET_DIRECTORY_TOTALS
        | cellar::LIST_SUBDIRECTORIES
        | cellar::GET_VOLUME_POLICY
        | cellar::GET_VOLUME_DEDUPLICATION => (Named::Volume, Read),
        cellar::CREATE_SNAPSHOT
        | cellar::REMOVE_SNAPSHOT
        | cellar::ROLL_BACK_VOLUME
        | cellar::SET_SNAPSHOT_POLICY
        | cellar::SET_VOLUME_POLICY
        | cellar::SET_VOLUME_DEDUPLICATION
        | cellar::PURGE_VOLUME_CACHE => (Named::Volume, Change),
        cellar::GET_CHECK | cellar::GET_CHECK_DAMAGES | cellar::GET_DAMAGED_PLACES => {
            (Named::Partition(1), Read)
        }
        cellar::START_CHECK | cellar::STOP_CHECK | cellar::USED_OBJECTS => (Named::Partition(1), Change),
        cellar::GET_CHUNK_DIGESTS | cellar::DIGEST_CONTENTS => (Named::Transaction, Read),
        cellar::OFFER_VOLUME | cellar::BORROW_OBJECTS | cellar::TAKE_VOLUME => (Named::Transaction, Change),
        cellar::LIST_SNAPSHOTS | cellar::LIST_TRANSFERS => (Named::All, Read),
        _ => return None,
    })
}

impl Concern {
    /// Returns what a request concerns, or the number of bytes that are needed to know it.
    pub(crate) fn of(service: u16, request: &[u8]) -> Result<Concern, usize> {
        let opcode = word(request, 0)?;
        let partition = |id: Option<PartitionId>| id.map_or(Concern::Here, Concern::Partition);
        let Some((named, _)) = named(service, opcode) else { return Ok(Concern::Here) };
        // The handlers refuse numbers and names of nothing.
        Ok(match named {
            Named::Partition(place) => partition(PartitionId::from_index(word(request, place)?)),
            Named::PartitionName => partition(full_name(request)?),
            Named::Transaction => partition(partition_of_transaction(word(request, 1)?.cast_signed())),
            Named::Volume => Concern::Volume(VolumeId(word(request, 1)?)),
            Named::All => Concern::Everywhere,
        })
    }
}

/// Returns the partition whose full name, like `/vicepa`, is the first argument.
fn full_name(request: &[u8]) -> Result<Option<PartitionId>, usize> {
    let length = word(request, 1)? as usize;
    if length > PARTITION_NAME_BYTES_MAX {
        return Ok(None);
    }
    let name = request.get(8..8 + length).ok_or(8 + length)?;
    let name = std::str::from_utf8(name).ok().filter(|name| name.starts_with("/vicep"));
    Ok(name.and_then(|name| name.parse().ok()))
}

/// Joins replies that are lists: each is the number of entries, followed by these. Returns `None` if one is none.
pub(crate) fn join<'r>(replies: impl IntoIterator<Item = &'r [u8]>) -> Option<Vec<u8>> {
    let mut joined = vec![0; 4];
    let mut count = 0_u32;
    for reply in replies {
        let (number, entries) = reply.split_first_chunk()?;
        count = count.checked_add(u32::from_be_bytes(*number))?;
        joined.extend_from_slice(entries);
    }
    joined[..4].copy_from_slice(&count.to_be_bytes());
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::limits::BULK_FIDS_MAX;
    use cluster_proto::{Epoch, transaction_numbers};
    use xdr::Encode;

    fn request(opcode: u32, message: &impl Encode) -> Vec<u8> {
        [xdr::to_vec(&opcode), xdr::to_vec(message)].concat()
    }

    fn id(index: u32) -> PartitionId {
        PartitionId::from_index(index).unwrap()
    }

    #[test]
    fn calls_of_the_volume_service_belong_to_a_partition() {
        let of = |request: &[u8]| Concern::of(vol::SERVICE_ID, request).unwrap();
        let create = vol::CreateVolumeRequest { partition: 3, ..Default::default() };
        assert_eq!(of(&request(vol::CREATE_VOLUME, &create)), Concern::Partition(id(3)));
        let begin = vol::TransCreateRequest { volume_id: 9, partition: 4, ..Default::default() };
        assert_eq!(of(&request(vol::TRANS_CREATE, &begin)), Concern::Partition(id(4)));
        let info = |name: &str| {
            of(&request(vol::PARTITION_INFO64, &vol::PartitionInfo64Request { name: name.into() }))
        };
        assert_eq!(
            (info("/vicepb"), info("/vicepaa")),
            (Concern::Partition(id(1)), Concern::Partition(id(26)))
        );
        assert_eq!([info("b"), info(""), info("/vicepzzz"), info("/vicep\u{e9}")], [Concern::Here; 4]);
        let transaction = *transaction_numbers(id(7), Epoch(300)).start();
        let dump = vol::DumpRequest { transaction, from_date: 0 };
        assert_eq!(of(&request(vol::DUMP, &dump)), Concern::Partition(id(7)));
        let none = vol::DumpRequest { transaction: -1, from_date: 0 };
        assert_eq!(of(&request(vol::DUMP, &none)), Concern::Here, "the handler refuses it");
        assert_eq!(of(&request(vol::MONITOR, &vol::MonitorRequest)), Concern::Everywhere);
        let list = vol::ListVolumesRequest { partition: -1, flags: 1 };
        assert_eq!(of(&request(vol::LIST_VOLUMES, &list)), Concern::Here);
    }

    #[test]
    fn every_procedure_of_the_volume_service_has_a_place() {
        let place = |opcode: u32| {
            let message = [opcode, 0x0080_0001, 0, 0].map(u32::to_be_bytes).concat();
            Concern::of(vol::SERVICE_ID, &message).unwrap()
        };
        let here = vol::PROCEDURES
            .iter()
            .filter(|(opcode, _)| kind_of_administration(vol::SERVICE_ID, *opcode).is_none());
        let here: Vec<&str> = here.map(|(_, name)| *name).collect();
        assert_eq!(here, ["GetNthVolume", "SignalRestore", "ListPartitions", "XListPartitions"]);
        for (opcode, name) in vol::PROCEDURES.iter().filter(|(_, name)| !here.contains(name)) {
            let by_name = ["PartitionInfo", "PartitionInfo64"].contains(name);
            let by_number = [
                "CreateVolume",
                "ListVolumes",
                "ListOneVolume",
                "NukeVolume",
                "XListVolumes",
                "XListOneVolume",
                "ConvertROtoRWvolume",
            ]
            .contains(name);
            // The first argument is the number of a transaction on the second partition, and of no partition.
            assert_eq!(place(*opcode) == Concern::Here, by_name || by_number, "{name}");
        }
    }

    #[test]
    fn calls_about_the_process_stay_here() {
        let is_passed = |opcode: &u32| kind_of_administration(cellar::SERVICE_ID, *opcode).is_some();
        let here: Vec<&str> = cellar::PROCEDURES
            .iter()
            .filter(|(opcode, _)| !is_passed(opcode))
            .map(|(_, name)| *name)
            .collect();
        assert_eq!(
            here,
            [
                "GetServerInfo",
                "GetTransport",
                "GetDeduplication",
                "GetCacheStatistics",
                "ListJobs",
                "GetJob",
                "CancelJob",
                "ResumeJob",
                "GetFigures",
                "GetSlowCalls",
                "StartProfile",
                "GetProfile",
                "StopProfile",
                "FetchProfile",
                "SetLoggedEvents",
                "GiveUpPartition",
                "RemoveNode",
            ]
        );
        let purge = request(cellar::PURGE_VOLUME_CACHE, &cellar::PurgeVolumeCacheRequest { volume: 7 });
        assert_eq!(Concern::of(cellar::SERVICE_ID, &purge), Ok(Concern::Volume(VolumeId(7))));
        let check = request(cellar::STOP_CHECK, &cellar::StopCheckRequest { partition: 2 });
        assert_eq!(Concern::of(cellar::SERVICE_ID, &check), Ok(Concern::Partition(id(2))));
    }

    #[test]
    fn any_bytes_concern_something_or_need_more_that_is_bounded() {
        for service in [vol::SERVICE_ID, cellar::SERVICE_ID, 52] {
            let opcodes = vol::PROCEDURES.iter().chain(cellar::PROCEDURES).map(|(opcode, _)| *opcode);
            for opcode in opcodes.chain([0, u32::MAX]) {
                for filling in [0, 1, 6, 0x7f, 0xff] {
                    let mut request = opcode.to_be_bytes().to_vec();
                    request.resize(BULK_FIDS_MAX, filling);
                    for length in 0..request.len() {
                        let needed = Concern::of(service, &request[..length]).err();
                        assert!(
                            needed.is_none_or(|needed| needed > length && needed <= 16),
                            "{opcode} {length}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn lists_are_joined() {
        let list = |ids: &[i32]| xdr::to_vec(&vol::XListPartitionsReply { partitions: ids.to_vec() });
        let (one, two, none) = (list(&[4, 5]), list(&[7]), list(&[]));
        assert_eq!(join([&*one, &none, &two]).unwrap(), list(&[4, 5, 7]));
        assert_eq!(join([&*one, &[0, 0]]), None);
        assert_eq!(join([&*one, &[0xff, 0xff, 0xff, 0xff]]), None, "more than there can be");
    }
}
