//! Fast path for forwarded calls that the receiving thread of their owner can answer itself.

use crate::counters::count;
use crate::scope::Scope;
use crate::service::{Admitted, ClusterService};
use crate::wire;
use afs_idl::cluster;
use base::CallContext;
use bytes::Bytes;
use cluster_proto::{CallKind, Epoch, Repeat};
use xdr::{Decode, SliceSource};

impl ClusterService {
    /// Returns the reply to a complete request if it is a forwarded call that needs no waiting: the lease of its front
    /// is known, and [`Files::try_answer`](crate::Files::try_answer) answers it. `None` has no effect that a caller could
    /// observe.
    pub fn try_answer(&self, caller: &CallContext<'_>, request: &[u8]) -> Option<Bytes> {
        let (opcode, arguments) = request.split_first_chunk()?;
        if u32::from_be_bytes(*opcode) != cluster::FORWARD || self.check_trust(caller).is_err() {
            return None;
        }
        let mut source = SliceSource::new(arguments);
        let forward = cluster::ForwardRequest::decode(&mut source).ok()?;
        let inner = &arguments[arguments.len() - source.remaining()..];
        let Ok(Scope::Volume(volume)) = Scope::of(inner) else { return None };
        let (front, addresses) = self.known_node(caller, &forward.front)?;
        let partition = wire::partition(&forward.partition).ok()?;
        let call = Admitted {
            partition: &partition,
            epoch: Epoch(forward.epoch),
            kind: CallKind::Read,
            repeat: Repeat::Freely,
            is_of_files: true,
        };
        let own = self.environment.ownership.own(&partition)?;
        let is_open = own.epoch == call.epoch && own.reads && !own.is_draining;
        if !is_open || self.environment.files.partition_of(volume).as_ref() != Some(&partition) {
            return None;
        }
        let client = wire::parse_caller(&forward.caller).ok()?;
        let client = self.callers.of(front, forward.caller.connection, client);
        let reply = self.environment.files.try_answer(&CallContext::new(&client), inner)?;
        // What the reply shows was read while the ownership lasted.
        self.check(&call).ok()?;
        if let Some(front) = addresses.first() {
            self.fronts.met(client.peer, *front);
        }
        count(&self.fronts.tally.executed);
        Some(reply)
    }
}
