//! First contact, identity, restart, silence.

use crate::wire::mode;
use crate::world::{Client, World, root, text};
use afs_idl::fs::{self, Server};
use base::AbortCode;
use std::time::Duration;

#[test]
fn a_new_host_is_identified_and_initialised_before_its_answer() {
    let world = World::new();
    let alice = world.client("alice", 1);
    world.wire_call(&alice, fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: root() }, &[]).unwrap();
    assert_eq!(world.heard(), ["alice tells about itself", "alice forgets all", "alice is answered"]);
    world.status(&alice, root()).unwrap();
    assert_eq!(world.heard(), Vec::<String>::new());
}

#[test]
fn another_connection_is_asked_again_but_keeps_the_promises() {
    let world = World::new();
    let alice = world.client("alice", 1);
    let bob = world.client("bob", 2);
    world.status(&alice, root()).unwrap();
    world.heard();
    world.status(&world.client("alice", 1), root()).unwrap();
    assert_eq!(world.heard(), ["alice tells about itself"]);
    world.create(&bob, root(), "file").unwrap();
    assert!(world.heard().contains(&format!("alice drops {}", text(root()))));
}

#[test]
fn after_a_restart_every_host_forgets_all() {
    let mut world = World::new();
    let alice = world.client("alice", 1);
    world.status(&alice, root()).unwrap();
    world.heard();
    world.restart();
    world.status(&alice, root()).unwrap();
    assert_eq!(world.heard(), ["alice tells about itself", "alice forgets all"]);
}

#[test]
fn a_host_without_uuid_is_served_the_old_way() {
    let world = World::new();
    let old = world.old_client("carol", 3);
    world.status(&old, root()).unwrap();
    let heard = world.heard();
    // The first reset accompanies the identification, when it is not known yet that the client has no UUID;
    // it is then repeated in the old form.
    assert_eq!(heard, ["carol tells about itself", "carol forgets all", "carol forgets all (old)"]);
    // The client does not translate errors, so it gets Linux's EACCES and EINVAL.
    assert_eq!(world.create(&old, root(), "file"), Err(AbortCode(13)));
    assert_eq!(world.create(&old, root(), "a/b"), Err(AbortCode(22)));
}

#[test]
fn a_host_that_cannot_be_called_back_is_not_served() {
    let world = World::new();
    let alice = world.client("alice", 1);
    for (code, seconds) in [(AbortCode::VBUSY, 10), (AbortCode::RX_CALL_DEAD, 60)] {
        alice.station.set_reachable(false);
        assert_eq!(world.status(&alice, root()), Err(code), "a client repeats its calls once");
        alice.station.set_reachable(true);
        world.clock.advance(seconds - 1);
        assert_eq!(world.status(&alice, root()), Err(code), "it is not queried again so soon");
        world.clock.advance(1);
    }
    world.status(&alice, root()).unwrap();
}

/// The server's port may be closing, it may have lost its address, or have no room for another connection.
#[test]
fn a_failure_of_the_server_refuses_one_call() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    for code in [AbortCode::RX_RESTARTING, AbortCode::RX_CALL_TIMEOUT] {
        let file = world.create(&bob, root(), &format!("file {code}")).unwrap();
        for round in ["a stranger", "known"] {
            let alice = world.client("alice", 1);
            alice.station.cut_off(Some(code));
            assert_eq!(world.status(&alice, file), Err(AbortCode::VBUSY), "{round}, {code}");
            alice.station.cut_off(None);
            world.status(&alice, file).unwrap();
        }
    }
    let hosts = world.server.client_hosts();
    assert!(hosts.iter().all(|host| host.up), "none is silent: {hosts:?}");
    // A probe, because its UUID is claimed elsewhere.
    alice.station.cut_off(Some(AbortCode::RX_RESTARTING));
    world.status(&world.impostor("thief", 66, &alice), root()).unwrap();
    assert!(world.server.client_hosts().iter().all(|host| host.up), "nor is this one");
}

#[test]
fn a_break_that_the_server_cannot_send_delays_calls() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    alice.station.cut_off(Some(AbortCode::RX_RESTARTING));
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.status(&alice, file), Err(AbortCode::VBUSY));
    alice.station.cut_off(None);
    world.heard();
    world.status(&alice, file).unwrap();
    assert_eq!(world.heard(), [format!("alice drops {}", text(file))]);
}

/// A program that has no callback service.
#[test]
fn a_caller_that_refuses_to_identify_itself_fails() {
    let world = World::new();
    let alice = world.client("alice", 1);
    alice.station.cut_off(Some(AbortCode::RX_INVALID_OPERATION));
    assert_eq!(world.status(&alice, root()), Err(AbortCode::VBUSY));
    world.clock.advance(10);
    assert_eq!(world.status(&alice, root()), Err(AbortCode::RX_CALL_DEAD));
}

