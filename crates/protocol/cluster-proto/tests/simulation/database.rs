//! The database of a partition: a log to which only its newest writer may append, as SlateDB keeps it.

use std::collections::{BTreeMap, BTreeSet};

/// Versions of the files, with the operation that wrote each.
pub(crate) type Files = Vec<(u64, u64)>;

/// What is written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A change of a file.
    Change { file: usize, version: u64, operation: u64, epoch: u64 },
    /// A host may hold promises from now on.
    Host(usize),
    /// A host holds none.
    Forgotten(usize),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub files: Files,
    /// The version that each operation made.
    pub operations: BTreeMap<u64, (usize, u64)>,
    pub hosts: BTreeSet<usize>,
}

#[derive(Default)]
pub(crate) struct Database {
    pub contents: Contents,
    /// The newest writer.
    writer: u64,
    epoch: u64,
}

impl Database {
    pub(crate) fn new(files: usize) -> Database {
        Database {
            contents: Contents { files: vec![(0, 0); files], ..Contents::default() },
            ..Database::default()
        }
    }

    /// Opens it for a writer, and fences all others.
    pub(crate) fn open(&mut self, writer: u64) -> Contents {
        self.writer = writer;
        self.contents.clone()
    }

    /// Appends a record; returns whether the writer may.
    ///
    /// # Errors
    /// If the record breaks the order of versions or epochs.
    pub(crate) fn append(&mut self, writer: u64, record: Record, is_fenced: bool) -> Result<bool, String> {
        if writer != self.writer && is_fenced {
            return Ok(false);
        }
        match record {
            Record::Host(host) => _ = self.contents.hosts.insert(host),
            Record::Forgotten(host) => _ = self.contents.hosts.remove(&host),
            Record::Change { file, version, operation, epoch } => {
                let newest = &mut self.contents.files[file];
                if version != newest.0 + 1 {
                    return Err(format!(
                        "file {file} has version {}, and version {version} is written",
                        newest.0
                    ));
                }
                if epoch < self.epoch {
                    return Err(format!("a change of epoch {epoch} follows one of epoch {}", self.epoch));
                }
                *newest = (version, operation);
                self.epoch = epoch;
                if self.contents.operations.insert(operation, (file, version)).is_some() {
                    return Err(format!("operation {operation} is done twice"));
                }
            }
        }
        Ok(true)
    }
}
