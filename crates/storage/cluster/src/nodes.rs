//! The leases of all nodes, as the bucket has them.

use crate::request::read_record;
use cluster_proto::{NodeName, NodeRecord};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore};
use std::time::SystemTime;

/// Number of nodes that are read; further ones are left out.
pub const NODES_MAX: usize = 64;

/// Reads the leases below `folder`, in the order of their names. An object that is no lease of this version is left
/// out. Whether a node is alive is not seen in its lease, but in the changes of it.
///
/// # Errors
/// If the bucket refuses a request or does not answer.
pub async fn read_nodes(bucket: &dyn ObjectStore, folder: &str) -> Result<Vec<NodeRecord>, Error> {
    let dated = read_dated_nodes(bucket, folder).await?;
    Ok(dated.into_iter().map(|(record, _)| record).collect())
}

/// The same, each with the time at which it was written, by the bucket's clock.
pub(crate) async fn read_dated_nodes(
    bucket: &dyn ObjectStore,
    folder: &str,
) -> Result<Vec<(NodeRecord, SystemTime)>, Error> {
    let parts = folder.split('/').filter(|part| !part.is_empty());
    let prefix: Path = parts.chain(["nodes"]).collect();
    let mut names: Vec<(NodeName, Path, SystemTime)> = Vec::new();
    let mut listed = bucket.list(Some(&prefix));
    while let Some(found) = listed.try_next().await? {
        let name = found.location.filename().and_then(|name| name.parse().ok());
        names.extend(name.map(|name| (name, found.location, found.last_modified.into())));
        if names.len() >= NODES_MAX {
            break;
        }
    }
    names.sort_unstable();
    let mut records = Vec::with_capacity(names.len());
    for (name, path, written) in names {
        let Some(bytes) = read_record(bucket, &path).await? else { continue };
        records.extend(NodeRecord::decode(&name, &bytes).map(|record| (record, written)));
    }
    Ok(records)
}