/// The client proves on another connection that it lives.
#[test]
fn a_message_ends_the_refusal_of_a_client() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    alice.station.set_reachable(false);
    assert_eq!(world.status(&world.client("alice", 1), file), Err(AbortCode::VBUSY));
    alice.station.set_reachable(true);
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.status(&world.client("alice", 1), file), Err(AbortCode::VBUSY), "within ten seconds");
    world.heard();
    world.status(&alice, file).unwrap();
    assert_eq!(world.heard(), [format!("alice drops {}", text(file))]);
    world.status(&world.client("alice", 1), file).unwrap();
}

#[test]
fn missed_breaks_precede_the_next_reply() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    alice.station.set_reachable(false);
    world.heard();
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.heard(), Vec::<String>::new());
    alice.station.set_reachable(true);
    let request = fs::FetchStatusRequest { fid: file };
    world.wire_call(&alice, fs::FETCH_STATUS, &request, &[]).unwrap();
    assert_eq!(world.heard(), [format!("alice drops {}", text(file)), "alice is answered".into()]);
    assert!(world.server.client_hosts().iter().all(|host| host.up && host.delayed == 0));
}

#[test]
fn a_silent_client_is_refused_until_notified() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    alice.station.set_reachable(false);
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.status(&alice, file), Err(AbortCode::RX_CALL_DEAD));
    assert_eq!(world.server.callback_counters().hosts_down, 1);
}

#[test]
fn a_host_that_moves_is_found_at_its_new_address() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    let alice = world.moved(&alice, "10.9.9.9:7001".parse().unwrap());
    world.status(&alice, file).unwrap();
    world.heard();
    world.write(&bob, file, b"new").unwrap();
    // Once for the promise made at the new address, and once for the one made at the old address.
    assert_eq!(world.heard(), vec![format!("alice drops {}", text(file)); 2]);
    let hosts = world.server.client_hosts();
    let down: Vec<_> = hosts.iter().filter(|host| !host.up).map(|host| host.address.to_string()).collect();
    assert_eq!((hosts.len(), down), (4, vec!["10.0.0.1:7001".to_owned()]), "admin, bob, and two of alice");
}

/// Its list of interfaces is configured and names only the address that it has left.
#[test]
fn a_client_that_names_its_last_address_is_served() {
    let world = World::new();
    let alice = world.client("alice", 1);
    let home = alice.caller.peer;
    let alice = world.moved(&alice, "192.168.7.7:7001".parse().unwrap());
    world.status(&alice, root()).unwrap();
    let left = alice.caller.peer;
    let alice = world.moved(&alice, home);
    world.network.patiences();
    assert_eq!(world.status(&alice, root()).map(drop), Ok(()));
    let asked: Vec<_> = world.network.patiences().into_iter().filter(|(peer, _)| *peer == left).collect();
    assert_eq!(asked, [(left, Duration::from_secs(2))], "it is asked once, and briefly");
    let hosts = world.server.client_hosts();
    assert!(hosts.iter().all(|host| host.up == (host.address != left)), "{hosts:?}");
}

/// An impostor answers to alice's UUID at another address, and gives up all promises made to her.
#[test]
fn naming_a_clients_uuid_takes_none_of_its_callbacks() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    let thief = world.impostor("thief", 66, &alice);
    world.heard();
    world.status(&thief, root()).unwrap();
    let heard = world.heard();
    assert_eq!(heard, ["thief tells about itself", "thief forgets all", "alice is probed"]);
    let one = fs::GiveUpCallBacksRequest { fids: vec![file], call_backs: Vec::new() };
    assert!(world.serve(|call| call.give_up_call_backs(&thief.call(), one)).is_ok());
    assert!(
        world.serve(|call| call.give_up_all_call_backs(&thief.call(), fs::GiveUpAllCallBacksRequest)).is_ok()
    );
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.heard(), [format!("alice drops {}", text(file))]);
    let shared = world.server.shared_uuids();
    assert_eq!(shared[0].addresses, [alice.caller.peer, thief.caller.peer]);
}

/// A break that an impostor receives instead of a silent client is no news to the client, which is reset: it may have been
/// the one at the other address.
#[test]
fn breaks_taken_by_an_impostor_are_repeated() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    world.status(&world.impostor("thief", 66, &alice), root()).unwrap();
    alice.station.set_reachable(false);
    world.heard();
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.heard(), [format!("thief drops {}", text(file))]);
    alice.station.set_reachable(true);
    world.status(&alice, file).unwrap();
    assert_eq!(world.heard(), ["thief is probed", "alice forgets all"]);
}

