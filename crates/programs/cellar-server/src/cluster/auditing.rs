//! What happens to this node, for the audit. The lease's thread must not wait for a sink, so a thread of its own records it.

use super::Node;
use crate::authority::cell_principal;
use crate::threads::{thread, wait};
use audit::{Change, Membership, Trail};
use base::{Caller, Connection, Identity, SecurityLevel};
use cluster::{MemberEvent, Takeover};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of events that wait; further ones are not recorded.
const EVENTS_MAX: usize = 1024;

/// Interval at which events are recorded.
const PERIOD: Duration = Duration::from_millis(400);

/// Two lists of service addresses: the one before, and the present one.
pub(super) type Lists = (Vec<Ipv4Addr>, Vec<Ipv4Addr>);

/// The events that are not recorded yet.
pub(super) struct Auditing {
    own: SocketAddrV4,
    /// Taken away if there is no audit; nothing waits under the lock.
    events: Mutex<Option<(Receiver<MemberEvent>, Receiver<Lists>)>>,
    /// Held while events are recorded.
    membership: Mutex<Option<Membership>>,
}

impl Auditing {
    /// Returns what records the events of a node that is called at `own`, and where they are sent.
    pub(super) fn new(own: SocketAddrV4) -> (Auditing, SyncSender<MemberEvent>, SyncSender<Lists>) {
        let ((events, of_member), (lists, of_census)) = (sync_channel(EVENTS_MAX), sync_channel(EVENTS_MAX));
        let auditing =
            Auditing { own, events: Mutex::new(Some((of_member, of_census))), membership: Mutex::default() };
        (auditing, events, lists)
    }

    /// Begins to record, if there is an audit.
    fn begin(&self, trail: Option<&Arc<Trail>>) -> bool {
        let Some(trail) = trail else {
            *self.events.lock() = None;
            return false;
        };
        let caller = Caller {
            identity: Identity::Known(cell_principal()),
            level: SecurityLevel::Clear,
            peer: self.own.into(),
            local: IpAddr::V4(*self.own.ip()),
            connection: Connection::new(),
        };
        *self.membership.lock() = Some(Membership::new(trail, caller));
        true
    }

    /// Returns the events since the last call.
    fn taken(&self) -> (Vec<MemberEvent>, Vec<Lists>) {
        let events = self.events.lock();
        let taken = |(events, lists): &(Receiver<MemberEvent>, Receiver<Lists>)| {
            (events.try_iter().collect(), lists.try_iter().collect())
        };
        events.as_ref().map_or_else(Default::default, taken)
    }
}

impl Node {
    /// Begins to record what happens to this node, until `ending` is set. Before the audit ends, call
    /// [`end_audit`](Self::end_audit).
    pub(crate) fn begin_audit(
        self: &Arc<Self>,
        trail: Option<&Arc<Trail>>,
        ending: &Arc<AtomicBool>,
    ) -> Option<JoinHandle<()>> {
        let is_audited = self.auditing().begin(trail);
        let (node, ending) = (Arc::clone(self), Arc::clone(ending));
        is_audited.then(|| {
            thread("membership", move || {
                while wait(&ending, PERIOD) {
                    node.record(None);
                }
            })
        })
    }

    /// Records what has happened since, and that this node leaves.
    pub(crate) fn end_audit(&self) {
        self.record(Some(Change::Left { node: self.name().to_string() }));
        *self.auditing().membership.lock() = None;
    }

    fn record(&self, last: Option<Change>) {
        let membership = self.auditing().membership.lock();
        let Some(membership) = &*membership else { return };
        let (events, lists) = self.auditing().taken();
        let changes = events.into_iter().map(|event| self.change(event)).chain(lists.iter().map(of_lists));
        changes.chain(last).for_each(|change| membership.record(&change, rx::now()));
    }

    fn change(&self, event: MemberEvent) -> Change {
        let own = self.name().to_string();
        match event {
            MemberEvent::Joined => Change::Joined { node: own },
            MemberEvent::Lost => Change::Lost { node: own },
            MemberEvent::Evicted(node) => Change::Evicted { node: node.to_string(), by: own },
            MemberEvent::Takeover(takeover) => self.of_takeover(&takeover),
        }
    }

    fn of_takeover(&self, takeover: &Takeover) -> Change {
        let partition = self.display_name(&takeover.partition);
        let other = takeover.other.as_ref().map(ToString::to_string).unwrap_or_default();
        let (cause, epoch) = (takeover.cause.name().to_owned(), takeover.epoch.0);
        if takeover.cause.is_gain() {
            Change::Taken { partition, from: other, cause, epoch }
        } else {
            Change::GivenUp { partition, to: other, cause, epoch }
        }
    }
}

fn of_lists((old, new): &Lists) -> Change {
    let text = |list: &[Ipv4Addr]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Change::Addresses { old: text(old), new: text(new) }
}
