//! Cases that random histories cannot reach because they complete every delivery immediately.

use super::*;
use crate::host::Identification;
use crate::message::{Arrival, Asked, Check, Delivered, Delivery, Effort, Message, Refusal, StandIn, Task};
use base::HostUuid;
use std::time::Duration;

mod crowds;
mod interfaces;
mod takeover;

/// A time at which no client has been silent long enough to have left its address.
const SOON: Monotonic = Monotonic(9_000_000_000);

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7001))
}

fn fid(vnode: u32) -> Fid {
    Fid { volume: VolumeId(1), vnode: VnodeId(vnode), unique: 1 }
}

/// Admits host number `host` for the first time.
fn enter(callbacks: &mut Callbacks, host: u8) -> HostId {
    let at = Monotonic(u64::from(host));
    assert!(matches!(callbacks.arrive(at, address(host), 1, true), Arrival::First(Task::Identify { .. })));
    let said = Identification { uuid: Some(HostUuid([host; 16])), ..Identification::default() };
    callbacks.identified(at, address(host), 1, Asked::Known(said), false).unwrap();
    let Arrival::First(Task::Deliver(reset)) = callbacks.arrive(at, address(host), 1, true) else { panic!() };
    assert_eq!((&reset.message, reset.address), (&Message::Reset, address(host)));
    assert_eq!(callbacks.arrive(at, address(host), 1, true), Arrival::Wait);
    assert_eq!(callbacks.delivered(&reset, true), Delivered::Done);
    match callbacks.arrive(at, address(host), 1, true) {
        Arrival::Ready(id) => id,
        other => panic!("{other:?}"),
    }
}

fn promise(callbacks: &mut Callbacks, host: HostId, vnode: u32) -> Vec<Delivery> {
    callbacks.promise(Monotonic(0), host, fid(vnode), CallbackKind::File).deliveries
}

fn where_reset(deliveries: &[Delivery]) -> Vec<SocketAddr> {
    let resets = deliveries.iter().filter(|delivery| delivery.message == Message::Reset);
    resets.map(|reset| reset.address).collect()
}

#[test]
fn only_hosts_in_good_standing_take_the_fast_path() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let at_once = |callbacks: &mut Callbacks| callbacks.try_arrive(Monotonic(50), address(1), 1);
    assert_eq!(at_once(&mut callbacks), None, "a stranger");
    let host = enter(&mut callbacks, 1);
    assert_eq!(at_once(&mut callbacks), Some((host, 0)));
    assert_eq!(callbacks.hosts().next().unwrap().last_call, Monotonic(50));
    // The server asks on another connection, and gets no answer.
    assert!(matches!(callbacks.arrive(Monotonic(60), address(1), 2, true), Arrival::First(_)));
    let asked = callbacks.identified(Monotonic(60), address(1), 2, Asked::Silent, false);
    assert_eq!(asked, Err(Refusal::Busy));
    assert_eq!(at_once(&mut callbacks), None, "a host that is down");
    assert!(!callbacks.hosts().next().unwrap().up, "nothing has changed");
    assert_eq!(callbacks.arrive(Monotonic(100_000_000_000), address(1), 1, true), Arrival::Ready(host));
    assert_eq!(at_once(&mut callbacks), Some((host, 0)));
    promise(&mut callbacks, host, 2);
    let lost = callbacks.break_files(&[fid(2)], None).remove(0);
    assert_eq!(callbacks.delivered(&lost, false), Delivered::Delayed);
    assert_eq!(at_once(&mut callbacks), None, "it has not heard of the change");
}

#[test]
fn a_second_change_waits_for_a_break_of_its_own() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let host = enter(&mut callbacks, 1);
    promise(&mut callbacks, host, 2);
    let first = callbacks.break_files(&[fid(2)], None);
    let second = callbacks.break_files(&[fid(2)], None);
    assert_eq!((first.len(), second.len()), (1, 1));
    callbacks.delivered(&first[0], true);
    assert!(!callbacks.holds(host, fid(2)));
    assert!(callbacks.break_files(&[fid(2)], None).is_empty());
}

