//! Durable changes that the medium has lost: what is known of them, and how to go on without them.

use crate::home::{Home, Kind};
use crate::segment::accounts;
use crate::{Batch, StoreError, engines, partition};
use disk::RealDisk;
use std::path::Path;

/// Returns what keeps the partition in `path` (`/vicepX`), or the database in this folder, from being opened: where its
/// metadata lacks changes that were durable, and which. `None` if it is not known to lack any. Changes nothing.
///
/// # Errors
/// `Io` if there is none, or if a server has it open; `Meta` if it cannot be opened for another reason.
pub fn loss(path: &Path) -> Result<Option<String>, StoreError> {
    let home = home(path)?;
    engines::local().loss(&home.path.join("meta"))
}

/// Gives up the changes of [`loss()`] and all later ones: the state before them is the state from now on. Returns what was
/// given up; `None` if there was no loss.
///
/// # Errors
/// Those of [`loss()`]. The call can be repeated.
pub fn accept_loss(path: &Path) -> Result<Option<String>, StoreError> {
    let home = home(path)?;
    let (engine, folder) = (engines::local(), home.path.join("meta"));
    let loss = engine.loss(&folder)?;
    if loss.is_some() {
        // The state may be that of an orderly end, and segments were written since.
        let mut also = Batch::new();
        accounts::remove_closed(&mut also);
        engine.accept_loss(&folder, also)?;
    }
    Ok(loss)
}

fn home(path: &Path) -> Result<Home, StoreError> {
    let folder = path.join(partition::FOLDER);
    if folder.is_dir() {
        return Home::open(&RealDisk, &folder, Kind::Partition, false);
    }
    Home::open(&RealDisk, path, Kind::Database, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, Family, Partition, PartitionConfig};

    /// Commits, copies the metadata as a kill would leave it, and damages the copy's log.
    fn damage(meta: &dyn crate::MetaStore, folder: &Path) {
        for number in 0..9u8 {
            let mut batch = Batch::new();
            batch.put(Family::SYSTEM, [b'k', number], vec![number; 20]);
            meta.sync(meta.commit(batch).unwrap()).unwrap();
        }
        let files = std::fs::read_dir(folder.join("meta")).unwrap().map(|entry| entry.unwrap().path());
        let kept = folder.join("kept");
        std::fs::create_dir(&kept).unwrap();
        for file in files {
            std::fs::copy(&file, kept.join(file.file_name().unwrap())).unwrap();
        }
        let logs = std::fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path());
        let log = logs.filter(|path| path.extension().is_some_and(|ext| ext == "log")).max().unwrap();
        let mut bytes = std::fs::read(&log).unwrap();
        let at = bytes.windows(20).position(|window| window == [5; 20]).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&log, bytes).unwrap();
    }

    fn restore(folder: &Path) {
        std::fs::remove_dir_all(folder.join("meta")).unwrap();
        std::fs::rename(folder.join("kept"), folder.join("meta")).unwrap();
    }

    fn kept(meta: &dyn crate::MetaStore) -> usize {
        (0..9u8).filter(|number| meta.get(Family::SYSTEM, &[b'k', *number]).unwrap().is_some()).count()
    }

    #[test]
    fn a_partition_is_opened_again_after_its_loss_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Partition::open(folder.path(), &PartitionConfig::default());
        let partition = open().unwrap();
        assert!(loss(folder.path()).unwrap_err().to_string().contains("already open"));
        damage(&*partition.meta(), &folder.path().join(partition::FOLDER));
        drop(partition);
        restore(&folder.path().join(partition::FOLDER));
        assert!(matches!(open().err(), Some(StoreError::Damaged { .. })));
        let known = loss(folder.path()).unwrap();
        assert!(known.is_some());
        assert_eq!(accept_loss(folder.path()).unwrap(), known);
        assert_eq!((loss(folder.path()).unwrap(), accept_loss(folder.path()).unwrap()), (None, None));
        assert_eq!(kept(&*open().unwrap().meta()), 5);
    }

    #[test]
    fn the_loss_of_a_database_is_accepted_too() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Database::open(folder.path(), &[]);
        let database = open().unwrap();
        damage(&*database.meta(), folder.path());
        drop(database);
        restore(folder.path());
        assert!(open().is_err());
        assert!(accept_loss(folder.path()).unwrap().is_some());
        assert_eq!(kept(&*open().unwrap().meta()), 5);
        assert!(loss(&folder.path().join("missing")).is_err());
    }
}
