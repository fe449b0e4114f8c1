//! Reads of objects in which consecutive records come with one request.
//!
//! A request to a bucket costs far more than the bytes of one record. A read that begins where an earlier one has ended
//! fetches a window: its own range and what follows it. Windows grow while they are used, and a reader that uses
//! little of one gets none next time. Once a large window is used, the next one is fetched in the background.

use super::super::header::HEADER_BYTES;
use super::bucket::{Bucket, BucketError};
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
    /// Where the requested range ends: after the part, if the object ends within it.
    requested_end: u64,
    /// What it was to bring of consecutive records, in bytes. The next window may have twice that.
    step_bytes: u64,
    /// How many of its bytes were asked for.
    used_bytes: u64,
    is_there: bool,
    /// `None` if nothing of it is of use to another reader.
    window: Option<Arc<Window>>,
}

impl Read {
    fn of(part: Part, step_bytes: u64, used_bytes: u64) -> Read {
        let requested_end = part.range.end;
        Read { part, requested_end, step_bytes, used_bytes, is_there: false, window: None }
    }

    fn kept_bytes(&self) -> u64 {
        if self.window.is_some() { self.part.bytes() } else { 0 }
    }

    /// Returns the window to fetch in advance once a large one is there: the one after it, in the next object if this one ends.
    fn next(&self) -> Option<Part> {
        if self.step_bytes <= WINDOW_BYTES_MAX / 2 || !self.is_there {
            return None;
        }
        let end = self.part.range.end;
        if end < self.requested_end {
            let range = HEADER_BYTES..HEADER_BYTES + self.step_bytes;
            return Some(Part { object: self.part.object.checked_add(1)?, range });
        }
        // From the last byte on, which exists: a bucket refuses a range that begins at the end of an object.
        Some(Part { object: self.part.object, range: end - 1..end.saturating_add(self.step_bytes) })
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
        let contents = self.shared.request(&self.whole)?;
        self.contents = Contents::There(contents.clone());
        Ok(contents)
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
        if source == Source::Request {
            return shared.request(&part);
        }
        let (plan, next) = shared.plan(&part);
        if let Some(next) = next {
            next.spawn();
        }
        match plan {
            Plan::Alone => shared.request(&part),
            Plan::Window(window, whole) => match window.wait() {
                Some(contents) => Ok(cut(&contents, &whole.range, &part.range)),
                None => shared.request(&part),
            },
            Plan::Fetch(mut fetching) => {
                let contents = fetching.fetch()?;
                Ok(cut(&contents, &fetching.whole.range, &part.range))
            }
        }
    }
}

impl Shared {
    fn request(&self, part: &Part) -> Result<Bytes, BucketError> {
        self.bucket.read(&object_name(part.object), part.range.clone())
    }

    /// Returns how to get a part, and a window to fetch in the background.
    fn plan(self: &Arc<Self>, part: &Part) -> (Plan, Option<Fetching>) {
        let mut reads = self.reads.lock();
        let known = reads.iter().position(|read| read.window.is_some() && read.part.contains(part));
        if let Some(mut read) = known.and_then(|at| reads.remove(at)) {
            read.used_bytes += part.bytes();
            let (window, whole) = (read.window.clone(), read.part.clone());
            if read.used_bytes >= whole.bytes() {
                read.window = None;
            }
            let next = read.next().map(|next| (next, read.step_bytes));
            reads.push_back(read);
            let next = next.and_then(|(next, step_bytes)| self.begin_next(&mut reads, &next, step_bytes));
            return (window.map_or(Plan::Alone, |window| Plan::Window(window, whole)), next);
        }
        let step_bytes = window_bytes(&reads, part);
        let range = part.range.start..part.range.start.saturating_add(step_bytes);
        let mut read = Read::of(Part { range, ..*part }, step_bytes, part.bytes());
        if step_bytes <= part.bytes() {
            add(&mut reads, read);
            return (Plan::Alone, None);
        }
        let fetching = self.fetch_for(&mut read, false);
        add(&mut reads, read);
        (Plan::Fetch(fetching), None)
    }

    /// Adds a window to a read, and returns it to be fetched.
    fn fetch_for(self: &Arc<Self>, read: &mut Read, is_in_background: bool) -> Fetching {
        let (shared, window) = (Arc::clone(self), Arc::<Window>::default());
        read.window = Some(Arc::clone(&window));
        Fetching { shared, window, whole: read.part.clone(), contents: Contents::Failed, is_in_background }
    }

    /// Begins to fetch the window after another one, unless it was begun, or too many are.
    fn begin_next(
        self: &Arc<Self>,
        reads: &mut VecDeque<Read>,
        next: &Part,
        step_bytes: u64,
    ) -> Option<Fetching> {
        let starts_there = |read: &Read| {
            read.part.object == next.object && read.part.range.contains(&(next.range.start + 1))
        };
        if reads.iter().any(starts_there) || kept_bytes(reads) + next.bytes() > BYTES_MAX {
            return None;
        }
        let begun =
            self.fetching.fetch_update(Relaxed, Relaxed, |many| (many < FETCHING_MAX).then_some(many + 1));
        begun.ok()?;
        // A byte before the records is of no use.
        let mut read = Read::of(next.clone(), step_bytes, next.bytes() - step_bytes);
        let fetching = self.fetch_for(&mut read, true);
        add(reads, read);
        Some(fetching)
    }

    /// Notes what came for a window: an object may end within it.
    fn ended(&self, window: &Arc<Window>, contents: &Contents) {
        let mut reads = self.reads.lock();
        let is_own = |read: &Read| read.window.as_ref().is_some_and(|other| Arc::ptr_eq(other, window));
        let Some(read) = reads.iter_mut().find(|read| is_own(read)) else { return };
        if let Contents::There(bytes) = contents {
            read.is_there = true;
            read.part.range.end = read.part.range.end.min(read.part.range.start + bytes.len() as u64);
        }
        // What has failed is not begun in the background again.
        if !read.is_there || read.used_bytes >= read.part.bytes() {
            read.window = None;
        }
    }
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
