//! Whether a process may still answer for a partition that other processes can take over.

use crate::health::Health;
use crate::{
    Batch, CommitNumber, Family, KeyRange, MetaDatabase, MetaStatistics, MetaStore, Snapshot, StoreError,
    Visit,
};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const FOR_EVER: u64 = u64::MAX;
const ENDED: u64 = 0;

/// The time during which this process may answer for a partition. Clones are the same tenure.
///
/// The default never ends. One with a limit *lapses* at that moment by the clock of this process, which does not jump, so
/// that a process that slept past it answers nothing when it wakes. While it has lapsed, calls wait for it to be
/// extended. Once it has [ended](Tenure::end), the partition has to be opened anew.
#[derive(Clone, Debug, Default)]
pub struct Tenure(Arc<Term>);

#[derive(Debug)]
struct Term {
    begun: Instant,
    /// The limit in nanoseconds after `begun`; [`FOR_EVER`] or [`ENDED`].
    limit_ns: AtomicU64,
    /// Held while the limit is changed, and released while a call waits for that.
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Default for Term {
    fn default() -> Term {
        let (waiting, changed) = (Mutex::default(), Condvar::default());
        Term { begun: Instant::now(), limit_ns: AtomicU64::new(FOR_EVER), waiting, changed }
    }
}

impl Tenure {
    /// Creates a tenure that lapses at `limit` unless it is [extended](Tenure::extend).
    pub fn until(limit: Instant) -> Tenure {
        let mut term = Term::default();
        *term.limit_ns.get_mut() = nanoseconds(limit.saturating_duration_since(term.begun));
        Tenure(Arc::new(term))
    }

    /// Moves the limit to `limit`, if that is later, also if it has lapsed; returns whether the tenure has not ended.
    pub fn extend(&self, limit: Instant) -> bool {
        let limit = nanoseconds(limit.saturating_duration_since(self.0.begun));
        let _one = self.0.waiting.lock();
        let later = |old: u64| (old != ENDED).then_some(old.max(limit));
        let is_extended = self.0.limit_ns.fetch_update(Relaxed, Relaxed, later).is_ok();
        self.0.changed.notify_all();
        is_extended
    }

    /// Ends the tenure for good: another process has the partition, or is to have it.
    pub fn end(&self) {
        let _one = self.0.waiting.lock();
        self.0.limit_ns.store(ENDED, Relaxed);
        self.0.changed.notify_all();
    }

    /// Whether this process may answer. Costs the load of a number and, if there is a limit, a reading of the clock.
    pub fn is_held(&self) -> bool {
        let limit = self.0.limit_ns.load(Relaxed);
        // A limit of 0 has always passed.
        limit == FOR_EVER || nanoseconds(self.0.begun.elapsed()) < limit
    }

    /// Whether the tenure has ended for good.
    pub fn has_ended(&self) -> bool {
        self.0.limit_ns.load(Relaxed) == ENDED
    }

    /// Limits a database to this tenure. A call while it has lapsed waits for at most `patience` and then fails with
    /// `Unavailable`; once it has ended, every call fails with `Fenced`.
    pub fn limit(&self, meta: Arc<dyn MetaDatabase>, patience: Duration) -> Arc<dyn MetaDatabase> {
        Arc::new(Tenured { meta, permit: Permit { tenure: self.clone(), patience } })
    }
}

/// Returns at least 1, since 0 is an ended tenure.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(FOR_EVER).clamp(1, FOR_EVER - 1)
}

/// A tenure, and for how long a call waits while it has lapsed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permit {
    pub(crate) tenure: Tenure,
    pub(crate) patience: Duration,
}

impl Permit {
    /// Returns once the tenure is held, or the reason why it is not. If it has ended, the stores that share `health`
    /// stop for good.
    pub(crate) fn check(&self, health: &Health) -> Result<(), StoreError> {
        if self.tenure.is_held() { Ok(()) } else { self.wait(health) }
    }

    #[cold]
    fn wait(&self, health: &Health) -> Result<(), StoreError> {
        let Permit { tenure, patience } = self;
        let deadline = Instant::now() + *patience;
        let mut waiting = tenure.0.waiting.lock();
        loop {
            if tenure.is_held() {
                return Ok(());
            }
            if tenure.has_ended() {
                return Err(health.fail(health.fenced()));
            }
            if tenure.0.changed.wait_until(&mut waiting, deadline).timed_out() {
                let what = format!("its lease has lapsed and was not renewed within {patience:?}");
                return Err(StoreError::Unavailable { place: health.place(), what });
            }
        }
    }
}

/// A database that answers only during a tenure.
struct Tenured {
    meta: Arc<dyn MetaDatabase>,
    permit: Permit,
}

impl Tenured {
    fn check(&self) -> Result<(), StoreError> {
        self.permit.check(self.meta.health())
    }

    /// Makes a call if the tenure is held, and records if it has no answer.
    fn call<T>(&self, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let answer = self.check().and_then(|()| call());
        if let Err(StoreError::Unavailable { .. }) = answer {
            self.meta.health().interrupt();
        }
        answer
    }
}

