//! Fetches the status of many files in one call.

use super::CellClient;
use super::describe::failed;
use super::files::{Entry, Node};
use afs_idl::fs;
use anyhow::Result;
use base::{AbortCode, Fid};

/// Maximum number of files per call (AFSCBMAX of OpenAFS).
const FIDS_MAX: usize = 50;

impl CellClient {
    /// Returns the nodes of directory entries, in order, or the error for each.
    pub fn open_entries(&self, directory: &Node, entries: &[Entry]) -> Result<Vec<Result<Node, AbortCode>>> {
        let nodes = self.try_open_entries(directory, entries);
        nodes.map_err(failed(format!("read the statuses of the entries of {}", directory.fid)))
    }

    /// Returns the nodes like [`open_entries`](CellClient::open_entries), or the code with which a call ended:
    /// RXGEN_CC_UNMARSHAL if the server returned another number of statuses than requested.
    pub fn try_open_entries(
        &self,
        directory: &Node,
        entries: &[Entry],
    ) -> Result<Vec<Result<Node, AbortCode>>, AbortCode> {
        let mut nodes = Vec::with_capacity(entries.len());
        for entries in entries.chunks(FIDS_MAX) {
            let fid = |entry: &Entry| Fid { vnode: entry.vnode, unique: entry.unique, ..directory.fid };
            let fids: Vec<Fid> = entries.iter().map(fid).collect();
            let request = fs::InlineBulkStatusRequest { fids: fids.iter().map(|&fid| fid.into()).collect() };
            let reply = fs::inline_bulk_status(directory.server(), &request)?;
            if reply.statuses.len() != fids.len() {
                return Err(AbortCode::RXGEN_CC_UNMARSHAL);
            }
            nodes.extend(fids.into_iter().zip(reply.statuses).map(|(fid, status)| match status.error_code {
                0 => Ok(directory.sibling(fid, status)),
                code => Err(AbortCode(code.cast_signed())),
            }));
        }
        Ok(nodes)
    }
}
