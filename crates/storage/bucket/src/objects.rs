//! Objects of chunks in a bucket.

use crate::{Bounded, is_refusal};
use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path as Name;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::{Bucket, BucketError, ObjectPart, VisitObject};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// First pause before a request is repeated; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectsConfig {
    /// For how long one call waits for the bucket before it fails with `Unavailable`.
    pub patience: Duration,
    /// For how long one request may take before it is repeated.
    pub request_limit: Duration,
}

impl Default for ObjectsConfig {
    fn default() -> ObjectsConfig {
        ObjectsConfig { patience: Duration::from_secs(60), request_limit: Duration::from_secs(20) }
    }
}

/// All objects of a bucket whose names begin with a prefix.
pub struct Objects {
    pub(crate) bucket: Arc<Bounded>,
    prefix: Name,
    /// Name of the prefix in messages, unless it is that of the client and the prefix.
    place: Option<String>,
    config: ObjectsConfig,
    runtime: Arc<Runtime>,
    /// Objects that are being created, or were and have not been reported. Held only to read or change the map.
    begun: Mutex<HashMap<String, Begun>>,
    is_abandoned: AtomicBool,
}

type Outcome = Option<Result<(), BucketError>>;

/// The creation of one object. Dropping it ends the task.
struct Begun {
    outcome: watch::Receiver<Outcome>,
    last: Arc<LastError>,
    task: JoinHandle<()>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The last error of a request that is repeated.
#[derive(Debug, Default)]
struct LastError(Mutex<Option<String>>);

impl LastError {
    fn set(&self, error: impl fmt::Display) {
        *self.0.lock() = Some(error.to_string());
    }
}

impl fmt::Display for LastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.lock().as_deref().unwrap_or("none was reported"))
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({})", self.place())
    }
}

impl Objects {
    /// Accesses the objects of `bucket` below `prefix`. Requests run on `runtime`, whose timers must be enabled; do not
    /// call from one of its threads. If it has no threads of its own, work in the background happens only during
    /// calls, as a simulation needs it.
    pub fn new(
        runtime: Arc<Runtime>,
        bucket: Arc<dyn ObjectStore>,
        prefix: &str,
        config: ObjectsConfig,
    ) -> Objects {
        let bucket = Arc::new(Bounded::new(bucket, config.request_limit));
        let prefix = name_of(prefix);
        Objects {
            bucket,
            prefix,
            place: None,
            config,
            runtime,
            begun: Mutex::default(),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Sets the name of the prefix in messages: the address that the administrator knows.
    #[must_use]
    pub fn called(mut self, place: String) -> Objects {
        self.place = Some(place);
        self
    }

    /// For tests: ends all requests as a crash of the process does. When it returns, none is being sent; every later
    /// call fails.
    pub fn abandon(&self) {
        let begun = {
            let mut begun = self.begun.lock();
            self.is_abandoned.store(true, Relaxed);
            std::mem::take(&mut *begun)
        };
        for mut begun in begun.into_values() {
            begun.task.abort();
            // Either outcome means that it has ended.
            _ = self.runtime.block_on(&mut begun.task);
        }
    }

    /// Ends the creation of an object that [`finish`](Bucket::finish) has not reported. The object may exist, or appear later.
    pub fn cancel(&self, name: &str) {
        self.begun.lock().remove(name);
    }

    pub(crate) fn name(&self, name: &str) -> Name {
        self.prefix.clone().join(name)
    }

    /// Reads a part of the object `full`, which errors call `name`.
    fn read_full(&self, full: &Name, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        let options = GetOptions::new().with_range(Some(range));
        let found = self.repeat(&format!("read {full}"), async || {
            let found = self.bucket.get_opts(full, options.clone()).await?;
            Ok(ObjectPart { object_bytes: found.meta.size, bytes: found.bytes().await? })
        });
        found.map_err(|error| match error {
            BucketError::Missing { .. } => BucketError::Missing { name: name.to_owned() },
            other => other,
        })
    }

    fn check(&self) -> Result<(), BucketError> {
        if self.is_abandoned.load(Relaxed) {
            return Err(BucketError::Unavailable("the process has ended".into()));
        }
        Ok(())
    }

    /// Repeats a request until it succeeds, is refused, or the patience of a call ends.
    pub(crate) fn repeat<T>(
        &self,
        doing: &str,
        request: impl AsyncFn() -> Result<T, Error>,
    ) -> Result<T, BucketError> {
        self.check()?;
        let last = LastError::default();
        let done = self.runtime.block_on(async {
            timeout(self.config.patience, async {
                let mut pauses = Pauses::default();
                loop {
                    match request().await {
                        Ok(answer) => return Ok(answer),
                        Err(error) if is_final(&error) => return Err(error),
                        Err(error) => last.set(error),
                    }
                    pauses.next().await;
                }
            })
            .await
            .ok()
        });
        match done {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(Error::NotFound { path, .. })) => Err(BucketError::Missing { name: path }),
            Some(Err(error)) => Err(refused(doing, &error)),
            None => Err(self.late(doing, &last)),
        }
    }

    fn late(&self, doing: &str, last: &LastError) -> BucketError {
        let patience = self.config.patience;
        BucketError::Unavailable(format!("cannot {doing} within {patience:?}; the last error: {last}"))
    }
}

/// Returns a full name in the bucket from its parts between slashes.
fn name_of(text: &str) -> Name {
    text.split('/').filter(|part| !part.is_empty()).collect()
}

/// Whether repeating the request is of no use.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) || is_refusal(error)
}

