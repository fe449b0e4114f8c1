//! The cell's databases in the bucket of a cluster. One node has them open; every node answers, and passes calls on to
//! that one.

use super::handovers::Order;
use super::{Calls, Node};
use crate::authority::Authority;
use crate::buckets::{self, Leases, OpenDatabases, Ownership, Way};
use crate::copying::unmark;
use crate::neighbours::FileServers;
use crate::threads::{thread, wait};
use afs_idl::{CallStream, MemoryStream, pr, vl};
use anyhow::{Context, Result};
use base::{AbortCode, CallContext, HostUuid, RecvBuffer, UnixTime};
use bytes::Bytes;
use cell_client::network::now;
use cellar_config::Settings;
use cluster::{CallKind, PartitionName, Route};
use cluster_proto::{Owned, Repeat};
use clusterserver::{Target, Way as Passed};
use parking_lot::{Mutex, RwLock};
use ptdb::Protection;
use ptserver::PtService;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::Partition;
use vldb::Locations;
use vlserver::VlService;
use vlserver::ubik::{self, Standing, Version, opcode, version_in};

/// How long a call is held while no node can answer it; OpenAFS's tools and clients wait longer.
const HOLD: Duration = Duration::from_secs(20);

/// How long the node that has the databases open is asked for their version.
const VERSION_LIMIT: Duration = Duration::from_secs(1);

/// How long a reply waits for a lease that has lapsed to be renewed. Another node may have the databases after that.
const LAPSE_LIMIT: Duration = Duration::from_secs(6);

/// How often a reply that waits is considered again.
const PAUSE: Duration = Duration::from_millis(10);

/// Interval at which the ownership is checked.
const LOOK: Duration = Duration::from_millis(200);

/// How long calls may still use databases that are being closed.
const GRACE: Duration = Duration::from_secs(5);

/// First pause before the databases are opened again; it doubles with each failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The databases as this node serves them.
pub(crate) struct Databases {
    settings: Arc<Settings>,
    authority: Arc<Authority>,
    /// The file server's UUID.
    own: HostUuid,
    node: Arc<Node>,
    place: PartitionName,
    /// Present while this node has them open; nothing waits under the lock.
    open: RwLock<Option<Arc<Open>>>,
    /// The way to other nodes; it is set once, and has this.
    calls: OnceLock<Weak<Calls>>,
    /// The addresses of the other nodes, as last seen; nothing waits under the lock.
    others: Mutex<Vec<Vec<Ipv4Addr>>>,
}

/// The open databases, with their services.
struct Open {
    ownership: Arc<dyn Ownership>,
    partition: Arc<Partition>,
    locations: Arc<Locations>,
    protection: Arc<Protection>,
    vl: VlService,
    pt: PtService,
    began: UnixTime,
}

/// Returns what a call does to the databases, and whether it may be executed twice; `None` for what is no such call.
pub(crate) fn call_kind(service: u16, opcode: u32) -> Option<(CallKind, Repeat)> {
    let (procedures, is_change) = match service {
        vl::SERVICE_ID => (vl::PROCEDURES, changes_locations(opcode)),
        pr::SERVICE_ID => (pr::PROCEDURES, changes_protection(opcode)),
        ubik::SERVICE_ID => (&[(opcode::DEBUG_OLD, "")][..], false),
        _ => return None,
    };
    procedures.iter().any(|(known, _)| *known == opcode).then_some(if is_change {
        (CallKind::Change, Repeat::Once)
    } else {
        (CallKind::Read, Repeat::Freely)
    })
}

fn changes_locations(opcode: u32) -> bool {
    matches!(
        opcode,
        vl::CREATE_ENTRY
            | vl::DELETE_ENTRY
            | vl::GET_NEW_VOLUME_ID
            | vl::REPLACE_ENTRY
            | vl::UPDATE_ENTRY
            | vl::SET_LOCK
            | vl::RELEASE_LOCK
            | vl::CHANGE_ADDR
            | vl::CREATE_ENTRY_N
            | vl::REPLACE_ENTRY_N
            | vl::UPDATE_ENTRY_BY_NAME
            | vl::CREATE_ENTRY_U
            | vl::REPLACE_ENTRY_U
            | vl::REGISTER_ADDRS
    )
}

fn changes_protection(opcode: u32) -> bool {
    matches!(
        opcode,
        pr::I_NEW_ENTRY
            | pr::ADD_TO_GROUP
            | pr::DELETE
            | pr::REMOVE_FROM_GROUP
            | pr::NEW_ENTRY
            | pr::SET_MAX
            | pr::CHANGE_ENTRY
            | pr::SET_FIELDS_ENTRY
            | pr::UPDATE_ENTRY
    )
}

