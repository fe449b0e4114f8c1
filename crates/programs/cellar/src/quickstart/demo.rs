//! `cellar quickstart --demo`: users, volumes and files, and a moderate load.

use crate::commands::protection::{create_entry, find_id};
use crate::commands::volume::{self, Create};
use anyhow::{Context as _, Result};
use base::VolumeName;
use cell_client::CellClient;
use cell_client::describe::failed;
use cell_client::files::{Attributes, Node};
use cell_client::network::now;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Duration from which calls count as slow, in milliseconds: short, because the load is moderate.
pub(super) const SLOW_CALL_MS: u64 = 20;

/// The users.
const USERS: [&str; 3] = ["ann", "ben", "cleo"];

/// Volumes with their quotas in KiB; each is mounted in root.cell under the same name.
const VOLUMES: [(&str, i32); 4] =
    [("software", 0), ("project.apollo", 1 << 20), ("project.gemini", 1 << 20), ("home.ann", 200 << 10)];

/// Directories of a volume, each with as many files.
const DIRECTORIES: [(&str, usize); 4] = [("bin", 12), ("doc", 20), ("lib", 16), ("src", 30)];

/// Lengths of the files, in turn.
const LENGTHS: [usize; 5] = [300, 2_500, 9_000, 40_000, 160_000];

/// A line of a file; it is repeated with a number.
const LINE: &str = "This file belongs to the demonstration of cellar quickstart.";

/// Creates the users, volumes and files that are not there yet.
pub(super) fn fill(cell: &CellClient) -> Result<()> {
    for user in USERS {
        if find_id(cell, user)?.is_none() {
            create_entry(cell, user, None, 0, 0)?;
        }
    }
    for (name, quota) in VOLUMES {
        if cell.find_volume(name)?.is_some() {
            continue;
        }
        let volume: VolumeName = name.parse()?;
        // The load's clients are anonymous.
        volume::create_volume(cell, &Create::with_acl(volume, quota, &["system:anyuser=rlidwk"]))?;
        volume::make_mount_point(cell, &format!("root.cell/{name}"), name, false)?;
        let root = cell.root_of(name)?;
        for (directory, files) in DIRECTORIES {
            fill_directory(cell, &root, directory, files)
                .with_context(|| format!("cannot fill {name}/{directory}"))?;
        }
    }
    Ok(())
}

fn fill_directory(cell: &CellClient, root: &Node, name: &str, files: usize) -> Result<()> {
    let directory = cell
        .make_directory(root, name.as_bytes(), Attributes { mode: 0o755, modified: now().0 })
        .map_err(failed(format!("make the directory {name}")))?;
    for number in 0..files {
        let file = format!("{name}-{number:02}.txt");
        let attributes = Attributes { mode: 0o644, modified: now().0 };
        let node = cell
            .create(&directory, file.as_bytes(), attributes)
            .map_err(failed(format!("make the file {file}")))?;
        let text = text(LENGTHS[number % LENGTHS.len()]);
        cell.store(
            &node,
            attributes,
            &mut std::io::Cursor::new(text.as_bytes()),
            text.len() as u64,
            &mut |_| (),
        )?;
    }
    Ok(())
}

fn text(length: usize) -> String {
    let lines = (1..).map(|number| format!("{number:>6}  {LINE}\n"));
    let count = length.div_ceil(LINE.len() + "     1  \n".len());
    lines.take(count).collect()
}

/// Duration of one run of the load. If this program is killed, the load ends after at most this time.
const RUN_SECONDS: u32 = 60;
/// Pause before another run, and between checks of a run.
const PAUSE: Duration = Duration::from_millis(200);

/// The load, `cellar bench fs demo` in a process of its own, so that the server's figures contain only the
/// server; dropping this ends it.
pub(super) struct Load {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts clients of the file server at this address.
    pub(super) fn start(server: Ipv4Addr) -> Result<Load> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = is_ending.clone();
        let run = move || {
            while !ending.load(Relaxed) {
                let mut command = Command::new(&program);
                command.args(arguments(server)).env_remove("CELLAR_CONFIG");
                if let Err(error) = run_once(&mut command, &ending) {
                    eprintln!("cellar: the load of the demonstration cannot run: {error}");
                    return;
                }
                thread::sleep(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("demo".into()).spawn(run)?;
        Ok(Load { is_ending, thread: Some(thread) })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_ending.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the arguments of the load generator. On loopback, its clients have several addresses.
fn arguments(server: Ipv4Addr) -> Vec<String> {
    let mut words: Vec<String> = ["bench", "fs", "demo", "--threads", "1", "--json"].map(Into::into).into();
    words.extend(["--seconds".into(), RUN_SECONDS.to_string(), "--server".into(), server.to_string()]);
    for (volume, _) in VOLUMES {
        words.extend(["--volume".into(), volume.into()]);
    }
    if server.is_loopback() {
        let sources = (2..=4).map(|last| format!("127.0.0.{last}"));
        sources.for_each(|source| words.extend(["--from".into(), source]));
    }
    words
}

/// Runs the load generator until it ends, or until `ending`, which kills it.
fn run_once(command: &mut Command, ending: &AtomicBool) -> std::io::Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    while child.try_wait()?.is_none() {
        if ending.load(Relaxed) {
            child.kill()?;
            child.wait()?;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_text_of_the_wanted_length() {
        let text = text(9_000);
        assert!((9_000..9_100).contains(&text.len()) && text.ends_with("quickstart.\n"), "{}", text.len());
    }
}
