//! Promises are broken before a change is acknowledged.

use crate::wire::mode;
use crate::world::{Client, HOME, RELEASED, World, released_root, root, serve, text};
use afs_idl::MemoryStream;
use afs_idl::fs::{self, Server};
use base::CallContext;
use parking_lot::Mutex;
use std::sync::Arc;

const NOTHING: [&str; 0] = [];

/// Returns a file of bob's, whose status alice and carol have cached, as well as the directory's.
fn watched() -> (World, Client, Client, fs::Fid) {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    for fid in [file, root()] {
        world.status(&alice, fid).unwrap();
        world.status(&bob, fid).unwrap();
    }
    world.heard();
    (world, alice, bob, file)
}

#[test]
fn a_store_is_acknowledged_after_one_break_of_each_promise() {
    let (world, _, bob, file) = watched();
    let request =
        fs::StoreData64Request { fid: file, status: mode(None), position: 0, length: 3, file_length: 3 };
    world.wire_call(&bob, fs::STORE_DATA64, &request, b"abc").unwrap();
    assert_eq!(world.heard(), [format!("alice drops {}", text(file)), "bob is answered".into()]);
    world.write(&bob, file, b"again").unwrap();
    assert_eq!(world.heard(), NOTHING);
}

#[test]
fn a_notified_client_reads_the_new_version() {
    let (world, alice, bob, file) = watched();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (server, caller, found) = (world.server.clone(), alice.caller.clone(), seen.clone());
    alice.station.on_break(move |_| {
        let mut stream = MemoryStream::default();
        let request = fs::FetchData64Request { fid: file, position: 0, length: 100 };
        serve(&server, |call| call.fetch_data64(&CallContext::new(&caller), request, &mut stream)).unwrap();
        found.lock().extend_from_slice(&stream.outgoing[8..]);
    });
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(*seen.lock(), b"new");
    // The promise that alice obtained in the meantime remains.
    world.write(&bob, file, b"newer").unwrap();
    assert_eq!(world.heard().len(), 2);
}

#[test]
fn each_change_breaks_its_callbacks() {
    let (world, alice, bob, file) = watched();
    let (f, d) = (text(file), text(root()));
    let refetch = || {
        for fid in [file, root()] {
            world.status(&alice, fid).unwrap();
            world.status(&bob, fid).unwrap();
        }
        world.heard();
    };
    let both = format!("alice drops {d} {f}");

    let request = fs::StoreStatusRequest { fid: file, status: mode(Some(0o600)) };
    world.serve(|call| call.store_status(&bob.call(), request)).unwrap();
    assert_eq!(world.heard(), [format!("alice drops {f}")]);
    refetch();
    let request = fs::LinkRequest { directory: root(), name: "second".into(), existing: file };
    world.serve(|call| call.link(&bob.call(), request)).unwrap();
    assert_eq!(world.heard(), [both.as_str()]);
    refetch();
    // A file that keeps a name has changed for the remover as well.
    world.remove(&bob, root(), "second").unwrap();
    let mut heard = world.heard();
    heard.sort();
    assert_eq!(heard, [format!("alice drops {d}"), format!("alice drops {f}"), format!("bob drops {f}")]);
    refetch();
    world.make_dir(&bob, root(), "sub").unwrap();
    assert_eq!(world.heard(), [format!("alice drops {d}")]);
    refetch();
    world.set_acl(&bob, root(), "2\n0\nstaff\t127\nsystem:anyuser\t9\n").unwrap();
    assert_eq!(world.heard(), [format!("alice drops {d}")]);
    refetch();
    // Promises on a deleted file end without a break, since no client can reach it.
    world.remove(&bob, root(), "file").unwrap();
    assert_eq!(world.heard(), [format!("alice drops {d}")]);
    assert_eq!(world.server.callback_counters().files_deleted, 1);
}

