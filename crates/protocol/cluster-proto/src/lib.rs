//! The protocol by which several nodes share partitions in a bucket: one owner at a time, and another one after its
//! death.
//!
//! It is pure: [`Member`] is one node, its shell sends the requests and reports the answers. `docs/design/cluster.md` has
//! the reasons, `docs/reference/formats/cluster.md` the objects.
//!
//! # Rules
//!
//! 1. A node relies on its lease for [`Timing::trust`] after it *sent* the last renewal that succeeded. Another node
//!    evicts it only after it saw the lease unchanged for a whole [`Timing::ttl`], which is longer however the rates of
//!    the two clocks deviate. No clocks are compared.
//! 2. A membership ends by a conditional write to the lease's object itself. So a node that wakes up cannot renew
//!    a lease after another has begun to take its partitions, and one that was not evicted goes on.
//! 3. A partition has a new owner only by a conditional write to its owner's object, when the membership that the object
//!    names has ended. The epoch grows with each. The new owner opens the database, which fences the one before: what
//!    a node that slept still writes is refused.
//! 4. A host is in the partition's durable list before its first promise is answered.
//! 5. A new owner resets all listed hosts before it answers a change.
//! 6. Nothing is concluded from the failure of a request. Its outcome is read back from the object, which names
//!    its writer.
//!
//! A service address of the cluster is owned like a partition, under the name [`service_address_place`]. [`assign`] says which
//! node should have it, and [`Holding`] when the owner adds it to its interface, announces and removes it.
//!
//! [`Phase`] has the states of a partition at a node, and what may be answered in each.

mod assignment;
mod forward;
mod holding;
mod hosts;
mod isolation;
mod lease;
mod member;
mod names;
mod owned;
mod ownership;
mod peers;
mod phase;
mod records;
mod request;
mod route;
mod slot;
mod takeover;
mod timing;
mod transactions;

pub use assignment::{Transfer, assign, balance, share_out};
pub use forward::{Begun, Forwarding, Outcome, Repeat, Results, Step};
pub use holding::{Deed, Holding};
pub use hosts::{HOSTS_MAX, Promise, Reset};
pub use isolation::{Isolation, Other, Standing, Ways, heirs, isolated};
pub use member::{Member, MemberConfig, NodeStatus, PartitionStatus};
pub use names::{
    Epoch, Incarnation, NODE_NAME_MAX, NameError, NodeName, PARTITION_NAME_MAX, PartitionName, Tag,
};
pub use owned::Owned;
pub use peers::object as lease_object;
pub use phase::{CallKind, Phase, PhaseEvent};
pub use records::{
    ADDRESSES_MAX, ClusterRecord, Holder, LIST_FRESH, LIST_OUTDATED, NodeRecord, NodeState, OwnerRecord,
    PARTITIONS_MAX, PartitionState, REACHED_MAX, RECORD_BYTES_MAX, ReachRecord, RecordError,
    SERVICE_ADDRESSES_MAX, ServiceAddressError, ServiceAddresses, service_address_place,
};
pub use request::{Action, Answer, Notice, Operation, Request, RequestId};
pub use route::{Call, Forward, Refusal, Route, Via};
pub use takeover::{Cause, Stage, Takeover};
pub use timing::{CLOCK_RATE_PERCENT, TTL_MAX, TTL_MIN, Timing, TimingError};
pub use transactions::{partition_of_transaction, transaction_numbers};

#[cfg(test)]
mod tests;
