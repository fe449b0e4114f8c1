//! Opens the partitions and the cell's databases.

use crate::buckets;
use crate::known::KnownPartitions;
use anyhow::{Context, Result, anyhow, bail};
use base::PartitionId;
use cellar_config::encryption::KeySource;
use cellar_config::{PartitionSettings, Role, Settings};
use disk::{Disk, DiskMeter, MeteredDisk};
use std::sync::Arc;
#[cfg(feature = "bucket")]
use store::MetaConfig;
use store::{BucketMeter, Database, Family, Partition, PartitionConfig, SegmentConfig};
use volume::{PartitionHandle, Space, families};

/// The families of every partition and database. Each has all of them, so that an older program, which does not
/// know a family that was added later, cannot open it.
pub const FAMILIES: [Family; 7] = [
    families::VOLUMES,
    families::VNODES,
    families::ENTRIES,
    families::EXTENTS,
    vldb::FAMILY,
    ptdb::FAMILY,
    families::TOTALS,
];

/// Opens the cell's databases on the local disk; `None` if this server has none there.
pub(crate) fn open_databases(settings: &Settings) -> Result<Option<Arc<Database>>> {
    let has_roles = settings.roles.contains(&Role::Vl) || settings.roles.contains(&Role::Pt);
    if !has_roles || settings.shares_databases() {
        return Ok(None);
    }
    let path = &settings.database_path;
    Database::open(path, &FAMILIES)
        .map(|databases| Some(Arc::new(databases)))
        .with_context(|| format!("cannot open the cell's databases in {}", path.display()))
}

/// Opens the partitions on local disks in parallel. A broken one keeps only its own volumes offline; it is an error if
/// none can be opened and there is none in a bucket.
pub(crate) fn open_partitions(
    settings: &Settings,
    meters: &[(PartitionId, Meters)],
    disk: &Arc<dyn Disk>,
) -> Result<Vec<(PartitionId, Arc<Partition>)>> {
    if let Some(refusal) = buckets::refusal(settings) {
        bail!(refusal);
    }
    let (config, known) = (partition_config(settings), KnownPartitions::of(settings));
    let open = |partition: &PartitionSettings, meter: &Meters| -> Result<Partition> {
        let disk: Arc<dyn Disk> = Arc::new(MeteredDisk::new(disk.clone(), meter.disk.clone()));
        let opened = open_partition(partition, &known, &config, &disk)?;
        known.note(partition, &opened);
        Ok(opened)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = settings
            .partitions
            .iter()
            .zip(meters)
            .filter(|(partition, _)| partition.place.folder().is_some())
            .map(|(partition, (_, meter))| (partition, scope.spawn(move || open(partition, meter))))
            .collect();
        opening.into_iter().map(|(partition, thread)| (partition, thread.join())).collect()
    });
    let mut opened = Vec::new();
    for (partition, result) in results {
        match result {
            Ok(Ok(store)) => opened.push((partition.id, Arc::new(store))),
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::error!(partition = %partition.id, path = %partition.place, error,
                    "the partition cannot be opened; its volumes are offline");
            }
            Err(_) => tracing::error!(partition = %partition.id, "opening the partition panicked"),
        }
    }
    let has_buckets = settings.partitions.iter().any(|partition| partition.place.bucket().is_some());
    if opened.is_empty() && !settings.partitions.is_empty() && !has_buckets {
        bail!("no partition could be opened; the messages above say why");
    }
    Ok(opened)
}

/// The counters of one partition.
#[derive(Clone, Debug, Default)]
pub struct Meters {
    /// Accesses to its disk, or to that of the copies of what is in the bucket.
    pub disk: Arc<DiskMeter>,
    /// Requests to its bucket.
    pub bucket: Arc<BucketMeter>,
}

/// Returns the counters of each partition, in order.
pub(crate) fn meters_of(settings: &Settings) -> Vec<(PartitionId, Meters)> {
    settings.partitions.iter().map(|partition| (partition.id, Meters::default())).collect()
}

pub(crate) fn partition_config(settings: &Settings) -> PartitionConfig {
    PartitionConfig {
        segments: SegmentConfig {
            cache_bytes: settings.tuning.caches.chunks / settings.partitions.len().max(1) as u64,
            ..SegmentConfig::default()
        },
        families: &FAMILIES,
        chunk_names: Some(volume::CHUNK_NAMES),
        ..PartitionConfig::default()
    }
}

/// Returns the limits of the cell's databases in a bucket, which are few and small records and no file data.
#[cfg(feature = "bucket")]
pub(crate) fn databases_config() -> PartitionConfig {
    PartitionConfig {
        families: &FAMILIES,
        meta: MetaConfig::small(),
        segments: SegmentConfig { cache_bytes: 1 << 20, ..SegmentConfig::default() },
        // There is no file data to maintain.
        maintenance: None,
        ..PartitionConfig::default()
    }
}

/// Opens a partition on a local disk.
pub(crate) fn open_partition(
    partition: &PartitionSettings,
    known: &KnownPartitions,
    config: &PartitionConfig,
    disk: &Arc<dyn Disk>,
) -> Result<Partition> {
    let path = partition.place.folder().context("the partition is not in a folder")?;
    let config = known.config(partition, config, || Ok(Partition::exists(path)), || Ok(false))?;
    let key = partition.key.as_ref().map(KeySource::load).transpose()?;
    let opened = Partition::open_with(disk, path, &config, key.as_ref());
    // The error already names its cause.
    opened.map_err(|error| anyhow!("{error}"))
}

/// Returns what a volume needs of a partition: its metadata, its chunks and its free space.
pub fn handle(id: PartitionId, partition: &Arc<Partition>) -> PartitionHandle {
    let measured = partition.clone();
    let space = move || {
        let room = measured.room().unwrap_or_default();
        Space { total_kib: room.total_bytes >> 10, free_kib: room.usable_bytes >> 10 }
    };
    PartitionHandle { id, meta: partition.meta(), chunks: partition.chunks(), space: Arc::new(space) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the families by number, as they are on the disks of every server.
    const ON_DISK: [&str; 9] = [
        "system",
        "volumes",
        "vnodes",
        "entries",
        "extents",
        "segments",
        "locations",
        "protection",
        "totals",
    ];

    #[test]
    fn families_have_the_numbers_and_names_on_disk() {
        let mut all = [&[Family::SYSTEM, Family::SEGMENTS], &FAMILIES[..]].concat();
        all.sort_by_key(|family| family.number());
        let found: Vec<_> = all.iter().map(|family| (usize::from(family.number()), family.name())).collect();
        assert_eq!(found, ON_DISK.into_iter().enumerate().collect::<Vec<_>>());
        assert!(families::ALL.iter().all(|family| FAMILIES.contains(family)));
    }
}
