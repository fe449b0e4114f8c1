//! Which volumes a call of the file service concerns, by the first words of its request.

use afs_idl::{CallStream, Work, fs};
use base::limits::BULK_FIDS_MAX;
use base::{AbortCode, VolumeId};
use bytes::Bytes;
use cluster_proto::{CallKind, Repeat};
use events::catalogue::Class;

/// Maximum size of the pieces in which a request is read.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

/// Number of words of a FID.
const FID_WORDS: usize = 3;

/// Where a call is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// At the node that the client has called: it concerns no volume.
    Here,
    /// At the owner of this volume.
    Volume(VolumeId),
    /// At the owners of several volumes. These are the volumes of the FIDs, in their order.
    Volumes(Vec<VolumeId>),
    /// At all nodes: what the client gives up may be anywhere.
    Everywhere,
}

impl Scope {
    /// Returns the scope of a request, or the number of bytes that are needed to know it.
    pub(crate) fn of(request: &[u8]) -> Result<Scope, usize> {
        let opcode = word(request, 0)?;
        Ok(match fs::work(opcode) {
            Work::Read(_) | Work::Write(_) | Work::OnVolume => Scope::Volume(VolumeId(word(request, 1)?)),
            Work::PerFid => {
                // Decoding refuses longer lists later.
                let count = (word(request, 1)? as usize).min(BULK_FIDS_MAX);
                let fids = (0..count).map(|index| word(request, 2 + index * FID_WORDS).map(VolumeId));
                let volumes: Vec<VolumeId> = fids.collect::<Result<_, _>>()?;
                match volumes.as_slice() {
                    [] => Scope::Here,
                    [first, rest @ ..] if rest.iter().all(|volume| volume == first) => Scope::Volume(*first),
                    _ => Scope::Volumes(volumes),
                }
            }
            Work::Small => match opcode {
                fs::GIVE_UP_CALL_BACKS | fs::GIVE_UP_ALL_CALL_BACKS | fs::FLUSH_CPS => Scope::Everywhere,
                _ => Scope::Here,
            },
        })
    }
}

/// What a call does to a partition.
pub(crate) fn kind(opcode: u32) -> CallKind {
    match fs::class(opcode) {
        Class::Change | Class::Store | Class::Lock => CallKind::Change,
        _ => CallKind::Read,
    }
}

/// Whether a call may be executed twice.
pub(crate) fn repeat(opcode: u32) -> Repeat {
    match (opcode, kind(opcode)) {
        // The same settings again change nothing: all of them are absolute.
        (fs::EXTEND_LOCK | fs::OLD_EXTEND_LOCK | fs::SET_VOLUME_STATUS, _) | (_, CallKind::Read) => {
            Repeat::Freely
        }
        // Each is one change, with which its result is recorded (`volume::Actor::call`).
        (
            fs::CREATE_FILE
            | fs::MAKE_DIR
            | fs::SYMLINK
            | fs::LINK
            | fs::REMOVE_FILE
            | fs::REMOVE_DIR
            | fs::RENAME
            | fs::STORE_DATA
            | fs::STORE_DATA64
            | fs::STORE_STATUS
            | fs::STORE_ACL
            | fs::OLD_STORE_ACL
            | fs::SET_LOCK
            | fs::OLD_SET_LOCK
            | fs::RELEASE_LOCK
            | fs::OLD_RELEASE_LOCK,
            CallKind::Change,
        ) => Repeat::Recorded,
        (_, CallKind::Change) => Repeat::Once,
    }
}

