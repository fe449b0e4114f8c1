//! Queries a server that keeps the totals.

use super::Found;
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, GetDirectoryTotalsRequest, ListSubdirectoriesRequest, Subdirectory};
use anyhow::Result;
use base::{AbortCode, Fid, VnodeId};
use cell_client::describe::failed;
use cell_client::files::Node;
use cell_client::{CellClient, Interface};

/// A server's answer about a directory.
#[derive(Debug)]
pub(super) enum Answer {
    /// The totals.
    Found(Vec<Found>),
    /// The totals are not computed yet; for clones older than the first count of their volume, they never
    /// are.
    NotCounted,
    /// The server keeps no totals.
    Unknown,
}

/// Queries a directory and those below it, down to `depth`, with one call for it and one for each directory
/// whose subdirectories are shown.
pub(super) fn ask(client: &CellClient, node: &Node, depth: usize) -> Result<Answer> {
    let server = client.connection(node.address(), Interface::Cellar);
    let Fid { volume, vnode, unique } = node.fid;
    let request = GetDirectoryTotalsRequest { volume: volume.0, vnode: vnode.0, unique };
    let totals = match cellar::get_directory_totals(&*server, &request) {
        Ok(reply) => reply.totals,
        Err(AbortCode::UAEAGAIN) => return Ok(Answer::NotCounted),
        Err(AbortCode::RX_INVALID_OPERATION | AbortCode::RXGEN_OPCODE) => return Ok(Answer::Unknown),
        Err(code) => return Err(failed(format!("get the totals of {}", node.fid))(code)),
    };
    let mut found = vec![Found { way: vec![], totals: Ok(totals), is_partial: false }];
    let mut open = vec![(node.fid, vec![])];
    while let Some((directory, way)) = open.pop().filter(|(_, way)| way.len() < depth) {
        for below in list(&*server, directory)? {
            let way: Vec<String> = way.iter().cloned().chain([base::text::escape(&below.name)]).collect();
            let totals = if below.code == 0 { Ok(below.totals) } else { Err(AbortCode(below.code)) };
            if totals.is_ok() && way.len() < depth {
                let fid = Fid { vnode: VnodeId(below.vnode), unique: below.unique, ..directory };
                open.push((fid, way.clone()));
            }
            found.push(Found { way, totals, is_partial: false });
        }
    }
    Ok(Answer::Found(found))
}

/// Lists the subdirectories of a directory.
fn list(server: &dyn ClientConnection, directory: Fid) -> Result<Vec<Subdirectory>> {
    let mut all = Vec::new();
    let mut after: Vec<u8> = Vec::new();
    loop {
        let Fid { volume, vnode, unique } = directory;
        let (volume, vnode) = (volume.0, vnode.0);
        let request = ListSubdirectoriesRequest { volume, vnode, unique, after: after.clone() };
        let reply = cellar::list_subdirectories(server, &request)
            .map_err(failed(format!("list the directories in {directory}")))?;
        all.extend(reply.subdirectories);
        match all.last() {
            Some(last) if reply.more != 0 => after.clone_from(&last.name),
            _ => return Ok(all),
        }
    }
}
