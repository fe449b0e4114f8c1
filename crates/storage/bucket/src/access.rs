//! Clients of buckets.

use crate::folder::Folder;
use base::{BucketAddress, BucketPlace};
use object_store::ObjectStore;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;
use zeroize::Zeroizing;

/// Reads a credentials file again; see [`Access::credentials`]. Its error contains nothing of the file.
pub type ReadCredentials = Arc<dyn Fn() -> Result<Zeroizing<Vec<u8>>, String> + Send + Sync>;

/// How to reach a bucket on a server. A folder needs nothing of it.
#[derive(Clone, Default)]
pub struct Access {
    /// The server, like `https://s3.example.org`; Amazon's without one.
    pub endpoint: Option<String>,
    /// The region; `AWS_REGION` or `us-east-1` without one.
    pub region: Option<String>,
    /// Certificates in PEM of authorities that the system does not know.
    pub authorities: Option<Vec<u8>>,
    /// Whether an endpoint without TLS is used.
    pub allow_http: bool,
    /// The file with the key, in the format of `~/.aws/credentials`; it is read again when the key may have changed.
    /// Without one, the key comes from the environment (`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, a web
    /// identity token, the container's service), or else from the machine's metadata service.
    pub credentials: Option<ReadCredentials>,
}

/// Without credentials.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("authorities", &self.authorities.is_some())
            .field("allow_http", &self.allow_http)
            .field("credentials", &self.credentials.is_some())
            .finish()
    }
}

impl Access {
    /// Returns the access that the environment describes: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` or `AWS_ENDPOINT`,
    /// and `AWS_ALLOW_HTTP`.
    pub fn from_env() -> Access {
        let names = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let is_set = |text: String| text.parse::<bool>().unwrap_or(false) || text == "1";
        Access {
            endpoint: names.iter().find_map(|name| std::env::var(name).ok()),
            allow_http: std::env::var("AWS_ALLOW_HTTP").is_ok_and(is_set),
            ..Access::default()
        }
    }
}

/// A bucket whose client cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The program has no client of S3.
    #[error("this program was built without S3 (cargo feature `s3` of the crate `bucket`)")]
    NoS3,
    /// The client cannot be set up.
    #[error("cannot open {address}: {why}")]
    Refused {
        /// The address.
        address: String,
        /// The reason, without credentials.
        why: String,
    },
}

fn refused(address: &BucketAddress, why: impl fmt::Display) -> OpenError {
    OpenError::Refused { address: address.to_string(), why: why.to_string() }
}

/// Sets up the client of a bucket. Sends no request. The names of objects begin with [`BucketAddress::prefix`].
///
/// # Errors
/// `NoS3`; `Refused` if the settings or the environment are wrong, or the folder does not exist.
pub fn open(address: &BucketAddress, access: &Access) -> Result<Arc<dyn ObjectStore>, OpenError> {
    match address.place() {
        BucketPlace::S3(bucket) => open_s3(address, bucket, access),
        BucketPlace::Folder(path) => open_folder(address, path),
    }
}

fn open_folder(address: &BucketAddress, path: &Path) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let found = path.metadata().map_err(|error| refused(address, format!("{}: {error}", path.display())))?;
    if !found.is_dir() {
        return Err(refused(address, format!("{} is no folder", path.display())));
    }
    Ok(Arc::new(Folder::open(path).map_err(|error| refused(address, error))?))
}

#[cfg(feature = "s3")]
fn open_s3(
    address: &BucketAddress,
    bucket: &str,
    access: &Access,
) -> Result<Arc<dyn ObjectStore>, OpenError> {
    s3::client(bucket, access).map_err(|why| refused(address, why))
}

#[cfg(not(feature = "s3"))]
fn open_s3(_: &BucketAddress, _: &str, _: &Access) -> Result<Arc<dyn ObjectStore>, OpenError> {
    Err(OpenError::NoS3)
}

#[cfg(feature = "s3")]
mod discreet;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod wording;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path| {
            let address: BucketAddress = format!("file://{}", path.display()).parse().unwrap();
            open(&address, &Access::default())
        };
        open(folder.path()).unwrap();
        let refused = open(&folder.path().join("none")).unwrap_err().to_string();
        assert!(refused.ends_with("/none: No such file or directory (os error 2)"), "{refused}");
        std::fs::write(folder.path().join("file"), "").unwrap();
        let refused = open(&folder.path().join("file")).unwrap_err().to_string();
        assert!(refused.ends_with("/file is no folder"), "{refused}");
    }

    #[test]
    fn an_access_shows_no_key() {
        let credentials: ReadCredentials = Arc::new(|| Ok(Zeroizing::new(b"s3cret".to_vec())));
        let access = Access { credentials: Some(credentials), ..Access::default() };
        assert!(!format!("{access:?}").contains("s3cret"));
    }
}
