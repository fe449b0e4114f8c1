//! Fetches the status of many files in one call.

use super::CellClient;
use super::describe::failed;
use super::files::{Entry, Node};
use afs_idl::fs;
use anyhow::{Result, bail};
use base::{AbortCode, Fid};

/// Maximum number of files per call (AFSCBMAX of OpenAFS).
const FIDS_MAX: usize = 50;

impl CellClient {
    /// Returns the nodes of directory entries, in order, or the error for each.
    pub fn open_entries(&self, directory: &Node, entries: &[Entry]) -> Result<Vec<Result<Node, AbortCode>>> {
        let mut nodes = Vec::with_capacity(entries.len());
        for entries in entries.chunks(FIDS_MAX) {
            let fid = |entry: &Entry| Fid { vnode: entry.vnode, unique: entry.unique, ..directory.fid };
            let fids: Vec<Fid> = entries.iter().map(fid).collect();
            let request = fs::InlineBulkStatusRequest { fids: fids.iter().map(|&fid| fid.into()).collect() };
            let reply = fs::inline_bulk_status(directory.server(), &request)
                .map_err(failed(format!("look at what is in {}", directory.fid)))?;
            if reply.statuses.len() != fids.len() {
                bail!("asked about {} files, the server answered for {}", fids.len(), reply.statuses.len());
            }
            nodes.extend(fids.into_iter().zip(reply.statuses).map(|(fid, status)| match status.error_code {
                0 => Ok(directory.sibling(fid, status)),
                code => Err(AbortCode(code.cast_signed())),
            }));
        }
        Ok(nodes)
    }
}
