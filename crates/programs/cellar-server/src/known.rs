//! The partitions that this server has had, in a file of its state folder.
//!
//! A partition that was there and is missing is not replaced by an empty one: most likely, the file system below it is not
//! mounted. An empty one would answer clients that their volumes do not exist.

use anyhow::{Result, bail};
use base::PartitionId;
use cellar_config::{PartitionSettings, Settings, files};
use parking_lot::Mutex;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use store::{Partition, PartitionConfig};

/// Name of the file.
const FILE: &str = "known-partitions";

/// Maximum size of the file.
const BYTES_MAX: u64 = 1 << 20;

/// Held while the file is changed.
static CHANGING: Mutex<()> = Mutex::new(());

/// A line: `/vicepa`, the UUID and the place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    id: PartitionId,
    uuid: String,
    place: String,
}

impl Known {
    fn parse(line: &str) -> Option<Known> {
        let mut words = line.splitn(3, ' ');
        let (id, uuid, place) = (words.next()?, words.next()?, words.next()?);
        Some(Known { id: id.parse().ok()?, uuid: uuid.to_owned(), place: place.to_owned() })
    }
}

/// The file with the partitions. The default knows none, and records none.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPartitions(Option<PathBuf>);

impl KnownPartitions {
    pub(crate) fn of(settings: &Settings) -> KnownPartitions {
        KnownPartitions(settings.sysid_path.parent().map(|folder| folder.join(FILE)))
    }

    /// Returns how a partition is opened: only one that this server did not have is created, or one at whose place there is none now
    /// (`exists`) because another was added (`is_new`).
    ///
    /// # Errors
    /// If the server has had it, and `exists` and `is_new` return false, or one of them an error.
    pub(crate) fn config(
        &self,
        partition: &PartitionSettings,
        config: &PartitionConfig,
        exists: impl FnOnce() -> Result<bool>,
        is_new: impl FnOnce() -> Result<bool>,
    ) -> Result<PartitionConfig> {
        let place = partition.place.to_string();
        let known = self.read().into_iter().find(|known| known.id == partition.id && known.place == place);
        let (Some(Known { uuid, .. }), Some(file)) = (known, &self.0) else { return Ok(config.clone()) };
        if exists()? {
            return Ok(PartitionConfig { create: false, ..config.clone() });
        }
        if !is_new()? {
            bail!(
                "{place} has had the partition {uuid}, and has none now: is its file system mounted? No empty one is created \
                 unless its line is removed from {}",
                file.display()
            );
        }
        tracing::info!(partition = %partition.id, before = uuid,
            "another partition was added at the place of one that this server has had");
        Ok(config.clone())
    }

    /// Records a partition that is open. Only servers do: what a command creates as root would belong to root.
    pub(crate) fn note(&self, partition: &PartitionSettings, opened: &Partition) {
        let Some(file) = &self.0 else { return };
        let _one = CHANGING.lock();
        let (id, uuid, place) = (partition.id, opened.uuid().to_string(), partition.place.to_string());
        let now = Known { id, uuid, place };
        let mut all = self.read();
        let before = all.iter().position(|known| known.id == id).map(|position| all.remove(position));
        if before.as_ref() == Some(&now) {
            return;
        }
        if let Some(before) = before.filter(|before| before.place == now.place) {
            tracing::warn!(partition = %id, place = now.place, uuid = now.uuid, before = before.uuid,
                "this is another partition than when this server last ran");
        }
        all.push(now);
        write(file, &all, id);
    }

    /// Forgets a partition of this letter at a place, which does not belong to the cluster any more: one that is added later may be another.
    #[cfg(any(test, feature = "bucket"))]
    pub(crate) fn forget(&self, id: PartitionId, place: &str) {
        let Some(file) = &self.0 else { return };
        let _one = CHANGING.lock();
        let mut all = self.read();
        let count = all.len();
        all.retain(|known| known.id != id || known.place != place);
        if all.len() < count {
            write(file, &all, id);
        }
    }

