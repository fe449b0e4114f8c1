//! Clusters at or above a place in a bucket. Their nodes have leases of their own, and see those of no other server below their
//! place: a server or a command that took one of their partitions for its own would take it from its owner again and again.

use super::opening::connect;
use anyhow::{Result, bail};
use base::BucketAddress;
use cellar_config::BucketSettings;
use cluster::{ClusterRecord, SurveyError};
use cluster_proto::RecordError;
use object_store::Error;

/// The names below the place of a cluster that are its own, besides those of its partitions.
const OWN: [&str; 5] = ["addresses", "databases", "nodes", "owner", "reach"];

/// A cluster that has a place.
#[derive(Debug, PartialEq, Eq)]
pub struct Around {
    /// The place of the cluster: this one, or one above it.
    pub address: BucketAddress,
    /// What the cluster is.
    pub record: ClusterRecord,
}

/// Returns the cluster that has a place, if there is one. Places that may not be read have none.
///
/// # Errors
/// If the bucket does not answer, or the object of a cluster is damaged or of a newer program.
pub fn cluster_around(settings: &BucketSettings) -> Result<Option<Around>, SurveyError> {
    let (mut address, mut below) = (settings.address.clone(), None);
    loop {
        if let Some(record) = read(settings, &address)?
            && below.as_deref().is_none_or(|name| is_own(&record, name))
        {
            return Ok(Some(Around { address, record }));
        }
        let Some(above) = address.above() else { return Ok(None) };
        below = address.to_string().trim_end_matches('/').rsplit('/').next().map(str::to_owned);
        address = above;
    }
}

/// Whether a name below the place of a cluster belongs to it.
fn is_own(record: &ClusterRecord, name: &str) -> bool {
    OWN.contains(&name) || record.partitions().iter().any(|partition| partition.letters() == name)
}

fn read(settings: &BucketSettings, address: &BucketAddress) -> Result<Option<ClusterRecord>, SurveyError> {
    let settings = BucketSettings { address: address.clone(), ..settings.clone() };
    // A folder above may not be readable.
    let Ok(client) = connect(&settings) else { return Ok(None) };
    let has_none = |error: &Error| {
        bucket::is_refusal(error) || matches!(error, Error::NotFound { .. }) || address.folder().is_some()
    };
    match cluster::read_cluster(&*client, address.prefix()) {
        Err(SurveyError::Bucket(error)) if has_none(&error) => Ok(None),
        // Another program has an object of this name.
        Err(SurveyError::Record {
            error: RecordError::Foreign { .. } | RecordError::TooLong { .. }, ..
        }) => Ok(None),
        read => read,
    }
}

/// Refuses a place that a cluster has. Returns false if the bucket does not answer, so that it is not known.
///
/// # Errors
/// If a cluster has it.
pub(super) fn refuse_cluster(settings: &BucketSettings) -> Result<bool> {
    match cluster_around(settings) {
        Ok(None) => Ok(true),
        Ok(Some(Around { address, record })) => bail!(
            "{} belongs to the cluster of the cell {} in {address}; only its nodes use it (section `[cluster]`, `cellar cluster join \
             {address}`)",
            settings.address,
            record.cell
        ),
        Err(error @ SurveyError::Record { .. }) => Err(error.into()),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_a_cluster_are_refused_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
            BucketSettings::of(format!("file://{}/{name}", folder.path().display()).parse().unwrap())
        };
        let place = at("cells/x");
        std::fs::create_dir_all(folder.path().join("cluster")).unwrap();
        std::fs::write(folder.path().join("cells/cluster"), "of another program").unwrap();
        assert!(refuse_cluster(&at("cells/x/b")).unwrap(), "there is none yet");
        let partitions = ["b", "c"].map(|letters| letters.parse().unwrap()).into();
        let record = ClusterRecord::new("example.org".parse().unwrap(), partitions).unwrap();
        cluster::create_cluster(&*connect(&place).unwrap(), "", &record).unwrap();
        for taken in ["cells/x", "cells/x/b", "cells/x/b/deeper", "cells/x/databases", "cells/x/nodes"] {
            let refusal = refuse_cluster(&at(taken)).unwrap_err().to_string();
            assert!(
                refusal.contains(&format!("{taken} belongs to the cluster of the cell example.org")),
                "{refusal}"
            );
            assert!(refusal.contains("cells/x;"), "{refusal}");
        }
        for free in ["cells", "cells/y", "cells/x/d", "cells/xb", "b"] {
            assert!(refuse_cluster(&at(free)).unwrap(), "{free}");
        }
        std::fs::write(folder.path().join("cells/x/cluster"), "cellar cluster 99\n").unwrap();
        assert!(refuse_cluster(&at("cells/x/b")).is_err(), "of a newer program");
    }
}
