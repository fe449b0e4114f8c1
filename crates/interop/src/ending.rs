//! The end of the program by a signal: cells outlive who started them, so they are ended first.

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Guards the folders of all running cells; whoever ends cells holds it as long as that takes.
static CELLS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Guards the numbers and the folders of the programs that run for this one ([`crate::limited`]); whoever ends them holds it
/// as long as that takes, so that no other begins.
static PROGRAMS: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

/// The file that says which cells run.
static LIST: OnceLock<PathBuf> = OnceLock::new();
/// Its name in the folder of a program.
const LIST_NAME: &str = "cells";

/// What a program that runs for this one may take to end its cells.
pub const END_SECONDS: u64 = 300;
/// What the end of one cell may take; OpenAFS's servers have 90 s of it.
const CELL_SECONDS: &str = "150";

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
        let programs = programs();
        end_programs(&programs);
        for (_, folder) in &*programs {
            for cell in listed(folder) {
                remove(&cell);
            }
            _ = std::fs::remove_dir_all(folder);
        }
        // As long as it is held nobody else ends a cell, nor begins one.
        let mut cells = cells();
        cells.drain(..).for_each(|folder| remove(&folder));
        write_list(&cells);
        std::process::exit(SIGNALLED + signal);
    })?;
    Ok(())
}

fn cells() -> MutexGuard<'static, Vec<PathBuf>> {
    // A list of paths is whole whoever panicked.
    CELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn programs() -> MutexGuard<'static, Vec<(u32, PathBuf)>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the folders of the running cells stand in a file in this folder, for who started this program
/// ([`crate::limited::run`]). To be called once, when the program begins.
pub fn list_in(folder: &Path) {
    LIST.get_or_init(|| folder.join(LIST_NAME));
}

/// The cells that the program with this folder has.
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

/// Begins a program in a group of its own, which ends when this program is told to; its folder goes with it.
pub(crate) fn program_begins(
    folder: &Path,
    begin: impl FnOnce() -> std::io::Result<Child>,
) -> std::io::Result<Child> {
    let mut programs = programs();
    let child = begin()?;
    programs.push((child.id(), folder.to_owned()));
    Ok(child)
}

/// The one with this folder has ended. Does not return while a signal ends all.
pub(crate) fn forget_program(folder: &Path) {
    programs().retain(|(_, other)| other != folder);
}

/// Tells their groups, and waits until the programs have ended their cells.
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

/// There is a cell in this folder from now on.
pub(crate) fn begun(folder: &Path) {
    let mut cells = cells();
    cells.push(folder.to_owned());
    write_list(&cells);
}

/// Ends the cell of this folder by `stop` and removes its files. Does not return while a signal ends all: two who end one
/// cell would hinder each other.
pub(crate) fn end(folder: &Path, stop: impl FnOnce()) {
    let mut cells = cells();
    stop();
    _ = std::fs::remove_dir_all(folder);
    cells.retain(|cell| cell != folder);
    write_list(&cells);
}

/// Ends the cell of this folder and removes its files.
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
