//! The scrubber's records: its progress, and the damage it found.

use super::{Fields, Record};
use base::{Fid, UnixTime, VnodeId, VolumeId};
use store::ChunkAddress;

/// Progress of a scrubber.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScrubState {
    /// Index of the current family, from 0; `None` between two passes.
    pub(crate) family: Option<u8>,
    /// Start time of the current pass, or of the last one.
    pub(crate) started: UnixTime,
    /// End time of the last full pass; 0 if there was none.
    pub(crate) finished: UnixTime,
    pub(crate) passes: u64,
    /// Records read in the current pass, or the last one.
    pub(crate) records: u64,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    pub(crate) damages: u64,
    /// Key to continue from.
    pub(crate) from: Vec<u8>,
}

/// Encodes that there is no current family.
const BETWEEN_PASSES: u8 = 0xff;

pub(crate) fn put_scrub_state(state: &ScrubState) -> Vec<u8> {
    Record::new()
        .u8(state.family.unwrap_or(BETWEEN_PASSES))
        .u32(state.started.0)
        .u32(state.finished.0)
        .u64(state.passes)
        .u64(state.records)
        .u64(state.chunks)
        .u64(state.bytes)
        .u64(state.damages)
        .bytes(&state.from)
        .0
}

pub(crate) fn get_scrub_state(value: &[u8]) -> Option<ScrubState> {
    let mut f = Fields::open(value)?;
    let family = Some(f.u8()?).filter(|family| *family != BETWEEN_PASSES);
    let mut state = ScrubState { family, started: f.time()?, finished: f.time()?, ..ScrubState::default() };
    for count in
        [&mut state.passes, &mut state.records, &mut state.chunks, &mut state.bytes, &mut state.damages]
    {
        *count = f.u64()?;
    }
    state.from = f.0.to_vec();
    Some(state)
}

/// Damage of a chunk or, with `address` 0, of the record itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredDamage {
    pub(crate) first_seen: UnixTime,
    pub(crate) last_seen: UnixTime,
    pub(crate) fid: Option<Fid>,
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) address: ChunkAddress,
    pub(crate) what: String,
}

pub(crate) fn put_damage(damage: &StoredDamage) -> Vec<u8> {
    let fid = damage.fid.unwrap_or(Fid { volume: VolumeId(0), vnode: VnodeId(0), unique: 0 });
    Record::new()
        .u32(damage.first_seen.0)
        .u32(damage.last_seen.0)
        .u32(fid.volume.0)
        .u32(fid.vnode.0)
        .u32(fid.unique)
        .u64(damage.offset)
        .u32(damage.length)
        .bytes(&damage.address.to_bytes())
        .text(&damage.what)
        .0
}

pub(crate) fn get_damage(value: &[u8]) -> Option<StoredDamage> {
    let mut f = Fields::open(value)?;
    let (first_seen, last_seen) = (f.time()?, f.time()?);
    let fid = Fid { volume: f.volume()?, vnode: VnodeId(f.u32()?), unique: f.u32()? };
    Some(StoredDamage {
        first_seen,
        last_seen,
        fid: (fid.volume != VolumeId(0)).then_some(fid),
        offset: f.u64()?,
        length: f.u32()?,
        address: ChunkAddress::from_bytes(f.take(20)?)?,
        what: f.text()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn states_and_damages_come_back(
            numbers: [u64; 5], times: [u32; 2], family in prop::option::of(0..9u8), from: Vec<u8>,
            what in "[a-z ]{0,300}", fid in prop::option::of((1u32.., any::<u32>(), any::<u32>())), length: u32,
        ) {
            let [passes, records, chunks, bytes, damages] = numbers;
            let [started, finished] = times.map(UnixTime);
            let state =
                ScrubState { family, started, finished, passes, records, chunks, bytes, damages, from };
            prop_assert_eq!(get_scrub_state(&put_scrub_state(&state)), Some(state));
            let fid = fid.map(|(volume, vnode, unique)| {
                Fid { volume: VolumeId(volume), vnode: VnodeId(vnode), unique }
            });
            let what = super::super::cut(&what, 255).to_owned();
            let address = ChunkAddress { segment: bytes, offset: passes, stored_bytes: length };
            let damage = StoredDamage {
                first_seen: started, last_seen: finished, fid, offset: records, length, address, what,
            };
            prop_assert_eq!(get_damage(&put_damage(&damage)), Some(damage));
        }

        #[test]
        fn arbitrary_bytes_are_survived(value: Vec<u8>) {
            _ = get_scrub_state(&value);
            _ = get_damage(&value);
        }
    }
}