    /// Returns the partitions that this server has had, with their places.
    #[cfg(any(test, feature = "bucket"))]
    pub(crate) fn all(&self) -> Vec<(PartitionId, String)> {
        self.read().into_iter().map(|known| (known.id, known.place)).collect()
    }

    /// Returns the lines that can be read.
    fn read(&self) -> Vec<Known> {
        let Some(file) = &self.0 else { return Vec::new() };
        let mut bytes = Vec::new();
        let read = File::open(file).and_then(|opened| opened.take(BYTES_MAX).read_to_end(&mut bytes));
        // Without the file, nothing is known.
        if let Err(error) = read
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, file = FILE, "cannot read which partitions this server has had");
        }
        String::from_utf8_lossy(&bytes).lines().filter_map(Known::parse).collect()
    }
}

/// Replaces the file, because of this partition.
fn write(file: &Path, all: &[Known], id: PartitionId) {
    let line = |Known { id, uuid, place }: &Known| format!("{id} {uuid} {place}\n");
    let text: String = all.iter().map(line).collect();
    if let Err(error) = files::replace(file, text.as_bytes()) {
        let file = file.display();
        tracing::warn!(partition = %id, %file, %error, "cannot record which partitions this server has");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::tests::settings;
    use crate::stores::{open_partition, partition_config};
    use disk::{Disk, RealDisk};
    use std::sync::Arc;

    fn open(settings: &Settings) -> Result<Partition> {
        let (partition, disk) = (&settings.partitions[0], Arc::new(RealDisk) as Arc<dyn Disk>);
        let (known, config) = (KnownPartitions::of(settings), partition_config(settings));
        let opened = open_partition(partition, &known, &config, &disk)?;
        known.note(partition, &opened);
        Ok(opened)
    }

    #[test]
    fn a_partition_that_is_missing_is_not_replaced_by_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder);
        let place = settings.partitions[0].place.folder().unwrap().to_owned();
        let file = settings.sysid_path.parent().unwrap().join(FILE);
        let uuid = open(&settings).unwrap().uuid();
        assert_eq!(open(&settings).unwrap().uuid(), uuid);

        // The file system is not mounted: there is the empty folder below it.
        let away = folder.path().join("away");
        std::fs::rename(&place, &away).unwrap();
        std::fs::create_dir(&place).unwrap();
        let refusal = format!("{:#}", open(&settings).err().unwrap());
        for part in ["is its file system mounted?", FILE, &uuid.to_string(), &place.display().to_string()] {
            assert!(refusal.contains(part), "no `{part}` in {refusal}");
        }
        std::fs::remove_dir_all(&place).unwrap();
        std::fs::rename(&away, &place).unwrap();
        assert_eq!(open(&settings).unwrap().uuid(), uuid);

        // The administrator wants an empty one.
        std::fs::remove_dir_all(&place).unwrap();
        std::fs::create_dir(&place).unwrap();
        std::fs::write(&file, "damaged\n/vicepb 1 /elsewhere\n").unwrap();
        let new = open(&settings).unwrap().uuid();
        assert_ne!(new, uuid);
        let lines = std::fs::read_to_string(&file).unwrap();
        assert_eq!(lines, format!("/vicepb 1 /elsewhere\n/vicepa {new} {}\n", place.display()));

        // It was removed from the cluster, and another one added.
        let (partition, config) = (&settings.partitions[0], partition_config(&settings));
        let known = KnownPartitions::of(&settings);
        let create = |exists: bool, is_new: bool| {
            known.config(partition, &config, || Ok(exists), || Ok(is_new)).ok().map(|config| config.create)
        };
        assert_eq!([create(true, true), create(false, false)], [Some(false), None]);
        assert_eq!(known.all().len(), 2);
        assert_eq!(create(false, true), Some(true));
        assert_eq!(known.all().len(), 2, "only a server that has opened it records it");

        // It was removed from the cluster.
        let id = partition.id;
        known.forget(id, "/elsewhere");
        assert_eq!(known.all().len(), 2, "it is at another place");
        known.forget(id, &place.display().to_string());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "/vicepb 1 /elsewhere\n");
    }
}
