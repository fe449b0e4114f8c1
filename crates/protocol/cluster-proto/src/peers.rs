//! The leases of other nodes, as this one sees them.
//!
//! An owner is *over* when no object can make it valid again: its membership is marked as left or dead, or the node has
//! another one. A lease that is not renewed is waited for, then its object is marked as dead, on condition that it
//! has not changed: a node that wakes up later cannot renew it.

use crate::member::NodeStatus;
use crate::names::{Incarnation, NodeName};
use crate::records::{NodeRecord, NodeState};
use crate::request::{Answer, Notice, Request, RequestId};
use crate::slot::{Known, Settled, Slot};
use crate::takeover::{LeaseEnd, Pace};
use crate::timing::{Timing, renewal};
use base::Monotonic;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What is known of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Unknown,
    /// Its lease is not over before, and is doubtful from this time on.
    Alive(Monotonic),
    /// Its membership has ended, or certainly will have at this time.
    Over(Monotonic),
}

#[derive(Debug)]
struct Peer {
    slot: Slot<NodeRecord>,
    /// Since when the present incarnation, or the absence of the object, has been seen.
    incarnation_since: Monotonic,
    /// The memberships to evict when their leases have ended.
    evict: BTreeSet<Incarnation>,
    /// The last membership whose end was seen.
    end: Option<(Incarnation, LeaseEnd)>,
    pace: Option<(Incarnation, Pace)>,
}

enum Plan {
    Read,
    Evict(Incarnation),
}

impl Peer {
    fn incarnation(&self) -> Option<Incarnation> {
        self.slot.known.record().map(|record| record.incarnation)
    }

    /// Returns the membership if it has not ended, and when its lease was seen to change.
    fn live(&self) -> Option<(Incarnation, Monotonic)> {
        let live = self.slot.known.record().filter(|record| record.state == NodeState::Live);
        live.map(|record| (record.incarnation, self.slot.changed_at))
    }

    /// Notes what an answer has changed. A lease that has ended was taken to have ended at `ended`.
    fn note(&mut self, before: Option<(Incarnation, Monotonic)>, now: Monotonic, ended: Monotonic) {
        if let Some((incarnation, renewed)) = before
            && self.live().is_none_or(|(live, _)| live != incarnation)
        {
            let record = self.slot.known.record().filter(|record| record.incarnation == incarnation);
            let has_left = record.is_some_and(|record| record.state == NodeState::Left);
            self.end = Some((incarnation, LeaseEnd { renewed, ended, evicted: now, has_left }));
        }
        let Some(record) = self.slot.known.record().filter(|record| record.state == NodeState::Live) else {
            return self.pace = None;
        };
        match &mut self.pace {
            Some((incarnation, pace)) if *incarnation == record.incarnation => {
                pace.note(record.sequence, now, renewal(record.ttl));
            }
            pace => *pace = Some((record.incarnation, Pace::new(record.sequence, now))),
        }
    }

    fn status(&self, node: &NodeName) -> NodeStatus {
        let record = self.slot.known.record();
        NodeStatus {
            node: node.clone(),
            addresses: record.map(|record| record.addresses.clone()).unwrap_or_default(),
            state: record.map(|record| record.state),
            changed: self.slot.changed_at,
            renewal: self.pace.and_then(|(_, pace)| pace.mean),
        }
    }

    /// Judges the owner `owner`, which was seen first at `seen_at`.
    fn verdict(&self, owner: Incarnation, seen_at: Monotonic, timing: Timing) -> Verdict {
        match &self.slot.known {
            Known::Found(_, record) if record.incarnation == owner => match record.state {
                NodeState::Live => Verdict::Alive(self.slot.changed_at + timing.doubt()),
                NodeState::Left | NodeState::Dead => Verdict::Over(seen_at),
            },
            Known::Found(_, record) if record.replaced == Some(owner) => Verdict::Over(seen_at),
            // What was read before the owner was seen may be older than the owner.
            Known::Found(_, record) if self.slot.read_sent.is_some_and(|sent| sent >= seen_at) => {
                Verdict::Over(self.incarnation_since.max(seen_at) + timing.wait(record.ttl.max(timing.ttl())))
            }
            _ => Verdict::Unknown,
        }
    }

    /// Returns when the membership to evict has certainly ended.
    fn evict_at(&self, timing: Timing) -> Option<(Monotonic, Incarnation)> {
        if !self.slot.may_write() {
            return None;
        }
        let (evict, ttl) = match &self.slot.known {
            Known::Found(_, record) if record.state == NodeState::Live => {
                (self.evict.get(&record.incarnation)?, record.ttl)
            }
            Known::Missing => (self.evict.first()?, timing.ttl()),
            _ => return None,
        };
        Some((self.slot.changed_at + timing.wait(ttl), *evict))
    }

    fn plan(&self, timing: Timing, may_evict: bool) -> Option<(Monotonic, Plan)> {
        let read = (self.slot.next_read(true)?, Plan::Read);
        let Some((evict_at, evict)) = self.evict_at(timing).filter(|_| may_evict) else { return Some(read) };
        let evict = (self.slot.free_at(evict_at)?, Plan::Evict(evict));
        Some(if read.0 < evict.0 { read } else { evict })
    }
}