#[test]
fn a_directory_that_moves_has_changed_for_its_mover_too() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let from = world.make_dir(&bob, root(), "from").unwrap();
    let to = world.make_dir(&bob, root(), "to").unwrap();
    let moved = world.make_dir(&bob, from, "moved").unwrap();
    for fid in [from, to, moved] {
        world.status(&alice, fid).unwrap();
    }
    world.heard();
    let request = fs::RenameRequest {
        old_directory: from,
        old_name: "moved".into(),
        new_directory: to,
        new_name: "here".into(),
    };
    let reply = world.serve(|call| call.rename(&bob.call(), request)).unwrap();
    assert_eq!((reply.old_directory_status.link_count, reply.new_directory_status.link_count), (2, 3));
    let mut heard = world.heard();
    heard.sort();
    let mut directories = [text(from), text(to)];
    directories.sort();
    let expected = [
        format!("alice drops {}", directories.join(" ")),
        format!("alice drops {}", text(moved)),
        format!("bob drops {}", text(moved)),
    ];
    assert_eq!(heard, {
        let mut expected = expected.to_vec();
        expected.sort();
        expected
    });
}

#[test]
fn promises_last_hours_for_few_users_and_say_so() {
    let (world, alice, _, file) = watched();
    let reply = world.status(&alice, file).unwrap();
    assert_eq!(reply.call_back.expiration_time, 4 * 60 * 60);
    assert_eq!((reply.call_back.version, reply.call_back.call_back_type), (1, 2));
    let bulk = world
        .serve(|call| call.bulk_status(&alice.call(), fs::BulkStatusRequest { fids: vec![file] }))
        .unwrap();
    assert_eq!(bulk.call_backs[0].expiration_time, 15 * 60);
}

#[test]
fn an_expired_promise_is_not_broken() {
    let (world, alice, bob, file) = watched();
    world.clock.advance(5 * 60 * 60);
    world.server.maintain();
    world.status(&bob, root()).unwrap();
    world.heard();
    world.write(&bob, file, b"x").unwrap();
    assert_eq!(world.heard(), NOTHING);
    world.status(&alice, file).unwrap();
    assert!(world.server.callback_counters().expired >= 4);
}

#[test]
fn a_read_only_volume_is_promised_and_broken_as_a_whole() {
    let world = World::new();
    let admin = world.client("admin", 1);
    let reply = world.status(&admin, released_root()).unwrap();
    assert_eq!(reply.call_back.expiration_time, 2 * 60 * 60);
    world.heard();
    world.server.volume_changed(HOME);
    assert_eq!(world.heard(), NOTHING);
    world.server.volume_changed(RELEASED);
    assert_eq!(world.heard(), [format!("admin drops {RELEASED}.0.0")]);
    world.server.volume_changed(RELEASED);
    assert_eq!(world.heard(), NOTHING);
}

/// Another client may have its address since, whether anyone has called meanwhile or not.
#[test]
fn a_release_on_a_quiet_server_probes_idle_clients() {
    let world = World::new();
    let alice = world.client("alice", 1);
    world.status(&alice, released_root()).unwrap();
    world.clock.advance(120);
    world.heard();
    world.server.volume_changed(RELEASED);
    assert_eq!(world.heard(), ["alice is probed".to_owned(), format!("alice drops {RELEASED}.0.0")]);
}

#[test]
fn many_hosts_are_notified_concurrently() {
    let world = World::new();
    let bob = world.client("bob", 200);
    let file = world.create(&bob, root(), "file").unwrap();
    let watchers: Vec<Client> = (1..60).map(|number| world.client("alice", number)).collect();
    for watcher in &watchers {
        world.status(watcher, file).unwrap();
    }
    for watcher in &watchers[..10] {
        watcher.station.set_reachable(false);
    }
    world.heard();
    world.write(&bob, file, b"x").unwrap();
    assert_eq!(world.heard().len(), 49);
    let counters = world.server.callback_counters();
    assert_eq!((counters.hosts_down, counters.breaks_delayed, counters.deliveries_under_way), (10, 10, 0));
}
