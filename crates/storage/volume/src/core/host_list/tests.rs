use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use store::{Change, MemoryMeta, Snapshot, Visit};

fn address(host: usize) -> SocketAddr {
    ([10, 0, (host >> 8) as u8, host as u8], 7001).into()
}

fn uuid(host: usize) -> HostUuid {
    HostUuid([host as u8 + 1; 16])
}

fn at(seconds: u64) -> Monotonic {
    Monotonic(0) + Duration::from_secs(seconds)
}

fn promisee(host: usize, seconds: u64) -> Promisee {
    Promisee { number: host as u64 + 1, address: address(host), now: at(seconds) }
}

fn all(hosts: &[(SocketAddr, Duration)]) -> Vec<bool> {
    vec![true; hosts.len()]
}

fn list() -> (Arc<MemoryMeta>, HostList) {
    let meta = Arc::new(MemoryMeta::new());
    let list = HostList::load(meta.clone()).unwrap();
    (meta, list)
}

/// Returns the hosts that a crash leaves in the list.
fn durable(meta: &MemoryMeta) -> Vec<ListedHost> {
    listed_hosts(&meta.crash(0)).unwrap()
}

#[test]
fn a_host_is_written_once_and_listed_when_it_is_durable() {
    let (meta, list) = list();
    let none = CommitNumber(0);
    assert!(list.try_pin(&promisee(1, 0), none).is_none());
    let (pinned, commit) = list.pin(&promisee(1, 0), || Some(uuid(1))).unwrap().unwrap();
    drop(pinned);
    let again = list.pin(&promisee(1, 0), || unreachable!("the host is known")).unwrap().unwrap();
    assert_eq!((again.1, meta.commits()), (commit, 1), "the second call waits for the same commit");
    assert!(list.try_pin(&promisee(1, 0), none).is_none(), "it is not durable");
    assert_eq!(durable(&meta), []);
    meta.sync(commit).unwrap();
    let host = ListedHost { address: address(1), uuid: Some(uuid(1)) };
    assert_eq!(durable(&meta), [host]);
    assert!(list.try_pin(&promisee(1, 0), commit).is_some());
    // Another client at the address, which the server knows by another number.
    let other = Promisee { number: 99, ..promisee(1, 0) };
    assert!(list.try_pin(&other, commit).is_none());
    let (_pinned, next) = list.pin(&other, || None).unwrap().unwrap();
    assert!(next > commit);
    meta.sync(next).unwrap();
    assert_eq!(durable(&meta), [ListedHost { uuid: None, ..host }]);
    // The same client after it was identified again.
    let other = Promisee { number: 100, ..other };
    assert_eq!(list.pin(&other, || None).unwrap().unwrap().1, next);
    assert_eq!((meta.commits(), list.len()), (2, 1));
}

#[test]
fn a_list_is_that_of_the_owner_before() {
    let (meta, list) = list();
    let (_pinned, commit) = list.pin(&promisee(1, 0), || Some(uuid(1))).unwrap().unwrap();
    meta.sync(commit).unwrap();
    let mut batch = Batch::new();
    batch.put(Family::SYSTEM, keys::listed_host(address(2)), [9]);
    batch.put(Family::SYSTEM, "hosts/short", [1]);
    meta.sync(meta.commit(batch).unwrap()).unwrap();
    let meta = Arc::new(meta.crash(0));
    let list = HostList::load(meta.clone()).unwrap();
    assert_eq!(list.len(), 1, "unreadable records are left out");
    let (_pinned, commit) = list.pin(&promisee(1, 0), || Some(uuid(1))).unwrap().unwrap();
    assert_eq!((commit, meta.commits()), (CommitNumber(0), 0), "it is there");
    list.pin(&promisee(2, 0), || Some(uuid(2))).unwrap().unwrap();
    assert_eq!(listed_hosts(&*meta).unwrap().len(), 2, "an unreadable record is replaced");
}

