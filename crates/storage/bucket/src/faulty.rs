//! A bucket in memory that fails like one across a network, for tests. Which request meets which fault depends only
//! on the seed and on the order of the requests.

use crate::deleting::delete_each;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How often each fault happens, in requests of a thousand; the sum is at most 1000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Not done, and answered with an error (500, 503).
    pub refused: u32,
    /// Done, but the answer is an error.
    pub lost: u32,
    /// Done, and answered with a failed precondition (412), as a client library does whose own repetition of a
    /// request finds the object there. Only for conditional writes.
    pub own_conflict: u32,
    /// Answered with an error, and done some requests later, also if the process that made it is gone.
    pub late: u32,
    /// Done twice: at once, and some requests later.
    pub repeated: u32,
    /// Done after a delay.
    pub delayed: u32,
    /// Never answered; done or not.
    pub hung: u32,
}

/// Number of further requests within which a late or repeated request is done.
const LATE_REQUESTS_MAX: u64 = 30;

/// Longest delay of an answer.
const DELAY_MAX: Duration = Duration::from_secs(3);

/// Delay of an answer that denies that an object exists.
const HIDDEN_DELAY: Duration = Duration::from_millis(20);

/// What the faults did, to prove that a test met them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Requests in all.
    pub requests: u64,
    /// See [`Faults`].
    pub refused: u64,
    /// See [`Faults`].
    pub lost: u64,
    /// See [`Faults`].
    pub own_conflict: u64,
    /// See [`Faults`].
    pub late: u64,
    /// Late and repeated writes that found that another write was there before.
    pub late_refused: u64,
    /// See [`Faults`].
    pub repeated: u64,
    /// See [`Faults`].
    pub delayed: u64,
    /// See [`Faults`].
    pub hung: u64,
    /// Reads whose answer [broke off](FaultyBucket::set_cut).
    pub cut: u64,
    /// Lists that ended with an error after some entries.
    pub partial: u64,
    /// Requests while the bucket was [away](FaultyBucket::set_away).
    pub away: u64,
    /// Those of them that were answered as without a right.
    pub denied: u64,
    /// Reads of objects that exist, answered as if they did not.
    pub hidden: u64,
    /// Parts, completions and ends of uploads in parts that failed.
    pub uploads: u64,
    /// Objects that were removed.
    pub removed: u64,
}

impl Met {
    /// Adds the counts of another bucket.
    pub fn add(&mut self, other: &Met) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.lost += other.lost;
        self.own_conflict += other.own_conflict;
        self.late += other.late;
        self.late_refused += other.late_refused;
        self.repeated += other.repeated;
        self.delayed += other.delayed;
        self.hung += other.hung;
        self.cut += other.cut;
        self.partial += other.partial;
        self.removed += other.removed;
        self.away += other.away;
        self.denied += other.denied;
        self.hidden += other.hidden;
        self.uploads += other.uploads;
    }

    /// Returns the counts of the faults that all histories have.
    pub fn all(&self) -> [u64; 11] {
        [
            self.requests,
            self.refused,
            self.lost,
            self.own_conflict,
            self.late,
            self.late_refused,
            self.repeated,
            self.delayed,
            self.hung,
            self.partial,
            self.away,
        ]
    }
}

/// A bucket with faults. Clones are the same bucket.
#[derive(Clone, Debug)]
pub struct FaultyBucket {
    inner: Arc<InMemory>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    rng: SmallRng,
    faults: Faults,
    /// Reads of a thousand whose answer breaks off.
    cut: u32,
    away: Option<Away>,
    /// Number of requests after which the bucket is away.
    cut_at: Option<u64>,
    met: Met,
    /// Writes still to be done, with the number of requests after which each is.
    late: Vec<(u64, Write)>,
}

/// How a bucket is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Each request fails at once.
    Failing,
    /// No request is answered.
    Silent,
    /// It does not exist.
    Missing,
    /// No request is permitted, as with a key that has expired (403).
    Denied,
    /// Reads find no object, though it exists and lists show it (404). The other faults go on.
    Hiding,
}

