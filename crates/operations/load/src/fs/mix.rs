//! The operations of clients, described by a small TOML file; see docs/guide/load.md.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::path::Path;

/// A mix of groups of clients.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Title for display.
    pub title: String,
    /// The groups; at least one.
    #[serde(rename = "group")]
    pub groups: Vec<Group>,
}

/// A group of identical clients.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Name for display and for directories; letters, digits, `-` and `_`.
    pub name: String,
    /// Number of clients.
    pub clients: usize,
    /// Number of volumes over which the clients are distributed; limited to the available ones.
    #[serde(default = "one")]
    pub volumes: usize,
    /// Number of concurrent operations of each client.
    #[serde(default = "one")]
    pub streams: usize,
    /// Pause after each operation, in milliseconds.
    #[serde(default)]
    pub pause_ms: u64,
    /// Whether the clients have their own generator thread with a higher priority. Otherwise their latencies
    /// include the time that the thread spends on other clients' datagrams.
    #[serde(default)]
    pub apart: bool,
    /// Number of files in each volume that all clients of the group read.
    #[serde(default = "one")]
    pub files: usize,
    /// Length of each of these files, and of those that `write` writes.
    #[serde(default = "default_file_size")]
    pub file_size: Size,
    /// Number of bytes that one call of `read` requests.
    #[serde(default = "default_call_size")]
    pub call_size: Size,
    /// Relative frequencies of the operations.
    pub work: Work,
}

/// Relative frequencies of operations; the default is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Work {
    /// FetchData64 of a whole file in several calls.
    pub read: u32,
    /// StoreData64 of one of the client's own files, whole and in one call.
    pub write: u32,
    /// FetchStatus of a file.
    pub status: u32,
    /// InlineBulkStatus of up to 50 files.
    pub bulk_status: u32,
    /// FetchData64 of the directory that contains the files.
    pub list: u32,
    /// The calls of `find -ls`: `list`, then `bulk_status` of all files, 50 at a time.
    pub scan: u32,
    /// CreateFile and RemoveFile of the same name, in the client's own directory.
    pub create_remove: u32,
    /// CreateFile, StoreData64 of 4 KiB, RemoveFile.
    pub small_file: u32,
}

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// See [`Work::read`].
    Read,
    /// See [`Work::write`].
    Write,
    /// See [`Work::status`].
    Status,
    /// See [`Work::bulk_status`].
    BulkStatus,
    /// See [`Work::list`].
    List,
    /// See [`Work::scan`].
    Scan,
    /// See [`Work::create_remove`].
    CreateRemove,
    /// See [`Work::small_file`].
    SmallFile,
}

impl Work {
    /// Returns the operations with non-zero frequencies.
    pub fn weights(&self) -> Vec<(Operation, u32)> {
        let all = [
            (Operation::Read, self.read),
            (Operation::Write, self.write),
            (Operation::Status, self.status),
            (Operation::BulkStatus, self.bulk_status),
            (Operation::List, self.list),
            (Operation::Scan, self.scan),
            (Operation::CreateRemove, self.create_remove),
            (Operation::SmallFile, self.small_file),
        ];
        all.into_iter().filter(|(_, weight)| *weight > 0).collect()
    }

    /// Whether the group needs files that all its clients read.
    pub fn needs_files(&self) -> bool {
        [self.read, self.status, self.bulk_status, self.list, self.scan].iter().any(|weight| *weight > 0)
    }

    /// Whether clients need their own directories.
    pub fn needs_directory(&self) -> bool {
        self.write > 0 || self.create_remove > 0 || self.small_file > 0
    }
}

/// A number of bytes: `4096`, `"64KiB"`, `"20MB"`, `"1GiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SizeText")]
pub struct Size(pub u64);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number of bytes, or one in quotes with KiB, MiB, GiB, kB, MB or GB")]
enum SizeText {
    Bytes(u64),
    Text(String),
}

impl TryFrom<SizeText> for Size {
    type Error = anyhow::Error;

    fn try_from(text: SizeText) -> Result<Size> {
        match text {
            SizeText::Bytes(bytes) => Ok(Size(bytes)),
            SizeText::Text(text) => Size::parse(&text),
        }
    }
}

