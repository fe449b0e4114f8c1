//! How the client copes with a location server that was down while a volume moved.

use crate::Interface;
use crate::fakes::behind::{NEW, OLD, cell};
use crate::fakes::server;
use afs_idl::vl;
use base::AbortCode;

#[test]
fn a_volume_is_found_despite_an_outdated_location_server() {
    let (fakes, asked) = cell();
    let client = fakes.cell(3);
    assert_eq!(client.root_of("moved").unwrap().address(), NEW);
    assert_eq!(*asked.lock(), [server(1), server(1), server(2)]);
    asked.lock().clear();
    assert_eq!(client.root_of("moved").unwrap().address(), NEW);
    assert_eq!(*asked.lock(), [server(2)], "who was right is asked first");
}

#[test]
fn a_volume_unknown_to_the_first_location_server_is_found() {
    let (fakes, asked) = cell();
    let client = fakes.cell(3);
    assert_eq!(client.root_of("new").unwrap().address(), NEW);
    asked.lock().clear();
    assert_eq!(client.find_volume("none").unwrap(), None);
    assert_eq!(asked.lock().len(), 3, "it is nowhere if nobody knows it");
}

#[test]
fn dead_servers_are_skipped_if_the_others_agree() {
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
fn changes_read_entries_at_the_sync_site() {
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
    // The sync site is down, and the second server does not know that yet.
    fakes.fail(server(3), Some(AbortCode::RX_CALL_DEAD));
    let newest = || {
        client.newest(Interface::Locations, |vl| {
            vl::get_entry_by_name_n(vl, &vl::GetEntryByNameNRequest::default())
        })
    };
    assert_eq!(newest().unwrap_err(), AbortCode::RX_CALL_DEAD);
    assert_eq!(newest().unwrap_err(), AbortCode::UNOQUORUM, "nobody takes changes");
}

#[test]
fn readers_ask_the_sync_site_or_any_server_without_one() {
    let (fakes, asked) = cell();
    let client = fakes.cell(3);
    let read = |volume| {
        client.locate_to_read(volume).map(|(found, may_be_behind)| (found.sites[0].server, may_be_behind))
    };
    assert_eq!(read("moved").unwrap(), (NEW, false));
    assert_eq!(read("new").unwrap(), (NEW, false));
    assert!(read("none").is_err());
    assert_eq!(*asked.lock(), [server(3); 3]);
    fakes.fail(server(3), Some(AbortCode::RX_CALL_DEAD));
    assert_eq!(read("moved").unwrap(), (OLD, true));
    assert!(read("none").unwrap_err().to_string().contains("there is no volume none"));
}

#[test]
fn a_name_is_free_if_the_sync_site_says_so() {
    let (fakes, asked) = cell();
    let client = fakes.cell(3);
    assert_eq!(client.is_registered("new"), Ok(true), "the first server does not know it");
    assert_eq!(client.is_registered("none"), Ok(false));
    assert_eq!(*asked.lock(), [server(3), server(3)]);
    let refused = client.check_name_is_free("new").unwrap_err().to_string();
    assert_eq!(refused, "a volume new exists already");
    client.check_name_is_free("none").unwrap();
    fakes.fail(server(3), Some(AbortCode::RX_CALL_DEAD));
    let unknown = client.check_name_is_free("none").unwrap_err().to_string();
    assert!(unknown.contains("look up the volume none"), "{unknown}");
}