impl Databases {
    /// Begins to follow where the databases are open, if the settings of the node say that they are in the bucket.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        node: &Arc<Node>,
        authority: &Arc<Authority>,
        own: HostUuid,
    ) -> Option<Arc<Databases>> {
        let place = settings.cluster.as_ref()?.databases_place()?.clone();
        node.member().follow(&place);
        Some(Arc::new(Databases {
            settings: settings.clone(),
            authority: authority.clone(),
            own,
            node: node.clone(),
            place,
            open: RwLock::default(),
            calls: OnceLock::new(),
            others: Mutex::default(),
        }))
    }

    /// Sets the way to other nodes, once.
    pub(crate) fn set_calls(&self, calls: &Arc<Calls>) {
        _ = self.calls.set(Arc::downgrade(calls));
    }

    /// Whether calls about something that is owned are for the databases.
    pub(crate) fn is_at(&self, place: &PartitionName) -> bool {
        *place == self.place
    }

    /// Serves a client's call of the location or the protection service, wherever the databases are open.
    ///
    /// # Errors
    /// The abort code of the call. UNOQUORUM if no node could answer it in time, or if it is not known whether a node did:
    /// clients ask the next database server.
    pub(crate) fn serve(
        &self,
        service: u16,
        call: &CallContext<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode> {
        let head = opcode_of(stream)?;
        let opcode = head.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        if (service, opcode) == (vl::SERVICE_ID, vl::PROBE_SERVER) {
            // It is about this server. Neither the request nor the reply contains anything.
            return Ok(());
        }
        let (kind, repeat) = call_kind(service, opcode).ok_or(AbortCode::RXGEN_OPCODE)?;
        let target = Target { partition: self.place.clone(), service, kind, repeat, limit: HOLD };
        let calls = self.calls.get().and_then(Weak::upgrade).ok_or(AbortCode::UNOQUORUM)?;
        match calls.front().pass_to(call, &target, head, stream) {
            Passed::Here(mut source) => self.here(service, call, &mut source),
            Passed::Ended(Err(AbortCode::VRESTARTING)) => Err(AbortCode::UNOQUORUM),
            Passed::Ended(result) => result,
        }
    }

    /// Serves a call with the databases that are open here.
    pub(crate) fn here(
        &self,
        service: u16,
        call: &CallContext<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode> {
        let open = self.open.read().clone().ok_or(AbortCode::UNOQUORUM)?;
        let served = open.dispatch(service, call, &mut Confirmed { stream, open: &open });
        // An error, too, shows what the databases contain.
        open.confirm()?;
        // A failure of the store is one of this node, and not the result of the call.
        if served.is_err() && open.partition.failure().is_some() { Err(AbortCode::UNOQUORUM) } else { served }
    }

    /// Returns what `udebug` is to see.
    pub(crate) fn standing(&self, call: &CallContext<'_>) -> Standing {
        match self.node.member().route(&self.place, CallKind::Read, Duration::ZERO) {
            Route::Local(_) => self.own_standing(),
            Route::Forward { addresses, .. } => {
                let address = addresses.iter().find_map(|address| match address.ip() {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                });
                let version = self.version_elsewhere(call).unwrap_or_default();
                Standing::Other { sync_site: address.map(|address| (address, version)) }
            }
            Route::Hold | Route::Refuse(_) => Standing::Other { sync_site: None },
        }
    }

    fn own_standing(&self) -> Standing {
        let Some(open) = self.open.read().clone() else { return Standing::Other { sync_site: None } };
        let left = self.node.member().status().and_then(|status| status.lease_left).unwrap_or_default();
        let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
        Standing::SyncSite { version: open.version(), seconds, others: self.others.lock().clone() }
    }

    /// Asks the node that has the databases open.
    fn version_elsewhere(&self, call: &CallContext<'_>) -> Option<Version> {
        let target = Target {
            partition: self.place.clone(),
            service: ubik::SERVICE_ID,
            kind: CallKind::Read,
            repeat: Repeat::Freely,
            limit: VERSION_LIMIT,
        };
        let request = Bytes::copy_from_slice(&opcode::DEBUG_OLD.to_be_bytes());
        let mut stream = MemoryStream::default();
        match self.calls.get()?.upgrade()?.front().pass_to(call, &target, request, &mut stream) {
            Passed::Ended(Ok(())) => version_in(&stream.outgoing),
            Passed::Here(_) => Some(self.open.read().clone()?.version()),
            Passed::Ended(Err(_)) => None,
        }
    }

    /// Starts the thread that opens the databases when this node is to have them.
    pub(crate) fn start(self: &Arc<Self>, ending: &Arc<AtomicBool>) -> JoinHandle<()> {
        let (databases, ending) = (Arc::clone(self), Arc::clone(ending));
        thread("databases", move || databases.keep(&ending))
    }

    fn keep(&self, ending: &AtomicBool) {
        let (mut pause, mut last) = (RETRY_MIN, String::new());
        loop {
            match self.open(ending) {
                Ok(Some(held)) => {
                    (pause, last) = (RETRY_MIN, String::new());
                    self.hold(held, ending);
                }
                Ok(None) => return,
                Err(error) => {
                    let error = format!("{error:#}");
                    if error != last {
                        tracing::error!(error, "the cell's databases cannot be opened here; trying again");
                    }
                    last = error;
                }
            }
            if !wait(ending, pause) {
                return;
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Waits until this node owns the databases, and opens them; `None` if `ending` is set meanwhile.
    fn open(&self, ending: &AtomicBool) -> Result<Option<OpenDatabases>> {
        let cluster = self.settings.cluster.as_ref().context("this server is not a node")?;
        let place = cluster.databases.as_deref().context("the databases are not in the bucket")?;
        let Some(held) = buckets::open_databases(place, &Way::of_databases(self.node.clone()), ending)?
        else {
            return Ok(None);
        };
        *self.open.write() = Some(Arc::new(self.serving(&held)?));
        Ok(Some(held))
    }

    fn serving(&self, held: &OpenDatabases) -> Result<Open> {
        let clock: vlserver::Clock = Arc::new(now);
        let queries = &self.settings.security.queries;
        unmark(&*held.partition.meta())?;
        let locations =
            Locations::open(held.partition.meta()).context("cannot open the location database")?;
        let protection = Protection::open(held.partition.meta(), queries.protection, now())
            .context("cannot open the protection database")?;
        let (locations, protection) = (Arc::new(locations), Arc::new(protection));
        let rules = vlserver::Settings { queries: queries.location };
        Ok(Open {
            ownership: held.ownership.clone(),
            partition: held.partition.clone(),
            vl: VlService::new(locations.clone(), self.authority.clone(), rules, clock.clone())
                .with_neighbours(Arc::new(FileServers { own: Some(self.own) })),
            pt: PtService::new(protection.clone(), self.authority.clone(), clock),
            locations,
            protection,
            began: now(),
        })
    }

    /// Serves the databases until the ownership ends or another node is to have them, and closes them.
    fn hold(&self, held: OpenDatabases, ending: &AtomicBool) {
        if let Some(order) = self.node.handovers().take(Owned::Databases) {
            // It was asked of an earlier ownership.
            order.end(false);
        }
        held.ownership.begin(&[]);
        tracing::info!(place = %self.place, "the cell's databases are open on this node");
        let (mut leases, mut order) = (self.leases(), None);
        while order.is_none() && wait(ending, LOOK) {
            if held.partition.failure().is_some() {
                held.ownership.end();
            }
            if held.ownership.has_ended() {
                break;
            }
            if let Some(leases) = &mut leases {
                *self.others.lock() = leases.by_server();
            }
            order = self.node.handovers().take(Owned::Databases).and_then(|order| self.leave_for(order));
        }
        if order.is_none() && !ending.load(Ordering::Relaxed) {
            tracing::warn!(place = %self.place, "the cell's databases are not open on this node any more");
        }
        let open = self.open.write().take();
        let begun = Instant::now();
        while open.as_ref().is_some_and(|open| Arc::strong_count(open) > 1) && begun.elapsed() < GRACE {
            std::thread::sleep(PAUSE);
        }
        // The databases are closed before they are given up, which dropping `held` does.
        drop(open);
        drop(held);
        if let Some(order) = order {
            order.end(true);
        }
    }

    /// Lets no call begin any more, since another node is to have the databases. Returns the request if that is so.
    fn leave_for(&self, order: Order) -> Option<Order> {
        if !self.node.drain(Owned::Databases, &order.to) {
            order.end(false);
            return None;
        }
        tracing::info!(place = %self.place, to = %order.to, "giving the cell's databases up");
        Some(order)
    }

    /// Returns what reads the leases of the other nodes. Without it, `udebug` shows none of them.
    fn leases(&self) -> Option<Leases> {
        let bucket = &self.settings.cluster.as_ref()?.bucket;
        let leases = Leases::at(bucket, self.node.name().clone());
        leases.inspect_err(|error| tracing::warn!("the leases of other nodes cannot be read: {error:#}")).ok()
    }
}

impl Open {
    fn dispatch(
        &self,
        service: u16,
        call: &CallContext<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode> {
        match service {
            vl::SERVICE_ID => vl::dispatch(&self.vl, call, stream),
            pr::SERVICE_ID => pr::dispatch(&self.pt, call, stream),
            ubik::SERVICE_ID => {
                let (version, clock) = (self.version(), Arc::new(now));
                let standing =
                    move |_: &CallContext<'_>| Standing::SyncSite { version, seconds: 0, others: Vec::new() };
                ubik::VoteService::new(Vec::new(), Box::new(standing), clock).dispatch(call, stream)
            }
            _ => Err(AbortCode::RXGEN_OPCODE),
        }
    }

    /// Both databases are one, so they have the same version.
    fn version(&self) -> Version {
        let counter = self.locations.writes().wrapping_add(self.protection.writes());
        Version { epoch: self.began, counter }
    }

    /// Returns once a reply may be sent: what it shows is durable, and this node still owns the databases.
    fn confirm(&self) -> Result<(), AbortCode> {
        let settled = self.locations.settle().is_ok() && self.protection.settle().is_ok();
        let begun = Instant::now();
        loop {
            if settled && self.ownership.may_change() {
                return Ok(());
            }
            if !settled || self.ownership.has_ended() || begun.elapsed() >= LAPSE_LIMIT {
                return Err(AbortCode::UNOQUORUM);
            }
            rx::pause(PAUSE);
        }
    }
}

/// The streams of a call. Nothing of the reply is sent before it is [confirmed](Open::confirm).
struct Confirmed<'a> {
    stream: &'a mut dyn CallStream,
    open: &'a Open,
}

impl CallStream for Confirmed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.stream.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.stream.read_chunk(max)
    }

    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        self.stream.fill(rooms)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.open.confirm()?;
        self.stream.write(data)
    }

    fn hold(&mut self, bytes: usize) -> Result<(), AbortCode> {
        self.stream.hold(bytes)
    }

    fn write_held(&mut self, data: Vec<u8>) -> Result<(), AbortCode> {
        self.open.confirm()?;
        self.stream.write_held(data)
    }
}

/// Reads the beginning of a request, at least its opcode if there is one.
fn opcode_of(stream: &mut dyn CallStream) -> Result<Bytes, AbortCode> {
    const PIECE_BYTES: usize = 64 * 1024;
    let mut head = Bytes::new();
    while head.len() < size_of::<u32>() {
        let piece = stream.read_chunk(PIECE_BYTES)?;
        if piece.is_empty() {
            return Err(AbortCode::RXGEN_SS_UNMARSHAL);
        }
        head = if head.is_empty() { piece } else { [&head[..], &piece[..]].concat().into() };
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_executed_once() {
        let changes = |service, procedures: &[(u32, &'static str)]| {
            let is_change = |opcode| call_kind(service, opcode) == Some((CallKind::Change, Repeat::Once));
            let changes = procedures.iter().filter(|(opcode, _)| is_change(*opcode));
            changes.map(|(_, name)| *name).collect::<Vec<_>>()
        };
        assert_eq!(
            changes(vl::SERVICE_ID, vl::PROCEDURES),
            [
                "CreateEntry",
                "DeleteEntry",
                "GetNewVolumeId",
                "ReplaceEntry",
                "UpdateEntry",
                "SetLock",
                "ReleaseLock",
                "ChangeAddr",
                "CreateEntryN",
                "ReplaceEntryN",
                "UpdateEntryByName",
                "CreateEntryU",
                "ReplaceEntryU",
                "RegisterAddrs",
            ]
        );
        assert_eq!(
            changes(pr::SERVICE_ID, pr::PROCEDURES),
            [
                "INewEntry",
                "AddToGroup",
                "Delete",
                "RemoveFromGroup",
                "NewEntry",
                "SetMax",
                "ChangeEntry",
                "SetFieldsEntry",
                "UpdateEntry",
            ]
        );
        let read = Some((CallKind::Read, Repeat::Freely));
        assert_eq!(call_kind(vl::SERVICE_ID, vl::GET_ENTRY_BY_NAME_U), read);
        assert_eq!(call_kind(pr::SERVICE_ID, pr::GET_CPS), read);
        assert_eq!(call_kind(ubik::SERVICE_ID, opcode::DEBUG_OLD), read);
        for (service, opcode) in [
            (vl::SERVICE_ID, 1),
            (pr::SERVICE_ID, vl::REGISTER_ADDRS),
            (ubik::SERVICE_ID, opcode::XDEBUG),
            (1, vl::CREATE_ENTRY),
        ] {
            assert_eq!(call_kind(service, opcode), None, "{service} {opcode}");
        }
    }
}
