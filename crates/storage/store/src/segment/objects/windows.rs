//! Reads of objects in which consecutive records come with one request.
//!
//! A request to a bucket costs far more than the bytes of one record. A read that begins where an earlier one has ended
//! fetches a window: its own range and what follows it. Windows grow while they are used, and a reader that uses
//! little of one gets none next time. Once a large window is used, the next ones are fetched in the background.

use super::super::header::HEADER_BYTES;
use super::bucket::{Bucket, BucketError, ObjectPart};
use super::name::object_name;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Maximum size of a window in bytes.
const WINDOW_BYTES_MAX: u64 = 4 << 20;

/// Maximum size of all windows in bytes. Those that are being fetched may exceed it.
const BYTES_MAX: u64 = 32 << 20;

/// Maximum number of reads that are remembered.
const READS_MAX: usize = 128;

/// Where a part may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// What a request for an earlier part has brought, too.
    Window,
    /// A request of its own.
    Request,
}

/// Maximum number of windows that are fetched in the background.
const FETCHING_MAX: usize = 8;

/// How many windows after the one that a reader uses are fetched in the background.
const AHEAD: usize = 3;

/// Reads parts of objects, and keeps what was read in advance.
#[derive(Clone)]
pub(super) struct Windows(Arc<Shared>);

struct Shared {
    bucket: Arc<dyn Bucket>,
    /// The last reads, the most recently used one last.
    reads: Mutex<VecDeque<Read>>,
    /// How many windows are being fetched in the background.
    fetching: AtomicUsize,
}

/// A part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    object: u64,
    range: Range<u64>,
}

impl Part {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn contains(&self, other: &Part) -> bool {
        self.object == other.object
            && self.range.start <= other.range.start
            && other.range.end <= self.range.end
    }

    /// Whether a reader of records in their order comes from this part to `next`.
    fn is_followed_by(&self, next: &Part) -> bool {
        let starts = self.range.start + 1..=self.range.end;
        let is_same = self.object == next.object
            && starts.contains(&next.range.start)
            && next.range.end > self.range.end;
        let is_next = self.object.checked_add(1) == Some(next.object) && next.range.start == HEADER_BYTES;
        is_same || is_next
    }
}

/// A read that was begun.
struct Read {
    part: Part,
    /// Size of the object in bytes, once an answer has brought it. The part ends there at the latest.
    object_bytes: Option<u64>,
    /// What it was to bring of consecutive records, in bytes. The next window may have twice that.
    step_bytes: u64,
    /// How many of its bytes were asked for.
    used_bytes: u64,
    has_failed: bool,
    /// `None` if nothing of it is of use to another reader.
    window: Option<Arc<Window>>,
}

impl Read {
    fn of(part: Part, step_bytes: u64, object_bytes: Option<u64>) -> Read {
        let mut read =
            Read { part, object_bytes: None, step_bytes, used_bytes: 0, has_failed: false, window: None };
        if let Some(object_bytes) = object_bytes {
            read.set_object_bytes(object_bytes);
        }
        read
    }

    /// Sets the size of the object, and cuts the part to it.
    fn set_object_bytes(&mut self, object_bytes: u64) {
        self.object_bytes = Some(object_bytes);
        self.part.range.end = self.part.range.end.min(object_bytes).max(self.part.range.start);
    }

    fn kept_bytes(&self) -> u64 {
        if self.window.is_some() { self.part.bytes() } else { 0 }
    }

    /// Returns the window to fetch in advance after a large one: what follows it, in the next object if this one ends. There is
    /// none before the size of the object is known, since a bucket refuses a range that begins at its end.
    fn next(&self) -> Option<Read> {
        if self.step_bytes <= WINDOW_BYTES_MAX / 2 || self.has_failed {
            return None;
        }
        let (object, end) = (self.part.object, self.part.range.end);
        let is_last = end >= self.object_bytes?;
        let (object, start) = if is_last { (object.checked_add(1)?, HEADER_BYTES) } else { (object, end) };
        let part = Part { object, range: start..start.saturating_add(self.step_bytes) };
        Some(Read::of(part, self.step_bytes, self.object_bytes.filter(|_| !is_last)))
    }

    /// Whether the part has the first byte of `next`.
    fn has_start_of(&self, next: &Part) -> bool {
        self.part.object == next.object && self.part.range.contains(&next.range.start)
    }

    /// Whether most of it was asked for. `next`, which follows, may begin within it.
    fn is_used(&self, next: &Part) -> bool {
        let is_same = self.part.object == next.object;
        let common = if is_same { self.part.range.end.saturating_sub(next.range.start) } else { 0 };
        self.used_bytes + common >= self.part.bytes() / 4 * 3
    }
}

