//! A cell of three location servers, of which the first was away while a volume moved.

use crate::client::fakes::{Fakes, server};
use crate::client::{Interface, vote};
use afs_idl::server::take;
use afs_idl::stream::StreamSource;
use afs_idl::{CallStream, MemoryStream, fs, vl};
use base::{AbortCode, Caller, Identity, SecurityLevel};
use parking_lot::Mutex;
use std::net::Ipv4Addr;
use std::sync::Arc;
use xdr::Encode;

/// The file servers from which and to which it moved.
const OLD: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const NEW: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
/// The time at all servers.
const NOW: u32 = 1000;

/// Who has been asked where the volume is.
type Asked = Arc<Mutex<Vec<Ipv4Addr>>>;

struct Files(Ipv4Addr);

impl fs::Server for Files {
    fn fetch_status(&self, _: &Caller, _: fs::FetchStatusRequest) -> Result<fs::FetchStatusReply, AbortCode> {
        if self.0 == NEW { Ok(fs::FetchStatusReply::default()) } else { Err(AbortCode::VMOVED) }
    }
}

struct Locations(Ipv4Addr, Asked);

impl vl::Server for Locations {
    fn get_entry_by_name_n(
        &self,
        _: &Caller,
        request: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        self.1.lock().push(self.0);
        let is_named = |name: &str| request.volume_name == name;
        if is_named("none") || (is_named("new") && self.0 == server(1)) {
            return Err(AbortCode::VL_NOENT);
        }
        let site = if self.0 == server(1) { OLD } else { NEW };
        let mut entry = vl::NVldbEntry { server_count: 1, ..vl::NVldbEntry::default() };
        entry.server_number[0] = site.into();
        entry.server_flags[0] = vl::site_flags::READ_WRITE;
        Ok(vl::GetEntryByNameNReply { entry })
    }
}

/// What the servers say to `udebug` (`ubik_debug_old`): the first one has heard of nobody yet, the second one voted for
/// the third, which is sync site.
fn state(address: Ipv4Addr, stream: &mut MemoryStream) -> Result<(), AbortCode> {
    let mut source = StreamSource::new(stream);
    let _: u32 = take(&mut source)?;
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

fn cell() -> (Arc<Fakes>, Asked) {
    let asked = Asked::default();
    let told = asked.clone();
    let fakes = Fakes::new(move |address, service, stream| {
        let peer = (address, 7000).into();
        let (identity, level, local) = (Identity::Anonymous, SecurityLevel::Clear, address.into());
        let caller = Caller { identity, level, peer, local, connection: 1 };
        match service {
            vote::SERVICE => state(address, stream),
            52 => vl::dispatch(&Locations(address, told.clone()), &caller, stream),
            _ => fs::dispatch(&Files(address), &caller, stream),
        }
    });
    (fakes, asked)
}

#[test]
fn a_volume_is_found_although_the_first_location_server_names_its_old_place() {
    let (fakes, asked) = cell();
    let client = fakes.cell(3);
    assert_eq!(client.root_of("moved").unwrap().address(), NEW);
    assert_eq!(*asked.lock(), [server(1), server(1), server(2)]);
    asked.lock().clear();
    assert_eq!(client.root_of("moved").unwrap().address(), NEW);
    assert_eq!(*asked.lock(), [server(2)], "who was right is asked first");
}

#[test]
fn a_volume_that_the_first_location_server_has_not_heard_of_is_found() {
    let (fakes, asked) = cell();
    let client = fakes.cell(3);
    assert_eq!(client.root_of("new").unwrap().address(), NEW);
    asked.lock().clear();
    assert_eq!(client.find_volume("none").unwrap(), None);
    assert_eq!(asked.lock().len(), 3, "it is nowhere if nobody knows it");
}

#[test]
fn nobody_who_is_dead_is_waited_for_if_the_others_say_the_same() {
    let (fakes, asked) = cell();
    let client = fakes.cell(3);
    let all = || client.locate_unless("moved", |_| true);
    fakes.fail(server(2), Some(AbortCode::RX_CALL_DEAD));
    fakes.fail(server(3), Some(AbortCode::RX_CALL_DEAD));
    assert_eq!(all().unwrap().sites[0].server, OLD);
    fakes.calls();
    assert_eq!(all().unwrap().sites[0].server, OLD);
    assert_eq!(fakes.calls(), 1);
    assert_eq!(*asked.lock(), [server(1), server(1)]);
}

#[test]
fn who_is_to_change_an_entry_sees_the_sync_sites() {
    let (fakes, asked) = cell();
    let client = fakes.cell(3);
    assert_eq!(client.locate("moved").unwrap().sites[0].server, OLD);
    asked.lock().clear();
    assert_eq!(client.locate_newest("moved").unwrap().sites[0].server, NEW);
    assert_eq!(client.locate_newest("moved").unwrap().sites[0].server, NEW);
    assert_eq!(*asked.lock(), [server(3), server(3)]);
    fakes.calls();
    client.locate_newest("moved").unwrap();
    assert_eq!(fakes.calls(), 1, "who it is stays known for a while");
    // It is gone, and the second server does not know that yet.
    fakes.fail(server(3), Some(AbortCode::RX_CALL_DEAD));
    let newest = || {
        client.newest(Interface::Locations, |vl| {
            vl::get_entry_by_name_n(vl, &vl::GetEntryByNameNRequest::default())
        })
    };
    assert_eq!(newest().unwrap_err(), AbortCode::RX_CALL_DEAD);
    assert_eq!(newest().unwrap_err(), AbortCode::UNOQUORUM, "nobody takes changes");
}