#[derive(Debug)]
pub(crate) struct Peers {
    timing: Timing,
    /// Place of the object of each node.
    folder: String,
    all: BTreeMap<NodeName, Peer>,
}

impl Peers {
    pub(crate) fn new(folder: String, timing: Timing) -> Peers {
        Peers { timing, folder, all: BTreeMap::new() }
    }

    /// Watches exactly these nodes, and evicts those of these memberships whose leases have ended.
    pub(crate) fn watch(&mut self, needed: &BTreeMap<NodeName, BTreeSet<Incarnation>>, now: Monotonic) {
        self.all.retain(|node, _| needed.contains_key(node));
        for (node, evict) in needed {
            let peer = self.all.entry(node.clone()).or_insert_with(|| Peer {
                slot: Slot::new(object(&self.folder, node), now),
                incarnation_since: now,
                evict: BTreeSet::new(),
                end: None,
                pace: None,
            });
            peer.evict.clone_from(evict);
        }
    }

    /// Whether a lease may be as it was seen, as far as it was read here.
    pub(crate) fn may_be(&self, seen: &NodeRecord) -> bool {
        match self.all.get(&seen.node).map(|peer| &peer.slot.known) {
            None | Some(Known::Unread) => true,
            Some(known) => known.record() == Some(seen),
        }
    }

    pub(crate) fn verdict(&self, node: &NodeName, owner: Incarnation, seen_at: Monotonic) -> Verdict {
        let peer = self.all.get(node);
        peer.map_or(Verdict::Unknown, |peer| peer.verdict(owner, seen_at, self.timing))
    }

    /// Returns how a membership of another node has ended, if that was seen.
    pub(crate) fn end_of(&self, node: &NodeName, incarnation: Incarnation) -> Option<LeaseEnd> {
        let (ended, end) = self.all.get(node)?.end?;
        (ended == incarnation).then_some(end)
    }

    /// Returns what is seen of the nodes that are watched.
    pub(crate) fn status(&self) -> Vec<NodeStatus> {
        self.all.iter().map(|(node, peer)| peer.status(node)).collect()
    }

    pub(crate) fn addresses(&self, node: &NodeName) -> &[SocketAddr] {
        self.all.get(node).and_then(|peer| peer.slot.known.record()).map_or(&[], |record| &record.addresses)
    }

    pub(crate) fn next_time(&self, may_evict: bool) -> Option<Monotonic> {
        self.all.values().filter_map(|peer| Some(peer.plan(self.timing, may_evict)?.0)).min()
    }

    pub(crate) fn request(&mut self, now: Monotonic, id: RequestId, may_evict: bool) -> Option<Request> {
        let timing = self.timing;
        let due = |peer: &Peer| peer.plan(timing, may_evict).filter(|(due, _)| *due <= now);
        let (node, peer, (_, plan)) =
            self.all.iter_mut().find_map(|(node, peer)| due(peer).map(|plan| (node, peer, plan)))?;
        match plan {
            Plan::Read => Some(peer.slot.read(now, id)),
            Plan::Evict(incarnation) => {
                let record = dead(node, incarnation, peer.slot.known.record(), timing);
                let operation = peer.slot.known.write(record.encode())?;
                Some(peer.slot.write(now, id, operation, record))
            }
        }
    }

    /// Takes an answer, if it belongs to a request of these objects.
    pub(crate) fn answer(&mut self, now: Monotonic, id: RequestId, answer: Answer) -> Option<Notice> {
        let (node, peer) = self.all.iter_mut().find(|(_, peer)| peer.slot.has_asked(id))?;
        let (before, live) = (peer.incarnation(), peer.live());
        let settled = peer.slot.settle(now, self.timing, answer, |bytes| NodeRecord::decode(node, bytes));
        if peer.incarnation() != before {
            peer.incarnation_since = now;
        }
        let ended = if let Settled::Written(_, sent) = &settled { *sent } else { now };
        peer.note(live, now, ended);
        match settled {
            Settled::Written(record, _) => Some(Notice::Evicted(node.clone(), record.incarnation)),
            Settled::Trouble(why) => Some(Notice::Trouble { object: peer.slot.name.clone(), why }),
            Settled::Read | Settled::Unsettled => None,
        }
    }
}

/// Returns the name of the object with a node's lease.
pub fn object(folder: &str, node: &NodeName) -> String {
    crate::names::join(folder, &format!("nodes/{node}"))
}

/// Returns the contents that end a membership.
fn dead(node: &NodeName, incarnation: Incarnation, known: Option<&NodeRecord>, timing: Timing) -> NodeRecord {
    match known {
        Some(record) => NodeRecord { state: NodeState::Dead, ..record.clone() },
        None => NodeRecord {
            node: node.clone(),
            incarnation,
            sequence: 0,
            state: NodeState::Dead,
            ttl: timing.ttl(),
            replaced: None,
            addresses: Vec::new(),
            takes_addresses: false,
        },
    }
}
