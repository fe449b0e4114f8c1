//! Which other nodes each node reaches, as it publishes that in the bucket.

use crate::request::read_record;
use crate::survey::SurveyError;
use cluster_proto::{NodeName, ReachRecord};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};

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

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_proto::Incarnation;
    use object_store::memory::InMemory;

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