#[test]
fn a_promise_renewed_while_it_is_broken_stands() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let host = enter(&mut callbacks, 1);
    promise(&mut callbacks, host, 2);
    let breaking = callbacks.break_files(&[fid(2)], None);
    promise(&mut callbacks, host, 2);
    callbacks.delivered(&breaking[0], true);
    assert!(callbacks.holds(host, fid(2)));
}

#[test]
fn a_cleared_host_counts_as_holding_everything_until_it_knows() {
    let config = CallbackConfig { promises_max: 4, ..CallbackConfig::default() };
    let mut callbacks = Callbacks::new(config);
    let (idle, busy) = (enter(&mut callbacks, 1), enter(&mut callbacks, 2));
    assert!(promise(&mut callbacks, idle, 2).is_empty());
    let resets: Vec<Delivery> = (4..8).flat_map(|vnode| promise(&mut callbacks, busy, vnode)).collect();
    assert_eq!(resets.len(), 1);
    assert_eq!((resets[0].host, &resets[0].message), (idle, &Message::Reset));
    // Before any change is acknowledged, the cleared host must be reset.
    let deliveries = callbacks.break_files(&[fid(100)], Some(busy));
    assert_eq!(deliveries.len(), 1);
    assert_eq!((deliveries[0].host, &deliveries[0].message), (idle, &Message::Reset));
    callbacks.delivered(&deliveries[0], true);
    assert!(callbacks.break_files(&[fid(100)], Some(busy)).is_empty());
    assert_eq!(callbacks.counters().cleared_idle_host, 1);
}

#[test]
fn breaks_of_many_files_are_cut_into_calls_of_fifty() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let host = enter(&mut callbacks, 1);
    let fids: Vec<Fid> = (1..=120).map(fid).collect();
    for fid in &fids {
        callbacks.promise(Monotonic(0), host, *fid, CallbackKind::File);
    }
    let sizes: Vec<usize> = callbacks
        .break_files(&fids, None)
        .iter()
        .map(|delivery| match &delivery.message {
            Message::Break(fids) => fids.len(),
            Message::Reset => 0,
        })
        .collect();
    assert_eq!(sizes, [50, 50, 20]);
}

#[test]
fn breaks_to_a_forgotten_host_are_counted_by_outcome() {
    for (reached, reported, counted) in
        [(true, Delivered::Done, (2, 0)), (false, Delivered::Forgotten, (1, 1))]
    {
        let mut callbacks = Callbacks::new(CallbackConfig::default());
        let host = enter(&mut callbacks, 1);
        promise(&mut callbacks, host, 2);
        let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
        callbacks.drop_host(host);
        assert_eq!(callbacks.delivered(&breaking, reached), reported);
        let Counters { breaks_delivered, breaks_failed, deliveries_under_way, .. } = callbacks.counters();
        // The first message was the reset.
        assert_eq!((breaks_delivered, breaks_failed, deliveries_under_way), (counted.0, counted.1, 0));
    }
}

/// A new host may be reset while it is being identified; for a known one that changes nothing.
#[test]
fn a_client_that_lost_its_state_is_admitted() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let Arrival::First(Task::Identify { effort, .. }) = callbacks.arrive(at(1), address(9), 1, true) else {
        panic!()
    };
    assert_eq!(effort, Effort::AskAndReset);
    callbacks.identified(at(1), address(9), 1, said(9, &[]), true).unwrap();
    let Arrival::Ready(host) = callbacks.arrive(at(1), address(9), 1, true) else { panic!() };
    promise(&mut callbacks, host, 2);
    let Arrival::First(Task::Identify { effort, .. }) = callbacks.arrive(at(2), address(9), 2, true) else {
        panic!()
    };
    assert_eq!(effort, Effort::Ask);
    callbacks.identified(at(2), address(9), 2, said(9, &[]), false).unwrap();
    assert_eq!(callbacks.arrive(at(2), address(9), 2, true), Arrival::Ready(host));
    assert!(callbacks.holds(host, fid(2)));
}

