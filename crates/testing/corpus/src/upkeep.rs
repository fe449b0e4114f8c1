//! Data that the server maintains for itself next to the volumes: the list of damage, the progress of the
//! scrubber, snapshots and their policies.

use crate::records::{CHUNKS, NOW, load, options, partition};
use base::{PartitionId, UnixTime, VolumeId};
use bytes::Bytes;
use std::sync::Arc;
use store::{ChunkStore, Codec, MemoryChunks};
use volume::{CompactionPolicy, NewSnapshot, Period, ScrubPolicy, Snapshot, VolumeError, Volumes};

/// Maximum number of steps of a scrubber pass: one for each family, and some for groups that cannot be read.
const SCRUB_STEPS_MAX: usize = 1000;
/// Maximum number of volumes, snapshots and policies that are examined.
const LOOKS: usize = 16;

/// Exercises an image of a metadata store, as in [`crate::records`].
pub fn upkeep_records(data: &[u8]) {
    let chunks = MemoryChunks::new();
    for length in CHUNKS {
        chunks.append(&[Bytes::from(vec![b'x'; length])], Codec::Raw).expect("a store in memory");
    }
    let home = partition(load(data), Arc::new(chunks));
    let Ok(volumes) = Volumes::open(vec![home.clone()], options()) else { return };
    let _ = volumes.quarantine(home.id);
    scrub(&volumes, home.id);
    let listed = volumes.quarantine(home.id).unwrap_or_default();
    assert!(listed.iter().all(|damaged| !damaged.place.is_empty()), "damage without a place");
    let _ = volumes.compact_step(home.id, CompactionPolicy::default(), NOW);
    let _ = automatic(&volumes);
    let found = volumes.list(home.id);
    for volume in found.iter().take(LOOKS) {
        let _ = snapshots(&volumes, volume.id());
    }
}

fn scrub(volumes: &Volumes, partition: PartitionId) {
    let _ = volumes.scrub_statistics(partition);
    for _ in 0..SCRUB_STEPS_MAX {
        match volumes.scrub_step(partition, ScrubPolicy::default(), NOW) {
            Ok(step) if !step.is_idle => {}
            Ok(_) | Err(_) => {
                let _ = volumes.scrub_statistics(partition);
                return;
            }
        }
    }
    panic!("scrubbing does not finish");
}

/// Performs the work that is automatic every minute.
fn automatic(volumes: &Volumes) -> Result<(), VolumeError> {
    for (volume, policy) in volumes.policies()?.into_iter().take(LOOKS) {
        for period in Period::ALL {
            let _ = policy.count(period);
        }
        let _ = volumes.snapshot_due(volume, NOW);
        let _ = volumes.outdated_snapshots(volume);
    }
    let expiring = volumes.expiring_snapshots()?;
    for Snapshot { id, .. } in expiring.into_iter().take(LOOKS) {
        let _ = volumes.delete(id);
    }
    Ok(())
}

fn snapshots(volumes: &Volumes, volume: VolumeId) -> Result<(), VolumeError> {
    let policy = volumes.policy(volume);
    let name = "fuzzed".parse().expect("a name");
    let new = NewSnapshot {
        id: VolumeId(79),
        parent: VolumeId(80),
        volume_name: "snap.79".parse().expect("a name"),
        name,
        kept: volume::Kept::default(),
        expires: UnixTime(0),
        now: NOW,
    };
    let made = volumes.snapshot(volume, &new);
    for snapshot in volumes.snapshots(volume)?.into_iter().take(LOOKS) {
        let _ = volumes.find_snapshot(volume, &snapshot.of.name);
        let _ = volumes.roll_back(volume, snapshot.id, NOW);
    }
    if let Ok(policy) = policy {
        volumes.set_policy(volume, policy)?;
    }
    made.and_then(|made| volumes.delete(made.id()))
}
