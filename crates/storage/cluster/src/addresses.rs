//! The list of service addresses in the bucket. It needs no lease.

use crate::request::read_record;
use crate::survey::{SurveyError, run, within};
use cluster_proto::ServiceAddresses;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

fn path(folder: &str) -> Path {
    ServiceAddresses::object(folder).split('/').filter(|part| !part.is_empty()).collect()
}

/// Reads the list of the cluster in a folder; it is empty if there is none.
///
/// # Errors
/// If the bucket does not answer, or the object cannot be used.
pub async fn service_addresses(
    bucket: &dyn ObjectStore,
    folder: &str,
) -> Result<ServiceAddresses, SurveyError> {
    let bytes = within(read_record(bucket, &path(folder))).await?;
    bytes.map_or_else(|| Ok(ServiceAddresses::default()), |bytes| decoded(folder, &bytes))
}

/// The same on a runtime of its own. `bucket` should be a client of its own.
///
/// # Errors
/// As [`service_addresses`].
pub fn read_service_addresses(
    bucket: &dyn ObjectStore,
    folder: &str,
) -> Result<ServiceAddresses, SurveyError> {
    run(service_addresses(bucket, folder))
}

/// Replaces the list, whatever it was before. `bucket` should be a client of its own.
///
/// # Errors
/// If the bucket does not answer, or another writer has replaced the list at the same time. It may be replaced nevertheless.
pub fn replace_service_addresses(
    bucket: &dyn ObjectStore,
    folder: &str,
    list: &ServiceAddresses,
) -> Result<(), SurveyError> {
    run(async {
        let path = path(folder);
        let mode = match within(head(bucket, &path)).await? {
            Some(version) => PutMode::Update(version),
            None => PutMode::Create,
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let written = within(bucket.put_opts(&path, list.encode().into(), options)).await;
        match (written, service_addresses(bucket, folder).await) {
            // Whatever the failure says, the list is as it was to be.
            (_, Ok(found)) if found == *list => Ok(()),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Err(SurveyError::Outrun { object: ServiceAddresses::object(folder) }),
        }
    })
}

/// Returns the version of an object, if there is one.
pub(crate) async fn head(bucket: &dyn ObjectStore, path: &Path) -> Result<Option<UpdateVersion>, Error> {
    match bucket.head(path).await {
        Ok(found) => Ok(Some(UpdateVersion { e_tag: found.e_tag, version: found.version })),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn decoded(folder: &str, bytes: &[u8]) -> Result<ServiceAddresses, SurveyError> {
    let object = ServiceAddresses::object(folder);
    ServiceAddresses::decode(bytes).map_err(|error| SurveyError::Record { object, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bucket::faulty::{Away, Faults, FaultyBucket};
    use std::net::Ipv4Addr;

    fn list(last: &[u8]) -> ServiceAddresses {
        ServiceAddresses::new(last.iter().map(|last| Ipv4Addr::new(192, 0, 2, *last)).collect()).unwrap()
    }

    #[test]
    fn the_list_is_replaced() {
        let bucket = FaultyBucket::new(1, Faults::default());
        assert_eq!(read_service_addresses(&bucket, "cells/a").unwrap(), list(&[]));
        for addresses in [&[1, 2][..], &[3], &[]] {
            replace_service_addresses(&bucket, "cells/a", &list(addresses)).unwrap();
            assert_eq!(read_service_addresses(&bucket, "cells/a").unwrap(), list(addresses));
            assert_eq!(read_service_addresses(&bucket, "cells/b").unwrap(), list(&[]));
        }
    }

    #[test]
    fn failures_are_reported() {
        let bucket = FaultyBucket::new(1, Faults::default());
        bucket.set_away(Some(Away::Failing));
        let read = read_service_addresses(&bucket, "").unwrap_err();
        let written = replace_service_addresses(&bucket, "", &list(&[1])).unwrap_err();
        for error in [read, written] {
            assert!(error.to_string().contains("a request to the bucket failed"), "{error}");
            assert!(std::error::Error::source(&error).is_none(), "it would be repeated in messages");
        }
        bucket.set_away(None);
        let own_conflict = Faults { own_conflict: 1000, ..Faults::default() };
        bucket.set_faults(own_conflict);
        replace_service_addresses(&bucket, "", &list(&[1])).unwrap();
        assert_eq!(read_service_addresses(&bucket, "").unwrap(), list(&[1]));
    }
}