#[test]
fn a_host_leaves_some_time_after_its_last_promise() {
    let (meta, list) = list();
    for host in 0..4 {
        list.pin(&promisee(host, 0), || Some(uuid(host))).unwrap().unwrap();
    }
    let rest = REST.as_secs();
    list.forget(at(rest - 1), &|_| unreachable!("all were used recently")).unwrap();
    let pinned = list.try_pin(&promisee(1, 0), CommitNumber(4)).unwrap();
    let asked = Mutex::new(Vec::new());
    let may_leave = |hosts: &[(SocketAddr, Duration)]| {
        asked.lock().extend_from_slice(hosts);
        // This one gets a promise after the question was answered.
        drop(list.pin(&promisee(2, rest), || unreachable!("it is known")).unwrap());
        hosts.iter().map(|(host, _)| *host != address(3)).collect()
    };
    list.forget(at(rest), &may_leave).unwrap();
    assert_eq!(*asked.lock(), [0, 2, 3].map(|host| (address(host), REST)));
    let left = |meta: &MemoryMeta| -> Vec<SocketAddr> {
        listed_hosts(meta).unwrap().into_iter().map(|host| host.address).collect()
    };
    assert_eq!(left(&meta), [1, 2, 3].map(address));
    drop(pinned);
    list.forget(at(3 * rest), &all).unwrap();
    assert_eq!((left(&meta), list.len()), (vec![], 0));
    assert!(list.entries.lock().origins.is_empty());
}

/// The time before the server knew the host does not count.
#[test]
fn a_host_of_the_owner_before_stays_for_a_while() {
    let (meta, list) = list();
    list.pin(&promisee(1, 0), || Some(uuid(1))).unwrap().unwrap();
    meta.sync(CommitNumber(1)).unwrap();
    let list = HostList::load(meta).unwrap();
    list.forget(at(10_000), &all).unwrap();
    assert_eq!(list.len(), 1);
    list.forget(at(10_000) + REST, &all).unwrap();
    assert_eq!(list.len(), 0);
}

#[test]
fn a_list_is_bounded_in_total_and_for_each_address() {
    let (meta, list) = list();
    let at_port =
        |ip: [u8; 4], port: usize| Promisee { number: 1, address: (ip, port as u16).into(), now: at(0) };
    let pin = |ip, port| list.pin(&at_port(ip, port), || None).unwrap().is_some();
    assert!((0..HOSTS_PER_ORIGIN_MAX).all(|port| pin([10, 0, 0, 1], port)));
    assert!(!pin([10, 0, 0, 1], HOSTS_PER_ORIGIN_MAX) && pin([10, 0, 0, 1], 0));
    for last in 2..=4 {
        assert!((0..HOSTS_PER_ORIGIN_MAX).all(|port| pin([10, 0, 0, last], port)));
    }
    assert!(!pin([10, 0, 0, 5], 1));
    assert_eq!((list.len(), listed_hosts(&*meta).unwrap().len()), (HOSTS_MAX, HOSTS_MAX));
    list.forget(at(0) + REST, &all).unwrap();
    assert!(pin([10, 0, 0, 5], 1) && list.len() == 1);
}

#[test]
fn a_failed_commit_lists_nothing() {
    let (meta, list) = list();
    list.pin(&promisee(1, 0), || Some(uuid(1))).unwrap().unwrap();
    drop(meta.taken_over(1));
    assert!(list.pin(&promisee(2, 0), || Some(uuid(2))).is_err());
    assert!(list.forget(at(10_000), &all).is_err());
    assert_eq!(list.len(), 1);
}

/// A mistake that histories have to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Replies do not wait for the commit of the list.
    AnswersAtOnce,
    /// Hosts are not pinned while a promise is being made.
    PinsNothing,
    /// Hosts leave although they hold promises.
    ForgetsHolders,
    /// A removal is committed after what follows it.
    RemovesLate,
}

/// Commits removals after the next commit.
struct Late {
    meta: Arc<MemoryMeta>,
    removal: Mutex<Option<Batch>>,
}

impl MetaStore for Late {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<bytes::Bytes>, StoreError> {
        self.meta.get(family, key)
    }

    fn scan(&self, family: Family, range: KeyRange<'_>, visit: Visit<'_>) -> Result<(), StoreError> {
        self.meta.scan(family, range, visit)
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        self.meta.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<CommitNumber, StoreError> {
        if matches!(batch.changes()[0], Change::Delete(..)) {
            *self.removal.lock() = Some(batch);
            return Ok(CommitNumber(self.meta.commits()));
        }
        let number = self.meta.commit(batch)?;
        let late = self.removal.lock().take();
        late.map_or(Ok(number), |removal| self.meta.commit(removal))?;
        Ok(number)
    }

    fn sync(&self, number: CommitNumber) -> Result<(), StoreError> {
        self.meta.sync(number)
    }
}

const HOSTS: usize = 3;
const STEPS: usize = 300;

/// A call that makes a promise.
struct Call<'a> {
    host: usize,
    pinned: Option<Pinned<'a>>,
    commit: CommitNumber,
    has_promised: bool,
}

