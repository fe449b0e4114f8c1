//! Detects whether OpenAFS's servers use a partition.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Names of programs that open partitions, as reported by the kernel.
const PROGRAMS: [&str; 7] =
    ["fileserver", "dafileserver", "volserver", "davolserver", "salvager", "dasalvager", "salvageserver"];

/// Locks the partition like a server or salvager that attaches or salvages it; one that starts later waits
/// for the lock.
///
/// # Errors
/// If it appears to be in use, or cannot be opened.
pub fn lock(partition: &Path) -> Result<File> {
    if let Some((pid, program)) = user(partition)? {
        bail!("{} is in use by {program} (process {pid}); stop it with `bos shutdown`", partition.display());
    }
    let folder = File::open(partition)
        .with_context(|| format!("cannot read the metadata of {}", partition.display()))?;
    match rustix::fs::flock(&folder, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(folder),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("{} is locked by another program, a salvager perhaps", partition.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", partition.display())),
    }
}

/// Returns an OpenAFS process that has this directory as a partition, under any name and in any mount
/// namespace. Processes that cannot be inspected are skipped.
fn user(partition: &Path) -> Result<Option<(u32, String)>> {
    let wanted = fs::metadata(partition)
        .with_context(|| format!("cannot read the metadata of {}", partition.display()))?;
    let is_same = |path: PathBuf| {
        fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    };
    let Ok(processes) = fs::read_dir("/proc") else { return Ok(None) };
    for entry in processes.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let program = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let program = program.trim_end();
        if PROGRAMS.contains(&program) && partitions_of(&entry.path()).into_iter().any(is_same) {
            return Ok(Some((pid, program.to_owned())));
        }
    }
    Ok(None)
}

/// Returns the partition directories of a process, given its directory in /proc.
fn partitions_of(process: &Path) -> Vec<PathBuf> {
    let Ok(root) = fs::read_dir(process.join("root")) else { return Vec::new() };
    let is_partition =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vicep"));
    root.flatten().map(|entry| entry.path()).filter(is_partition).collect()
}
