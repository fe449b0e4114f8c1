//! What happens to a node of a cluster. No call reports it, so it is recorded as if the node had made calls of Cellar's own
//! service.

use crate::argument;
use crate::class::Class;
use crate::draft::{Messages, Outline};
use crate::event::{Event, Reader, Shape, bytes_max};
use crate::raw_record::{Call, RawRecord};
use crate::trail::Trail;
use base::{CallFacts, Caller, Monotonic};
use std::sync::Arc;
use xdr::{Decode, Encode, SliceSource, opaque};

/// Maximum length of a text: the service addresses of a cluster are shorter, and so are the names of nodes and partitions.
const TEXT_MAX: usize = 1024;

/// Name of the service in the records.
const SERVICE: &str = "CELLAR";

/// What has happened to a node, or what it has seen of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The node has a lease.
    Joined {
        /// Its name.
        node: String,
    },
    /// The node ends in order.
    Left {
        /// Its name.
        node: String,
    },
    /// The node's membership was ended by another one, or replaced by a process of the same name.
    Lost {
        /// Its name.
        node: String,
    },
    /// The node has ended the membership of one whose lease was not renewed.
    Evicted {
        /// The other node's name.
        node: String,
        /// This node's name.
        by: String,
    },
    /// The node has taken a partition over.
    Taken {
        /// The partition.
        partition: String,
        /// The owner before; empty if there was none.
        from: String,
        /// What became of that one.
        cause: String,
        /// The number of the ownership.
        epoch: u64,
    },
    /// The node has given a partition up, or lost it.
    GivenUp {
        /// The partition.
        partition: String,
        /// The node that is to have it; empty if none was named.
        to: String,
        /// Why.
        cause: String,
        /// The number of the ownership that has ended.
        epoch: u64,
    },
    /// The node has found another list of service addresses.
    Addresses {
        /// The addresses before, separated by commas.
        old: String,
        /// The addresses now.
        new: String,
    },
}

/// What is recorded of each, in the order of [`Change::facts`].
static EVENTS: [(&str, Event); 7] = [
    ("NodeJoined", event(|request, _, found| read(request, &["node"], false, found))),
    ("NodeLeft", event(|request, _, found| read(request, &["node"], false, found))),
    ("NodeLost", event(|request, _, found| read(request, &["node"], false, found))),
    ("NodeEvicted", event(|request, _, found| read(request, &["node", "by"], false, found))),
    (
        "PartitionTaken",
        event(|request, _, found| read(request, &["partition", "from", "cause"], true, found)),
    ),
    (
        "PartitionGivenUp",
        event(|request, _, found| read(request, &["partition", "to", "cause"], true, found)),
    ),
    ("ServiceAddressesChanged", event(|request, _, found| read(request, &["old", "new"], false, found))),
];

const fn event(arguments: Reader) -> Event {
    let class = Class::Server;
    let request_max = bytes_max(class);
    Event { opcode: 0, name: "", class, request_max, reply_max: 0, arguments, shape: Shape::Any }
}

/// Reads the texts with these names, and an epoch.
fn read(
    request: &[u8],
    names: &[&'static str],
    has_epoch: bool,
    found: &mut Vec<argument::Argument>,
) -> Option<()> {
    let mut source = SliceSource::new(request);
    for name in names {
        found.push(argument::text(name, &opaque::decode(&mut source, TEXT_MAX).ok()?.into()));
    }
    if has_epoch {
        found.push(argument::own("epoch", u64::decode(&mut source).ok()?.cast_signed()));
    }
    Some(())
}

impl Change {
    /// Returns the place of the event, the texts and the epoch.
    fn facts(&self) -> (usize, Vec<&str>, Option<u64>) {
        match self {
            Change::Joined { node } => (0, vec![node], None),
            Change::Left { node } => (1, vec![node], None),
            Change::Lost { node } => (2, vec![node], None),
            Change::Evicted { node, by } => (3, vec![node, by], None),
            Change::Taken { partition, from, cause, epoch } => {
                (4, vec![partition, from, cause], Some(*epoch))
            }
            Change::GivenUp { partition, to, cause, epoch } => (5, vec![partition, to, cause], Some(*epoch)),
            Change::Addresses { old, new } => (6, vec![old, new], None),
        }
    }
}

/// A node's interface to the audit.
#[derive(Clone, Debug)]
pub struct Membership {
    trail: Arc<Trail>,
    outlines: [Outline; EVENTS.len()],
    node: Caller,
}

impl Membership {
    /// Returns the interface for a node, which is recorded as the caller.
    pub fn new(trail: &Arc<Trail>, node: Caller) -> Membership {
        let outlines = EVENTS.each_ref().map(|(name, event)| trail.outline(event, SERVICE, name));
        Membership { trail: Arc::clone(trail), outlines, node }
    }

    /// Records a change, if a sink selects it. May wait for a sink whose policy is to block.
    pub fn record(&self, change: &Change, now: Monotonic) {
        let (place, texts, epoch) = change.facts();
        let outline = &self.outlines[place];
        // An opcode precedes the arguments.
        let mut request = xdr::to_vec(&0_u32);
        for text in texts {
            opaque::encode(text.as_bytes(), &mut request);
        }
        if let Some(epoch) = epoch {
            epoch.encode(&mut request);
        }
        let call =
            Call { caller: &self.node, result: Ok(()), facts: &CallFacts::default(), took_ns: 0, ended: now };
        let messages = Messages { request: &request, reply: &[] };
        self.trail.record_if_wanted(outline, &RawRecord::new(outline, &call, messages, false), false);
    }
}