fn at(seconds: u64) -> Monotonic {
    Monotonic(0) + Duration::from_secs(seconds)
}

fn said(uuid: u8, addresses: &[SocketAddr]) -> Asked {
    let addresses = addresses.to_vec();
    Asked::Known(Identification { uuid: Some(HostUuid([uuid; 16])), addresses, capabilities: 0 })
}

/// Admits a client at `peer` that answers with this UUID and these interfaces. `alive` says whether a client
/// that is probed in the process answers. Also returns whether one was probed.
#[allow(clippy::needless_pass_by_value, reason = "calls read better")]
fn enter_as(
    callbacks: &mut Callbacks,
    now: Monotonic,
    peer: SocketAddr,
    said: Asked,
    alive: bool,
) -> (HostId, bool) {
    let connection = u64::from(peer.port()) << 32 | now.0 >> 30;
    let mut probed = false;
    loop {
        match callbacks.arrive(now, peer, connection, true) {
            Arrival::Ready(host) => return (host, probed),
            Arrival::First(Task::Identify { .. }) => {
                callbacks.identified(now, peer, connection, said.clone(), false).unwrap();
            }
            Arrival::First(Task::AskTwin { twin, .. }) => callbacks.twin_asked(now, twin, Asked::Failed),
            Arrival::First(Task::Probe(probe)) => {
                probed = true;
                callbacks.probed(now, &probe, alive);
            }
            Arrival::First(Task::Deliver(delivery) | Task::Evict(delivery)) => {
                callbacks.delivered(&delivery, true);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_uuid_named_elsewhere_takes_nothing() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let (victim, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    promise(&mut callbacks, victim, 2);
    let (thief, probed) = enter_as(&mut callbacks, at(2), address(66), said(1, &[address(1)]), true);
    assert!(thief != victim && probed);
    callbacks.give_up(thief, &[fid(2)]);
    callbacks.give_up_all(thief);
    assert!(callbacks.holds(victim, fid(2)));
    assert_eq!(callbacks.counters().give_ups_ignored, 2);
    let deliveries = callbacks.break_files(&[fid(2)], Some(thief));
    assert_eq!(deliveries.iter().map(|delivery| delivery.address).collect::<Vec<_>>(), [address(1)]);
    assert_eq!(callbacks.delivered(&deliveries[0], true), Delivered::Done);
}

#[test]
fn an_impostor_cannot_consume_a_break() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let (victim, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    promise(&mut callbacks, victim, 2);
    enter_as(&mut callbacks, at(2), address(66), said(1, &[address(1)]), true);
    let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
    let Delivered::Retry(copy) = callbacks.delivered(&breaking, false) else { panic!("no copy") };
    assert_eq!(copy.address, address(66));
    assert_eq!(callbacks.delivered(&copy, true), Delivered::Done);
    let connection = u64::from(address(1).port()) << 32 | at(1).0 >> 30;
    let mut arrival = callbacks.arrive(at(3), address(1), connection, true);
    if let Arrival::First(Task::Probe(probe)) = &arrival {
        callbacks.probed(at(3), probe, true);
        arrival = callbacks.arrive(at(3), address(1), connection, true);
    }
    let Arrival::First(Task::Deliver(late)) = arrival else {
        panic!("the client is answered before it hears what it missed")
    };
    let reset = (address(1), Message::Reset);
    assert_eq!((late.address, late.message), reset, "it may have been the client at the other address");
}

#[test]
fn probes_of_a_client_are_a_minute_apart() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    let probes = (0..61u64).filter(|second| {
        // Impostors that do not answer probes.
        let peer = SocketAddr::from(([10, 0, 1, *second as u8], 7001));
        callbacks.hosts.get_mut(HostId(1)).unwrap().last_call = at(9_999);
        enter_as(&mut callbacks, at(10 + second), peer, said(1, &[]), true).1
    });
    let probed = probes.count();
    let victim = callbacks.hosts.get(HostId(1)).unwrap();
    assert_eq!(victim.probed, Some(at(70)), "once a minute: {probed} probes of all hosts");
    assert!(victim.up);
}

#[test]
fn a_client_that_has_moved_is_not_waited_for() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let (old, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    promise(&mut callbacks, old, 2);
    let (new, probed) = enter_as(&mut callbacks, at(2), address(2), said(1, &[]), false);
    assert!(probed);
    promise(&mut callbacks, new, 3);
    let deliveries = callbacks.break_files(&[fid(2), fid(3)], None);
    let addresses: Vec<SocketAddr> = deliveries.iter().map(|delivery| delivery.address).collect();
    assert_eq!(addresses, [address(2), address(2)], "what it was promised elsewhere goes to where it is");
    assert!(callbacks.shared_uuids().is_empty());
}

#[test]
fn a_dead_interface_costs_one_silence() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let both = [address(1), address(2)];
    let (first, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &both), true);
    for vnode in [2, 4] {
        promise(&mut callbacks, first, vnode);
    }
    enter_as(&mut callbacks, at(2), address(2), said(1, &both), true);
    assert!(callbacks.shared_uuids().is_empty(), "they name each other");
    let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
    assert_eq!(breaking.address, address(1));
    let Delivered::Retry(copy) = callbacks.delivered(&breaking, false) else { panic!("no copy") };
    assert_eq!((copy.address, callbacks.check(SOON, &copy)), (address(2), Check::Unneeded));
    assert_eq!(callbacks.delivered(&copy, true), Delivered::Done);
    let second: Vec<Delivery> = callbacks.break_files(&[fid(4)], None);
    assert_eq!(second.iter().map(|delivery| delivery.address).collect::<Vec<_>>(), [address(2)]);
}

#[test]
fn an_interface_that_never_called_is_probed_first() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let interfaces = [address(1), address(77), SocketAddr::from(([127, 0, 0, 1], 7001))];
    let (host, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &interfaces), true);
    promise(&mut callbacks, host, 2);
    let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
    let Delivered::Retry(copy) = callbacks.delivered(&breaking, false) else { panic!("no copy") };
    assert_eq!((copy.address, callbacks.check(SOON, &copy)), (address(77), Check::Before));
    assert_eq!(callbacks.delivered(&copy, false), Delivered::Delayed, "and no other, loopback least of all");
    promise(&mut callbacks, host, 3);
    assert!(callbacks.break_files(&[fid(3)], None).is_empty(), "a silent interface is not tried again");
}

