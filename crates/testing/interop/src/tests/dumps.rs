//! Volumes stay unchanged when they are dumped and restored between OpenAFS's and Cellar's volume servers.

use crate::Test;
use crate::tests::own_file;
use afs_format::dump::{DumpedVnode, Item, Reader};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use interop::cell::{Cell, Server};
use interop::means::Means;
use std::path::{Path, PathBuf};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "dump-crossing", needs: &[Means::Netns], run: crossing }]
}

/// From OpenAFS to Cellar and back, with a full dump and then an incremental one.
fn crossing() -> Result<()> {
    let openafs = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    let cellar = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    for how in ["full", "incremental"] {
        let golden = own_file("../../protocol/afs-format/testdata/dump").join(how);
        // The incremental dump is restored on both servers that have the full one; the way back always uses a
        // full dump.
        restore(&openafs, "home", &golden, how)?;
        let there = dumped(&openafs, "home", how)?;
        restore(&cellar, "home", if how == "full" { &there } else { &golden }, how)?;
        let here = dumped(&cellar, "home", how)?;
        restore(&openafs, "back", &here, how)?;
        let back = dumped(&openafs, "back", "back")?;
        let [there, here, back] = [there, here, back].map(|path| vnodes(&std::fs::read(path)?));
        let there = there?;
        ensure!(there == here?, "{how}: Cellar dumps something else than OpenAFS");
        ensure!(there == back?, "{how}: OpenAFS restores something else from Cellar's dump");
    }
    println!("interop: dumps are the same on the way from OpenAFS to Cellar and back");
    Ok(())
}

fn restore(cell: &Cell, volume: &str, dump: &Path, how: &str) -> Result<()> {
    let (address, dump) = (cell.address, dump.display());
    let command = format!("vos restore {address} a {volume} -file {dump} -overwrite {how} -localauth");
    cell.run(&command)?.ok().map(drop).context(command)
}

/// Dumps a volume to a file of this name.
pub(crate) fn dumped(cell: &Cell, volume: &str, name: &str) -> Result<PathBuf> {
    dump(cell, volume, name, "")
}

/// Dumps the copy of a volume on `server`.
pub(crate) fn dumped_from(cell: &Cell, volume: &str, server: &str) -> Result<PathBuf> {
    dump(cell, volume, &format!("{volume}.{server}"), &format!("-server {server} -partition a"))
}

fn dump(cell: &Cell, volume: &str, name: &str, options: &str) -> Result<PathBuf> {
    let path = cell.scratch()?.join(name);
    let command = format!("vos dump {volume} -file {} {options} -localauth", path.display());
    cell.run(&command)?.ok().context(command)?;
    Ok(path)
}

/// Returns a dump from the root directory on, without the ids and dates of the copy before it.
pub(crate) fn vnodes(dump: &[u8]) -> Result<Vec<u8>> {
    let begin = dump.windows(10).position(|bytes| bytes == [3, 0, 0, 0, 1, 0, 0, 0, 1, b't']);
    Ok(dump[begin.context("no root directory in the dump")?..].to_vec())
}

/// The vnodes of a dump with their data. Data versions and the server's times are 0: Cellar continues them above those of
/// a volume that a restore replaces, OpenAFS takes those of the dump.
pub(crate) fn contents(dump: &[u8]) -> Result<Vec<(DumpedVnode, Vec<u8>)>> {
    let mut left = Bytes::copy_from_slice(dump);
    let source = |most: usize| anyhow::Ok(left.split_to(most.min(left.len())));
    let (mut reader, _) = Reader::open(source)?;
    let mut all = Vec::new();
    loop {
        let mut vnode = match reader.next_item()? {
            Item::Volume(_) => continue,
            Item::Vnode(vnode) => vnode,
            Item::End => return Ok(all),
        };
        if let Some(attributes) = &mut vnode.attributes {
            attributes.data_version = 0;
            attributes.server_modified = base::UnixTime(0);
        }
        let mut data = Vec::new();
        loop {
            let piece = reader.data(usize::MAX)?;
            if piece.is_empty() {
                break;
            }
            data.extend_from_slice(&piece);
        }
        all.push((vnode, data));
    }
}
