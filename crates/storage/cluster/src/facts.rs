//! The object that says what a cluster is. It needs no lease.

use crate::addresses::head;
use crate::request::read_record;
use crate::survey::{SurveyError, run, within};
use cluster_proto::{ClusterRecord, PartitionName};
use futures::TryStreamExt;
use futures::future::ready;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};

fn path(folder: &str) -> Path {
    ClusterRecord::object(folder).split('/').filter(|part| !part.is_empty()).collect()
}

/// Reads what the cluster in a folder is; `None` if there is none. `bucket` should be a client of its own.
///
/// # Errors
/// If the bucket does not answer, or the object cannot be used.
pub fn read_cluster(bucket: &dyn ObjectStore, folder: &str) -> Result<Option<ClusterRecord>, SurveyError> {
    run(read(bucket, folder))
}

/// Creates a cluster. Returns what the cluster in the folder is now: another one if it was there before.
///
/// # Errors
/// If the bucket does not answer, or the object that is there cannot be used. The cluster may be created nevertheless.
pub fn create_cluster(
    bucket: &dyn ObjectStore,
    folder: &str,
    record: &ClusterRecord,
) -> Result<ClusterRecord, SurveyError> {
    run(async {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let created = within(bucket.put_opts(&path(folder), record.encode().into(), options)).await;
        match (created, read(bucket, folder).await) {
            (Ok(_), _) => Ok(record.clone()),
            // Whatever the failure says, the object was created by this request or by another one.
            (Err(_), Ok(Some(found))) => Ok(found),
            (Err(error), Ok(None)) | (Err(_), Err(error)) => Err(error),
        }
    })
}

/// The same on the caller's runtime. `bucket` should be a client of that runtime.
///
/// # Errors
/// As [`read_cluster`].
pub async fn cluster_record(
    bucket: &dyn ObjectStore,
    folder: &str,
) -> Result<Option<ClusterRecord>, SurveyError> {
    read(bucket, folder).await
}

/// Says that the cell's databases are in the bucket from now on. Returns what the cluster is then; `None` if there is none.
/// `bucket` should be a client of its own.
///
/// # Errors
/// As [`change_cluster`].
pub fn share_databases(bucket: &dyn ObjectStore, folder: &str) -> Result<Option<ClusterRecord>, SurveyError> {
    let shared = change_cluster(bucket, folder, |record| {
        Ok::<_, SurveyError>(Some(record.clone().with_databases(true)))
    });
    shared?
}

/// Replaces what the cluster in a folder is by what `change` returns, unless that is `None`. Returns what it is then; `None` if there is
/// no cluster. Nothing that another writer has changed meanwhile is lost. `bucket` should be a client of its own.
///
/// # Errors
/// The outer error if the bucket does not answer, the object cannot be used, or another writer has replaced it at the same time. It may be
/// replaced nevertheless. The inner one is that of `change`: then nothing was changed.
pub fn change_cluster<E>(
    bucket: &dyn ObjectStore,
    folder: &str,
    change: impl FnOnce(&ClusterRecord) -> Result<Option<ClusterRecord>, E>,
) -> Result<Result<Option<ClusterRecord>, E>, SurveyError> {
    run(async {
        let path = path(folder);
        let Some(version) = within(head(bucket, &path)).await? else { return Ok(Ok(None)) };
        let Some(before) = read(bucket, folder).await? else { return Ok(Ok(None)) };
        let record = match change(&before) {
            Ok(Some(record)) if record != before => record,
            Ok(_) => return Ok(Ok(Some(before))),
            Err(error) => return Ok(Err(error)),
        };
        let options = PutOptions { mode: PutMode::Update(version), ..PutOptions::default() };
        let written = within(bucket.put_opts(&path, record.encode().into(), options)).await;
        match (written, read(bucket, folder).await) {
            // Whatever the failure says, the object is as it was to be.
            (_, Ok(Some(found))) if found == record => Ok(Ok(Some(found))),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Err(SurveyError::Outrun { object: ClusterRecord::object(folder) }),
        }
    })
}

/// The object that says that a partition was added without data. Only its existence matters.
fn empty_mark(place: &PartitionName) -> Path {
    place.object("added").split('/').filter(|part| !part.is_empty()).collect()
}

/// Contents of that object, for people.
const ADDED_EMPTY: &[u8] = b"this partition was added to the cluster without data\n";

