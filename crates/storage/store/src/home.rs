//! The folder of a partition or database: its version, id and lock.
//!
//! Format: docs/reference/formats/partition.md.

use crate::StoreError;
use disk::{Disk, Lock};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Format of a new folder.
const FORMAT: u32 = 1;

/// Format of a partition that has or had shared chunks. It is set before the first record that programs
/// without support for shared chunks cannot read.
const FORMAT_SHARED: u32 = 2;

const VERSION: &str = "VERSION";
const VERSION_NEW: &str = "VERSION.new";
const LOCK: &str = "LOCK";

/// A VERSION file has about 70 bytes; a larger file is not one.
const VERSION_BYTES_MAX: u64 = 1024;

/// Contents of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Metadata and segments.
    Partition,
    /// Metadata only.
    Database,
}

/// The record that makes a prefix of a bucket a partition, the object `VERSION`. While the partition is being created,
/// the object `VERSION.new` has the same contents; it stays. Neither ever changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketVersion {
    /// UUID generated when the partition was created.
    pub uuid: Uuid,
}

impl BucketVersion {
    /// Name of the object of a complete partition.
    pub const NAME: &str = VERSION;
    /// Name of the object of one that is being created.
    pub const NAME_NEW: &str = VERSION_NEW;
    /// Maximum size in bytes. A larger object is not a version.
    pub const BYTES_MAX: usize = VERSION_BYTES_MAX as usize;

    /// Creates the version of a new partition.
    pub fn random() -> BucketVersion {
        BucketVersion { uuid: Uuid::new_v4() }
    }

    /// Returns the contents of the object. All programs that open buckets support shared chunks, so the format is the
    /// one with them from the beginning.
    pub fn contents(&self) -> String {
        version_text(Kind::Partition, Version { format: FORMAT_SHARED, uuid: self.uuid })
    }

    /// Parses the contents of the object `place`.
    ///
    /// # Errors
    /// `Damaged` if they are not a version; `Io` if a newer program created the partition.
    pub fn parse(contents: &[u8], place: &Path) -> Result<BucketVersion, StoreError> {
        let damaged = |what: String| StoreError::Damaged { place: place.display().to_string(), what };
        if contents.len() > BucketVersion::BYTES_MAX {
            return Err(damaged(format!("a version has at most {} bytes", BucketVersion::BYTES_MAX)));
        }
        let Version { format, uuid } = parse_version(contents, place, Kind::Partition)?;
        if format < FORMAT_SHARED {
            return Err(damaged(format!(
                "it has format {format}; partitions in buckets begin with {FORMAT_SHARED}"
            )));
        }
        Ok(BucketVersion { uuid })
    }
}

/// An open folder; dropping it releases the lock.
///
/// While a folder is being created its version is in VERSION.new; [`Home::finish`] renames the file once
/// everything else is in place. So a folder with VERSION is complete, and one with only VERSION.new was never
/// used.
pub(crate) struct Home {
    /// The folder.
    pub(crate) path: PathBuf,
    /// UUID generated when the folder was created.
    pub(crate) uuid: Uuid,
    /// Whether the folder is being created, so that its contents must be created too.
    pub(crate) is_new: bool,
    format: u32,
    lock: Box<dyn Lock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    format: u32,
    uuid: Uuid,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Partition => "partition",
            Kind::Database => "database",
        }
    }

    /// Returns the newest format that this program reads.
    fn format_max(self) -> u32 {
        match self {
            Kind::Partition => FORMAT_SHARED,
            Kind::Database => FORMAT,
        }
    }
}

impl Home {
    /// Opens the folder; creates it if `create` is set and it does not exist.
    pub(crate) fn open(disk: &dyn Disk, path: &Path, kind: Kind, create: bool) -> Result<Home, StoreError> {
        if create {
            ensure_dir(disk, path)?;
            // The process that created the folder may have died before its name was durable.
            sync_parent(disk, path)?;
        }
        let lock = lock(disk, &path.join(LOCK))?;
        let file = path.join(VERSION);
        let is_new = !disk.exists(&file).map_err(|error| failed("look for", &file, error))?;
        let version = if is_new { begin(disk, path, kind, create) } else { read_version(disk, &file, kind) };
        let Version { format, uuid } = version?;
        Ok(Home { path: path.to_owned(), uuid, is_new, format, lock })
    }

    /// Returns the lock.
    pub(crate) fn into_lock(self) -> Box<dyn Lock> {
        self.lock
    }

    /// Whether programs without support for shared chunks can open it.
    pub(crate) fn is_before_sharing(&self) -> bool {
        self.format < FORMAT_SHARED
    }

    /// Marks the folder as complete. Call it once all its contents are durable.
    pub(crate) fn finish(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        if self.is_new {
            let (from, to) = (self.path.join(VERSION_NEW), self.path.join(VERSION));
            disk.rename(&from, &to).map_err(|error| failed("rename", &from, error))?;
        }
        // Needed for existing folders too: the process that created one may have died before this sync.
        disk.sync_dir(&self.path).map_err(|error| failed("sync", &self.path, error))
    }
}