#[derive(Clone, Debug)]
enum Write {
    Put(Path, PutPayload, PutOptions),
    Copy(Path, Path, CopyOptions),
    Delete(Path),
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Refused,
    NoBucket,
    Denied,
    Lost,
    OwnConflict,
    Late,
    Repeated,
    Delayed(Duration),
    Hung(bool),
}

impl FaultyBucket {
    /// Creates an empty bucket.
    pub fn new(seed: u64, faults: Faults) -> FaultyBucket {
        let rng = SmallRng::seed_from_u64(seed);
        let state =
            State { rng, faults, cut: 0, away: None, cut_at: None, met: Met::default(), late: Vec::new() };
        FaultyBucket { inner: Arc::default(), state: Arc::new(Mutex::new(state)) }
    }

    /// Sets how often each fault happens from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Sets for how many reads of a thousand the answer breaks off after half of its bytes from now on.
    pub fn set_cut(&self, cut: u32) {
        self.state.lock().cut = cut;
    }

    /// Makes the bucket unreachable, or reachable again.
    pub fn set_away(&self, away: Option<Away>) {
        let mut state = self.state.lock();
        (state.away, state.cut_at) = (away, None);
    }

    /// Makes the bucket unreachable after this many further requests.
    pub fn set_away_after(&self, requests: u64) {
        let mut state = self.state.lock();
        state.cut_at = Some(state.met.requests + requests);
    }

    /// Returns what the faults did.
    pub fn met(&self) -> Met {
        self.state.lock().met
    }

    /// Decides about a request, having done the late ones whose turn has come.
    async fn meet(&self, is_write: bool) -> Fate {
        let (fate, due) = self.state.lock().next(is_write);
        for write in due {
            if self.carry_out(write).await.is_err() {
                self.state.lock().met.late_refused += 1;
            }
        }
        fate
    }

    async fn carry_out(&self, write: Write) -> Result<Option<PutResult>> {
        match write {
            Write::Put(location, payload, options) => {
                self.inner.put_opts(&location, payload, options).await.map(Some)
            }
            Write::Copy(from, to, options) => self.inner.copy_opts(&from, &to, options).await.map(|()| None),
            Write::Delete(location) => {
                self.inner.delete(&location).await?;
                self.state.lock().met.removed += 1;
                Ok(None)
            }
        }
    }

    async fn write(&self, write: Write) -> Result<Option<PutResult>> {
        let fate = self.meet(true).await;
        match fate {
            Fate::Done => self.carry_out(write).await,
            Fate::Refused => Err(unavailable()),
            Fate::NoBucket => Err(no_bucket()),
            Fate::Denied => Err(denied()),
            Fate::Lost => self.carry_out(write).await.and(Err(unavailable())),
            Fate::OwnConflict => {
                let conflict = conflict(&write);
                let done = self.carry_out(write).await?;
                conflict.map_or(Ok(done), Err)
            }
            Fate::Late => {
                self.state.lock().put_off(write);
                Err(unavailable())
            }
            Fate::Repeated => {
                self.state.lock().put_off(write.clone());
                self.carry_out(write).await
            }
            Fate::Delayed(delay) => {
                tokio::time::sleep(delay).await;
                self.carry_out(write).await
            }
            Fate::Hung(is_done) => {
                if is_done {
                    _ = self.carry_out(write).await;
                }
                pending().await
            }
        }
    }

    /// Meets the faults of a read; the caller then reads.
    async fn before_read(&self) -> Result<()> {
        match self.meet(false).await {
            Fate::Done | Fate::OwnConflict | Fate::Repeated => Ok(()),
            Fate::Refused | Fate::Lost | Fate::Late => Err(unavailable()),
            Fate::NoBucket => Err(no_bucket()),
            Fate::Denied => Err(denied()),
            Fate::Delayed(delay) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            Fate::Hung(_) => pending().await,
        }
    }

    /// Fails if reads find nothing. What does not exist is reported by the read itself.
    async fn hide(&self, location: &Path) -> Result<()> {
        let is_hidden = self.state.lock().away == Some(Away::Hiding);
        if is_hidden && self.inner.head(location).await.is_ok() {
            self.state.lock().met.hidden += 1;
            // Otherwise a caller that repeats the request at once would never end, since no time passes.
            tokio::time::sleep(HIDDEN_DELAY).await;
            return Err(Error::NotFound { path: location.to_string(), source: "404 NoSuchKey".into() });
        }
        Ok(())
    }

