//! Which other nodes each node reaches, as it publishes that in the bucket.

use crate::request::read_record;
use crate::survey::{SurveyError, run, within};
use cluster_proto::{NodeName, NodeRecord, Other, ReachRecord, isolated};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use std::collections::{BTreeMap, BTreeSet};

/// Number of records that are read at the same time.
const READS_MAX: usize = 16;

pub(crate) fn path(folder: &str, node: &NodeName) -> Path {
    ReachRecord::object(folder, node).split('/').filter(|part| !part.is_empty()).collect()
}

/// Writes the record of a node, whatever is there.
///
/// # Errors
/// If the bucket does not answer. It may be written nevertheless.
pub async fn write_reach(bucket: &dyn ObjectStore, folder: &str, record: &ReachRecord) -> Result<(), Error> {
    bucket.put(&path(folder, &record.node), record.encode().into()).await.map(drop)
}

/// Reads the record of a node; `None` if there is none.
///
/// # Errors
/// If the bucket does not answer, or the object cannot be used.
pub async fn read_reach(
    bucket: &dyn ObjectStore,
    folder: &str,
    node: &NodeName,
) -> Result<Option<ReachRecord>, SurveyError> {
    let decoded = |bytes: Vec<u8>| {
        let object = ReachRecord::object(folder, node);
        ReachRecord::decode(node, &bytes).map_err(|error| SurveyError::Record { object, error })
    };
    read_record(bucket, &path(folder, node)).await?.map(decoded).transpose()
}

/// Returns the nodes that leave everything to the others because they reach none ([`isolated`]). `leases` are those that are renewed. Reads
/// what the nodes have published, unless the leases say that none can have left.
///
/// # Errors
/// If the bucket does not answer. A record that cannot be used is taken for none.
pub async fn isolated_nodes(
    bucket: &dyn ObjectStore,
    folder: &str,
    leases: &[NodeRecord],
) -> Result<BTreeSet<NodeName>, Error> {
    // Commands have leases without addresses.
    let leases: Vec<&NodeRecord> = leases.iter().filter(|lease| !lease.addresses.is_empty()).collect();
    let takers = leases.iter().filter(|lease| lease.takes_addresses).count();
    if takers == 0 || takers == leases.len() {
        return Ok(BTreeSet::new());
    }
    let other = |lease: &NodeRecord| {
        let NodeRecord { node, incarnation, takes_addresses, .. } = lease.clone();
        async move {
            let reach = match read_reach(bucket, folder, &node).await {
                Ok(found) => found.filter(|record| record.incarnation == incarnation),
                Err(SurveyError::Bucket(error)) => return Err(error),
                Err(_) => None,
            };
            Ok((node, Other { takes_addresses, reach }))
        }
    };
    let reading = futures::stream::iter(leases.into_iter().map(other)).buffer_unordered(READS_MAX);
    let nodes: BTreeMap<NodeName, Other> = reading.try_collect().await?;
    Ok(isolated(&nodes))
}

/// The same on a runtime of its own. `bucket` should be a client of its own.
///
/// # Errors
/// If the bucket does not answer in time.
pub fn read_isolated_nodes(
    bucket: &dyn ObjectStore,
    folder: &str,
    leases: &[NodeRecord],
) -> Result<BTreeSet<NodeName>, SurveyError> {
    run(within(isolated_nodes(bucket, folder, leases)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bucket::faulty::{Away, Faults, FaultyBucket};
    use cluster_proto::{Incarnation, NodeState};
    use object_store::memory::InMemory;
    use std::time::Duration;

    /// A lease as text: `!` before the name of a node that takes no service addresses.
    fn lease(text: &str, count: u32) -> NodeRecord {
        NodeRecord {
            node: text.trim_start_matches('!').parse().unwrap(),
            incarnation: Incarnation { nonce: 7, count },
            sequence: 1,
            state: NodeState::Live,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: vec![([192, 0, 2, 1], 7010).into()],
            takes_addresses: !text.starts_with('!'),
        }
    }

    #[test]
    fn a_node_that_has_left_is_found_by_what_is_published() {
        let bucket = FaultyBucket::new(1, Faults::default());
        let write = |node: &str, reached: &[&str]| {
            let reached = reached.iter().map(|name| name.parse().unwrap());
            let incarnation = Incarnation { nonce: 7, count: 1 };
            let record = ReachRecord::new(node.parse().unwrap(), incarnation, reached, 0);
            run(within(write_reach(&bucket, "cell", &record))).unwrap();
        };
        let found = |leases: &[NodeRecord]| {
            let found = read_isolated_nodes(&bucket, "cell", leases)?;
            Ok::<_, SurveyError>(found.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" "))
        };
        write("a", &["b"]);
        write("b", &["a"]);
        let leases = [lease("a", 1), lease("b", 1), lease("!c", 1)];
        assert_eq!(found(&leases).unwrap(), "", "it has published nothing");
        write("c", &[]);
        assert_eq!(found(&leases).unwrap(), "c");
        let command = NodeRecord { addresses: Vec::new(), ..lease("!command", 1) };
        assert_eq!(found(&[&leases[..], &[command]].concat()).unwrap(), "c", "a command is no node");
        assert_eq!(found(&[lease("a", 1), lease("b", 1), lease("!c", 2)]).unwrap(), "", "another membership");
        assert_eq!(found(&[lease("a", 2), lease("b", 1), lease("!c", 1)]).unwrap(), "", "of another node");
        run(within(bucket.put(&"cell/reach/b".into(), "cellar".into()))).unwrap();
        assert_eq!(found(&leases).unwrap(), "", "a record is damaged");
        write("b", &["a"]);
        bucket.set_away(Some(Away::Failing));
        assert!(found(&leases).is_err());
        let able = ["a", "b", "c"].map(|name| lease(name, 1));
        assert_eq!(found(&able).unwrap(), "", "nothing has to be read");
    }

    #[tokio::test]
    async fn records_are_read_as_written() {
        let (bucket, a, b) = (InMemory::new(), "a".parse().unwrap(), "b".parse().unwrap());
        assert_eq!(read_reach(&bucket, "cells/x", &a).await.unwrap(), None);
        for clients in [0, 7] {
            let incarnation = Incarnation { nonce: 7, count: 1 };
            let record = ReachRecord::new(NodeName::clone(&a), incarnation, [NodeName::clone(&b)], clients);
            write_reach(&bucket, "cells/x", &record).await.unwrap();
            assert_eq!(read_reach(&bucket, "cells/x", &a).await.unwrap(), Some(record));
        }
        assert_eq!(read_reach(&bucket, "cells/x", &b).await.unwrap(), None);
        bucket.put(&"cells/x/reach/b".into(), "cellar".into()).await.unwrap();
        let error = read_reach(&bucket, "cells/x", &b).await.unwrap_err().to_string();
        assert!(error.starts_with("the object cells/x/reach/b: "), "{error}");
    }
}
