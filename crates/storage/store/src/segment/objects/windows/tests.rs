use super::super::bucket::VisitObject;
use super::super::name::parse_name;
use super::*;
use std::sync::mpsc;
use std::time::Duration;

const OBJECT: u64 = 16 << 20;
const RECORD: u64 = 256 << 10;

fn byte(object: u64, offset: u64) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 20) as u8 ^ object as u8
}

fn contents(object: u64, range: Range<u64>) -> Bytes {
    (range.start..range.end.min(OBJECT)).map(|offset| byte(object, offset)).collect()
}

/// What a test does to the next requests.
type Interference = Box<dyn Fn(Range<u64>) -> Result<(), BucketError> + Send>;

/// A bucket that notes the requests.
#[derive(Default)]
struct Requests {
    ranges: Mutex<Vec<Range<u64>>>,
    interference: Mutex<Option<Interference>>,
}

impl Bucket for Requests {
    fn begin(&self, _: &str, _: &Bytes) {}

    fn finish(&self, _: &[String]) -> Result<(), BucketError> {
        Ok(())
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.ranges.lock().push(range.clone());
        let interference = self.interference.lock().take();
        if let Some(interfere) = interference {
            interfere(range.clone())?;
        }
        let bytes = contents(parse_name(name).unwrap(), range);
        Ok(ObjectPart { bytes, object_bytes: OBJECT })
    }

    fn read_other(&self, from: &str, range: Range<u64>) -> Result<ObjectPart, BucketError> {
        self.read(from, range)
    }

    fn copy(&self, _: &str, _: &str) -> Result<u64, BucketError> {
        Ok(0)
    }

    fn remove(&self, _: &[String]) -> Result<(), BucketError> {
        Ok(())
    }

