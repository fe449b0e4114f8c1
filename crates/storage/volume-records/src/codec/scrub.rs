//! The scrubber's records: its progress, and the damage it found.

use super::{Fields, Record};
use base::{Fid, UnixTime, VnodeId, VolumeId};
use store::ChunkAddress;

/// Progress of a scrubber.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubState {
    /// Index of the current family, from 0; `None` between two passes.
    pub family: Option<u8>,
    /// Start time of the current pass, or of the last one.
    pub started: UnixTime,
    /// End time of the last full pass; 0 if there was none.
    pub finished: UnixTime,
    /// Number of full passes.
    pub passes: u64,
    /// Records read in the current pass, or the last one.
    pub records: u64,
    /// Chunks read in that pass.
    pub chunks: u64,
    /// Bytes of these chunks, as stored.
    pub bytes: u64,
    /// Damages found in that pass.
    pub damages: u64,
    /// Key to continue from.
    pub from: Vec<u8>,
}

/// Encodes that there is no current family.
const BETWEEN_PASSES: u8 = 0xff;

/// Encodes the progress of a scrubber.
pub fn put_scrub_state(state: &ScrubState) -> Vec<u8> {
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

/// Decodes the progress of a scrubber.
pub fn get_scrub_state(value: &[u8]) -> Option<ScrubState> {
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
pub struct StoredDamage {
    /// Time at which it was found.
    pub first_seen: UnixTime,
    /// Time at which it was last seen.
    pub last_seen: UnixTime,
    /// A file that has lost data, if known.
    pub fid: Option<Fid>,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length of the damaged contents in bytes.
    pub length: u32,
    /// Address of the chunk.
    pub address: ChunkAddress,
    /// What is wrong; at most 255 bytes are stored.
    pub what: String,
}

/// Encodes a damage.
pub fn put_damage(damage: &StoredDamage) -> Vec<u8> {
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

/// Decodes a damage.
pub fn get_damage(value: &[u8]) -> Option<StoredDamage> {
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
