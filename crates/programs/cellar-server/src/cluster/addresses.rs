//! The service addresses of the cluster: each is owned by one node, which has it at its interface
//! (docs/design/cluster.md, "Service addresses").

mod census;
mod holder;
mod leaving;
mod plan;
mod ports;

use super::auditing::Lists;
use super::isolation::OtherNode;
use super::leases::Numbers;
use crate::buckets::connect;
use crate::threads::thread;
use anyhow::Result;
use cellar_config::Settings;
use cluster::{Member, NodeName, PartitionName, service_address_place};
use cluster_proto::Standing;
use interfaces::Interface;
use parking_lot::{Mutex, RwLock};
use ports::Ports;
use rx::Server;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For how long it is relied on which other nodes renew their leases.
const OTHERS_FRESH: Duration = Duration::from_secs(2);

/// Interval at which threads check whether there is something to do.
const LOOK: Duration = Duration::from_millis(100);

/// For how long an interface that has failed is left alone.
const PAUSE: Duration = Duration::from_secs(60);

/// How long the end of the server waits for clients to acknowledge the last replies: they cannot be sent again without the
/// address that was called.
const DELIVERY_LIMIT: Duration = Duration::from_secs(1);

/// How long the end of the server waits until its addresses are gone from the interface.
const WITHDRAW_LIMIT: Duration = Duration::from_secs(1);

/// Whether and where this process can have service addresses.
pub(super) struct Prepared {
    own: Ipv4Addr,
    refusal: Option<&'static str>,
    interface: Result<Interface, String>,
}

impl Prepared {
    /// Whether it can have any.
    pub(super) fn is_able(&self) -> bool {
        self.interface.is_ok()
    }
}

/// The service addresses at this node.
pub(crate) struct Addresses {
    node: NodeName,
    member: Arc<Member>,
    folder: String,
    /// The address whose interface gets the service addresses.
    own: Ipv4Addr,
    /// Why this node takes none whatever its interface is like.
    refusal: Option<&'static str>,
    /// The interface, or since when and why there is none; nothing waits under the lock.
    interface: Mutex<Result<Arc<Interface>, (Instant, String)>>,
    /// Guards what is known of all addresses; nothing waits under it.
    known: RwLock<Known>,
    /// The ports where clients call; unset until [`Addresses::begin`].
    ports: OnceLock<Ports>,
    is_withdrawn: AtomicBool,
    /// What this node does about clients; nothing waits under the lock.
    standing: Mutex<Standing>,
    /// Gets changes of the list.
    lists: SyncSender<Lists>,
}

/// What is known of all addresses.
#[derive(Default)]
struct Known {
    /// The addresses for the location database: none if the nodes' own count. `None` until that is known.
    registered: Option<Vec<Ipv4Addr>>,
    entries: Vec<Arc<Entry>>,
    /// The nodes as their leases were read last.
    nodes: Numbers,
    /// Where a node that has a service address receives calls of other nodes.
    holder: Option<SocketAddr>,
    /// The other nodes that renew their leases, and when the bucket was asked for them. No nodes without service addresses.
    others: Option<(Instant, Vec<OtherNode>)>,
}

/// One service address.
struct Entry {
    address: Ipv4Addr,
    place: PartitionName,
    /// Whether this node is not to have it, or is to give it up.
    is_unwanted: AtomicBool,
    /// Whether this node owns it.
    is_owned: AtomicBool,
    /// Whether this node has it at its interface, or is about to.
    is_held: AtomicBool,
    /// The node that is to have it when this one gives it up; nothing waits under the lock.
    heir: Mutex<Option<NodeName>>,
    /// Whether the address is no longer one of the cluster's.
    is_gone: AtomicBool,
}

impl Addresses {
    /// Finds the interface of a node's own address, if this process can have service addresses there.
    pub(super) fn prepare(settings: &Settings, own: Ipv4Addr) -> Prepared {
        let is_bound = !settings.bind.is_empty();
        let refusal = is_bound.then_some(
            "`server.bind` names addresses, so that the server's sockets receive nothing for others; remove it",
        );
        let interface = match refusal {
            Some(refusal) => Err(refusal.to_owned()),
            None => Interface::with_address(own).map_err(|error| error.to_string()),
        };
        Prepared { own, refusal, interface }
    }

    /// The addresses of a node that has begun to join.
    pub(super) fn of(
        prepared: Prepared,
        node: NodeName,
        member: Arc<Member>,
        (folder, lists): (&str, SyncSender<Lists>),
    ) -> Addresses {
        let Prepared { own, refusal, interface } = prepared;
        Addresses {
            node,
            member,
            folder: folder.to_owned(),
            own,
            refusal,
            interface: Mutex::new(interface.map(Arc::new).map_err(|why| (Instant::now(), why))),
            known: RwLock::default(),
            ports: OnceLock::new(),
            is_withdrawn: AtomicBool::new(false),
            standing: Mutex::default(),
            lists,
        }
    }

    /// Starts the threads for these ports, which end soon after `ending` is set, or this node has [withdrawn](Self::withdraw).
    ///
    /// # Errors
    /// If the bucket's client cannot be set up.
    pub(super) fn begin(
        self: &Arc<Self>,
        settings: &Settings,
        ending: &Arc<AtomicBool>,
        servers: &[Arc<Server>],
    ) -> Result<Option<JoinHandle<()>>> {
        let Some(cluster) = &settings.cluster else { return Ok(None) };
        _ = self.ports.set(Ports::of(servers));
        let census = census::Census::new(Arc::clone(self), connect(&cluster.bucket)?)?;
        let ending = Arc::clone(ending);
        Ok(Some(thread("addresses", move || census.run(&ending))))
    }

