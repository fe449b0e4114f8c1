//! A bucket whose every request ends: one that is not answered in time fails, and is then repeated like any other
//! that failed. Errors have all their reasons.

use crate::deleting::delete_each;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Wraps a bucket. The contents of what is read are complete when a `get` returns.
pub struct Bounded {
    bucket: Arc<dyn ObjectStore>,
    limit: Duration,
}

impl Bounded {
    /// Limits each request to `limit`.
    pub fn new(bucket: Arc<dyn ObjectStore>, limit: Duration) -> Bounded {
        Bounded { bucket, limit }
    }
}

crate::show_as_bucket!(Bounded);

/// Waits for a request for at most `limit`.
async fn within<T>(limit: Duration, request: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::Generic { store: "bucket", source: format!("no answer within {limit:?}").into() };
    tokio::time::timeout(limit, request).await.unwrap_or_else(|_| Err(late())).map_err(explained)
}

/// Adds the reasons that the message of a general error lacks: that of a connection says only that the request failed,
/// not that the certificate is unknown.
fn explained(error: Error) -> Error {
    let Error::Generic { store, source } = error else { return error };
    Error::Generic { store, source: crate::with_causes(&*source).into() }
}

#[async_trait]
impl ObjectStore for Bounded {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        within(self.limit, self.bucket.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = within(self.limit, self.bucket.put_multipart_opts(location, options)).await?;
        Ok(Box::new(BoundedUpload { upload, limit: self.limit }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let read = async {
            let GetResult { payload, meta, range, attributes, extensions } =
                self.bucket.get_opts(location, options).await?;
            let payload = match payload {
                GetResultPayload::Stream(body) => {
                    let pieces: Vec<Result<Bytes>> = body.map_ok(Ok).try_collect().await?;
                    GetResultPayload::Stream(stream::iter(pieces).boxed())
                }
                file @ GetResultPayload::File(..) => file,
            };
            Ok(GetResult { payload, meta, range, attributes, extensions })
        };
        within(self.limit, read).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        within(self.limit, self.bucket.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (bucket, limit) = (Arc::clone(&self.bucket), self.limit);
        delete_each(locations, move |location| {
            let bucket = Arc::clone(&bucket);
            async move { within(limit, bucket.delete(&location)).await }
        })
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        limited(self.bucket.list(prefix), self.limit)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        limited(self.bucket.list_with_offset(prefix, offset), self.limit)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        within(self.limit, self.bucket.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        within(self.limit, self.bucket.copy_opts(from, to, options)).await
    }
}

/// A list each of whose entries comes in time.
fn limited(
    list: BoxStream<'static, Result<ObjectMeta>>,
    limit: Duration,
) -> BoxStream<'static, Result<ObjectMeta>> {
    stream::try_unfold(list, move |mut list| async move {
        let next = within(limit, async { list.try_next().await }).await?;
        Ok(next.map(|entry| (entry, list)))
    })
    .boxed()
}

#[derive(Debug)]
struct BoundedUpload {
    upload: Box<dyn MultipartUpload>,
    limit: Duration,
}

#[async_trait]
impl MultipartUpload for BoundedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        Box::pin(within(self.limit, self.upload.put_part(data)))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        within(self.limit, self.upload.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        within(self.limit, self.upload.abort()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thiserror::Error as ThisError;

    #[derive(Debug, ThisError)]
    #[error("{what}")]
    struct Failure {
        what: &'static str,
        source: Option<Box<Failure>>,
    }

    #[test]
    fn a_general_error_has_all_its_reasons_once() {
        let failure = |what, source: Option<Failure>| Failure { what, source: source.map(Box::new) };
        let inner = failure("request failed", Some(failure("unknown certificate", None)));
        let source = failure("HTTP error: request failed", Some(inner));
        let error = explained(Error::Generic { store: "S3", source: source.into() });
        assert_eq!(error.to_string(), "Generic S3 error: HTTP error: request failed: unknown certificate");
        let other = || Error::NotFound { path: "a".into(), source: "404".into() };
        assert_eq!(explained(other()).to_string(), other().to_string());
    }

    /// A server that is not there is named as such, not only as a request that failed.
    #[cfg(feature = "s3")]
    #[test]
    fn a_refused_connection_is_named() {
        use crate::{Access, ReadCredentials, open};

        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let key = b"aws_access_key_id = a\naws_secret_access_key = s3cret\n";
        let credentials: ReadCredentials = Arc::new(|| Ok(zeroize::Zeroizing::new(key.to_vec())));
        let access = Access {
            endpoint: Some(format!("http://127.0.0.1:{port}")),
            allow_http: true,
            credentials: Some(credentials),
            ..Access::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bucket = open(&"s3://b/p".parse().unwrap(), &access).unwrap();
        let bucket = Bounded::new(bucket, Duration::from_secs(20));
        let error = runtime.block_on(async { bucket.head(&Path::from("x")).await });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("Connection refused") && !error.contains("s3cret"), "{error}");
    }
}