    fn list(&self, _: &str, _: VisitObject<'_>) -> Result<(), BucketError> {
        Ok(())
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

struct Objects {
    windows: Windows,
    bucket: Arc<Requests>,
}

impl Default for Objects {
    fn default() -> Objects {
        let bucket = Arc::<Requests>::default();
        Objects { windows: Windows::new(&(Arc::clone(&bucket) as _)), bucket }
    }
}

impl Objects {
    fn read(&self, object: u64, range: Range<u64>) {
        let read = self.windows.read(Source::Window, object, range.clone()).unwrap();
        assert!(read == contents(object, range.clone()), "{object} {range:?}");
    }

    fn requests(&self) -> Vec<u64> {
        self.bucket.ranges.lock().iter().map(|range| range.end - range.start).collect()
    }

    fn requested(&self) -> u64 {
        self.requests().iter().sum()
    }

    fn kept(&self) -> u64 {
        kept_bytes(&self.windows.0.reads.lock())
    }

    /// Waits until nothing is fetched in the background.
    fn rest(&self) {
        while self.windows.0.fetching.load(Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn consecutive_records_come_with_few_requests() {
    let objects = Objects::default();
    let records = (OBJECT - HEADER_BYTES).div_ceil(RECORD);
    for object in 10..20 {
        for record in 0..records {
            let start = HEADER_BYTES + record * RECORD;
            objects.read(object, start..(start + RECORD).min(OBJECT));
            assert!(objects.kept() <= 5 * WINDOW_BYTES_MAX);
        }
    }
    objects.rest();
    let requests = objects.requests().len();
    assert!(requests < 60, "{requests} requests for {} records", 10 * records);
    assert!(objects.requested() <= 10 * (OBJECT + WINDOW_BYTES_MAX), "{}", objects.requested());
}

#[test]
fn records_of_different_sizes_come_with_few_requests() {
    let objects = Objects::default();
    let (mut start, mut count) = (HEADER_BYTES, 0);
    while start + RECORD < OBJECT {
        let bytes = 20_000 + start * 7919 % 200_000;
        objects.read(1, start..start + bytes);
        (start, count) = (start + bytes, count + 1);
    }
    let requests = objects.requests().len();
    assert!(requests * 5 < count, "{requests} requests for {count} records");
    assert!(objects.requested() <= start * 3 / 2, "{} for {start}", objects.requested());
}

#[test]
fn scattered_records_come_alone() {
    let objects = Objects::default();
    for read in 0..200_u64 {
        let record = read * 7 % 31;
        objects
            .read(1 + read * 13 % 401, HEADER_BYTES + record * RECORD..HEADER_BYTES + (record + 1) * RECORD);
    }
    assert!(objects.requested() <= 210 * RECORD, "{}", objects.requested() / RECORD);
}

#[test]
fn a_reader_that_leaves_out_records_gets_no_more_windows() {
    let objects = Objects::default();
    let mut read = 0;
    // Two records in a row, then a gap.
    for pair in 0..10 {
        for record in [pair * 3, pair * 3 + 1] {
            objects.read(1, HEADER_BYTES + record * RECORD..HEADER_BYTES + (record + 1) * RECORD);
            read += RECORD;
        }
    }
    assert!(objects.requested() <= read * 2, "{} for {read}", objects.requested());
}

#[test]
fn many_readers_share_the_memory() {
    let objects = Objects::default();
    let readers = 60;
    for record in 0..31 {
        for object in 0..readers {
            let start = HEADER_BYTES + record * RECORD;
            objects.read(object * 2, start..start + RECORD);
            assert!(objects.kept() <= BYTES_MAX);
        }
    }
    let read = 31 * readers * RECORD;
    assert!(objects.requested() <= read * 3 / 2, "{} for {read}", objects.requested());
}

/// Reads a part, and then two that come with one window: the second one while the request of the first is held, which then
/// has this result. Returns the results.
fn read_together(held: Result<(), BucketError>) -> (Objects, [Result<Bytes, BucketError>; 2]) {
    let objects = Objects::default();
    objects.read(1, 100..200);
    let (asked, is_asked) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let hold = move |range: Range<u64>| {
        asked.send(range).unwrap();
        may_go.recv().unwrap();
        held.clone()
    };
    *objects.bucket.interference.lock() = Some(Box::new(hold));
    let read = |range| objects.windows.read(Source::Window, 1, range);
    let results = std::thread::scope(|scope| {
        let first = scope.spawn(|| read(200..300));
        assert_eq!(is_asked.recv().unwrap(), 200..400);
        let second = scope.spawn(|| read(300..400));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!second.is_finished());
        go.send(()).unwrap();
        [first, second].map(|reader| reader.join().unwrap())
    });
    (objects, results)
}

#[test]
fn a_reader_waits_for_the_window_of_another_one() {
    let (objects, results) = read_together(Ok(()));
    assert_eq!(results, [Ok(contents(1, 200..300)), Ok(contents(1, 300..400))]);
    assert_eq!(objects.requests(), [100, 200]);
}

#[test]
fn a_failed_window_is_requested_again() {
    let error = BucketError::Unavailable("busy".into());
    let (objects, results) = read_together(Err(error.clone()));
    assert_eq!(results, [Err(error), Ok(contents(1, 300..400))]);
    objects.read(1, 200..300);
}

#[test]
fn the_next_large_windows_are_fetched_in_the_background() {
    let objects = Objects::default();
    let records = |from: u64, to: u64| {
        for record in from..to {
            let start = HEADER_BYTES + record * RECORD;
            objects.read(1, start..start + RECORD);
        }
    };
    // Windows of 2, 4, 8 and 16 records follow the first one.
    records(0, 15);
    objects.rest();
    assert_eq!(objects.requests().len(), 4);
    records(15, 16);
    assert_eq!(objects.requests().len(), 5);
    records(16, 18);
    objects.rest();
    let before = objects.requests().len();
    assert_eq!(before, 8);
    assert!(objects.kept() <= 4 * WINDOW_BYTES_MAX);
    // This object ends with the last of these, and the next one goes on.
    records(18, 63);
    objects.rest();
    objects.read(1, HEADER_BYTES + 63 * RECORD..OBJECT);
    objects.rest();
    objects.read(2, HEADER_BYTES..HEADER_BYTES + RECORD);
    objects.rest();
    let ranges = objects.bucket.ranges.lock();
    let mut starts: Vec<u64> = ranges[before..].iter().map(|range| range.start).collect();
    starts.sort_unstable();
    assert_eq!(starts, [0, 16, 32, 48].map(|record| HEADER_BYTES + record * RECORD));
}

#[test]
fn nothing_beyond_the_end_of_an_object_is_requested() {
    let objects = Objects::default();
    // The end is known after the first window.
    let beyond =
        |range: &Range<u64>| range.start >= OBJECT || range.end > OBJECT && range.start > HEADER_BYTES;
    for first in [20_000, 131_000, 250_000, 262_144, 524_288 - HEADER_BYTES] {
        let mut start = HEADER_BYTES;
        while start < OBJECT {
            objects.read(first, start..(start + first).min(OBJECT));
            objects.rest();
            start += first;
        }
    }
    assert!(!objects.bucket.ranges.lock().iter().any(beyond));
}

#[test]
fn a_reader_repeats_what_has_failed_in_the_background() {
    let objects = Objects::default();
    let read = |record: u64| {
        let start = HEADER_BYTES + record * RECORD;
        objects.read(1, start..start + RECORD);
    };
    (0..16).for_each(read);
    let refuse = |_| Err(BucketError::Unavailable("busy".into()));
    *objects.bucket.interference.lock() = Some(Box::new(refuse));
    (16..25).for_each(read);
    objects.rest();
    assert!(objects.bucket.interference.lock().is_none(), "the next window was requested");
    (25..62).for_each(read);
    objects.rest();
}

#[test]
fn an_object_that_does_not_exist_is_requested_once() {
    let objects = Objects::default();
    let read = |record: u64| {
        let start = HEADER_BYTES + record * RECORD;
        objects.read(1, start..start + RECORD);
        objects.rest();
    };
    (0..31).for_each(read);
    let missing = BucketError::Missing { name: "the next one".into() };
    *objects.bucket.interference.lock() = Some(Box::new(move |_| Err(missing.clone())));
    let before = objects.requests().len();
    (31..63).for_each(read);
    let start = HEADER_BYTES + 63 * RECORD;
    for offset in start..start + 20 {
        objects.read(1, offset..offset + 1);
        objects.rest();
    }
    assert_eq!(objects.requests().len(), before + 1);
}

#[test]
fn a_read_beyond_the_end_is_short() {
    let objects = Objects::default();
    objects.read(1, OBJECT - 300..OBJECT - 200);
    objects.read(1, OBJECT - 200..OBJECT - 100);
    objects.read(1, OBJECT - 100..OBJECT + 100);
    objects.read(1, OBJECT + 100..OBJECT + 200);
}