/// Sets the format of a partition's folder to the one with shared chunks. A crash leaves either format.
pub(crate) fn begin_sharing(disk: &dyn Disk, path: &Path, uuid: Uuid) -> Result<(), StoreError> {
    let (new, file) = (path.join(VERSION_NEW), path.join(VERSION));
    let fail = |error| failed("write", &new, error);
    let is_there = disk.exists(&new).map_err(fail)?;
    let version = Version { format: FORMAT_SHARED, uuid };
    write_version(disk, path, Kind::Partition, version, is_there).map_err(fail)?;
    disk.rename(&new, &file).map_err(|error| failed("rename", &new, error))?;
    disk.sync_dir(path).map_err(|error| failed("sync", path, error))
}

/// Durably creates a folder and its missing parents.
pub(crate) fn ensure_dir(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    if disk.exists(path).map_err(|error| failed("look for", path, error))? {
        return Ok(());
    }
    let parent = parent(path);
    if parent != path {
        ensure_dir(disk, parent)?;
    }
    disk.create_dir(path).map_err(|error| failed("create", path, error))?;
    sync_parent(disk, path)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        None => path,
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    }
}

fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    let parent = parent(path);
    disk.sync_dir(parent).map_err(|error| failed("sync", parent, error))
}

/// Builds an I/O error with the attempted action and the file.
pub(crate) fn failed(doing: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { doing, path: path.display().to_string(), source }
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Lock>, StoreError> {
    disk.lock(path).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => {
            let text = "it is already open, in this or another process";
            failed("lock", path, io::Error::new(ErrorKind::WouldBlock, text))
        }
        _ => failed("lock", path, error),
    })
}

/// Starts a new folder. Fails if the folder has contents: without a VERSION file it must not be taken for
/// empty.
fn begin(disk: &dyn Disk, path: &Path, kind: Kind, create: bool) -> Result<Version, StoreError> {
    let names = disk.list(path).map_err(|error| failed("list", path, error))?;
    let begun = names.iter().any(|name| name == VERSION_NEW);
    if let Some(name) = names.iter().find(|name| *name != LOCK)
        && !begun
    {
        let what = format!("there is {name}, but no {VERSION} file");
        return Err(StoreError::Damaged { place: path.display().to_string(), what });
    }
    if !create {
        let text = format!("there is no {} yet", kind.name());
        return Err(failed("open", path, io::Error::new(ErrorKind::NotFound, text)));
    }
    let version = Version { format: FORMAT, uuid: Uuid::new_v4() };
    let written = write_version(disk, path, kind, version, begun);
    written.map_err(|error| failed("create", &path.join(VERSION_NEW), error))?;
    Ok(version)
}

fn write_version(disk: &dyn Disk, path: &Path, kind: Kind, version: Version, begun: bool) -> io::Result<()> {
    let new = path.join(VERSION_NEW);
    let file = if begun { disk.open(&new)? } else { disk.create(&new)? };
    let text = version_text(kind, version);
    file.set_len(0)?;
    file.write_all_at(&mut [IoSlice::new(text.as_bytes())], 0)?;
    file.sync_all()?;
    disk.sync_dir(path)
}

fn version_text(kind: Kind, version: Version) -> String {
    format!("cellar {}\nformat {}\nuuid {}\n", kind.name(), version.format, version.uuid)
}

fn read_version(disk: &dyn Disk, path: &Path, kind: Kind) -> Result<Version, StoreError> {
    let bytes = read_small(disk, path).map_err(|error| failed("read", path, error))?;
    parse_version(&bytes, path, kind)
}

fn parse_version(bytes: &[u8], path: &Path, kind: Kind) -> Result<Version, StoreError> {
    let text = String::from_utf8_lossy(bytes);
    let damaged = |what: String| StoreError::Damaged { place: path.display().to_string(), what };
    let format = parse_format(&text, kind).map_err(damaged)?;
    let most = kind.format_max();
    if format > most {
        let text = format!("it has format {format}; this program knows formats up to {most}");
        return Err(failed("open", path, io::Error::new(ErrorKind::Unsupported, text)));
    }
    let uuid = parse_uuid(&text).ok_or_else(|| damaged("no uuid in the third line".into()))?;
    Ok(Version { format, uuid })
}

fn read_small(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let length = file.length()?.min(VERSION_BYTES_MAX);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The first two lines are the same in all future formats.
fn parse_format(text: &str, kind: Kind) -> Result<u32, String> {
    let mut lines = text.lines();
    let expected = format!("cellar {}", kind.name());
    let got = lines.next().unwrap_or_default();
    if got != expected {
        return Err(format!("expected {expected:?} in the first line, got {got:?}"));
    }
    let got = lines.next().unwrap_or_default();
    let number = got.strip_prefix("format ").and_then(|number| number.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| format!("expected a format number, got {got:?}"))
}

fn parse_uuid(text: &str) -> Option<Uuid> {
    text.lines().nth(2)?.strip_prefix("uuid ")?.parse().ok()
}

#[cfg(test)]
mod tests;