/// The contents of a part, once they are there.
#[derive(Default)]
struct Window {
    contents: Mutex<Contents>,
    is_over: Condvar,
}

#[derive(Clone, Default)]
enum Contents {
    #[default]
    Coming,
    There(Bytes),
    /// The request has failed.
    Failed,
}

impl Window {
    fn end(&self, contents: Contents) {
        *self.contents.lock() = contents;
        self.is_over.notify_all();
    }

    /// Waits for the contents; `None` if there are none.
    fn wait(&self) -> Option<Bytes> {
        let mut contents = self.contents.lock();
        loop {
            match &*contents {
                Contents::Coming => self.is_over.wait(&mut contents),
                Contents::There(bytes) => return Some(bytes.clone()),
                Contents::Failed => return None,
            }
        }
    }
}

/// A window that is being fetched. It ends as failed unless its contents come.
struct Fetching {
    shared: Arc<Shared>,
    window: Arc<Window>,
    whole: Part,
    contents: Contents,
    is_in_background: bool,
}

impl Fetching {
    fn fetch(&mut self) -> Result<Bytes, BucketError> {
        let ObjectPart { bytes, object_bytes } = self.shared.request(&self.whole)?;
        self.shared.set_object_bytes(self.whole.object, object_bytes);
        self.contents = Contents::There(bytes.clone());
        Ok(bytes)
    }

    /// Fetches the window in another thread. If there is none, those that wait for it request their own parts.
    fn spawn(mut self) {
        let job = move || {
            // Those that wait for the window make the request themselves, and report its error.
            _ = self.fetch();
        };
        if let Err(error) = std::thread::Builder::new().name("bucket-window".into()).spawn(job) {
            tracing::warn!(%error, "no thread can be started to read a bucket in advance");
        }
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        let contents = std::mem::replace(&mut self.contents, Contents::Failed);
        self.shared.ended(&self.window, &contents);
        self.window.end(contents);
        if self.is_in_background {
            self.shared.fetching.fetch_sub(1, Relaxed);
        }
    }
}

/// How to get a part.
enum Plan {
    /// It is in this window.
    Window(Arc<Window>, Part),
    /// It has to be requested alone.
    Alone,
    /// It comes with this window, which has to be fetched.
    Fetch(Fetching),
}

impl Windows {
    pub(super) fn new(bucket: &Arc<dyn Bucket>) -> Windows {
        let bucket = Arc::clone(bucket);
        Windows(Arc::new(Shared { bucket, reads: Mutex::default(), fetching: AtomicUsize::default() }))
    }

    /// Returns a part of an object, shorter if the object ends within it.
    ///
    /// # Errors
    /// `Missing`, `Unavailable`, `Refused`.
    pub(super) fn read(&self, source: Source, object: u64, range: Range<u64>) -> Result<Bytes, BucketError> {
        let (shared, part) = (&self.0, Part { object, range });
        let alone = || shared.request(&part).map(|read| read.bytes);
        if source == Source::Request {
            return alone();
        }
        let (plan, ahead) = shared.plan(&part);
        ahead.into_iter().for_each(Fetching::spawn);
        match plan {
            Plan::Alone => alone(),
            Plan::Window(window, whole) => match window.wait() {
                Some(contents) => Ok(cut(&contents, &whole.range, &part.range)),
                None => alone(),
            },
            Plan::Fetch(mut fetching) => {
                let contents = fetching.fetch()?;
                Ok(cut(&contents, &fetching.whole.range, &part.range))
            }
        }
    }
}

impl Shared {
    fn request(&self, part: &Part) -> Result<ObjectPart, BucketError> {
        self.bucket.read(&object_name(part.object), part.range.clone())
    }

    /// Returns how to get a part, and windows to fetch in the background.
    fn plan(self: &Arc<Self>, part: &Part) -> (Plan, Vec<Fetching>) {
        let mut reads = self.reads.lock();
        let known = reads.iter().position(|read| read.window.is_some() && read.part.contains(part));
        if let Some(mut read) = known.and_then(|at| reads.remove(at)) {
            read.used_bytes += part.bytes();
            let (window, whole) = (read.window.clone(), read.part.clone());
            if read.used_bytes >= whole.bytes() {
                read.window = None;
            }
            let next = read.next();
            reads.push_back(read);
            let ahead = self.begin_ahead(&mut reads, next);
            return (window.map_or(Plan::Alone, |window| Plan::Window(window, whole)), ahead);
        }
        let step_bytes = window_bytes(&reads, part);
        let range = part.range.start..part.range.start.saturating_add(step_bytes);
        let mut read = Read::of(Part { range, ..*part }, step_bytes, object_bytes(&reads, part.object));
        read.used_bytes = part.bytes();
        if read.part.bytes() <= part.bytes() {
            add(&mut reads, read);
            return (Plan::Alone, Vec::new());
        }
        let fetching = self.fetch_for(&mut read, false);
        add(&mut reads, read);
        (Plan::Fetch(fetching), Vec::new())
    }