    /// Returns the addresses to register instead of the nodes' own, none for those; `None` while that is not known.
    pub(crate) fn registered(&self) -> Option<Vec<Ipv4Addr>> {
        self.known.read().registered.clone()
    }

    /// Returns how many nodes there are, as their leases were read last.
    pub(super) fn nodes(&self) -> Numbers {
        self.known.read().nodes
    }

    /// Returns a service address that this node has: clients accept its messages from there.
    pub(crate) fn source(&self) -> Option<Ipv4Addr> {
        let known = self.known.read();
        let mut held: Vec<&Arc<Entry>> = known.entries.iter().filter(|entry| entry.is_held()).collect();
        // A message from an address that is about to go would fail.
        held.sort_by_key(|entry| entry.is_unwanted.load(Ordering::Relaxed));
        held.first().map(|entry| entry.address)
    }

    /// Returns where a node that has a service address receives calls of other nodes, if this one has none.
    pub(crate) fn holder(&self) -> Option<SocketAddr> {
        self.known.read().holder.filter(|_| self.source().is_none())
    }

    /// Returns the other nodes that renew their leases, none without service addresses; `None` if that was not read lately.
    pub(super) fn others(&self) -> Option<Vec<OtherNode>> {
        let known = self.known.read();
        let fresh = known.others.as_ref().filter(|(asked, _)| asked.elapsed() < OTHERS_FRESH);
        fresh.map(|(_, others)| others.clone())
    }

    /// Returns the number of packets that the file server has received from clients: not from nodes, given by their addresses, and not
    /// from this machine.
    pub(super) fn packets_of_clients(&self, others: &BTreeSet<IpAddr>) -> u64 {
        let mut nodes = others.clone();
        nodes.insert(IpAddr::V4(self.own));
        nodes.extend(self.known.read().entries.iter().map(|entry| IpAddr::V4(entry.address)));
        self.ports.get().map_or(0, |ports| ports.packets_of_others(&nodes))
    }

    /// Changes what this node does about clients.
    pub(super) fn set_standing(&self, standing: Standing) {
        *self.standing.lock() = standing;
        let interface = self.interface.lock();
        self.say(interface.is_ok());
    }

    /// Whether this node leaves the clients to others, and takes nothing.
    pub(super) fn is_leaving(&self) -> bool {
        *self.standing.lock() == Standing::Leaves
    }

    /// Lets the lease say whether this node takes addresses.
    fn say(&self, is_able: bool) {
        let serves = *self.standing.lock() == Standing::Serves;
        self.member.set_takes_addresses(is_able && serves);
    }

    /// Gives all addresses up, for other nodes, when no new calls are accepted. Waits until the last replies have arrived and the
    /// addresses are gone from the interface, for a moment.
    pub(crate) fn withdraw(&self) {
        self.member.set_takes_addresses(false);
        wait_at_most(DELIVERY_LIMIT, || !self.has_calls());
        self.is_withdrawn.store(true, Ordering::Relaxed);
        for entry in &self.known.read().entries {
            entry.is_unwanted.store(true, Ordering::Relaxed);
        }
        wait_at_most(WITHDRAW_LIMIT, || self.source().is_none());
    }

    /// Whether calls of clients at the service addresses have not ended.
    fn has_calls(&self) -> bool {
        let Some(ports) = self.ports.get() else { return false };
        let held: Vec<Ipv4Addr> = self
            .known
            .read()
            .entries
            .iter()
            .filter(|entry| entry.is_held())
            .map(|entry| entry.address)
            .collect();
        held.into_iter().any(|address| ports.calls(address) > 0)
    }

    /// Whether the threads are to end.
    fn is_ending(&self, ending: &AtomicBool) -> bool {
        self.is_withdrawn.load(Ordering::Relaxed) || ending.load(Ordering::Relaxed)
    }

    /// Returns the interface, which is looked for again some time after it has failed.
    fn interface(&self) -> Result<Arc<Interface>, String> {
        let mut interface = self.interface.lock();
        let is_due = |since: &Instant| self.refusal.is_none() && since.elapsed() >= PAUSE;
        if interface.as_ref().is_err_and(|(since, _)| is_due(since)) {
            let found = Interface::with_address(self.own);
            self.say(found.is_ok());
            *interface = found.map(Arc::new).map_err(|error| (Instant::now(), error.to_string()));
        }
        interface.clone().map_err(|(_, why)| why)
    }

    /// The interface has failed: this node takes no addresses for a while.
    fn failed(&self, why: String) {
        self.member.set_takes_addresses(false);
        *self.interface.lock() = Err((Instant::now(), why));
    }
}

/// Waits until something is so, but not longer than this.
fn wait_at_most(limit: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < limit {
        std::thread::sleep(LOOK / 10);
    }
}

impl Entry {
    fn new(folder: &str, address: Ipv4Addr) -> Result<Entry> {
        Ok(Entry {
            address,
            place: service_address_place(folder, address)?,
            is_unwanted: AtomicBool::new(true),
            is_owned: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            heir: Mutex::default(),
            is_gone: AtomicBool::new(false),
        })
    }

    fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }
}