impl MetaStore for Tenured {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.call(|| self.meta.get(family, key))
    }

    fn get_many(&self, family: Family, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.call(|| self.meta.get_many(family, keys))
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.call(|| self.meta.scan(family, range, visit))
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(TenuredSnapshot { state: self.meta.snapshot(), meta: self })
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        self.call(|| self.meta.commit(batch))
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.call(|| self.meta.sync(number))
    }

    fn read_anew(&self) -> Result<(), StoreError> {
        self.meta.read_anew()
    }

    fn failure(&self) -> Option<String> {
        let health = self.meta.health();
        if self.permit.tenure.has_ended() && !health.is_failed() {
            _ = health.fail(health.fenced());
        }
        self.meta.failure()
    }
}

impl MetaDatabase for Tenured {
    fn begin_upkeep(&self) -> Result<(), StoreError> {
        self.meta.begin_upkeep()
    }

    fn statistics(&self) -> MetaStatistics {
        self.meta.statistics()
    }

    fn health(&self) -> &Arc<Health> {
        self.meta.health()
    }
}

struct TenuredSnapshot<'a> {
    state: Box<dyn Snapshot + 'a>,
    meta: &'a Tenured,
}

impl Snapshot for TenuredSnapshot<'_> {
    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.meta.call(|| self.state.scan(family, range, visit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryMeta;
    use std::thread;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn it_lapses_at_its_limit_and_ends_for_good() {
        let now = Instant::now();
        let (always, past, held) = (Tenure::default(), Tenure::until(now), Tenure::until(now + HOUR));
        assert!(always.is_held() && held.is_held() && !past.is_held());
        assert!(!past.has_ended() && past.extend(now + HOUR) && past.is_held());
        assert!(held.extend(now) && held.clone().is_held(), "an earlier limit changes nothing");
        held.end();
        assert!(!held.is_held() && !held.extend(now + HOUR) && !held.is_held() && held.has_ended());
        assert!(always.extend(now + HOUR) && always.is_held());
        always.end();
        assert!(!always.is_held());
        let short = Tenure::until(Instant::now() + Duration::from_millis(5));
        thread::sleep(Duration::from_millis(6));
        assert!(!short.is_held(), "it lapses without a call");
    }

    fn put(meta: &dyn MetaDatabase) -> Result<CommitNumber, StoreError> {
        let mut batch = Batch::new();
        batch.put(Family::SYSTEM, "k", "v");
        meta.commit(batch)
    }

    /// Makes every call; returns their errors.
    fn errors(meta: &dyn MetaDatabase, state: &dyn Snapshot) -> Vec<Option<StoreError>> {
        let range = KeyRange::ascending(b"a", b"z");
        let mut see = |_: &[u8], _: &[u8]| panic!("it is not to be seen");
        vec![
            meta.get(Family::SYSTEM, b"k").err(),
            meta.get_many(Family::SYSTEM, &[b"k"]).err(),
            meta.scan(Family::SYSTEM, range, &mut see).err(),
            state.scan(Family::SYSTEM, range, &mut see).err(),
            meta.snapshot().scan(Family::SYSTEM, range, &mut see).err(),
            put(meta).err(),
            meta.sync(CommitNumber(1)).err(),
        ]
    }

    #[test]
    fn a_database_answers_only_during_its_tenure() {
        let tenure = Tenure::until(Instant::now() + HOUR);
        let meta = tenure.limit(Arc::new(MemoryMeta::new()), Duration::ZERO);
        meta.sync(put(&*meta).unwrap()).unwrap();
        let state = meta.snapshot();
        assert_eq!((meta.failure(), meta.get(Family::SYSTEM, b"k").unwrap().unwrap()), (None, "v".into()));
        tenure.0.limit_ns.store(1, Relaxed);
        let lapsed = errors(&*meta, &*state);
        assert!(
            lapsed.iter().all(|error| matches!(error, Some(StoreError::Unavailable { .. }))),
            "{lapsed:?}"
        );
        assert_eq!(meta.failure(), None);
        assert!(tenure.extend(Instant::now() + HOUR));
        meta.sync(put(&*meta).unwrap()).unwrap();
        tenure.end();
        assert!(meta.failure().unwrap().contains("taken over"), "before any other call");
        let ended = errors(&*meta, &*state);
        assert!(ended.iter().all(|error| matches!(error, Some(StoreError::Fenced { .. }))), "{ended:?}");
        assert!(meta.health().is_failed());
    }

    #[test]
    fn a_call_waits_for_a_lapsed_tenure() {
        let tenure = Tenure::until(Instant::now());
        let meta = tenure.limit(Arc::new(MemoryMeta::new()), HOUR);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| put(&*meta));
            thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            tenure.extend(Instant::now() + HOUR);
            waiting.join().unwrap().unwrap();
        });
        tenure.0.limit_ns.store(1, Relaxed);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| put(&*meta));
            thread::sleep(Duration::from_millis(20));
            tenure.end();
            assert!(matches!(waiting.join().unwrap(), Err(StoreError::Fenced { .. })));
        });
    }
}
