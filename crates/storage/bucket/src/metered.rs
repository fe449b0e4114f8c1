//! A bucket whose requests are counted and timed.

use crate::deleting::delete_each;
use crate::is_refusal;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use store::{BucketMeter, RequestEnd, RequestKind};

/// Wraps a bucket. [`Bounded`](crate::Bounded) goes around it: a request that it gives up counts as unanswered.
#[derive(Clone)]
pub struct Metered {
    bucket: Arc<dyn ObjectStore>,
    meter: Arc<BucketMeter>,
}

impl Metered {
    /// Wraps `bucket` and counts its requests in `meter`.
    pub fn new(bucket: Arc<dyn ObjectStore>, meter: Arc<BucketMeter>) -> Metered {
        Metered { bucket, meter }
    }

    async fn measure<T>(
        &self,
        kind: RequestKind,
        sent: usize,
        request: impl Future<Output = Result<T>>,
        received: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let mut asked = Asked::new(&self.meter, kind);
        let result = request.await;
        if let Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) = result {
            // The client has not sent it.
            asked.is_over = true;
            return result;
        }
        let received = result.as_ref().map_or(0, received);
        let sent = if result.is_ok() { sent as u64 } else { 0 };
        asked.end(end_of(&result), (sent, received));
        result
    }

    /// Counts and times a list until its first entry: where another answer begins is not visible here.
    fn listed(&self, list: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
        let own = self.clone();
        let first = async move {
            // Not every list may be polled again after its end.
            let mut list = list.fuse();
            let first = own.measure(RequestKind::List, 0, list.try_next(), |_| 0).await?;
            Ok::<_, Error>(stream::iter(first.map(Ok)).chain(list))
        };
        stream::once(first).try_flatten().boxed()
    }
}

/// A request that is not answered yet. Dropping it counts it as unanswered.
struct Asked {
    meter: Arc<BucketMeter>,
    kind: RequestKind,
    begun: Instant,
    is_over: bool,
}

impl Asked {
    fn new(meter: &Arc<BucketMeter>, kind: RequestKind) -> Asked {
        Asked { meter: Arc::clone(meter), kind, begun: Instant::now(), is_over: false }
    }

    fn end(&mut self, end: RequestEnd, bytes: (u64, u64)) {
        self.is_over = true;
        self.meter.count(self.kind, end, self.begun.elapsed(), bytes);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(RequestEnd::Unanswered, (0, 0));
        }
    }
}

fn end_of<T>(result: &Result<T>) -> RequestEnd {
    match result {
        Ok(_) | Err(Error::NotFound { .. }) => RequestEnd::Done,
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }) => {
            RequestEnd::Conflict
        }
        Err(error) if is_refusal(error) => RequestEnd::Refused,
        Err(_) => RequestEnd::Failed,
    }
}

crate::show_as_bucket!(Metered);

#[async_trait]
impl ObjectStore for Metered {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let bytes = payload.content_length();
        let put = self.bucket.put_opts(location, payload, options);
        self.measure(RequestKind::Put, bytes, put, |_| 0).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let begin = self.bucket.put_multipart_opts(location, options);
        let upload = self.measure(RequestKind::Part, 0, begin, |_| 0).await?;
        Ok(Box::new(MeteredUpload { upload, own: self.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let get = self.bucket.get_opts(location, options);
        let bytes = |found: &GetResult| if is_head { 0 } else { found.range.end - found.range.start };
        self.measure(RequestKind::Get, 0, get, bytes).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let get = self.bucket.get_ranges(location, ranges);
        let bytes = |found: &Vec<Bytes>| found.iter().map(|piece| piece.len() as u64).sum();
        self.measure(RequestKind::Get, 0, get, bytes).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let own = self.clone();
        delete_each(locations, move |location| {
            let own = own.clone();
            async move { own.measure(RequestKind::Delete, 0, own.bucket.delete(&location), |()| 0).await }
        })
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.bucket.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.bucket.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.measure(RequestKind::List, 0, self.bucket.list_with_delimiter(prefix), |_| 0).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.measure(RequestKind::Copy, 0, self.bucket.copy_opts(from, to, options), |()| 0).await
    }
}

#[derive(Debug)]
struct MeteredUpload {
    upload: Box<dyn MultipartUpload>,
    own: Metered,
}

#[async_trait]
impl MultipartUpload for MeteredUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (own, bytes) = (self.own.clone(), data.content_length());
        let part = self.upload.put_part(data);
        Box::pin(async move { own.measure(RequestKind::Part, bytes, part, |()| 0).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.own.measure(RequestKind::Part, 0, self.upload.complete(), |_| 0).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.own.measure(RequestKind::Part, 0, self.upload.abort(), |()| 0).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bounded;
    use crate::faulty::{Away, Faults, FaultyBucket};
    use object_store::PutMode;
    use std::time::Duration;

    #[test]
    fn each_request_is_counted_with_its_bytes_and_its_end() {
        let (faulty, meter) = (FaultyBucket::new(1, Faults::default()), Arc::<BucketMeter>::default());
        let bucket = Metered::new(Arc::new(faulty.clone()), Arc::clone(&meter));
        let bucket = Bounded::new(Arc::new(bucket), Duration::from_millis(50));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (name, copy) = (Path::from("a"), Path::from("b"));
        runtime.block_on(async {
            let create = || PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            bucket.put_opts(&name, vec![1; 100].into(), create()).await.unwrap();
            bucket.put_opts(&name, vec![1; 100].into(), create()).await.unwrap_err();
            assert_eq!(bucket.get_range(&name, 10..40).await.unwrap().len(), 30);
            bucket.head(&name).await.unwrap();
            bucket.get(&copy).await.unwrap_err();
            bucket.copy(&name, &copy).await.unwrap();
            assert_eq!(bucket.list(None).try_collect::<Vec<_>>().await.unwrap().len(), 2);
            bucket.delete(&copy).await.unwrap();
            faulty.set_away(Some(Away::Failing));
            bucket.get(&name).await.unwrap_err();
            faulty.set_away(Some(Away::Silent));
            bucket.get(&name).await.unwrap_err();
        });
        let [put, get, list, delete, copied, part] = meter.figures();
        assert_eq!((put.requests, put.conflicts, put.sent, put.failing), (2, 1, 100, 0));
        assert_eq!((get.requests, get.received, get.failed, get.unanswered), (5, 30, 1, 1));
        assert!(get.failing > 0 && get.time.count() == 5);
        assert_eq!((list.requests, delete.requests, copied.requests, part.requests), (1, 1, 1, 0));
    }

    /// The lists of an S3 client panic if they are polled after their end.
    #[test]
    fn lists_are_not_polled_after_their_end() {
        let entry = || ObjectMeta {
            location: Path::from("a"),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: 1,
            e_tag: None,
            version: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bucket = Metered::new(Arc::new(object_store::memory::InMemory::new()), Arc::default());
        for count in [0, 1, 3] {
            let next = move |left: usize| async move { (left > 0).then(|| (Ok(entry()), left - 1)) };
            let list = bucket.listed(stream::unfold(count, next).boxed());
            let listed: Vec<_> = runtime.block_on(list.try_collect()).unwrap();
            assert_eq!(listed.len(), count);
        }
    }
}
