use super::*;
use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions,
    PutPayload, PutResult, Result as BucketResult, UploadPart,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::runtime::Builder;
use tokio::task::yield_now;

/// What a bucket does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A new object can be read only some requests after its creation.
    LateRead,
    /// `Range` is ignored.
    WholeRead,
    /// `If-None-Match` is ignored.
    CreateReplaces,
    /// `If-None-Match` is checked before the write, not together with it.
    CreateRaces,
    /// `If-Match` is ignored.
    ReplaceAlways,
    /// `If-Match` is checked before the write, not together with it.
    ReplaceRaces,
    /// There is no `If-Match`, and the answer says so.
    NoReplace,
    /// Answers have no ETag.
    NoTag,
    /// Metadata is dropped.
    DropsMetadata,
    /// Metadata is refused as something that the bucket does not have.
    NoMetadata,
    /// There are no uploads in parts.
    NoParts,
    /// Of an object in parts, only the first is kept.
    LosesParts,
    /// There is no copy, and the answer says so.
    NoCopy,
    /// A copy fails.
    FailingCopy,
    /// A copy is empty.
    EmptyCopy,
    /// Replaced objects are kept as versions.
    Versions,
    /// A list lacks the newest object.
    LateList,
    /// A list ends after one answer.
    OnePage,
    /// The begin of a list is ignored.
    ListsAll,
    /// A deleted object can still be read.
    LateDelete,
    /// Nothing may be deleted.
    NoDelete,
    /// Nothing may be written.
    NoPermission,
}

#[derive(Debug)]
struct Broken {
    inner: InMemory,
    fault: Fault,
    /// Requests left until a new object is seen; see [`Fault::LateRead`].
    unseen: Mutex<HashMap<Path, u32>>,
    newest: Mutex<Option<Path>>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.fault)
    }
}

fn denied(path: &Path) -> Error {
    Error::PermissionDenied { path: path.to_string(), source: "403 Forbidden".into() }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.into(), implementer: "Broken".into() }
}

/// An upload that keeps only its first part.
#[derive(Debug)]
struct FirstPart {
    inner: Box<dyn MultipartUpload>,
    has_one: bool,
}

#[async_trait]
impl MultipartUpload for FirstPart {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        if std::mem::replace(&mut self.has_one, true) {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.inner.put_part(part)
    }

    async fn complete(&mut self) -> BucketResult<PutResult> {
        self.inner.complete().await
    }

    async fn abort(&mut self) -> BucketResult<()> {
        self.inner.abort().await
    }
}

impl Broken {
    fn new(fault: Fault) -> Broken {
        Broken { inner: InMemory::new(), fault, unseen: Mutex::default(), newest: Mutex::default() }
    }

    fn take_metadata(&self, attributes: &mut Attributes) -> BucketResult<()> {
        match self.fault {
            Fault::DropsMetadata => *attributes = Attributes::default(),
            Fault::NoMetadata if !attributes.is_empty() => return Err(not_implemented("metadata")),
            _ => {}
        }
        Ok(())
    }

    async fn put_checked(
        &self,
        name: &Path,
        payload: PutPayload,
        mut put: PutOptions,
    ) -> BucketResult<PutResult> {
        let overwrite = PutOptions::default();
        self.take_metadata(&mut put.attributes)?;
        match (self.fault, &put.mode) {
            (Fault::CreateReplaces, PutMode::Create) | (Fault::ReplaceAlways, PutMode::Update(_)) => {
                self.inner.put_opts(name, payload, overwrite).await
            }
            (Fault::CreateRaces, PutMode::Create) => {
                let is_there = self.inner.head(name).await.is_ok();
                yield_now().await;
                if is_there {
                    return Err(Error::AlreadyExists { path: name.to_string(), source: "412".into() });
                }
                self.inner.put_opts(name, payload, overwrite).await
            }
            (Fault::ReplaceRaces, PutMode::Update(version)) => {
                let is_same = self.inner.head(name).await?.e_tag == version.e_tag;
                yield_now().await;
                if !is_same {
                    return Err(Error::Precondition { path: name.to_string(), source: "412".into() });
                }
                self.inner.put_opts(name, payload, overwrite).await
            }
            (Fault::NoReplace, PutMode::Update(_)) => Err(not_implemented("put with If-Match")),
            (Fault::NoPermission, _) => Err(denied(name)),
            _ => self.inner.put_opts(name, payload, put).await,
        }
    }
}

#[async_trait]
impl ObjectStore for Broken {
    async fn put_opts(&self, name: &Path, payload: PutPayload, put: PutOptions) -> BucketResult<PutResult> {
        let mut result = self.put_checked(name, payload, put).await?;
        result.version = (self.fault == Fault::Versions).then(|| "1".into());
        self.unseen.lock().insert(name.clone(), 1);
        *self.newest.lock() = Some(name.clone());
        Ok(result)
    }

    async fn put_multipart_opts(
        &self,
        name: &Path,
        mut put: PutMultipartOptions,
    ) -> BucketResult<Box<dyn MultipartUpload>> {
        self.take_metadata(&mut put.attributes)?;
        let inner = self.inner.put_multipart_opts(name, put).await?;
        match self.fault {
            Fault::NoParts => Err(denied(name)),
            Fault::LosesParts => Ok(Box::new(FirstPart { inner, has_one: false })),
            _ => Ok(inner),
        }
    }

