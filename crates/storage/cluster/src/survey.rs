//! What a bucket says about a cluster, for administrators. It needs no lease and changes nothing.

use crate::nodes::read_dated_nodes;
use crate::request::read_record;
use cluster_proto::{NodeRecord, OwnerRecord, PartitionName, RecordError};
use object_store::path::Path;
use object_store::{Error, ObjectStore};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant, SystemTime};
use thiserror::Error;
use tokio::time::{sleep, timeout};

/// For how long the bucket may take to answer one question.
const LIMIT: Duration = Duration::from_secs(10);

/// Interval between two readings of the leases.
const INTERVAL: Duration = Duration::from_millis(250);

/// A lease in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// The lease.
    pub record: NodeRecord,
    /// Time since it was seen to change; `None` if it has not changed while it was watched.
    pub changed: Option<Duration>,
    /// When it was written last, by the bucket's clock.
    pub written: SystemTime,
}

/// The leases in a folder, and the owners of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The leases, by name.
    pub nodes: Vec<NodeSeen>,
    /// The partitions as they were asked for, with the owner's object; `None` if none has ever been owned.
    pub owners: Vec<(PartitionName, Option<OwnerRecord>)>,
}

/// A bucket that does not answer as it has to.
#[derive(Debug, Error)]
pub enum SurveyError {
    /// A request failed. The error is not the source, since it is in the text.
    #[error("a request to the bucket failed: {0}")]
    Bucket(Error),
    /// There was no answer in time.
    #[error("the bucket does not answer within {LIMIT:?}")]
    Late,
    /// An object is damaged, or of a newer program.
    #[error("the object {object}: {error}")]
    Record {
        /// The object.
        object: String,
        /// What is wrong with it.
        error: RecordError,
    },
    /// Another writer has replaced an object at the same time.
    #[error("the object {object} was replaced by another writer at the same time; try again")]
    Outrun {
        /// The object.
        object: String,
    },
    /// No runtime can be started.
    #[error("cannot start a runtime: {0}")]
    Runtime(io::Error),
}

impl From<Error> for SurveyError {
    fn from(error: Error) -> SurveyError {
        SurveyError::Bucket(error)
    }
}

impl From<io::Error> for SurveyError {
    fn from(error: io::Error) -> SurveyError {
        SurveyError::Runtime(error)
    }
}

/// Watches the leases below `folder` for some time, so that those that are renewed are seen, and reads the owners of
/// partitions at the end. `bucket` should be a client of its own.
///
/// # Errors
/// If the bucket does not answer, or an owner's object cannot be used.
pub fn survey(
    bucket: &dyn ObjectStore,
    folder: &str,
    partitions: &[PartitionName],
    watch: Duration,
) -> Result<Survey, SurveyError> {
    run(async {
        let begun = Instant::now();
        let mut seen = Seen::default();
        loop {
            seen.note(within(read_dated_nodes(bucket, folder)).await?, Instant::now());
            if begun.elapsed() >= watch {
                break;
            }
            sleep(INTERVAL).await;
        }
        Ok(Survey { nodes: seen.end(Instant::now()), owners: owners(bucket, partitions).await? })
    })
}

/// Reads the owners of partitions.
///
/// # Errors
/// If the bucket does not answer, or an owner's object cannot be used.
pub fn read_owners(
    bucket: &dyn ObjectStore,
    partitions: &[PartitionName],
) -> Result<Vec<(PartitionName, Option<OwnerRecord>)>, SurveyError> {
    run(owners(bucket, partitions))
}

/// Runs requests on a runtime of their own.
pub(crate) fn run<T>(work: impl Future<Output = Result<T, SurveyError>>) -> Result<T, SurveyError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Waits for a request, for a limited time.
pub(crate) async fn within<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, SurveyError> {
    timeout(LIMIT, request).await.map_err(|_| SurveyError::Late)?.map_err(SurveyError::Bucket)
}

async fn owners(
    bucket: &dyn ObjectStore,
    partitions: &[PartitionName],
) -> Result<Vec<(PartitionName, Option<OwnerRecord>)>, SurveyError> {
    let mut owners = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let object = partition.object("owner");
        let path: Path = object.split('/').filter(|part| !part.is_empty()).collect();
        let owner = match within(read_record(bucket, &path)).await? {
            Some(bytes) => {
                Some(OwnerRecord::decode(&bytes).map_err(|error| SurveyError::Record { object, error })?)
            }
            None => None,
        };
        owners.push((partition.clone(), owner));
    }
    Ok(owners)
}

/// Leases as they were read, with the time of the last change that was seen, and of the last that was made.
#[derive(Default)]
struct Seen(BTreeMap<cluster_proto::NodeName, (NodeRecord, Option<Instant>, SystemTime)>, bool);