/// Whether there is nothing at the place of a partition, apart from what [`note_added_empty`] has left. `bucket` should be a client of its
/// own.
///
/// # Errors
/// If the bucket does not answer.
pub fn is_vacant(bucket: &dyn ObjectStore, place: &PartitionName) -> Result<bool, SurveyError> {
    let (prefix, mark): (Path, _) = (place.as_str().split('/').collect(), empty_mark(place));
    run(within(async {
        let mut data = bucket.list(Some(&prefix)).try_filter(|found| ready(found.location != mark));
        Ok(data.try_next().await?.is_none())
    }))
}

/// Notes at the place of a partition that it is added to the cluster without data: a node that has had another one there may create it.
/// `bucket` should be a client of its own.
///
/// # Errors
/// If the bucket does not answer. It may be noted nevertheless.
pub fn note_added_empty(bucket: &dyn ObjectStore, place: &PartitionName) -> Result<(), SurveyError> {
    run(within(async { bucket.put(&empty_mark(place), ADDED_EMPTY.into()).await.map(drop) }))
}

/// Whether a partition was added to the cluster without data. `bucket` should be a client of its own.
///
/// # Errors
/// If the bucket does not answer.
pub fn was_added_empty(bucket: &dyn ObjectStore, place: &PartitionName) -> Result<bool, SurveyError> {
    Ok(run(within(head(bucket, &empty_mark(place))))?.is_some())
}

/// Deletes what [`note_added_empty`] has left, if it is there. `bucket` should be a client of its own.
///
/// # Errors
/// If the bucket does not answer. It may be deleted nevertheless.
pub fn forget_added_empty(bucket: &dyn ObjectStore, place: &PartitionName) -> Result<(), SurveyError> {
    run(within(async {
        match bucket.delete(&empty_mark(place)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            deleted => deleted,
        }
    }))
}