fn refused(doing: &str, error: &Error) -> BucketError {
    BucketError::Refused(format!("the bucket refuses to {doing}: {error}"))
}

/// Pauses between repeated requests.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(PAUSE_MIN)
    }
}

impl Pauses {
    async fn next(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}

/// Creates an object, however often the bucket loses a request or its answer.
async fn create(
    bucket: &Bounded,
    name: &Name,
    contents: &Bytes,
    last: &LastError,
) -> Result<(), BucketError> {
    let mut pauses = Pauses::default();
    loop {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match bucket.put_opts(name, contents.clone().into(), options).await {
            Ok(_) => return Ok(()),
            // Perhaps an earlier request of this function, whose answer was lost or is this one.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                match bucket.get(name).await {
                    Ok(found) => match found.bytes().await {
                        Ok(found) if found == *contents => return Ok(()),
                        Ok(_) => {
                            let name = name.filename().unwrap_or_default().to_owned();
                            return Err(BucketError::Differs { name });
                        }
                        Err(error) => last.set(error),
                    },
                    Err(error) if is_refusal(&error) => return Err(refused(&format!("read {name}"), &error)),
                    // Missing: what exists is not there yet, or the request was refused for another one that failed.
                    Err(error) => last.set(error),
                }
            }
            Err(error) if is_refusal(&error) => return Err(refused(&format!("create {name}"), &error)),
            Err(error) => last.set(error),
        }
        pauses.next().await;
    }
}

impl Bucket for Objects {
    fn begin(&self, name: &str, contents: &Bytes) {
        let mut begun = self.begun.lock();
        if self.check().is_err() {
            return;
        }
        if begun.get(name).is_some_and(|begun| !matches!(*begun.outcome.borrow(), Some(Err(_)))) {
            return;
        }
        let (report, outcome) = watch::channel(None);
        let last = Arc::<LastError>::default();
        let (bucket, full, contents) = (Arc::clone(&self.bucket), self.name(name), contents.clone());
        let reported = Arc::clone(&last);
        let task = self.runtime.spawn(async move {
            let done = create(&bucket, &full, &contents, &reported).await;
            report.send_replace(Some(done));
        });
        begun.insert(name.to_owned(), Begun { outcome, last, task });
    }

