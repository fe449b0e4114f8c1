//! The end of the program by a signal: cells outlive who started them, so they are ended first.

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Guards the folders of all running cells; whoever ends cells holds it as long as that takes.
static CELLS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What a shell says of a program that a signal ended, less the signal's number.
const SIGNALLED: i32 = 128;

/// From now on SIGINT, SIGTERM and SIGHUP end all cells and remove their files, and then the program. To be called
/// once, when the program begins.
///
/// # Errors
/// Signals cannot be taken, or no thread started.
pub fn on_signal() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        eprintln!("ending the cells");
        // As long as it is held nobody else ends a cell, nor begins one.
        let mut cells = cells();
        cells.drain(..).for_each(|folder| remove(&folder));
        std::process::exit(SIGNALLED + signal);
    })?;
    Ok(())
}

fn cells() -> MutexGuard<'static, Vec<PathBuf>> {
    // A list of paths is whole whoever panicked.
    CELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// There is a cell in this folder from now on.
pub(crate) fn begun(folder: &Path) {
    cells().push(folder.to_owned());
}

/// The cell of this folder has been ended. Does not return while a signal ends all.
pub(crate) fn ended(folder: &Path) {
    cells().retain(|cell| cell != folder);
}

fn remove(folder: &Path) {
    let mut stop = Command::new(crate::cell::tools().join("openafs-cell"));
    stop.arg("-d").arg(folder).arg("stop").stdin(Stdio::null());
    match stop.status() {
        Ok(status) if status.success() => _ = std::fs::remove_dir_all(folder),
        Ok(status) => eprintln!("{} was not ended: {status}", folder.display()),
        Err(error) => eprintln!("{} was not ended: {error}", folder.display()),
    }
}