/// Returns a word of the request, or the number of bytes that must have arrived first.
pub(crate) fn word(request: &[u8], index: usize) -> Result<u32, usize> {
    let bytes = request.get(4 * index..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or(4 * (index + 1))
}

/// Returns the opcode of a request that has begun.
pub(crate) fn opcode(request: &[u8]) -> u32 {
    word(request, 0).unwrap_or_default()
}

/// Reads on until `head` has `needed` bytes. Returns false at the end of the request.
pub(crate) fn more(head: &mut Bytes, needed: usize, stream: &mut dyn CallStream) -> Result<bool, AbortCode> {
    while head.len() < needed {
        let piece = stream.read_chunk(PIECE_BYTES)?;
        if piece.is_empty() {
            return Ok(false);
        }
        *head = if head.is_empty() { piece } else { [&head[..], &piece[..]].concat().into() };
    }
    Ok(true)
}

/// Reads the beginning of a request until `of` is satisfied, which returns a number of bytes that it needs. Returns `None` if
/// the request ends before.
pub(crate) fn read_until<T>(
    head: &mut Bytes,
    stream: &mut dyn CallStream,
    of: impl Fn(&[u8]) -> Result<T, usize>,
) -> Result<Option<T>, AbortCode> {
    loop {
        match of(head) {
            Ok(found) => return Ok(Some(found)),
            Err(needed) if !more(head, needed, stream)? => return Ok(None),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdr::Encode;

    fn request(opcode: u32, message: &impl Encode) -> Vec<u8> {
        [xdr::to_vec(&opcode), xdr::to_vec(message)].concat()
    }

    fn fid(volume: u32) -> fs::Fid {
        fs::Fid { volume, vnode: 2, unique: 3 }
    }

    #[test]
    fn every_procedure_has_a_scope() {
        let mut sorted = <[Vec<&str>; 3]>::default();
        for (opcode, name) in fs::PROCEDURES {
            // The first argument is a FID, a volume, or a list of two FIDs.
            let message = [*opcode, 2, 7, 7, 7, 8, 7, 7].map(u32::to_be_bytes).concat();
            let place = match Scope::of(&message).unwrap() {
                Scope::Volume(_) | Scope::Volumes(_) => 0,
                Scope::Everywhere => 1,
                Scope::Here => 2,
            };
            sorted[place].push(name);
        }
        let [owners, everywhere, here] = sorted;
        assert_eq!(owners.len(), 29, "{owners:?}");
        assert_eq!(everywhere, ["GiveUpCallBacks", "FlushCPS", "GiveUpAllCallBacks"]);
        let at_the_front = [
            "GetStatistics",
            "GetVolumeInfo",
            "GetRootVolume",
            "CheckToken",
            "GetTime",
            "NGetVolumeInfo",
            "XStatsVersion",
            "GetXStats",
            "GetCapabilities",
            "CallBackRxConnAddr",
            "GetStatistics64",
        ];
        assert!(at_the_front.iter().all(|name| here.contains(name)), "{here:?}");
    }

    #[test]
    fn a_call_belongs_to_the_volume_of_its_first_argument() {
        let status = request(fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: fid(7) });
        assert_eq!(Scope::of(&status), Ok(Scope::Volume(VolumeId(7))));
        let volume = request(fs::GET_VOLUME_STATUS, &fs::GetVolumeStatusRequest { volume_id: 9 });
        assert_eq!(Scope::of(&volume), Ok(Scope::Volume(VolumeId(9))));
        let bulk = |volumes: &[u32]| {
            let fids = volumes.iter().map(|volume| fid(*volume)).collect();
            Scope::of(&request(fs::INLINE_BULK_STATUS, &fs::InlineBulkStatusRequest { fids }))
        };
        assert_eq!(bulk(&[]), Ok(Scope::Here), "the handler refuses it");
        assert_eq!(bulk(&[7, 7]), Ok(Scope::Volume(VolumeId(7))));
        assert_eq!(bulk(&[7, 8, 7]), Ok(Scope::Volumes([7, 8, 7].map(VolumeId).to_vec())));
    }

    #[test]
    fn short_requests_say_how_much_is_missing() {
        let bulk = request(fs::BULK_STATUS, &fs::BulkStatusRequest { fids: vec![fid(7); 50] });
        let mut length = 0;
        let mut steps = 0;
        let scope = loop {
            match Scope::of(&bulk[..length]) {
                Ok(scope) => break scope,
                Err(needed) => {
                    assert!(needed > length && needed <= bulk.len(), "{needed}");
                    (length, steps) = (needed, steps + 1);
                }
            }
        };
        assert_eq!((scope, steps), (Scope::Volume(VolumeId(7)), 52));
        let endless = [fs::BULK_STATUS, u32::MAX, 1].map(u32::to_be_bytes).concat();
        assert_eq!(Scope::of(&endless), Err(24), "a list is cut at the limit");
    }

    #[test]
    fn any_bytes_have_a_scope_or_need_more_that_is_bounded() {
        let most = 4 * (2 + FID_WORDS * BULK_FIDS_MAX);
        for opcode in fs::PROCEDURES.iter().map(|(opcode, _)| *opcode).chain([0, 7, u32::MAX]) {
            for filling in [0, 1, 0x7f, 0xff] {
                let mut request = opcode.to_be_bytes().to_vec();
                request.resize(most + 100, filling);
                for length in 0..request.len() {
                    let needed = Scope::of(&request[..length]).err();
                    assert!(
                        needed.is_none_or(|needed| needed > length && needed <= most),
                        "{opcode} {length}"
                    );
                }
            }
        }
    }

    #[test]
    fn only_calls_that_differ_when_repeated_are_executed_once() {
        for (opcode, what, may) in [
            (fs::FETCH_DATA64, CallKind::Read, Repeat::Freely),
            (fs::INLINE_BULK_STATUS, CallKind::Read, Repeat::Freely),
            (fs::STORE_DATA64, CallKind::Change, Repeat::Recorded),
            (fs::CREATE_FILE, CallKind::Change, Repeat::Recorded),
            (fs::STORE_STATUS, CallKind::Change, Repeat::Recorded),
            (fs::SET_VOLUME_STATUS, CallKind::Change, Repeat::Freely),
            (fs::SET_LOCK, CallKind::Change, Repeat::Recorded),
            (fs::RELEASE_LOCK, CallKind::Change, Repeat::Recorded),
            (fs::EXTEND_LOCK, CallKind::Change, Repeat::Freely),
        ] {
            assert_eq!((kind(opcode), repeat(opcode)), (what, may), "{opcode}");
        }
    }
}
