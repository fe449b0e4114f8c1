//! Cleanup when a signal ends the program: cells outlive the process that started them, so they must be
//! stopped first.

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Guards the folders of all running cells; held while cells are stopped.
static CELLS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Guards the process ids and folders of the programs started by this one ([`crate::limited`]); held while
/// they are stopped, so that no other starts.
static PROGRAMS: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

/// File with the list of running cells.
static LIST: OnceLock<PathBuf> = OnceLock::new();
/// Name of that file in a program's folder.
const LIST_NAME: &str = "cells";

/// Time limit for a program started by this one to stop its cells, in seconds.
pub const END_SECONDS: u64 = 300;
/// Time limit for stopping one cell, in seconds; OpenAFS's servers have 90 s of it.
const CELL_SECONDS: &str = "150";

/// Base of a shell's exit status for a program that was ended by a signal; the signal's number is added.
const SIGNALLED: i32 = 128;

/// Makes SIGINT, SIGTERM and SIGHUP stop all cells, remove their files, and exit. To be called once, at the
/// start of the program.
///
/// # Errors
/// If signals cannot be handled, or a thread cannot be started.
pub fn on_signal() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        eprintln!("ending the cells");
        let programs = programs();
        end_programs(&programs);
        for (_, folder) in &*programs {
            for cell in listed(folder) {
                remove(&cell);
            }
            _ = std::fs::remove_dir_all(folder);
        }
        // While this is held, no other thread stops or starts a cell.
        let mut cells = cells();
        cells.drain(..).for_each(|folder| remove(&folder));
        write_list(&cells);
        std::process::exit(SIGNALLED + signal);
    })?;
    Ok(())
}

fn cells() -> MutexGuard<'static, Vec<PathBuf>> {
    // A list of paths is consistent even if a thread has panicked.
    CELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn programs() -> MutexGuard<'static, Vec<(u32, PathBuf)>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a list of the running cells' folders in a file in this folder, for the process that started this
/// program ([`crate::limited::run`]). To be called once, at the start of the program.
pub fn list_in(folder: &Path) {
    LIST.get_or_init(|| folder.join(LIST_NAME));
}

/// Returns the cells of the program with this folder.
pub(crate) fn listed(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_to_string(folder.join(LIST_NAME)).unwrap_or_default().lines().map(PathBuf::from).collect()
}

fn write_list(cells: &[PathBuf]) {
    let Some(file) = LIST.get() else { return };
    let text = cells.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join("\n");
    if let Err(error) = std::fs::write(file, text) {
        eprintln!("cannot write {}: {error}", file.display());
    }
}

/// Starts a program with `begin`, and registers it and its folder for cleanup. The program must run in its
/// own process group.
pub(crate) fn program_begins(
    folder: &Path,
    begin: impl FnOnce() -> std::io::Result<Child>,
) -> std::io::Result<Child> {
    let mut programs = programs();
    let child = begin()?;
    programs.push((child.id(), folder.to_owned()));
    Ok(child)
}

/// Unregisters the program with this folder, which has exited. Blocks forever if a signal is ending this
/// program.
pub(crate) fn forget_program(folder: &Path) {
    programs().retain(|(_, other)| other != folder);
}

/// Sends SIGTERM to the programs' process groups, and waits until the programs have stopped their cells.
fn end_programs(programs: &[(u32, PathBuf)]) {
    for (id, _) in programs {
        crate::limited::signal("TERM", &format!("-{id}"));
    }
    let deadline = Instant::now() + Duration::from_secs(END_SECONDS);
    let runs = |(id, _): &(u32, PathBuf)| crate::limited::is_running(*id);
    while programs.iter().any(runs) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Registers a cell with this folder.
pub(crate) fn begun(folder: &Path) {
    let mut cells = cells();
    cells.push(folder.to_owned());
    write_list(&cells);
}

/// Stops the cell with this folder by calling `stop`, and removes its files. Blocks forever if a signal is
/// ending this program, since two threads that stop one cell would interfere.
pub(crate) fn end(folder: &Path, stop: impl FnOnce()) {
    let mut cells = cells();
    stop();
    _ = std::fs::remove_dir_all(folder);
    cells.retain(|cell| cell != folder);
    write_list(&cells);
}

/// Stops the cell with this folder and removes its files.
pub(crate) fn remove(folder: &Path) {
    let mut stop = Command::new("timeout");
    stop.arg(CELL_SECONDS).arg(crate::cell::tools().join("openafs-cell"));
    stop.arg("-d").arg(folder).arg("stop").stdin(Stdio::null());
    match stop.status() {
        Ok(status) if status.success() => _ = std::fs::remove_dir_all(folder),
        Ok(status) => eprintln!("{} was not ended: {status}", folder.display()),
        Err(error) => eprintln!("{} was not ended: {error}", folder.display()),
    }
}