impl Size {
    /// Parses a size.
    pub fn parse(text: &str) -> Result<Size> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let scale: u64 = match unit.trim() {
            "" | "B" => 1,
            "kB" | "KB" => 1000,
            "KiB" => 1 << 10,
            "MB" => 1_000_000,
            "MiB" => 1 << 20,
            "GB" => 1_000_000_000,
            "GiB" => 1 << 30,
            _ => bail!("{text:?} is not a size; write 4096, \"64KiB\" or \"20MB\""),
        };
        let number: u64 = digits.parse().with_context(|| format!("{text:?} is not a size"))?;
        number.checked_mul(scale).map(Size).with_context(|| format!("{text:?} is too large"))
    }
}

/// Maximum number of clients in all groups.
pub const CLIENTS_MAX: usize = 10_000;

/// Maximum length of a file, whose contents are kept in memory.
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of files of a group in one volume, at least as many as fit into a directory.
pub const FILES_MAX: usize = 20_000;

/// Maximum number of concurrent operations of a client.
pub const STREAMS_MAX: usize = 32;

impl Mix {
    /// Parses a mix and checks its limits.
    pub fn parse(text: &str) -> Result<Mix> {
        let mix: Mix = toml::from_str(text)?;
        mix.check()?;
        Ok(mix)
    }

    /// Returns the built-in mix with this name, or reads the mix in the file of this name.
    pub fn find(name: &str) -> Result<Mix> {
        if let Some((_, text)) = READY.iter().find(|(ready, _)| *ready == name) {
            return Mix::parse(text);
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).with_context(|| {
            let names: Vec<&str> = READY.iter().map(|(name, _)| *name).collect();
            format!("{name:?} is neither a readable file nor one of the mixes {}", names.join(", "))
        })?;
        Mix::parse(&text).with_context(|| path.display().to_string())
    }

    /// Returns the number of clients in all groups.
    pub fn clients(&self) -> usize {
        self.groups.iter().map(|group| group.clients).sum()
    }

    /// Checks all limits. To be called again after a change.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.groups.is_empty(), "the mix has no [[group]]");
        for group in &self.groups {
            group.check().with_context(|| format!("group {:?}", group.name))?;
            let same = self.groups.iter().filter(|other| other.name == group.name).count();
            ensure!(same == 1, "two groups are named {:?}", group.name);
        }
        ensure!(self.clients() <= CLIENTS_MAX, "more than {CLIENTS_MAX} clients");
        Ok(())
    }
}

impl Group {
    fn check(&self) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        ensure!(
            (1..=40).contains(&self.name.len()) && self.name.chars().all(is_plain),
            "a name has 1 to 40 letters, digits, - or _"
        );
        let within = |what: &str, number: u64, most: u64| {
            ensure!((1..=most).contains(&number), "{what} = {number}, but must be 1 to {most}");
            Ok(())
        };
        within("clients", self.clients as u64, CLIENTS_MAX as u64)?;
        within("volumes", self.volumes as u64, 1000)?;
        within("streams", self.streams as u64, STREAMS_MAX as u64)?;
        within("files", self.files as u64, FILES_MAX as u64)?;
        within("file_size", self.file_size.0, FILE_BYTES_MAX)?;
        within("call_size", self.call_size.0, FILE_BYTES_MAX)?;
        ensure!(!self.work.weights().is_empty(), "`work` has no operations");
        let sum: u64 = self.work.weights().iter().map(|(_, weight)| u64::from(*weight)).sum();
        ensure!(u32::try_from(sum).is_ok(), "the numbers in `work` are too large");
        Ok(())
    }
}

fn one() -> usize {
    1
}

fn default_file_size() -> Size {
    Size(64 << 10)
}

fn default_call_size() -> Size {
    Size(1 << 20)
}

macro_rules! ready {
    ($($name:literal),* $(,)?) => {
        /// Names and texts of the built-in mixes (contrib/mixes).
        pub const READY: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../../contrib/mixes/", $name, ".toml"))),)*
        ];
    };
}

ready![
    "bulk-read",
    "bulk-write",
    "status",
    "status-8",
    "create-remove",
    "small-files",
    "scan",
    "cern-250-readers",
    "cern-6x30-writers",
    "cern-9-volumes",
    "cern-12-volumes",
    "demo",
];