    /// Adds a window to a read, and returns it to be fetched.
    fn fetch_for(self: &Arc<Self>, read: &mut Read, is_in_background: bool) -> Fetching {
        let (shared, window) = (Arc::clone(self), Arc::<Window>::default());
        read.window = Some(Arc::clone(&window));
        Fetching { shared, window, whole: read.part.clone(), contents: Contents::Failed, is_in_background }
    }

    /// Begins to fetch the next windows, unless they were begun, or too many are.
    fn begin_ahead(self: &Arc<Self>, reads: &mut VecDeque<Read>, mut next: Option<Read>) -> Vec<Fetching> {
        let mut begun = Vec::new();
        for _ in 0..AHEAD {
            let Some(read) = next else { break };
            if let Some(known) = reads.iter().find(|known| known.has_start_of(&read.part)) {
                next = known.next();
                continue;
            }
            next = read.next();
            match self.begin(reads, read) {
                Some(fetching) => begun.push(fetching),
                None => break,
            }
        }
        begun
    }

    /// Begins to fetch a window in the background, unless too much is kept, or too many are fetched.
    fn begin(self: &Arc<Self>, reads: &mut VecDeque<Read>, mut read: Read) -> Option<Fetching> {
        if kept_bytes(reads) + read.part.bytes() > BYTES_MAX {
            return None;
        }
        let begun =
            self.fetching.fetch_update(Relaxed, Relaxed, |many| (many < FETCHING_MAX).then_some(many + 1));
        begun.ok()?;
        let fetching = self.fetch_for(&mut read, true);
        add(reads, read);
        Some(fetching)
    }

    /// Sets the size of an object in its reads that do not have it.
    fn set_object_bytes(&self, object: u64, object_bytes: u64) {
        let mut reads = self.reads.lock();
        let unknown = |read: &&mut Read| read.part.object == object && read.object_bytes.is_none();
        reads.iter_mut().filter(unknown).for_each(|read| read.set_object_bytes(object_bytes));
    }

    /// Notes the end of the request for a window.
    fn ended(&self, window: &Arc<Window>, contents: &Contents) {
        let mut reads = self.reads.lock();
        let is_own = |read: &Read| read.window.as_ref().is_some_and(|other| Arc::ptr_eq(other, window));
        let Some(read) = reads.iter_mut().find(|read| is_own(read)) else { return };
        // What has failed is not begun in the background again.
        read.has_failed = matches!(contents, Contents::Failed);
        if read.has_failed || read.used_bytes >= read.part.bytes() {
            read.window = None;
        }
    }
}

/// Returns the size of an object, if a read has brought it.
fn object_bytes(reads: &VecDeque<Read>, object: u64) -> Option<u64> {
    reads.iter().filter(|read| read.part.object == object).find_map(|read| read.object_bytes)
}

fn kept_bytes(reads: &VecDeque<Read>) -> u64 {
    reads.iter().map(Read::kept_bytes).sum()
}

/// Adds a read, and forgets those that were not used for longest, within the limits.
fn add(reads: &mut VecDeque<Read>, read: Read) {
    reads.push_back(read);
    let mut kept = kept_bytes(reads);
    while kept > BYTES_MAX || reads.len() > READS_MAX {
        kept -= reads.pop_front().map_or(0, |read| read.kept_bytes());
    }
}

/// Returns how many bytes to request from the start of `part` on.
fn window_bytes(reads: &VecDeque<Read>, part: &Part) -> u64 {
    let before = reads.iter().filter(|read| read.part.is_followed_by(part) && read.is_used(part));
    let Some(before) = before.map(|read| read.step_bytes).max() else { return part.bytes() };
    let windows = reads.iter().filter(|read| read.window.is_some()).count() as u64;
    let most = WINDOW_BYTES_MAX.min(BYTES_MAX / (windows + 1));
    // Records of a large file have the same size, unless they are compressed.
    let records = before.saturating_mul(2).min(most) / part.bytes().max(1);
    part.bytes().saturating_mul(records.max(1))
}

/// Returns the bytes of `part` from the contents of `whole`. They are copied, because a slice would keep all of the contents.
fn cut(contents: &[u8], whole: &Range<u64>, part: &Range<u64>) -> Bytes {
    let at = |offset: u64| contents.len().min(usize::try_from(offset - whole.start).unwrap_or(usize::MAX));
    Bytes::copy_from_slice(&contents[at(part.start)..at(part.end)])
}

#[cfg(test)]
mod tests;
