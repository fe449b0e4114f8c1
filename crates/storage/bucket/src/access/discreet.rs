//! A bucket whose errors do not show the key that the requests were signed with.
//!
//! Servers of S3 describe a refused request in their answers, and `object_store` puts those into its errors: with the id
//! of the key, what was signed, which contains a session token, the token itself, and the signature.
//!
//! The same failure has the same text each time, so that it can be logged once.

use super::wording::plain;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Elements of answers that are left out of errors.
const HIDDEN: [&str; 8] = [
    "AWSAccessKeyId",
    "AccessKeyId",
    "CanonicalRequest",
    "CanonicalRequestBytes",
    "SignatureProvided",
    "StringToSign",
    "StringToSignBytes",
    "Token-0",
];

/// What is shown in their place.
const MASK: &str = "...";

/// A shorter part of a key may be part of a word.
const PART_BYTES_MIN: usize = 8;

/// The key that requests are signed with.
pub(super) trait Key: Send + Sync {
    /// Returns the parts of the present key that are known: its id, the secret key, the session token.
    fn parts(&self) -> Vec<Zeroizing<String>>;

    /// A request was refused: another key may be needed.
    fn refused(&self);
}

/// Wraps a bucket.
#[derive(Clone)]
pub(super) struct Discreet {
    bucket: Arc<dyn ObjectStore>,
    key: Arc<dyn Key>,
}

impl Discreet {
    pub(super) fn new(bucket: Arc<dyn ObjectStore>, key: Arc<dyn Key>) -> Discreet {
        Discreet { bucket, key }
    }

    /// Returns the error without what must not be shown. Reports a refusal to the key.
    fn hide(&self, error: Error) -> Error {
        if may_be_of_key(&error) {
            self.key.refused();
        }
        let hidden = |source: Box<dyn std::error::Error + Send + Sync>| {
            plain(&without_key(&crate::with_causes(&*source), &self.key.parts())).into()
        };
        match error {
            Error::Generic { store, source } => Error::Generic { store, source: hidden(source) },
            Error::NotFound { path, source } => Error::NotFound { path, source: hidden(source) },
            Error::AlreadyExists { path, source } => Error::AlreadyExists { path, source: hidden(source) },
            Error::Precondition { path, source } => Error::Precondition { path, source: hidden(source) },
            Error::NotModified { path, source } => Error::NotModified { path, source: hidden(source) },
            Error::NotSupported { source } => Error::NotSupported { source: hidden(source) },
            Error::PermissionDenied { path, source } => {
                Error::PermissionDenied { path, source: hidden(source) }
            }
            Error::Unauthenticated { path, source } => {
                Error::Unauthenticated { path, source: hidden(source) }
            }
            // They come from this process.
            other => other,
        }
    }

    fn hide_in<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.hide(error))
    }

    fn hide_in_stream<T: 'static>(
        &self,
        stream: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let own = self.clone();
        stream.map_err(move |error| own.hide(error)).boxed()
    }
}

/// Whether another key may help. Amazon answers a token that has expired with 400.
fn may_be_of_key(error: &Error) -> bool {
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => true,
        Error::Generic { source, .. } => crate::with_causes(&**source).contains("ExpiredToken"),
        _ => false,
    }
}

fn without_key(text: &str, parts: &[Zeroizing<String>]) -> String {
    let mut text = text.to_owned();
    for element in HIDDEN {
        text = without_element(&text, element);
    }
    parts
        .iter()
        .filter(|part| part.len() >= PART_BYTES_MIN)
        .fold(text, |text, part| text.replace(part.as_str(), MASK))
}

/// Masks the contents of all elements of this name; of one that does not end, everything after its begin.
fn without_element(text: &str, element: &str) -> String {
    let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(&begin) {
        shown.extend([before, begin.as_str(), MASK]);
        rest = after.find(&end).map_or("", |at| &after[at..]);
    }
    shown + rest
}

crate::show_as_bucket!(Discreet);

#[async_trait]
impl ObjectStore for Discreet {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.hide_in(self.bucket.put_opts(location, payload, options).await)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.hide_in(self.bucket.put_multipart_opts(location, options).await)?;
        Ok(Box::new(DiscreetUpload { upload, own: self.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut found = self.hide_in(self.bucket.get_opts(location, options).await)?;
        if let GetResultPayload::Stream(body) = found.payload {
            found.payload = GetResultPayload::Stream(self.hide_in_stream(body));
        }
        Ok(found)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.hide_in(self.bucket.get_ranges(location, ranges).await)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.hide_in_stream(self.bucket.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.hide_in_stream(self.bucket.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.hide_in_stream(self.bucket.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.hide_in(self.bucket.list_with_delimiter(prefix).await)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.hide_in(self.bucket.copy_opts(from, to, options).await)
    }
}

#[derive(Debug)]
struct DiscreetUpload {
    upload: Box<dyn MultipartUpload>,
    own: Discreet,
}

#[async_trait]
impl MultipartUpload for DiscreetUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, own) = (self.upload.put_part(data), self.own.clone());
        Box::pin(async move { own.hide_in(part.await) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let completed = self.upload.complete().await;
        self.own.hide_in(completed)
    }

    async fn abort(&mut self) -> Result<()> {
        let aborted = self.upload.abort().await;
        self.own.hide_in(aborted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[derive(Default)]
    struct Refusals(AtomicU32);

    impl Key for Refusals {
        fn parts(&self) -> Vec<Zeroizing<String>> {
            Vec::new()
        }

        fn refused(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_key_learns_of_refusals_only() {
        let key = Arc::<Refusals>::default();
        let bucket = Discreet::new(Arc::new(object_store::memory::InMemory::new()), Arc::clone(&key) as _);
        let (path, store) = (|| "a".to_owned(), "S3");
        for (error, refusals) in [
            (Error::NotFound { path: path(), source: "404".into() }, 0),
            (Error::PermissionDenied { path: path(), source: "403".into() }, 1),
            (Error::Unauthenticated { path: path(), source: "401".into() }, 2),
            (Error::Generic { store, source: "503 Slow Down".into() }, 2),
            (Error::Generic { store, source: "400 <Code>ExpiredToken</Code>".into() }, 3),
        ] {
            _ = bucket.hide(error);
            assert_eq!(key.0.load(Relaxed), refusals);
        }
    }

    #[test]
    fn only_what_describes_the_key_is_left_out() {
        for (text, shown) in [
            (
                "403: <Code>InvalidAccessKeyId</Code><AWSAccessKeyId>AKID</AWSAccessKeyId><HostId>h</HostId>",
                "403: <Code>InvalidAccessKeyId</Code><AWSAccessKeyId>...</AWSAccessKeyId><HostId>h</HostId>",
            ),
            (
                "<StringToSign>a\nb</StringToSign>-<StringToSign>c",
                "<StringToSign>...</StringToSign>-<StringToSign>...",
            ),
            ("the key AKIAIOSFODNN7 is unknown", "the key ... is unknown"),
            ("</AWSAccessKeyId> no bucket", "</AWSAccessKeyId> no bucket"),
            ("<Token-0>of another key</Token-0>", "<Token-0>...</Token-0>"),
            ("AKIAIOSFODNN7 with wJalrXUtnFEMI/K7", "... with ..."),
        ] {
            let parts = ["AKIAIOSFODNN7", "wJalrXUtnFEMI/K7"];
            assert_eq!(without_key(text, &parts.map(|part| Zeroizing::new(part.into()))), shown);
        }
        assert_eq!(without_key("no such key", &[Zeroizing::new("key".into())]), "no such key");
    }
}
