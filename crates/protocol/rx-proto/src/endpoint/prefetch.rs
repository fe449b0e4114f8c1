//! Prefetching of the state that a batch of packets needs, before any of them is processed.
//!
//! With thousands of clients, a client's state is no longer in the processor's caches when its next packet
//! arrives. If packets were processed one by one, each would wait for its connection, then its call, then its
//! peer. A pass in which no access depends on an earlier one fetches all of them concurrently.

use std::hint::black_box;

use super::Endpoint;
use super::input::key_of;
use crate::call::Call;
use crate::call::rest::LingeringReply;
use crate::header;
use crate::path::Path;
use crate::peer::Peer;

impl Endpoint {
    /// Prefetches the state for these packets. Has no visible effect.
    pub(super) fn prefetch_state<'a>(&mut self, packets: impl Iterator<Item = (&'a Path, &'a [u8])>) {
        if !self.is_crowded() {
            return;
        }
        let mut found = std::mem::take(&mut self.connections.prefetched);
        found.extend(packets.filter_map(|(path, datagram)| {
            let (header, _) = header::parse(datagram).ok()?;
            self.connections.index.get(&key_of(&header, path).1).map(|key| (*key, header.channel()))
        }));
        let mut seen = 0;
        for (key, channel) in &found {
            seen ^= self.connections.all.get(*key).map_or(0, |connection| connection.look(*channel));
        }
        for (key, channel) in &found {
            let Some(connection) = self.connections.all.get(*key) else { continue };
            seen ^= self.peers.all.get(connection.peer).map_or(0, Peer::look);
            let Some(call) = connection.channels[*channel].call else { continue };
            let resting = self.calls.resting(call).map(LingeringReply::look);
            seen ^= resting.unwrap_or_else(|| self.calls.get(call).map_or(0, Call::look));
        }
        black_box(seen);
        found.clear();
        self.connections.prefetched = found;
    }
}