impl Seen {
    /// Notes all leases at one time. A lease that is not there at first has changed when it appears.
    fn note(&mut self, records: Vec<(NodeRecord, SystemTime)>, now: Instant) {
        let is_first = !std::mem::replace(&mut self.1, true);
        for (record, written) in records {
            match self.0.get_mut(&record.node) {
                Some((before, ..)) if *before == record => {}
                Some(before) => *before = (record, Some(now), written),
                None => {
                    let changed = (!is_first).then_some(now);
                    self.0.insert(record.node.clone(), (record, changed, written));
                }
            }
        }
    }

    fn end(self, now: Instant) -> Vec<NodeSeen> {
        let since = |at: Instant| now.saturating_duration_since(at);
        let seen = |(record, changed, written): (NodeRecord, Option<Instant>, SystemTime)| NodeSeen {
            record,
            changed: changed.map(since),
            written,
        };
        self.0.into_values().map(seen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incarnation, Member, MemberConfig, NodeState};
    use bucket::faulty::{Away, Faults, FaultyBucket};
    use cluster_proto::{Epoch, Holder};
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn dated(node: &str, sequence: u64) -> (NodeRecord, SystemTime) {
        (record(node, sequence), SystemTime::UNIX_EPOCH)
    }

    fn record(node: &str, sequence: u64) -> NodeRecord {
        NodeRecord {
            node: node.parse().unwrap(),
            incarnation: Incarnation { nonce: 1, count: 1 },
            sequence,
            state: NodeState::Live,
            ttl: Duration::from_secs(6),
            replaced: None,
            addresses: Vec::new(),
            takes_addresses: false,
        }
    }

    #[test]
    fn changes_are_timed_from_the_reading_that_saw_them() {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let mut seen = Seen::default();
        seen.note(vec![dated("a", 1), dated("b", 7)], begun);
        seen.note(vec![dated("a", 2), dated("b", 7)], at(1));
        seen.note(vec![dated("a", 2), dated("b", 7), dated("c", 1)], at(2));
        let found: Vec<_> =
            seen.end(at(3)).into_iter().map(|one| (one.record.node.to_string(), one.changed)).collect();
        let seconds = |second| Some(Duration::from_secs(second));
        let expected = [("a", seconds(2)), ("b", None), ("c", seconds(1))];
        assert_eq!(found, expected.map(|(name, changed)| (name.to_owned(), changed)));
    }

    #[test]
    fn living_and_dead_nodes_differ() {
        let bucket = Arc::new(InMemory::new());
        let partitions = ["cell/b", "cell/c"].map(|name| name.parse().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            bucket.put(&"cell/nodes/dead".into(), record("dead", 1).encode().into()).await.unwrap();
            bucket.put(&"cell/nodes/strange".into(), "nothing known".into()).await.unwrap();
        });
        let config = MemberConfig { folder: "cell".into(), ..MemberConfig::new("alive".parse().unwrap()) };
        let member = Member::start(Arc::clone(&bucket) as _, config).unwrap();
        let owner = member.acquire(&partitions[0], &AtomicBool::new(false)).unwrap();
        let survey_once = || survey(&*bucket, "cell", &partitions, Duration::from_millis(2500)).unwrap();
        // On a busy machine, a lease may be renewed late.
        let is_renewed = |found: &Survey| found.nodes.iter().any(|node| node.changed.is_some());
        let found = (0..10).map(|_| survey_once()).find(is_renewed).expect("a lease is renewed");
        let names: Vec<_> =
            found.nodes.iter().map(|node| (node.record.node.as_str(), node.changed.is_some())).collect();
        assert_eq!(names, [("alive", true), ("dead", false)]);
        let [(_, Some(first)), (_, None)] = &found.owners[..] else { panic!("{:?}", found.owners) };
        assert_eq!(first.epoch, Epoch(1));
        assert!(matches!(&first.holder, Holder::Owned { node, .. } if node.as_str() == "alive"));
        assert_eq!(read_owners(&*bucket, &partitions).unwrap(), found.owners);
        drop(owner);
        member.leave();
        let found = survey(&*bucket, "cell", &[], Duration::ZERO).unwrap();
        assert_eq!(found.nodes[0].record.state, NodeState::Left);
    }

    #[test]
    fn a_bucket_that_is_away_is_an_error() {
        let bucket = FaultyBucket::new(1, Faults::default());
        bucket.set_away(Some(Away::Failing));
        let error = survey(&bucket, "cell", &[], Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("a request to the bucket failed"), "{error}");
    }

    #[test]
    fn an_unreadable_object_is_named() {
        let bucket = InMemory::new();
        let partition: PartitionName = "b".parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(bucket.put(&"b/owner".into(), "cellar partition owner 2\n".into())).unwrap();
        let error = read_owners(&bucket, &[partition]).unwrap_err().to_string();
        assert!(error.contains("b/owner") && error.contains("newer program"), "{error}");
    }
}
