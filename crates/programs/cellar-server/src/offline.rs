//! The store, opened by a command while no server runs.

use crate::startup::volume_options;
use crate::stores::{handle, open_partition, partition_config};
use anyhow::{Context, Result};
use base::PartitionId;
use cellar_config::Settings;
use disk::{Disk, RealDisk};
use std::sync::Arc;
use store::Partition;
use volume::Volumes;

/// All partitions of a server and their volumes. Their locks keep servers out until this is dropped.
pub struct OfflineStore {
    /// The volumes.
    pub volumes: Volumes,
    // Kept as long as their stores are used; dropped last.
    _partitions: Vec<(PartitionId, Arc<Partition>)>,
}

impl OfflineStore {
    /// Opens all partitions and creates new ones.
    ///
    /// # Errors
    /// If one of them cannot be opened, for example because a server uses it.
    pub fn open(settings: &Settings) -> Result<OfflineStore> {
        let config = partition_config(settings);
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let mut partitions = Vec::with_capacity(settings.partitions.len());
        for partition in &settings.partitions {
            let opened = open_partition(partition, &config, &disk)
                .with_context(|| format!("cannot open {} (is the server running?)", partition.place))?;
            partitions.push((partition.id, Arc::new(opened)));
        }
        let handles = partitions.iter().map(|(id, partition)| handle(*id, partition)).collect();
        let volumes = Volumes::open(handles, volume_options(settings)).context("cannot open the volumes")?;
        Ok(OfflineStore { volumes, _partitions: partitions })
    }
}
