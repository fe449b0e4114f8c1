//! The lease of this process in a bucket, and the partitions that it owns by it.
//!
//! A [`Member`] renews the lease in a thread of its own; [`acquire`](Member::acquire) waits until a partition is this
//! process's. Who owns what is decided by [`cluster_proto`]; this crate sends its requests and reads the clock.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bucket: std::sync::Arc<dyn object_store::ObjectStore> = std::sync::Arc::new(object_store::memory::InMemory::new());
//! # let stop = std::sync::atomic::AtomicBool::new(false);
//! let config = cluster::MemberConfig { folder: "cell/p1".into(), ..cluster::MemberConfig::new("a.example".parse()?) };
//! let member = cluster::Member::start(bucket, config)?;
//! let owner = member.acquire(&"cell/p1".parse()?, &stop)?; // waits for the end of an earlier owner
//! // Open the database, then:
//! for host in owner.opened(Vec::new()) {
//!     // let the host drop what it caches, then:
//!     owner.reset_done(host, cluster::Reset::Acknowledged);
//! }
//! assert!(owner.may_change());
//! // Close the database, then:
//! owner.release(None);
//! member.leave();
//! # Ok(())
//! # }
//! ```

mod addresses;
mod clock;
mod driver;
mod facts;
mod gate;
mod history;
mod member;
mod nodes;
mod process;
mod reach;
mod request;
mod routes;
mod survey;
mod troubles;

pub use addresses::{read_service_addresses, replace_service_addresses, service_addresses};
pub use clock::now;
pub use cluster_proto::{
    CallKind, Cause, ClusterRecord, Deed, Epoch, Holder, Holding, Incarnation, NameError, NodeName,
    NodeRecord, NodeState, OwnerRecord, PARTITIONS_MAX, PartitionName, PartitionState, PartitionStatus,
    Phase, ReachRecord, Refusal, Reset, Route, ServiceAddressError, ServiceAddresses, Stage, Takeover,
    Timing, TimingError, Transfer, assign, balance, service_address_place, share_out,
};
pub use driver::Counters;
pub use facts::{
    change_cluster, cluster_record, create_cluster, forget_added_empty, is_vacant, note_added_empty,
    read_cluster, share_databases, was_added_empty,
};
pub use gate::OwnerEvent;
pub use history::{History, NodeWatched, PastTakeover, TAKEOVERS_MAX};
pub use member::{AcquireError, Member, MemberConfig, MemberEvent, Owner, Status};
pub use nodes::{NODES_MAX, read_nodes};
pub use reach::{isolated_nodes, read_isolated_nodes, read_reach, write_reach};
pub use survey::{NodeSeen, Survey, SurveyError, read_owners, survey};
pub use troubles::RequestFailure;