#[test]
fn clones_are_notified_and_reported() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let (one, _) = enter_as(&mut callbacks, at(1), address(1), said(5, &[]), true);
    let (two, _) = enter_as(&mut callbacks, at(2), address(2), said(5, &[]), true);
    for clone in [one, two] {
        promise(&mut callbacks, clone, 2);
    }
    let deliveries = callbacks.break_files(&[fid(2)], None);
    let addresses: Vec<SocketAddr> = deliveries.iter().map(|delivery| delivery.address).collect();
    assert_eq!(addresses, [address(1), address(2)]);
    // One clone changes a file that the other has cached.
    promise(&mut callbacks, two, 3);
    assert_eq!(callbacks.break_files(&[fid(3)], Some(one)).len(), 1);
    let shared = callbacks.shared_uuids();
    assert_eq!((shared[0].uuid, shared[0].addresses), (HostUuid([5; 16]), [address(1), address(2)]));
    assert_eq!((callbacks.counters().uuid_conflicts, callbacks.counters().uuids_shared), (1, 1));
    callbacks.maintain(at(2) + Duration::from_secs(25 * 60 * 60));
    assert_eq!(callbacks.counters().uuids_shared, 0);
}

#[test]
fn an_impostor_cannot_make_a_client_forget_everything() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let (victim, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    promise(&mut callbacks, victim, 2);
    for round in 0..20 {
        let (thief, _) =
            enter_as(&mut callbacks, at(2 + 2 * round), address(66), said(1, &[address(1)]), true);
        promise(&mut callbacks, thief, 9);
        // Another client takes the same address: the impostor's host is removed without a message.
        enter_as(&mut callbacks, at(3 + 2 * round), address(66), said(7, &[]), true);
    }
    assert!(callbacks.holds(victim, fid(2)));
    assert!(callbacks.hosts.get(victim).unwrap().is_owed_nothing() && callbacks.owing.all().next().is_none());
}