    /// A list that may end with an error after some entries.
    fn faulty_list(
        &self,
        list: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let bucket = self.clone();
        let begin = async move {
            bucket.before_read().await?;
            let (cut, met) = (bucket.state.lock().cut(), bucket.state.clone());
            let Some(cut) = cut else { return Ok::<_, Error>(list) };
            let fail = stream::once(async move {
                met.lock().met.partial += 1;
                Err(unavailable())
            });
            Ok(list.take(cut).chain(fail).boxed())
        };
        begin.into_stream().try_flatten().boxed()
    }
}

impl State {
    fn next(&mut self, is_write: bool) -> (Fate, Vec<Write>) {
        self.met.requests += 1;
        let now = self.met.requests;
        let due = self.late.extract_if(.., |(turn, _)| *turn <= now).map(|(_, write)| write).collect();
        if self.cut_at.is_some_and(|cut_at| now > cut_at) {
            self.away = Some(Away::Failing);
        }
        let away = match self.away {
            Some(Away::Failing) => Some(Fate::Refused),
            Some(Away::Silent) => Some(Fate::Hung(false)),
            Some(Away::Missing) => Some(Fate::NoBucket),
            Some(Away::Denied) => Some(Fate::Denied),
            Some(Away::Hiding) | None => None,
        };
        if let Some(fate) = away {
            self.met.away += 1;
            self.met.denied += u64::from(fate == Fate::Denied);
            return (fate, due);
        }
        let fate = self.draw();
        let met = &mut self.met;
        match fate {
            Fate::Done | Fate::NoBucket | Fate::Denied => {}
            Fate::Refused => met.refused += 1,
            Fate::Lost => met.lost += 1,
            Fate::OwnConflict => met.own_conflict += u64::from(is_write),
            Fate::Late => met.late += u64::from(is_write),
            Fate::Repeated => met.repeated += u64::from(is_write),
            Fate::Delayed(_) => met.delayed += 1,
            Fate::Hung(_) => met.hung += 1,
        }
        (fate, due)
    }

    fn draw(&mut self) -> Fate {
        let Faults { refused, lost, own_conflict, late, repeated, delayed, hung } = self.faults;
        let delay = DELAY_MAX.mul_f64(self.rng.random());
        let fates = [
            (refused, Fate::Refused),
            (lost, Fate::Lost),
            (own_conflict, Fate::OwnConflict),
            (late, Fate::Late),
            (repeated, Fate::Repeated),
            (delayed, Fate::Delayed(delay)),
            (hung, Fate::Hung(self.rng.random())),
        ];
        let mut drawn: u32 = self.rng.random_range(0..1000);
        for (share, fate) in fates {
            match drawn.checked_sub(share) {
                Some(rest) => drawn = rest,
                None => return fate,
            }
        }
        Fate::Done
    }

    fn put_off(&mut self, write: Write) {
        let turn = self.met.requests + self.rng.random_range(1..=LATE_REQUESTS_MAX);
        self.late.push((turn, write));
    }

    /// Whether the answer to the next read breaks off. Draws nothing if none does, so that histories without this
    /// fault stay the same.
    fn breaks_off(&mut self) -> bool {
        let breaks_off = self.cut > 0 && self.rng.random_range(0..1000) < self.cut;
        self.met.cut += u64::from(breaks_off);
        breaks_off
    }

    /// The number of entries after which a list fails, if it does.
    fn cut(&mut self) -> Option<usize> {
        let fails = self.rng.random_range(0..1000) < self.faults.refused;
        fails.then(|| self.rng.random_range(0..5))
    }
}

/// Where the answer to a read of this range breaks off.
fn body_cut(range: &std::ops::Range<u64>) -> usize {
    usize::try_from((range.end - range.start) / 2).unwrap_or(0)
}

fn unavailable() -> Error {
    Error::Generic { store: "FaultyBucket", source: "503 Slow Down".into() }
}

fn denied() -> Error {
    Error::PermissionDenied { path: "faulty".into(), source: "403 Forbidden: ExpiredToken".into() }
}