/// An address that a client reported as another of its interfaces is probed before it gets the message.
#[test]
fn a_change_reaches_another_interface_of_a_client() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    world.moved(&alice, "192.168.7.7:7001".parse().unwrap());
    world.heard();
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.heard(), ["alice is probed".to_owned(), format!("alice drops {}", text(file))]);
}

/// A probe that precedes a message is lost as often as the message.
#[test]
fn an_idle_client_is_waited_for_like_any_other() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    world.clock.advance(120);
    world.heard();
    world.network.patiences();
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.heard(), ["alice is probed".to_owned(), format!("alice drops {}", text(file))]);
    let patience = (alice.caller.peer, Duration::from_secs(4));
    assert_eq!(world.network.patiences(), [patience; 2]);
}

#[test]
fn a_client_without_probes_is_notified_after_a_pause() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    alice.station.forget_probes();
    world.clock.advance(120);
    world.heard();
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.heard(), ["alice is probed".to_owned(), format!("alice drops {}", text(file))]);
    assert!(world.server.client_hosts().iter().all(|host| host.up));
}

/// Another client may have its address by now.
#[test]
fn one_without_probes_gets_nothing_at_other_addresses() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    let alice = world.moved(&alice, "192.168.7.7:7001".parse().unwrap());
    alice.station.forget_probes();
    world.heard();
    world.network.patiences();
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.heard(), ["alice is probed"]);
    let probed = (alice.caller.peer, Duration::from_secs(2));
    assert_eq!(world.network.patiences().last(), Some(&probed));
}

/// The server's bridge may have the same address as a client's bridge.
#[test]
fn no_message_goes_to_an_address_of_the_server() {
    let world = World::new();
    world.network.own("192.168.7.7".parse().unwrap());
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&alice, file).unwrap();
    world.moved(&alice, "192.168.7.7:7001".parse().unwrap());
    world.heard();
    world.write(&bob, file, b"new").unwrap();
    assert_eq!(world.heard(), Vec::<String>::new());
}

#[test]
fn calls_that_use_no_files_do_not_count_as_activity() {
    let world = World::new();
    let alice = world.client("alice", 1);
    world.serve(|call| call.get_time(&alice.call(), fs::GetTimeRequest)).unwrap();
    let capabilities =
        world.serve(|call| call.get_capabilities(&alice.call(), fs::GetCapabilitiesRequest)).unwrap();
    assert_eq!(capabilities.capabilities, [7]);
    world.clock.advance(3 * 60 * 60);
    world.server.maintain();
    assert_eq!(world.server.client_hosts().len(), 0);
}

#[test]
fn a_dropped_promise_is_not_broken() {
    let world = World::new();
    let (alice, bob) = (world.client("alice", 1), world.client("bob", 2));
    let reply = world.create_with(&bob, root(), "file", mode(Some(0o644))).unwrap();
    world.status(&alice, reply.fid).unwrap();
    world.status(&alice, root()).unwrap();
    world.heard();
    let request = fs::GiveUpCallBacksRequest { fids: vec![reply.fid], call_backs: Vec::new() };
    world.serve(|call| call.give_up_call_backs(&alice.call(), request)).unwrap();
    world.write(&bob, reply.fid, b"x").unwrap();
    assert_eq!(world.heard(), Vec::<String>::new());
    world.serve(|call| call.give_up_all_call_backs(&alice.call(), fs::GiveUpAllCallBacksRequest)).unwrap();
    world.create(&bob, root(), "other").unwrap();
    assert_eq!(world.heard(), Vec::<String>::new());
    let request = fs::GiveUpCallBacksRequest { fids: vec![], call_backs: vec![fs::CallBack::default()] };
    assert_eq!(world.serve(|call| call.give_up_call_backs(&alice.call(), request)), Err(AbortCode::UAEINVAL));
}

#[test]
fn unverified_clients_wait_outside_the_queue() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    let request =
        [xdr::to_vec(&fs::FETCH_STATUS), xdr::to_vec(&fs::FetchStatusRequest { fid: root() })].concat();
    let class = |client: &Client| world.server.demand(&client.caller, &request).class;
    assert_eq!(class(&carol), fair_queue::Class::Stranger, "nobody has asked her who she is");
    let file = world.create(&bob, root(), "file").unwrap();
    world.status(&carol, file).unwrap();
    assert_eq!(class(&carol), fair_queue::Class::Small);
    carol.station.set_reachable(false);
    world.write(&bob, file, b"news").unwrap();
    assert_eq!(class(&carol), fair_queue::Class::Stranger, "she has not heard of the change");
    carol.station.set_reachable(true);
    world.status(&carol, file).unwrap();
    assert_eq!(class(&carol), fair_queue::Class::Small);
}
