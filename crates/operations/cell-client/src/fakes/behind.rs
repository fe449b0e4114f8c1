//! A cell of three location servers, the first of which was down while a volume moved.

use super::{Fakes, server};
use crate::vote;
use afs_idl::stream::StreamSource;
use afs_idl::{CallStream, MemoryStream, cellar, fs, vl};
use base::{AbortCode, CallContext, Caller, Identity, SecurityLevel};
use parking_lot::Mutex;
use std::net::Ipv4Addr;
use std::sync::Arc;
use xdr::Encode;

/// The file server that the volume has left.
pub const OLD: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
/// The file server that the volume has moved to.
pub const NEW: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
/// IDs of the volume `copies`, read-only on the new server, and of `twice`, read-only on both.
pub const COPIES: [u32; 3] = [200, 205, 0];
/// Current time at all servers.
const NOW: u32 = 1000;

/// The location servers that were asked, in order.
pub type Queried = Arc<Mutex<Vec<Ipv4Addr>>>;

struct Files(Ipv4Addr);

impl Files {
    fn is_there(&self) -> Result<(), AbortCode> {
        if self.0 == NEW { Ok(()) } else { Err(AbortCode::VMOVED) }
    }
}

impl fs::Server for Files {
    fn fetch_status(
        &self,
        _: &CallContext<'_>,
        _: fs::FetchStatusRequest,
    ) -> Result<fs::FetchStatusReply, AbortCode> {
        self.is_there().map(|()| fs::FetchStatusReply::default())
    }
}

impl cellar::Server for Files {
    fn list_snapshots(
        &self,
        _: &CallContext<'_>,
        _: cellar::ListSnapshotsRequest,
    ) -> Result<cellar::ListSnapshotsReply, AbortCode> {
        self.is_there().map(|()| cellar::ListSnapshotsReply::default())
    }

    fn create_snapshot(
        &self,
        _: &CallContext<'_>,
        _: cellar::CreateSnapshotRequest,
    ) -> Result<cellar::CreateSnapshotReply, AbortCode> {
        self.is_there().map(|()| cellar::CreateSnapshotReply::default())
    }

    fn set_volume_policy(
        &self,
        _: &CallContext<'_>,
        _: cellar::SetVolumePolicyRequest,
    ) -> Result<cellar::SetVolumePolicyReply, AbortCode> {
        self.is_there().map(|()| cellar::SetVolumePolicyReply)
    }

    fn purge_volume_cache(
        &self,
        _: &CallContext<'_>,
        _: cellar::PurgeVolumeCacheRequest,
    ) -> Result<cellar::PurgeVolumeCacheReply, AbortCode> {
        self.is_there().map(|()| cellar::PurgeVolumeCacheReply::default())
    }
}

struct Locations(Ipv4Addr, Queried);

impl vl::Server for Locations {
    fn get_entry_by_name_n(
        &self,
        _: &CallContext<'_>,
        request: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        self.1.lock().push(self.0);
        let asked = request.volume_name.to_string();
        let is_named = |name: &str| asked == name;
        if is_named("none") || (is_named("new") && self.0 == server(1)) {
            return Err(AbortCode::VL_NOENT);
        }
        let site = if self.0 == server(1) { OLD } else { NEW };
        let name = request.volume_name;
        let mut entry = vl::NVldbEntry { name, server_count: 1, ..vl::NVldbEntry::default() };
        entry.volume_id[0] = 17;
        entry.server_number[0] = site.into();
        entry.server_flags[0] = vl::site_flags::READ_WRITE;
        if is_named("copies") || is_named("twice") {
            (entry.volume_id, entry.server_flags) = (COPIES, [vl::site_flags::READ_ONLY; vl::SITES]);
            entry.server_number[1] = OLD.into();
            entry.server_count += i32::from(is_named("twice"));
        }
        Ok(vl::GetEntryByNameNReply { entry })
    }
}

/// Answers `udebug` requests (`ubik_debug_old`): the first server knows no sync site yet; the second one
/// voted for the third, which is the sync site.
fn state(address: Ipv4Addr, stream: &mut MemoryStream) -> Result<(), AbortCode> {
    let mut source = StreamSource::new(stream);
    let _: u32 = source.decode_request()?;
    let mut words = [0; 28];
    words[0] = NOW;
    match address.octets()[3] {
        2 => (words[2], words[3], words[4]) = (server(3).into(), 1, NOW - 5),
        3 => (words[13], words[14]) = (1, NOW + 50),
        _ => {}
    }
    let mut reply = Vec::new();
    for word in words {
        u32::encode(&word, &mut reply);
    }
    source.write(reply.into())
}

/// A cell in which the volume `moved` has moved and the volume `new` was created, both unknown to the first
/// location server.
pub fn cell() -> (Arc<Fakes>, Queried) {
    let asked = Queried::default();
    let reported = asked.clone();
    let fakes = Fakes::new(move |address, service, stream| {
        let peer = (address, 7000).into();
        let (identity, level, local) = (Identity::Anonymous, SecurityLevel::Clear, address.into());
        let caller = Caller { identity, level, peer, local, connection: base::Connection::new() };
        match service {
            vote::SERVICE => state(address, stream),
            52 => vl::dispatch(&Locations(address, reported.clone()), &CallContext::new(&caller), stream),
            20011 => cellar::dispatch(&Files(address), &CallContext::new(&caller), stream),
            _ => fs::dispatch(&Files(address), &CallContext::new(&caller), stream),
        }
    });
    (fakes, asked)
}
