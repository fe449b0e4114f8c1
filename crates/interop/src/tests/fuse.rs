//! OpenAFS's own cache manager, as a FUSE file system, mounts Cellar's cell.

use crate::Test;
use crate::tests::{script, wait_for};
use anyhow::{Context, Result};
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "fuse-files", needs: &[Means::Netns, Means::Fuse], run: files }]
}

/// Runs the file scripts in /afs/CELL/data; against OpenAFS's own servers they pass, so they must here.
fn files() -> Result<()> {
    let cell = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    let cellar = interop::cell::cellar_program()?;
    let cellar = cellar.display();
    for volume in ["root.afs", "root.cell", "data"] {
        cell.open_volume(Server::Cellar, volume)?;
    }
    for command in [
        format!("{cellar} volume mount root.afs/test.example root.cell"),
        format!("{cellar} volume mount root.cell/data data"),
    ] {
        cell.run(&command)?.ok().with_context(|| command)?;
    }
    let mount = cell.path().join("afs");
    std::fs::create_dir(&mount)?;
    let folder = mount.join("test.example/data");
    cell.mount_fuse(&mount)?;
    wait_for(Duration::from_secs(60), || {
        Ok(cell.shell(&format!("test -d {}", folder.display()))?.status == 0)
    })?;
    let prelude = format!("D={} S={} MANY=5000", folder.display(), cell.scratch()?.display());
    let script = script(&cell, "fuse", &prelude, &["files.sh"])?;
    let output = cell.shell(&format!("timeout 500 sh {}", script.display()))?;
    print!("{}", output.text);
    let unmounted = cell.shell(&format!("fusermount -u {}", mount.display()));
    output.ok().with_context(|| format!("Cellar's log ends:\n{}", cell.cellar_log()))?;
    unmounted?.ok().map(drop)
}