async fn read(bucket: &dyn ObjectStore, folder: &str) -> Result<Option<ClusterRecord>, SurveyError> {
    let Some(bytes) = within(read_record(bucket, &path(folder))).await? else { return Ok(None) };
    let object = ClusterRecord::object(folder);
    ClusterRecord::decode(&bytes).map(Some).map_err(|error| SurveyError::Record { object, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bucket::faulty::{Away, Faults, FaultyBucket};
    use cluster_proto::PartitionState;

    fn cluster(letters: &str) -> ClusterRecord {
        let partitions = letters.split(',').map(|one| one.parse().unwrap()).collect();
        ClusterRecord::new("example.org".parse().unwrap(), partitions).unwrap()
    }

    #[test]
    fn a_cluster_is_created_once() {
        let bucket = FaultyBucket::new(1, Faults::default());
        assert_eq!(read_cluster(&bucket, "cells/a").unwrap(), None);
        let first = cluster("b,c");
        assert_eq!(create_cluster(&bucket, "cells/a", &first).unwrap(), first);
        assert_eq!(create_cluster(&bucket, "cells/a", &cluster("d")).unwrap(), first);
        assert_eq!(read_cluster(&bucket, "cells/a").unwrap(), Some(first));
        assert_eq!(read_cluster(&bucket, "cells/b").unwrap(), None);
    }

    #[test]
    fn a_lost_answer_is_no_failure() {
        let bucket = FaultyBucket::new(1, Faults { lost: 1000, ..Faults::default() });
        let record = cluster("b");
        // Reads fail, too.
        assert!(create_cluster(&bucket, "", &record).is_err());
        bucket.set_faults(Faults::default());
        assert_eq!(read_cluster(&bucket, "").unwrap(), Some(record.clone()));
        bucket.set_faults(Faults { own_conflict: 1000, ..Faults::default() });
        assert_eq!(create_cluster(&bucket, "x", &record).unwrap(), record);
    }

    #[test]
    fn the_databases_of_a_cluster_are_shared_once() {
        for faults in [Faults::default(), Faults { own_conflict: 1000, ..Faults::default() }] {
            let bucket = FaultyBucket::new(1, Faults::default());
            assert_eq!(share_databases(&bucket, "cells/a").unwrap(), None);
            create_cluster(&bucket, "cells/a", &cluster("b,c")).unwrap();
            bucket.set_faults(faults);
            let shared = cluster("b,c").with_databases(true);
            for _ in 0..2 {
                assert_eq!(share_databases(&bucket, "cells/a").unwrap(), Some(shared.clone()));
                assert_eq!(read_cluster(&bucket, "cells/a").unwrap(), Some(shared.clone()));
            }
        }
    }

    #[test]
    fn a_change_loses_nothing_that_another_writer_has_changed() {
        let bucket = FaultyBucket::new(1, Faults::default());
        let [b, d] = ["b", "d"].map(|letters| letters.parse().unwrap());
        let add =
            |record: &ClusterRecord| Ok::<_, ()>(Some(record.clone().with(&[d], PartitionState::Adding)));
        assert_eq!(change_cluster(&bucket, "", add).unwrap(), Ok(None), "there is no cluster");
        create_cluster(&bucket, "", &cluster("b,c")).unwrap();
        let refused = change_cluster(&bucket, "", |_| Err::<Option<ClusterRecord>, _>("no")).unwrap();
        assert_eq!(refused, Err("no"));
        let outrun = change_cluster(&bucket, "", |record| {
            let other = || change_cluster(&bucket, "", |record| Ok::<_, ()>(record.clone().without(&[b])));
            let other = std::thread::scope(|scope| scope.spawn(other).join().unwrap());
            assert_eq!(other.unwrap(), Ok(Some(cluster("c"))));
            add(record)
        });
        assert!(matches!(outrun, Err(SurveyError::Outrun { .. } | SurveyError::Bucket(_))), "{outrun:?}");
        assert_eq!(read_cluster(&bucket, "").unwrap(), Some(cluster("c")));
        let added = cluster("c").with(&[d], PartitionState::Adding);
        assert_eq!(change_cluster(&bucket, "", add).unwrap(), Ok(Some(added.clone())));
        assert_eq!(change_cluster(&bucket, "", |_| Ok::<_, ()>(None)).unwrap(), Ok(Some(added)));
    }

    #[test]
    fn a_place_with_an_object_is_not_vacant() {
        let bucket = FaultyBucket::new(1, Faults::default());
        let place: PartitionName = "cells/a/b".parse().unwrap();
        assert!(is_vacant(&bucket, &place).unwrap());
        create_cluster(&bucket, "cells/a/bb", &cluster("b")).unwrap();
        assert!(is_vacant(&bucket, &place).unwrap(), "another folder");
        create_cluster(&bucket, "cells/a/b", &cluster("b")).unwrap();
        assert!(!is_vacant(&bucket, &place).unwrap());
        bucket.set_away(Some(Away::Failing));
        assert!(is_vacant(&bucket, &place).is_err());
    }

    #[test]
    fn a_place_says_that_it_was_empty() {
        let bucket = FaultyBucket::new(1, Faults::default());
        let [place, other]: [PartitionName; 2] = ["cells/a/b", "cells/a/c"].map(|name| name.parse().unwrap());
        assert!(!was_added_empty(&bucket, &place).unwrap());
        note_added_empty(&bucket, &place).unwrap();
        assert!(was_added_empty(&bucket, &place).unwrap() && !was_added_empty(&bucket, &other).unwrap());
        assert!(is_vacant(&bucket, &place).unwrap(), "that is no data");
        forget_added_empty(&bucket, &place).unwrap();
        assert!(!was_added_empty(&bucket, &place).unwrap());
        forget_added_empty(&bucket, &place).unwrap();
        create_cluster(&bucket, "cells/a/b", &cluster("b")).unwrap();
        assert!(!is_vacant(&bucket, &place).unwrap());
        bucket.set_away(Some(Away::Failing));
        assert!(was_added_empty(&bucket, &place).is_err() && note_added_empty(&bucket, &place).is_err());
        assert!(forget_added_empty(&bucket, &place).is_err());
    }

    #[test]
    fn a_bucket_that_is_away_is_an_error() {
        let bucket = FaultyBucket::new(1, Faults::default());
        bucket.set_away(Some(Away::Failing));
        for error in [
            read_cluster(&bucket, "").unwrap_err(),
            create_cluster(&bucket, "", &cluster("b")).unwrap_err(),
            share_databases(&bucket, "").unwrap_err(),
        ] {
            assert!(error.to_string().contains("a request to the bucket failed"), "{error}");
        }
    }
}