/// The life of one owner, and what its clients know.
struct Life<'a> {
    list: &'a HostList,
    meta: &'a MemoryMeta,
    fault: Fault,
    now: Monotonic,
    durable: CommitNumber,
    /// The server's promises.
    promises: [bool; HOSTS],
    /// Promises that clients have got.
    held: [bool; HOSTS],
    calls: Vec<Call<'a>>,
    leaving: Vec<(SocketAddr, u64)>,
}

impl Life<'_> {
    fn step(&mut self, rng: &mut SmallRng) {
        let host = rng.random_range(0..HOSTS);
        match rng.random_range(0..8) {
            0 | 1 => self.call(host),
            2 => self.promise(),
            3 => self.answer(),
            4 => {
                self.durable = CommitNumber(self.meta.commits());
                self.meta.sync(self.durable).unwrap();
            }
            // The client gives its promise up.
            5 => (self.promises[host], self.held[host]) = (false, false),
            6 => {
                let is_free = |address: &SocketAddr| {
                    let host = (0..HOSTS).find(|host| address == &super::tests::address(*host)).unwrap();
                    self.fault == Fault::ForgetsHolders || !self.promises[host]
                };
                let idle = self.list.idle(self.now).into_iter().filter(|(address, ..)| is_free(address));
                self.leaving = idle.map(|(address, uses, _)| (address, uses)).collect();
            }
            _ => {
                self.list.remove(std::mem::take(&mut self.leaving).into_iter()).unwrap();
                self.now = self.now + REST * rng.random_range(0..2);
            }
        }
    }

    fn call(&mut self, host: usize) {
        let promisee = Promisee { now: self.now, ..promisee(host, 0) };
        let at_hand = self.list.try_pin(&promisee, self.durable).map(|pinned| (pinned, CommitNumber(0)));
        let (pinned, commit) =
            at_hand.unwrap_or_else(|| self.list.pin(&promisee, || Some(uuid(host))).unwrap().unwrap());
        let pinned = Some(pinned).filter(|_| self.fault != Fault::PinsNothing);
        self.calls.push(Call { host, pinned, commit, has_promised: false });
    }

    fn promise(&mut self) {
        if let Some(call) = self.calls.iter_mut().find(|call| !call.has_promised) {
            self.promises[call.host] = true;
            call.has_promised = true;
            call.pinned = None;
        }
    }

    fn answer(&mut self) {
        let (durable, fault) = (self.durable, self.fault);
        let is_ready =
            |call: &Call<'_>| call.has_promised && (call.commit <= durable || fault == Fault::AnswersAtOnce);
        if let Some(position) = self.calls.iter().position(is_ready) {
            let call = self.calls.swap_remove(position);
            // A promise that was given up meanwhile is void for the client, too.
            self.held[call.host] = self.promises[call.host];
        }
    }
}

/// Lives of owners that crash. Returns a host that holds a promise and is not in the list after a crash.
fn play(seed: u64, fault: Fault) -> Option<usize> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut meta = Arc::new(MemoryMeta::new());
    for _ in 0..3 {
        let late = Arc::new(Late { meta: meta.clone(), removal: Mutex::default() });
        let seen: Arc<dyn MetaStore> = if fault == Fault::RemovesLate { late } else { meta.clone() };
        let list = HostList::load(seen).unwrap();
        let mut life = Life {
            list: &list,
            meta: &meta,
            fault,
            now: at(0),
            durable: CommitNumber(0),
            promises: [false; HOSTS],
            held: [false; HOSTS],
            calls: Vec::new(),
            leaving: Vec::new(),
        };
        for _ in 0..rng.random_range(0..STEPS) {
            life.step(&mut rng);
        }
        let held = life.held;
        drop(life);
        let kept = rng.random_range(0..=meta.unsynced_commits());
        meta = Arc::new(meta.crash(kept));
        let listed = listed_hosts(&*meta).unwrap();
        let is_lost = |host: &usize| held[*host] && !listed.iter().any(|one| one.address == address(*host));
        if let Some(lost) = (0..HOSTS).find(is_lost) {
            return Some(lost);
        }
    }
    None
}

#[test]
fn the_holder_of_a_promise_is_listed_after_a_crash() {
    seeds::play(2_000, |seed| assert_eq!(play(seed, Fault::None), None));
}

#[test]
fn planted_faults_are_found() {
    for fault in [Fault::AnswersAtOnce, Fault::PinsNothing, Fault::ForgetsHolders, Fault::RemovesLate] {
        let found = (0..2_000).find(|seed| play(*seed, fault).is_some());
        assert!(found.is_some(), "{fault:?}");
    }
}
