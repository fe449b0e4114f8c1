//! OpenAFS's own cache manager, as a FUSE file system, mounts a cell.
//!
//! `afsd.fuse` lacks some features of the kernel clients (link counts are one, times are not set), so the
//! same script first runs in a cell of OpenAFS's servers. With Cellar its output must be the same, including
//! the steps that fail in both; the only difference is [`LONG_NAME`].

use crate::Test;
use crate::tests::{script, wait_for};
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::path::Path;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "fuse-files", needs: &[Means::Netns, Means::Fuse], run: files }]
}

/// OpenAFS's server accepts such a name and Cellar rejects it: the kernel's client treats the whole directory
/// as damaged if it has such a name.
const LONG_NAME: &str = "FAIL: a name of 256 bytes: was not refused\n";

fn files() -> Result<()> {
    let wanted = {
        let cell = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
        cell.open_volume(Server::OpenAfs, "root.cell")?;
        in_mounted_cell(&cell, |root| run_script(&cell, root))?
    };
    let cell = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    for volume in ["root.cell", "data"] {
        cell.open_volume(Server::Cellar, volume)?;
    }
    let mount = "cellar volume mount root.cell/data data";
    cell.run(mount)?.ok().context(mount)?;
    let got = in_mounted_cell(&cell, |root| {
        through_mount_point(&cell, root)?;
        run_script(&cell, root)
    })
    .with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log()))?;
    ensure!(wanted.contains(LONG_NAME), "OpenAFS's server refuses a name of 256 bytes too");
    let wanted = wanted.replace(LONG_NAME, "");
    ensure!(got == wanted, "OpenAFS's servers and Cellar differ.\nOpenAFS:\n{wanted}\nCellar:\n{got}");
    for line in got.replace("FAIL: ", "impossible with either server: ").lines() {
        println!("{line:.160}");
    }
    Ok(())
}

/// Mounts the cell, waits for its root directory, runs `body` with that, and unmounts.
pub(crate) fn in_mounted_cell<T>(cell: &Cell, body: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let mount = cell.path().join("afs");
    std::fs::create_dir(&mount)?;
    let root = mount.join("test.example");
    cell.mount_fuse(&mount)?;
    let result = wait_for(Duration::from_secs(60), || {
        Ok(cell.shell(&format!("test -d {}", root.display()))?.status == 0)
    })
    .and_then(|()| body(&root));
    let unmounted = unmount(cell, &mount);
    let result = result?;
    unmounted.map(|()| result)
}

/// Unmounts what [`Cell::mount_fuse`] has mounted. Retries, since the client needs a moment; an unmount that fails would make the
/// next mount fail.
pub(crate) fn unmount(cell: &Cell, mount: &Path) -> Result<()> {
    let script =
        format!("for i in $(seq 100); do fusermount -u {} && exit; sleep 0.1; done; exit 1", mount.display());
    cell.shell(&script)?.ok().context("unmounting").map(drop)
}

/// Returns the output of the file script: its steps, and the failures in each.
fn run_script(cell: &Cell, root: &Path) -> Result<String> {
    let prelude = format!("D={} S={} MANY=5000", root.display(), cell.scratch()?.display());
    let script = script(cell, "fuse", &prelude, &["files.sh"])?;
    let text = cell.shell(&format!("timeout 500 sh {}", script.display()))?.text;
    let steps = text.matches("step: ").count();
    let failures = text.matches("FAIL: ").count();
    ensure!(steps > 10 && failures < steps, "the script hardly worked:\n{text}");
    Ok(without_clock(&text))
}

/// Returns the text without the number of failures, and without the current time, which appears where a
/// file's time could not be set.
fn without_clock(text: &str) -> String {
    let counts = |line: &&str| !line.ends_with(" failed");
    let line = |line: &str| match line.strip_prefix("FAIL: mtime: got '") {
        Some(rest) => {
            format!("FAIL: mtime: got NOW{}\n", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => format!("{line}\n"),
    };
    text.lines().filter(counts).map(line).collect()
}

/// Reads a file in another volume through a mount point.
fn through_mount_point(cell: &Cell, root: &Path) -> Result<()> {
    let file = root.join("data/through");
    let command = format!("echo inside >{0} && cat {0}", file.display());
    let text = cell.shell(&command)?.ok().context(command)?;
    ensure!(text == "inside\n", "{} holds {text:?}", file.display());
    Ok(())
}
