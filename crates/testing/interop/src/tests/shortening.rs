//! A path that silently drops long packets: no ICMP message, no fragments.

use crate::Test;
use crate::tests::mixed::copy;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "short-path", needs: &[Means::Netns], run: short_path }]
}

/// Drops frames longer than one burst; IP packets of up to 1300 bytes pass.
const SHORT: &str = "tc qdisc replace dev eth0 root tbf rate 100mbit burst 1314 latency 200ms";
const FILE_MIB: u64 = 4;

fn short_path() -> Result<()> {
    let server = Cell::start(Server::Cellar, "short1", "10.99.0.165")?;
    let other = Cell::start_cellar_like(&server, "short2", "10.99.0.166")?;
    for number in 0..40 {
        server.open_volume(Server::Cellar, &format!("v{number}"))?;
    }
    let folder = server.scratch()?;
    server.shell(&format!("head -c {FILE_MIB}M /dev/urandom > {}/big", folder.display()))?.ok()?;
    copy(&server, &format!("{}/big cell:v0/big", folder.display()))?;
    let list = "timeout 60 vos listvol 10.99.0.165 -localauth | sort";
    let dump = format!("timeout 60 vos dump v0 -localauth -file {}/dump", folder.display());
    let whole = other.shell(list)?.ok()?;
    for cell in [&server, &other] {
        cell.shell(SHORT)?.ok().context("a path of 1300 bytes")?;
    }
    for _ in 0..3 {
        let listed = other.shell(list)?.ok().context("vos listvol")?;
        ensure!(listed == whole, "{listed}\ninstead of\n{whole}");
        other.shell(&dump)?.ok().context("vos dump")?;
    }
    for command in [
        "vos move v0 10.99.0.165 a 10.99.0.166 a -localauth",
        "vos move v0 10.99.0.166 a 10.99.0.165 a -localauth",
    ] {
        other.shell(&format!("timeout 120 {command}"))?.ok().context(command)?;
    }
    copy(&server, &format!("cell:v0/big {}/copied", folder.display()))?;
    server.shell(&format!("cd {} && cmp big copied", folder.display()))?.ok()?;
    Ok(())
}
