//! Partitions: where they are and how they are reached.

use crate::effective::Source;
use crate::encryption::KeySource;
use crate::files::{Exposure, read_secret};
use anyhow::{Context, Result};
use base::{BucketAddress, PartitionId};
use cluster_proto::PartitionName;
use std::fmt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Settings of a server partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// Letter of the partition.
    pub id: PartitionId,
    /// Where it is.
    pub place: Place,
    /// Source of its master key, if it is encrypted.
    pub key: Option<KeySource>,
}

/// Where a partition is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The mount point of the partition; Cellar's own files are in `cellar/` below it.
    Folder(PathBuf),
    /// A bucket.
    Bucket(Box<BucketSettings>),
}

/// Shows the path or the address. Neither contains credentials.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Folder(path) => path.display().fmt(f),
            Place::Bucket(bucket) => bucket.address.fmt(f),
        }
    }
}

impl Place {
    /// Returns the mount point of a partition on a local disk.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Place::Folder(path) => Some(path),
            Place::Bucket(_) => None,
        }
    }

    /// Returns the settings of a partition in a bucket.
    pub fn bucket(&self) -> Option<&BucketSettings> {
        match self {
            Place::Folder(_) => None,
            Place::Bucket(bucket) => Some(bucket),
        }
    }
}

/// The leases that count for all partitions of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLeases {
    /// The cluster's place.
    pub address: BucketAddress,
    /// The partition's name there.
    pub partition: PartitionName,
}

/// A partition in a bucket, and how the bucket is reached. Contains no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// The bucket and the prefix of the names of all objects.
    pub address: BucketAddress,
    /// The server, like `https://s3.example.org`; Amazon's without one.
    pub endpoint: Option<String>,
    /// The region; without one that of the environment, or `us-east-1`.
    pub region: Option<String>,
    /// File with certificates in PEM of authorities that the system does not know.
    pub ca_file: Option<PathBuf>,
    /// Whether an endpoint without TLS is used.
    pub allow_http: bool,
    /// File with the key, in the format of `~/.aws/credentials`, and what to do if other users can access it. Without
    /// one, the key comes from the environment or the machine's metadata service.
    pub credentials_file: Option<(PathBuf, Exposure)>,
    /// Folder of the cache on a local disk; only in memory without one.
    pub cache: Option<PathBuf>,
    /// Maximum size of that cache in bytes.
    pub cache_bytes: u64,
    /// Size that the partition reports, and that its data may reach, in bytes; unlimited without one.
    pub size_bytes: Option<u64>,
    /// Where the leases are of those that may have the partition, in a cluster; without one, they are at the partition's own
    /// place.
    pub leases: Option<SharedLeases>,
    /// The line of the configuration that names the bucket.
    pub at: Source,
}

/// Default maximum size of a disk cache.
pub(crate) const CACHE_MB: u64 = 10 << 10;

impl BucketSettings {
    /// Settings of a bucket with the defaults of everything but its address.
    pub fn of(address: BucketAddress) -> BucketSettings {
        BucketSettings {
            address,
            endpoint: None,
            region: None,
            ca_file: None,
            allow_http: false,
            credentials_file: None,
            cache: None,
            cache_bytes: CACHE_MB << 20,
            size_bytes: None,
            leases: None,
            at: Source::Default,
        }
    }

    /// Returns the settings of the place with the leases, and the partition's name there.
    ///
    /// # Errors
    /// If the place has no valid name.
    pub fn lease_place(&self) -> Result<(BucketSettings, PartitionName)> {
        match &self.leases {
            Some(SharedLeases { address, partition }) => {
                Ok((BucketSettings { address: address.clone(), ..self.clone() }, partition.clone()))
            }
            None => Ok((self.clone(), self.address.prefix().parse()?)),
        }
    }

    /// Checks an endpoint. The message does not repeat it, since it may contain credentials.
    ///
    /// # Errors
    /// What is wrong with it, as the continuation of its name.
    pub fn check_endpoint(text: &str, allow_http: bool) -> Result<(), &'static str> {
        const FORM: &str = "is not like `https://s3.example.org` or `https://192.0.2.1:9000`";
        const PLAIN: &str =
            "is not encrypted; use `https://`, or set `allow_http = true` for a network that you trust";
        if text.contains(['@', '?', '#']) {
            return Err("must not contain credentials; put them into the environment or `credentials_file`");
        }
        let (scheme, host) = text.split_once("://").ok_or(FORM)?;
        if host.is_empty() || host.starts_with('/') || host.contains(char::is_whitespace) {
            return Err(FORM);
        }
        match scheme {
            "https" => Ok(()),
            "http" if allow_http => Ok(()),
            "http" => Err(PLAIN),
            _ => Err(FORM),
        }
    }

    /// Returns the certificates of [`BucketSettings::ca_file`].
    ///
    /// # Errors
    /// If it cannot be read, or has no certificate.
    pub fn authorities(&self) -> Result<Option<Vec<u8>>> {
        let Some(path) = &self.ca_file else { return Ok(None) };
        let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let has_one = pem.windows(CERTIFICATE.len()).any(|text| text == CERTIFICATE);
        anyhow::ensure!(
            has_one,
            "{} has no certificate in PEM (`-----BEGIN CERTIFICATE-----`)",
            path.display()
        );
        Ok(Some(pem))
    }

    /// Reads [`BucketSettings::credentials_file`].
    ///
    /// # Errors
    /// If it cannot be read, or other users can access it; never its contents.
    pub fn credentials(&self) -> Result<Option<Zeroizing<Vec<u8>>>> {
        let Some((path, exposure)) = &self.credentials_file else { return Ok(None) };
        let (bytes, mending) = read_secret(path, *exposure)
            .with_context(|| format!("no credentials from {}", path.display()))?;
        if let Some(mending) = mending {
            tracing::warn!("{mending}");
        }
        Ok(Some(bytes))
    }
}

const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";