#[test]
fn a_flood_of_ports_and_uuids_stays_within_its_bounds() {
    let config = CallbackConfig {
        hosts_max: 50,
        hosts_per_ip_max: 10,
        hosts_per_ip_crowded: 8,
        identifying_per_ip_max: 8,
        connections_max: 60,
        host_connections_max: 4,
        addresses_max: 5,
        ..CallbackConfig::default()
    };
    let mut callbacks = Callbacks::new(config.clone());
    let (victim, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    promise(&mut callbacks, victim, 2);
    for number in 0..2_000u16 {
        let peer = SocketAddr::from(([10, 9, 0, (number % 3) as u8], 1_000 + number));
        enter_as(
            &mut callbacks,
            at(2),
            peer,
            said(if number % 2 == 0 { 1 } else { number as u8 }, &[]),
            true,
        );
        assert!(callbacks.hosts.len() <= config.hosts_max && callbacks.ranking.count_at(peer.ip()) <= 10);
        assert!(callbacks.twins.count(Some(HostUuid([1; 16]))) <= config.addresses_max);
        assert_eq!(callbacks.ranking.len(), callbacks.hosts.len());
        assert!(callbacks.connections.len() <= config.connections_max + config.hosts_max);
    }
    assert!(callbacks.holds(victim, fid(2)), "empty hosts go first");
    for number in 0..100u16 {
        let peer = SocketAddr::from(([10, 9, 1, 1], 1_000 + number));
        let Arrival::First(Task::Identify { effort, .. }) = callbacks.arrive(at(3), peer, 1, true) else {
            assert!(number >= 8);
            break;
        };
        assert!(number < 8 && effort == Effort::AskAndReset, "identifications of one address are few");
    }
}

#[test]
fn a_silent_stranger_is_asked_twice_then_once_a_minute() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let (mut efforts, mut refusals) = (Vec::new(), Vec::new());
    for second in 0..=190 {
        let refusal = match callbacks.arrive(at(second), address(1), second, true) {
            Arrival::First(Task::Identify { effort, .. }) => {
                efforts.push((second, effort));
                callbacks.identified(at(second), address(1), second, Asked::Silent, false).unwrap_err()
            }
            Arrival::Refuse(refusal) => refusal,
            other => panic!("{other:?}"),
        };
        refusals.push(refusal);
    }
    let once = |second| (second, Effort::Once);
    assert_eq!(efforts, [(0, Effort::AskAndReset), (10, Effort::Ask), once(70), once(130), once(190)]);
    let (first, others) = refusals.split_at(10);
    assert!(first.iter().all(|refusal| *refusal == Refusal::Busy), "it may answer at the next attempt");
    assert!(others.iter().all(|refusal| *refusal == Refusal::Unreachable), "its calls fail in the end");
}

/// Asks the host at address 1 to identify itself on a new connection, which it does not.
fn fall_silent(callbacks: &mut Callbacks, now: Monotonic, connection: u64) -> Refusal {
    let arrival = callbacks.arrive(now, address(1), connection, true);
    assert!(matches!(arrival, Arrival::First(Task::Identify { effort: Effort::Ask, .. })), "{arrival:?}");
    callbacks.identified(now, address(1), connection, Asked::Silent, false).unwrap_err()
}

/// Whether a call of the host at address 1 leads to an identification.
fn asks(callbacks: &mut Callbacks, now: Monotonic, connection: u64) -> bool {
    matches!(
        callbacks.arrive(now, address(1), connection, true),
        Arrival::First(Task::Identify { effort: Effort::Ask, .. })
    )
}

