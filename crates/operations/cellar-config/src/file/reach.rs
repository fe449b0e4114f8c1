//! The keys of `[[partition]]` and `[cluster]` that say where a bucket is and how it is reached.

use super::Origin;
use crate::files::Exposure;
use crate::partitions::{BucketSettings, CACHE_MB};
use anyhow::Result;
use base::BucketAddress;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Smallest cache that is of use, and the largest.
const CACHE_MB_MIN: u64 = 64;
const CACHE_MB_MAX: u64 = 1 << 24;

/// Limits of the size that a partition in a bucket reports: 1 GiB to 1 EiB.
const SIZE_MB_MIN: u64 = 1 << 10;
const SIZE_MB_MAX: u64 = 1 << 40;

/// Declares a section with these keys and some of its own. (`serde` cannot flatten a section that refuses unknown keys.)
macro_rules! bucket_section {
    ($(#[$doc:meta])* $section:ident { $($key:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $section {
            $($key: $kind,)*
            bucket: toml::Spanned<String>,
            endpoint: Option<toml::Spanned<String>>,
            region: Option<toml::Spanned<String>>,
            ca_file: Option<toml::Spanned<std::path::PathBuf>>,
            allow_http: Option<toml::Spanned<bool>>,
            credentials_file: Option<toml::Spanned<std::path::PathBuf>>,
            cache: Option<toml::Spanned<std::path::PathBuf>>,
            cache_mb: Option<toml::Spanned<u64>>,
            size_mb: Option<toml::Spanned<u64>>,
        }

        impl $section {
            /// Returns the keys by which the bucket is reached.
            fn reach(&self) -> $crate::file::reach::Reach<'_> {
                $crate::file::reach::Reach {
                    bucket: &self.bucket,
                    endpoint: self.endpoint.as_ref(),
                    region: self.region.as_ref(),
                    ca_file: self.ca_file.as_ref(),
                    allow_http: self.allow_http.as_ref(),
                    credentials_file: self.credentials_file.as_ref(),
                    cache: self.cache.as_ref(),
                    cache_mb: self.cache_mb.as_ref(),
                    size_mb: self.size_mb.as_ref(),
                }
            }
        }
    };
}

pub(super) use bucket_section;

/// The keys of one section.
pub(super) struct Reach<'a> {
    pub(super) bucket: &'a Spanned<String>,
    pub(super) endpoint: Option<&'a Spanned<String>>,
    pub(super) region: Option<&'a Spanned<String>>,
    pub(super) ca_file: Option<&'a Spanned<PathBuf>>,
    pub(super) allow_http: Option<&'a Spanned<bool>>,
    pub(super) credentials_file: Option<&'a Spanned<PathBuf>>,
    pub(super) cache: Option<&'a Spanned<PathBuf>>,
    pub(super) cache_mb: Option<&'a Spanned<u64>>,
    pub(super) size_mb: Option<&'a Spanned<u64>>,
}

impl Reach<'_> {
    /// Resolves the keys. `key` returns the full name of one, for messages.
    pub(super) fn resolve(
        &self,
        origin: &Origin<'_>,
        folder: &Path,
        exposure: Exposure,
        key: &dyn Fn(&str) -> String,
    ) -> Result<BucketSettings> {
        let address: BucketAddress =
            self.bucket.get_ref().parse().map_err(|error| origin.bad(self.bucket, &key("bucket"), error))?;
        let allow_http = self.allow_http.is_some_and(|allow| *allow.get_ref());
        if address.folder().is_some() {
            self.refuse_keys_of_servers(origin, key)?;
        }
        if let Some(endpoint) = self.endpoint {
            BucketSettings::check_endpoint(endpoint.get_ref(), allow_http)
                .map_err(|what| origin.bad(endpoint, &key("endpoint"), what))?;
        }
        let below = |path: Option<&Spanned<PathBuf>>| path.map(|path| folder.join(path.get_ref()));
        let megabytes = |value: Option<&Spanned<u64>>, of: &str, default, least, most| {
            origin.bounded(value, &key(of), default, least, most).map(|mb: u64| mb << 20)
        };
        let settings = BucketSettings {
            endpoint: self.endpoint.map(|endpoint| endpoint.get_ref().clone()),
            region: self.region.map(|region| region.get_ref().clone()),
            ca_file: below(self.ca_file),
            allow_http,
            credentials_file: below(self.credentials_file).map(|path| (path, exposure)),
            cache: below(self.cache),
            cache_bytes: megabytes(self.cache_mb, "cache_mb", CACHE_MB, CACHE_MB_MIN, CACHE_MB_MAX)?,
            size_bytes: match self.size_mb {
                Some(_) => Some(megabytes(self.size_mb, "size_mb", 0, SIZE_MB_MIN, SIZE_MB_MAX)?),
                None => None,
            },
            leases: None,
            at: origin.source(self.bucket),
            address,
        };
        self.check_files(origin, &settings, key)?;
        Ok(settings)
    }

    /// Refuses keys that say how a server is reached.
    fn refuse_keys_of_servers(&self, origin: &Origin<'_>, key: &dyn Fn(&str) -> String) -> Result<()> {
        let given = [
            ("endpoint", self.endpoint.map(Spanned::span)),
            ("region", self.region.map(Spanned::span)),
            ("ca_file", self.ca_file.map(Spanned::span)),
            ("allow_http", self.allow_http.map(Spanned::span)),
            ("credentials_file", self.credentials_file.map(Spanned::span)),
        ];
        match given.into_iter().find_map(|(of, span)| Some((of, span?))) {
            None => Ok(()),
            Some((of, span)) => {
                let what = "is only for `s3://` buckets; this one is a folder";
                Err(origin.bad(&Spanned::new(span, ()), &key(of), what))
            }
        }
    }

    fn check_files(
        &self,
        origin: &Origin<'_>,
        settings: &BucketSettings,
        key: &dyn Fn(&str) -> String,
    ) -> Result<()> {
        if let (Some(path), Err(error)) = (self.ca_file, settings.authorities()) {
            return Err(origin.bad(path, &key("ca_file"), format!("{error:#}")));
        }
        if let (Some(path), Err(error)) = (self.credentials_file, settings.credentials()) {
            return Err(origin.bad(path, &key("credentials_file"), format!("{error:#}")));
        }
        Ok(())
    }
}
