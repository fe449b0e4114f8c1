//! Looking at what many packets will need, before any of them is taken in.
//!
//! Of thousands of clients nothing is in a processor's caches when their next packets come. Taken in one by one, each would
//! wait for its connection, then for its call, then for its peer. Looked at one after the other, with nothing that depends
//! on what came before, they are all fetched at a time.

use std::hint::black_box;

use super::Endpoint;
use super::input::key_of;
use crate::call::Call;
use crate::call::rest::Rest;
use crate::header;
use crate::path::Path;
use crate::peer::Peer;

impl Endpoint {
    /// See the module's text. Changes nothing that shows.
    pub(super) fn foresee<'a>(&mut self, packets: impl Iterator<Item = (&'a Path, &'a [u8])>) {
        if !self.is_crowded() {
            return;
        }
        let mut found = std::mem::take(&mut self.foreseen);
        found.extend(packets.filter_map(|(path, datagram)| {
            let (header, _) = header::parse(datagram).ok()?;
            self.index.get(&key_of(&header, path).1).map(|key| (*key, header.channel()))
        }));
        let mut seen = 0;
        for (key, channel) in &found {
            seen ^= self.connections.get(*key).map_or(0, |connection| connection.look(*channel));
        }
        for (key, channel) in &found {
            let Some(connection) = self.connections.get(*key) else { continue };
            seen ^= self.peers.get(connection.peer).map_or(0, Peer::look);
            let Some(call) = connection.channels[*channel].call else { continue };
            let resting = self.calls.resting(call).map(Rest::look);
            seen ^= resting.unwrap_or_else(|| self.calls.get(call).map_or(0, Call::look));
        }
        black_box(seen);
        found.clear();
        self.foreseen = found;
    }
}