    fn finish(&self, names: &[String]) -> Result<(), BucketError> {
        self.check()?;
        let waits = {
            let begun = self.begun.lock();
            let mut waits = Vec::with_capacity(names.len());
            for name in names {
                let begun = begun.get(name).ok_or_else(|| BucketError::Missing { name: name.clone() })?;
                waits.push((name, begun.outcome.clone(), Arc::clone(&begun.last)));
            }
            waits
        };
        let deadline = self.config.patience;
        let done = self.runtime.block_on(async {
            let deadline = Instant::now() + deadline;
            for (name, mut outcome, last) in waits {
                let ended = async { outcome.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) };
                match timeout_at(deadline, ended).await {
                    Ok(Ok(Some(Ok(())))) => {}
                    Ok(Ok(Some(Err(error)))) => return Err(error),
                    Ok(Ok(None) | Err(_)) => {
                        return Err(BucketError::Unavailable(format!("the creation of {name} was ended")));
                    }
                    Err(_) => return Err(self.late(&format!("create {name}"), &last)),
                }
            }
            Ok(())
        });
        if done.is_ok() {
            let mut begun = self.begun.lock();
            for name in names {
                begun.remove(name);
            }
        }
        done
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.read_full(&self.name(name), name, range)
    }

    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.read_full(&name_of(from), from, range)
    }

    fn copy(&self, from: &str, name: &str) -> Result<u64, BucketError> {
        let (from, full) = (name_of(from), self.name(name));
        self.repeat(&format!("copy {from} to {full}"), async || self.bucket.copy(&from, &full).await)?;
        let found = self.repeat(&format!("read {full}"), async || self.bucket.head(&full).await)?;
        Ok(found.size)
    }

    fn remove(&self, names: &[String]) -> Result<(), BucketError> {
        let left = Mutex::new(names.iter().map(|name| self.name(name)).collect::<HashSet<Name>>());
        let doing = format!("remove {} objects", names.len());
        self.repeat(&doing, async || {
            let mut paths: Vec<Name> = left.lock().iter().cloned().collect();
            paths.sort_unstable();
            for path in paths {
                match self.bucket.delete(&path).await {
                    Err(error) if !matches!(error, Error::NotFound { .. }) => return Err(error),
                    _ => _ = left.lock().remove(&path),
                }
            }
            Ok(())
        })
    }

    fn list(&self, after: &str, visit: VisitObject<'_>) -> Result<(), BucketError> {
        self.check()?;
        let last = LastError::default();
        self.runtime.block_on(async {
            let mut listing = Listing::after((!after.is_empty()).then(|| self.name(after)));
            let mut deadline = Instant::now() + self.config.patience;
            let mut pauses = Pauses::default();
            loop {
                let mut list = match &listing.offset {
                    Some(offset) => self.bucket.list_with_offset(Some(&self.prefix), offset),
                    None => self.bucket.list(Some(&self.prefix)),
                };
                listing.visited = 0;
                loop {
                    let doing = || format!("list {}", self.prefix);
                    match timeout_at(deadline, list.next()).await {
                        Err(_) => return Err(self.late(&doing(), &last)),
                        Ok(None) => return Ok(()),
                        Ok(Some(Err(error))) if is_refusal(&error) => return Err(refused(&doing(), &error)),
                        Ok(Some(Err(error))) => {
                            last.set(error);
                            break;
                        }
                        Ok(Some(Ok(object))) => {
                            if listing.advance(&object.location) {
                                (deadline, pauses) =
                                    (Instant::now() + self.config.patience, Pauses::default());
                            }
                            let name = object.location.filename().unwrap_or_default();
                            if visit(name, object.size).is_break() {
                                return Ok(());
                            }
                        }
                    }
                }
                if timeout_at(deadline, pauses.next()).await.is_err() {
                    return Err(self.late(&format!("list {}", self.prefix), &last));
                }
                listing.resume();
            }
        })
    }

    fn place(&self) -> String {
        self.place.clone().unwrap_or_else(|| format!("{}/{}", self.bucket, self.prefix))
    }
}

/// The progress of a list that is continued after an error.
struct Listing {
    offset: Option<Name>,
    /// The last name, if all names came in ascending order.
    newest: Option<Name>,
    is_ascending: bool,
    /// Number of names since the last begin, and the most ever.
    visited: u64,
    visited_max: u64,
}

impl Listing {
    fn after(offset: Option<Name>) -> Listing {
        Listing { offset, newest: None, is_ascending: true, visited: 0, visited_max: 0 }
    }

    /// Takes the next name; returns whether the list has come further than ever.
    fn advance(&mut self, name: &Name) -> bool {
        self.visited += 1;
        self.is_ascending &= self.newest.as_ref().is_none_or(|newest| newest < name);
        self.newest = Some(name.clone());
        let is_further = self.is_ascending || self.visited > self.visited_max;
        self.visited_max = self.visited_max.max(self.visited);
        is_further
    }

    /// Decides where to list from again: behind the last name, or from the beginning if names are in no order.
    fn resume(&mut self) {
        if self.is_ascending && self.newest.is_some() {
            self.offset.clone_from(&self.newest);
        }
    }
}