#[test]
fn a_host_that_gets_a_message_is_identified_at_once() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let host = enter(&mut callbacks, 1);
    promise(&mut callbacks, host, 2);
    let before = callbacks.break_files(&[fid(2)], None).remove(0);
    assert_eq!(fall_silent(&mut callbacks, at(1), 2), Refusal::Busy);
    assert_eq!(callbacks.arrive(at(2), address(1), 3, true), Arrival::Refuse(Refusal::Busy));
    assert_eq!(callbacks.delivered(&before, false), Delivered::Delayed);
    assert_eq!(callbacks.arrive(at(2), address(1), 3, true), Arrival::Refuse(Refusal::Busy));
    // The connection that is known leads to the break.
    let Arrival::First(Task::Deliver(missed)) = callbacks.arrive(at(3), address(1), 1, true) else {
        panic!()
    };
    assert_eq!(callbacks.delivered(&missed, true), Delivered::Done);
    assert!(asks(&mut callbacks, at(3), 3), "it lives");
}

#[test]
fn a_host_that_is_admitted_is_identified_at_once() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let host = enter(&mut callbacks, 1);
    fall_silent(&mut callbacks, at(1), 2);
    assert_eq!(callbacks.arrive(at(2), address(1), 1, true), Arrival::Ready(host));
    assert_eq!(fall_silent(&mut callbacks, at(2), 3), Refusal::Busy, "not the second silence in a row");
    assert_eq!(fall_silent(&mut callbacks, at(12), 3), Refusal::Unreachable);
}

#[test]
fn a_host_that_answers_a_probe_is_identified_at_once() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let (victim, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    // The probe is under way while the host does not identify itself.
    let thief = address(66);
    assert!(matches!(callbacks.arrive(at(2), thief, 9, true), Arrival::First(Task::Identify { .. })));
    callbacks.identified(at(2), thief, 9, said(1, &[]), true).unwrap();
    let Arrival::First(Task::Probe(probe)) = callbacks.arrive(at(2), thief, 9, true) else { panic!() };
    assert_eq!(probe.host, victim);
    fall_silent(&mut callbacks, at(2), 2);
    assert!(!asks(&mut callbacks, at(2), 3));
    callbacks.probed(at(2), &probe, true);
    assert!(asks(&mut callbacks, at(2), 3));
}

#[test]
fn a_failure_of_the_server_is_not_a_silence() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let host = enter(&mut callbacks, 1);
    for connection in 2..5 {
        assert!(asks(&mut callbacks, at(1), connection), "at once");
        let failed = callbacks.identified(at(1), address(1), connection, Asked::Failed, false);
        assert_eq!(failed, Err(Refusal::Busy), "this call only");
    }
    assert_eq!(callbacks.try_arrive(at(1), address(1), 1), Some((host, 0)), "it counts as up");
    let stranger = address(2);
    for connection in 1..3 {
        let arrival = callbacks.arrive(at(1), stranger, connection, true);
        let Arrival::First(Task::Identify { effort, .. }) = arrival else { panic!("{arrival:?}") };
        assert_eq!(effort, Effort::AskAndReset);
        let failed = callbacks.identified(at(1), stranger, connection, Asked::Failed, false);
        assert_eq!(failed, Err(Refusal::Busy));
    }
}

/// Such as a program without a callback service.
#[test]
fn a_client_that_refuses_to_identify_itself_gets_an_error() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let host = enter(&mut callbacks, 1);
    for (second, refusal) in [(1, Refusal::Busy), (11, Refusal::Unreachable)] {
        assert!(asks(&mut callbacks, at(second), 2));
        let refused = callbacks.identified(at(second), address(1), 2, Asked::Refused, false);
        assert_eq!(refused, Err(refusal));
        assert_eq!(callbacks.arrive(at(second), address(1), 2, true), Arrival::Refuse(refusal));
        assert_eq!(callbacks.try_arrive(at(second), address(1), 1), Some((host, 0)), "it is not down");
    }
}

