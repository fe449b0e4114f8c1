//! Three nodes with leases in a bucket. One owns the partition and dies, another takes it over, a client goes on through
//! the third.

use crate::cut::Cut;
use crate::files::{fetch, make, store};
use crate::world::{Client, Local, Node, VOLUMES, allow_all, memory, new_volumes, open_volumes, root};
use afs_idl::{ClientConnection, fs};
use base::{AbortCode, Fid};
use cluster::{Member, MemberConfig, Owner};
use cluster_proto::{NodeName, PartitionName, Timing};
use clusterserver::{Members, Ownership};
use object_store::memory::InMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use volume::PartitionHandle;

const TTL: Duration = Duration::from_secs(5);

/// Within this time after the owner's death the client is served again.
const SERVED_AGAIN: Duration = Duration::from_secs(60);

fn partition() -> PartitionName {
    "cell/p".parse().unwrap()
}

/// A node with a lease.
struct Process {
    node: Node,
    local: Arc<Local>,
    bucket: Arc<Cut>,
    member: Arc<Member>,
    members: Arc<Members>,
}

impl Process {
    fn start(bucket: &Arc<InMemory>, name: &str, number: u8) -> Process {
        let name: NodeName = name.parse().unwrap();
        let bucket = Arc::new(Cut { bucket: bucket.clone(), is_cut: AtomicBool::new(false) });
        let local = Local::new(partition());
        let mut started = None;
        let ownership = |address| -> Arc<dyn Ownership> {
            let timing = Timing::new(TTL).unwrap();
            let config = MemberConfig {
                folder: "cell".into(),
                addresses: vec![address],
                timing,
                ..MemberConfig::new(name.clone())
            };
            let member = Arc::new(Member::start(bucket.clone(), config).unwrap());
            let partitions = vec![partition()];
            let members = Members::new(member.clone(), name.clone(), timing.hold_limit(), partitions);
            let members = Arc::new(members);
            started = Some((member, members.clone()));
            members
        };
        let node = Node::start(number, ownership, &local);
        let (member, members) = started.unwrap();
        Process { node, local, bucket, member, members }
    }

    /// Waits until this node owns the partition, and serves it.
    fn serve(&self, handle: &PartitionHandle, stop: &AtomicBool) -> Option<Arc<Owner>> {
        let owner = Arc::new(self.member.acquire(&partition(), stop).ok()?);
        assert!(owner.opened(Vec::new()).is_empty());
        self.local.open(open_volumes(handle));
        self.members.opened(owner.clone());
        Some(owner)
    }

    /// Ends everything that others notice of the process.
    fn kill(&mut self) {
        self.bucket.is_cut.store(true, Relaxed);
        self.node.kill_all();
    }
}

/// Makes and stores files until `stop` is set, and counts them. Returns those that were acknowledged, and the longest time for one.
fn write(
    connection: &dyn ClientConnection,
    stop: &AtomicBool,
    written: &AtomicUsize,
) -> (Vec<(String, fs::Fid)>, Duration) {
    let (mut acknowledged, mut longest) = (Vec::new(), Duration::ZERO);
    for number in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        let (name, begun) = (format!("f{number}"), Instant::now());
        // One that was made, and whose reply was lost, is not made again.
        let fid = again(|| make(connection, root(0), &name));
        again(|| store(connection, fid, name.repeat(5000).as_bytes()).map(drop));
        longest = longest.max(begun.elapsed());
        acknowledged.push((name, fid));
        written.store(acknowledged.len(), Relaxed);
    }
    (acknowledged, longest)
}

/// Makes a call as clients do, which begin it anew when the server restarts.
fn again<T>(mut call: impl FnMut() -> Result<T, AbortCode>) -> T {
    loop {
        match call() {
            Ok(result) => return result,
            Err(AbortCode::VRESTARTING) => thread::sleep(Duration::from_millis(100)),
            Err(code) => panic!("{code:?}"),
        }
    }
}

fn lookup(connection: &dyn ClientConnection, name: &str) -> Result<fs::Fid, AbortCode> {
    let request = fs::LookupRequest { directory: root(0), name: name.into() };
    fs::lookup(connection, &request).map(|reply| reply.fid)
}

#[test]
fn a_client_goes_on_when_the_owner_dies() {
    let (bucket, handle, stop) = (Arc::new(InMemory::new()), memory(0), AtomicBool::new(false));
    let mut first = Process::start(&bucket, "a", 41);
    let second = Process::start(&bucket, "b", 42);
    let third = Process::start(&bucket, "c", 43);
    drop(new_volumes(&handle, 0));
    let owner = first.serve(&handle, &stop).unwrap();
    allow_all(&first.node, 0);
    let client = Client::start(44);
    let connection = client.to(&third.node);
    let (is_done, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let write_more = || {
        let (before, begun) = (written.load(Relaxed), Instant::now());
        while written.load(Relaxed) < before + 10 && begun.elapsed() < SERVED_AGAIN {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let (acknowledged, longest) = thread::scope(|scope| {
        let writing = scope.spawn(|| write(&*connection, &is_done, &written));
        let taking = scope.spawn(|| second.serve(&handle, &stop));
        write_more();
        first.kill();
        let next = taking.join().unwrap().unwrap();
        assert!(next.epoch() > owner.epoch());
        write_more();
        is_done.store(true, Relaxed);
        writing.join().unwrap()
    });
    println!("{} files, the longest took {longest:?}", acknowledged.len());
    assert!(acknowledged.len() >= 20 && longest < SERVED_AGAIN);
    assert!(longest > TTL / 2, "the owner died in between");
    // Everything that was acknowledged is there, at the owner and at the front.
    let direct = client.to(&second.node);
    for (name, fid) in &acknowledged {
        assert_eq!(Fid::from(*fid).volume, VOLUMES[0]);
        assert_eq!(lookup(&*connection, name), Ok(*fid));
        for connection in [&direct, &connection] {
            assert_eq!(fetch(&**connection, *fid, 1 << 20).unwrap(), name.repeat(5000).as_bytes(), "{name}");
        }
    }
    assert!(!owner.may_answer(), "the first node's lease has ended");
    assert!(third.node.front.counters().forwarded > 40);
    assert!(third.members.own(&partition()).is_none() && second.members.own(&partition()).is_some());
}