    async fn get_opts(&self, name: &Path, mut get: GetOptions) -> BucketResult<GetResult> {
        if self.fault == Fault::LateRead
            && let Some(left @ 1..) = self.unseen.lock().get_mut(name)
        {
            *left -= 1;
            return Err(Error::NotFound { path: name.to_string(), source: "404".into() });
        }
        if self.fault == Fault::WholeRead {
            get.range = None;
        }
        let mut found = self.inner.get_opts(name, get).await?;
        if self.fault == Fault::NoTag {
            found.meta.e_tag = None;
        }
        Ok(found)
    }

    fn delete_stream(
        &self,
        names: BoxStream<'static, BucketResult<Path>>,
    ) -> BoxStream<'static, BucketResult<Path>> {
        match self.fault {
            Fault::LateDelete => names,
            Fault::NoDelete => names.map(|name| name.and_then(|name| Err(denied(&name)))).boxed(),
            _ => self.inner.delete_stream(names),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, BucketResult<ObjectMeta>> {
        let hidden = self.newest.lock().clone().filter(|_| self.fault == Fault::LateList);
        let is_seen = move |object: &BucketResult<ObjectMeta>| {
            std::future::ready(object.as_ref().ok().map(|object| &object.location) != hidden.as_ref())
        };
        let most = if self.fault == Fault::OnePage { 1000 } else { usize::MAX };
        self.inner.list(prefix).filter(is_seen).take(most).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, BucketResult<ObjectMeta>> {
        match self.fault {
            Fault::ListsAll => self.inner.list(prefix),
            _ => self.inner.list_with_offset(prefix, offset),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> BucketResult<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> BucketResult<()> {
        match self.fault {
            Fault::NoCopy => Err(not_implemented("copy")),
            Fault::FailingCopy => Err(Error::Generic { store: "Broken", source: "500".into() }),
            Fault::EmptyCopy => self.inner.put(to, PutPayload::default()).await.map(drop),
            _ => self.inner.copy_opts(from, to, options).await,
        }
    }
}

fn probe_of(bucket: &dyn ObjectStore) -> Result<ProbeReport, ProbeError> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(probe(bucket, &Path::from("a/probe")))
}

fn left(bucket: &dyn ObjectStore) -> usize {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(bucket.list(None).count())
}

#[test]
fn a_good_bucket_passes_and_is_left_empty() {
    let bucket = Broken::new(Fault::None);
    let report = probe_of(&bucket).unwrap();
    assert!(report.times.iter().map(|(operation, _)| *operation).eq(Operation::ALL));
    assert_eq!((report.unclear, report.has_versions, left(&bucket)), (0, false, 0));
}

#[test]
fn a_bucket_without_metadata_or_copies_passes() {
    for fault in [Fault::NoMetadata, Fault::NoCopy] {
        let bucket = Broken::new(fault);
        probe_of(&bucket).unwrap();
        assert_eq!(left(&bucket), 0);
    }
}

#[test]
fn versions_are_reported_and_not_refused() {
    assert!(probe_of(&Broken::new(Fault::Versions)).unwrap().has_versions);
}

#[test]
fn each_fault_is_found_and_named() {
    let faults = [
        (Fault::LateRead, Operation::ReadAfterWrite, "cannot be read"),
        (Fault::WholeRead, Operation::ReadRange, "got 8388608 other bytes"),
        (Fault::CreateReplaces, Operation::CreateIfAbsent, "exists and was replaced"),
        (Fault::CreateRaces, Operation::CreateRace, "8 succeeded"),
        (Fault::ReplaceAlways, Operation::ReplaceIfMatch, "has changed and was replaced"),
        (Fault::ReplaceRaces, Operation::ReplaceRace, "8 succeeded"),
        (Fault::NoReplace, Operation::ReplaceIfMatch, "If-Match"),
        (Fault::NoTag, Operation::ReplaceIfMatch, "no ETag"),
        (Fault::DropsMetadata, Operation::Metadata, "has lost its metadata"),
        (Fault::NoParts, Operation::CreateInParts, "403 Forbidden"),
        (Fault::LosesParts, Operation::CreateInParts, "other contents"),
        (Fault::FailingCopy, Operation::Copy, "is not copied"),
        (Fault::EmptyCopy, Operation::Copy, "other contents"),
        (Fault::LateList, Operation::List, "is missing in a list"),
        (Fault::OnePage, Operation::List, "is missing in a list of 1000 objects"),
        (Fault::ListsAll, Operation::ListFrom, "which it should not have"),
        (Fault::LateDelete, Operation::Delete, "can still be read"),
        (Fault::NoDelete, Operation::Delete, "403 Forbidden"),
        (Fault::NoPermission, Operation::ReadAfterWrite, "403 Forbidden"),
    ];
    for (fault, operation, what) in faults {
        let bucket = Broken::new(fault);
        let error = probe_of(&bucket).unwrap_err();
        assert_eq!(error.operation, operation, "{fault:?}: {error}");
        assert!(error.what.contains(what), "{fault:?}: {error}");
        assert!(error.to_string().contains(&operation.to_string()));
        if !matches!(fault, Fault::LateDelete | Fault::NoDelete) {
            assert_eq!(left(&bucket.inner), 0, "{fault:?} leaves objects");
        }
    }
}

#[test]
fn a_folder_of_object_store_lacks_only_replacement_by_version() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = LocalFileSystem::new_with_prefix(folder.path()).unwrap().with_fsync(true);
    let error = probe_of(&bucket).unwrap_err();
    assert_eq!(error.operation, Operation::ReplaceIfMatch, "{error}");
    assert_eq!(left(&bucket), 0);
}
