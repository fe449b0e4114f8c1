//! The store, opened by a command while no server runs.

use crate::buckets::{self, Held};
use crate::known::KnownPartitions;
use crate::startup::volume_options;
use crate::stores::{handle, open_partition, partition_config};
use anyhow::{Context, Result, bail};
use cellar_config::Settings;
use disk::{Disk, RealDisk};
use std::sync::Arc;
use volume::Volumes;

/// All partitions of a server and their volumes. Their locks keep servers out until this is dropped.
pub struct OfflineStore {
    /// The volumes.
    pub volumes: Volumes,
    // Kept as long as their stores are used; dropped last.
    _partitions: Vec<Held>,
}

impl OfflineStore {
    /// Opens all partitions and creates new ones.
    ///
    /// # Errors
    /// If one of them cannot be opened, for example because a server uses it.
    pub fn open(settings: &Settings) -> Result<OfflineStore> {
        if let Some(refusal) = buckets::refusal(settings) {
            bail!(refusal);
        }
        let (config, known) = (partition_config(settings), KnownPartitions::of(settings));
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let mut partitions = Vec::with_capacity(settings.partitions.len());
        for partition in &settings.partitions {
            let opened = match partition.place.folder() {
                Some(_) => open_partition(partition, &known, &config, &disk)
                    .map(|opened| Held::local(partition.id, Arc::new(opened))),
                None => buckets::open_offline(partition, &config, known.clone()),
            };
            let opened = opened
                .with_context(|| format!("cannot open {} (is the server running?)", partition.place))?;
            partitions.push(opened);
        }
        let handles = partitions.iter().map(|held| handle(held.id, &held.partition)).collect();
        let volumes = Volumes::open(handles, volume_options(settings)).context("cannot open the volumes")?;
        Ok(OfflineStore { volumes, _partitions: partitions })
    }
}