fn no_bucket() -> Error {
    Error::NotFound { path: "faulty".into(), source: "404 NoSuchBucket".into() }
}

/// The error of a conditional write whose object is there.
fn conflict(write: &Write) -> Option<Error> {
    let Write::Put(location, _, options) = write else { return None };
    let (path, source) = (location.to_string(), "412 Precondition Failed".into());
    match options.mode {
        PutMode::Overwrite => None,
        PutMode::Create => Some(Error::AlreadyExists { path, source }),
        PutMode::Update(_) => Some(Error::Precondition { path, source }),
    }
}

impl fmt::Display for FaultyBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for FaultyBucket {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let done = self.write(Write::Put(location.clone(), payload, options)).await?;
        Ok(done.expect("a put has a result"))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.before_read().await?;
        let upload = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(FaultyUpload { upload, bucket: self.clone(), is_whole: Arc::new(AtomicBool::new(true)) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.before_read().await?;
        self.hide(location).await?;
        let found = self.inner.get_opts(location, options).await?;
        if !self.state.lock().breaks_off() {
            return Ok(found);
        }
        let GetResult { payload, meta, range, attributes, extensions } = found;
        let body = match payload {
            GetResultPayload::Stream(body) => body.try_collect::<Vec<Bytes>>().await?.concat(),
            GetResultPayload::File(..) => return Err(unavailable()),
        };
        let some = Bytes::from(body).slice(..body_cut(&range));
        let payload = GetResultPayload::Stream(stream::iter([Ok(some), Err(unavailable())]).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[std::ops::Range<u64>]) -> Result<Vec<Bytes>> {
        self.before_read().await?;
        self.hide(location).await?;
        if self.state.lock().breaks_off() {
            return Err(unavailable());
        }
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let bucket = self.clone();
        delete_each(locations, move |location| {
            let bucket = bucket.clone();
            async move { bucket.write(Write::Delete(location)).await.map(drop) }
        })
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix) = (Arc::clone(&self.inner), prefix.cloned());
        // Listed when it is read, not when it is asked for.
        let list = async move { Ok::<_, Error>(inner.list(prefix.as_ref())) };
        self.faulty_list(list.into_stream().try_flatten().boxed())
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix, offset) = (Arc::clone(&self.inner), prefix.cloned(), offset.clone());
        let list = async move { Ok::<_, Error>(inner.list_with_offset(prefix.as_ref(), &offset)) };
        self.faulty_list(list.into_stream().try_flatten().boxed())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.before_read().await?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.write(Write::Copy(from.clone(), to.clone(), options)).await.map(drop)
    }
}

/// An object that is created in parts. Without all of them it cannot be completed.
#[derive(Debug)]
struct FaultyUpload {
    upload: Box<dyn MultipartUpload>,
    bucket: FaultyBucket,
    is_whole: Arc<AtomicBool>,
}

impl FaultyBucket {
    /// Carries a request of an upload out or not, by the faults of reads and lost answers.
    async fn upload<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let is_lost = match self.meet(true).await {
            Fate::Done | Fate::OwnConflict | Fate::Repeated => false,
            Fate::Lost | Fate::Late => true,
            Fate::Delayed(delay) => {
                tokio::time::sleep(delay).await;
                false
            }
            Fate::Hung(_) => pending().await,
            fate @ (Fate::Refused | Fate::NoBucket | Fate::Denied) => {
                self.state.lock().met.uploads += 1;
                return Err(if fate == Fate::Denied { denied() } else { unavailable() });
            }
        };
        let done = request.await;
        if is_lost {
            self.state.lock().met.uploads += 1;
            return Err(unavailable());
        }
        done
    }
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, bucket, is_whole) =
            (self.upload.put_part(data), self.bucket.clone(), Arc::clone(&self.is_whole));
        Box::pin(async move {
            let done = bucket.upload(part).await;
            if done.is_err() {
                is_whole.store(false, Relaxed);
            }
            done
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if !self.is_whole.load(Relaxed) {
            return Err(Error::Generic { store: "FaultyBucket", source: "400 InvalidPart".into() });
        }
        self.bucket.clone().upload(self.upload.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.bucket.clone().upload(self.upload.abort()).await
    }
}
