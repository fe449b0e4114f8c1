//! Recorded state of a volume's promotions: a file per volume (`docs/reference/formats/promotions.md`).

use anyhow::{Context, Result, bail};
use base::VolumeName;
use cellar_config::files;
use promote::Record;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Format version of written files.
const VERSION: u32 = 1;
/// Maximum size of a file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The journal of a volume.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    record: Record,
}

/// The exclusive right to work on a volume's promotions, until this is dropped or the program ends.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

impl Journal {
    /// Returns the journal of a cell's volume, in the directory `state`.
    pub fn of(state: &Path, cell: &str, volume: &VolumeName) -> Journal {
        Journal { path: state.join(cell).join(format!("{volume}.json")) }
    }

    /// Claims the journal.
    pub fn claim(&self) -> Result<Claim> {
        let path = self.path.with_extension("lock");
        let shown = || format!("cannot lock {}", path.display());
        files::make_folder(path.parent().unwrap_or(Path::new("."))).with_context(shown)?;
        let file = files::create(&path).with_context(shown)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Claim { _file: file }),
            Err(Errno::WOULDBLOCK) => bail!("another process is promoting this volume ({})", path.display()),
            Err(error) => Err(error).with_context(shown),
        }
    }

    /// Reads the record; `None` if the volume was never promoted.
    pub fn read(&self) -> Result<Option<Record>> {
        let shown = || format!("cannot read {}", self.path.display());
        let length = match std::fs::metadata(&self.path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(shown),
        };
        if length > FILE_BYTES_MAX {
            bail!("{} has {length} bytes; the limit is {FILE_BYTES_MAX}", self.path.display());
        }
        let kept: Kept =
            serde_json::from_slice(&std::fs::read(&self.path).with_context(shown)?).with_context(shown)?;
        if kept.version != VERSION {
            bail!("{} has version {}; this program knows {VERSION}", self.path.display(), kept.version);
        }
        Ok(Some(kept.record))
    }

    /// Writes the record durably.
    pub fn write(&self, record: &Record) -> Result<()> {
        let text = serde_json::to_vec_pretty(&Kept { version: VERSION, record: record.clone() })?;
        files::replace(&self.path, &text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_kept_and_one_works_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::of(folder.path(), "a.example", &"software".parse().unwrap());
        let claim = journal.claim().unwrap();
        assert!(journal.claim().is_err());
        drop(claim);
        journal.claim().unwrap();
        assert_eq!(journal.read().unwrap(), None);
        let record = Record::new("software", "a.example", 7);
        journal.write(&record).unwrap();
        assert_eq!(journal.read().unwrap(), Some(record));
        let path = folder.path().join("a.example/software.json");
        let text = std::fs::read_to_string(&path).unwrap().replacen("\"version\": 1", "\"version\": 2", 1);
        std::fs::write(&path, text).unwrap();
        assert!(format!("{:#}", journal.read().unwrap_err()).contains("version 2"));
        std::fs::write(&path, "{").unwrap();
        assert!(journal.read().is_err());
    }
}