/// A client may answer everything but the question who it is, and so hold workers up.
#[test]
fn hosts_that_hold_identifications_up_stay_limited() {
    let config = CallbackConfig { identifying_per_silent_ip: 2, ..CallbackConfig::default() };
    let peer = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
    for asked in [Asked::Silent, Asked::Failed] {
        let mut callbacks = Callbacks::new(config.clone());
        for port in 1..=5 {
            enter_as(&mut callbacks, at(1), peer(port), said(port as u8, &[]), true);
        }
        let begins = |callbacks: &mut Callbacks, port: u16| {
            let arrival = callbacks.arrive(at(100), peer(port), 90, true);
            matches!(arrival, Arrival::First(Task::Identify { .. }))
        };
        assert!(begins(&mut callbacks, 1));
        assert_eq!(callbacks.identified(at(100), peer(1), 90, asked, false), Err(Refusal::Busy));
        enter_as(&mut callbacks, at(1), peer(1), said(1, &[]), true);
        assert!(begins(&mut callbacks, 1), "it lives");
        let others = (2..=5).filter(|port| begins(&mut callbacks, *port)).count();
        assert_eq!(others, 1, "two at a time of one address");
    }
}

#[test]
fn a_full_address_evicts_its_own_least_active_host() {
    let config = CallbackConfig { hosts_per_ip_max: 2, ..CallbackConfig::default() };
    let mut callbacks = Callbacks::new(config);
    let port = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
    let (other, _) = enter_as(&mut callbacks, at(0), address(2), said(9, &[]), true);
    for number in 1..=2 {
        let (host, _) =
            enter_as(&mut callbacks, at(100 * number), port(number as u16), said(number as u8, &[]), true);
        promise(&mut callbacks, host, 2);
    }
    let Arrival::First(Task::Evict(reset)) = callbacks.arrive(at(300), port(3), 3, true) else {
        panic!("a host with promises is told before it is dropped")
    };
    assert_eq!((reset.address, &reset.message), (port(1), &Message::Reset));
    callbacks.delivered(&reset, true);
    let (_, _) = enter_as(&mut callbacks, at(301), port(3), said(3, &[]), true);
    let mut left: Vec<u16> = callbacks.hosts().map(|host| host.address.port()).collect();
    left.sort_unstable();
    assert_eq!((left, callbacks.hosts.contains(other)), (vec![2, 3, 7001], true));
}

#[test]
fn an_address_has_more_hosts_while_there_is_room() {
    let config = CallbackConfig {
        hosts_max: 20,
        hosts_per_ip_max: 8,
        hosts_per_ip_crowded: 3,
        ..CallbackConfig::default()
    };
    let mut callbacks = Callbacks::new(config);
    let peer = |ip: u8, port: u16| SocketAddr::from(([10, 0, 0, ip], port));
    for port in 0..8 {
        enter_as(&mut callbacks, at(1), peer(1, port), said(1 + port as u8, &[]), true);
    }
    assert_eq!(callbacks.hosts.len(), 8);
    for port in 0..6 {
        enter_as(&mut callbacks, at(2), peer(2, port), said(101 + port as u8, &[]), true);
    }
    let count = |callbacks: &Callbacks, ip| callbacks.ranking.count_at(peer(ip, 0).ip());
    assert_eq!(
        (count(&callbacks, 1), count(&callbacks, 2)),
        (8, 3),
        "with ten hosts of twenty it is crowded"
    );
    enter_as(&mut callbacks, at(3), peer(1, 99), said(99, &[]), true);
    assert_eq!((count(&callbacks, 1), count(&callbacks, 2)), (8, 3), "an address displaces its own hosts");
}

#[test]
fn copies_go_first_to_addresses_that_the_client_named() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let (host, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[address(2)]), true);
    enter_as(&mut callbacks, at(2), address(2), said(1, &[address(1)]), true);
    for thief in 50..60 {
        let claims = said(1, &[address(1), address(2)]);
        enter_as(&mut callbacks, at(u64::from(thief)), address(thief), claims, true);
    }
    promise(&mut callbacks, host, 2);
    let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
    let Delivered::Retry(copy) = callbacks.delivered(&breaking, false) else { panic!("no copy") };
    assert!(matches!(copy.stand_in, Some(StandIn::Twin(..))));
    assert_eq!((copy.address, copy.stand_ins.len()), (address(2), 2));
}
