//! Clients that have several addresses, lose or gain them, and return to them. Random histories have found these cases.

use super::*;

/// Identifies the client at `peer` on a new connection, and returns what its call has to wait for.
fn identify_again(callbacks: &mut Callbacks, now: Monotonic, peer: SocketAddr, said: Asked) -> Arrival {
    let connection = 1_000 + now.0;
    let Arrival::First(Task::Identify { .. }) = callbacks.arrive(now, peer, connection, true) else {
        panic!()
    };
    callbacks.identified(now, peer, connection, said, false).unwrap();
    callbacks.arrive(now, peer, connection, true)
}

fn is_reset_of(arrival: &Arrival, peer: SocketAddr) -> bool {
    matches!(arrival, Arrival::First(Task::Deliver(reset)) if reset.message == Message::Reset && reset.address == peer)
}

/// Returns the host that is asked to identify itself before a call of another one is ready, and its address.
fn asked_twin(arrival: &Arrival) -> (HostId, SocketAddr) {
    match arrival {
        Arrival::First(Task::AskTwin { twin, address }) => (*twin, *address),
        other => panic!("no other one is asked: {other:?}"),
    }
}

/// A client with the addresses 1 and 2.
fn enter_twice(callbacks: &mut Callbacks) -> [HostId; 2] {
    let both = [address(1), address(2)];
    [1, 2].map(|number| enter_as(callbacks, at(number), address(number as u8), said(1, &both), true).0)
}

/// Reports a delivery as missed at the host's address, and its copies as received where `reached` says so.
fn miss(callbacks: &mut Callbacks, delivery: &Delivery, reached: impl Fn(SocketAddr) -> bool) {
    let mut outcome = callbacks.delivered(delivery, false);
    while let Delivered::Retry(copy) = outcome {
        outcome = callbacks.delivered(&copy, reached(copy.address));
    }
}

#[test]
fn a_client_that_lost_an_interface_is_reset() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let [lost, _] = enter_twice(&mut callbacks);
    promise(&mut callbacks, lost, 2);
    let same = identify_again(&mut callbacks, at(3), address(2), said(1, &[address(2), address(1)]));
    assert!(matches!(same, Arrival::Ready(_)), "the same interfaces in another order");
    let arrival = identify_again(&mut callbacks, at(4), address(2), said(1, &[address(2), address(3)]));
    assert!(is_reset_of(&arrival, address(2)), "what it was promised at the lost one is void");
    assert_eq!(where_reset(&callbacks.break_files(&[fid(9)], None)), [address(2)], "no change goes before");
}

/// The interface is lost again before the client calls from its other one, which was last identified without it.
#[test]
fn a_new_interface_is_confirmed_by_the_others() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let both = [address(1), address(2)];
    enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    assert!(matches!(callbacks.arrive(at(2), address(2), 7, true), Arrival::First(Task::Identify { .. })));
    callbacks.identified(at(2), address(2), 7, said(1, &both), true).unwrap();
    let (twin, asked) = asked_twin(&callbacks.arrive(at(2), address(2), 7, true));
    assert_eq!(asked, address(1));
    callbacks.twin_asked(at(2), twin, said(1, &both));
    let (gained, _) = enter_as(&mut callbacks, at(2), address(2), said(1, &both), true);
    let resets = callbacks.break_files(&[fid(9)], None);
    assert_eq!(where_reset(&resets), [address(1)], "its interfaces have changed");
    assert_eq!(callbacks.delivered(&resets[0], true), Delivered::Done);
    promise(&mut callbacks, gained, 2);
    enter_as(&mut callbacks, at(3), address(2), said(7, &[]), true);
    assert_eq!(where_reset(&callbacks.break_files(&[fid(9)], None)), [address(1)]);
}

/// A client calls from a second address, and reports its first one. Returns the host there, which is to be asked, and its address.
fn newcomer() -> (Callbacks, HostId, SocketAddr) {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    let arrival = callbacks.arrive(at(2), address(2), 7, true);
    assert!(matches!(arrival, Arrival::First(Task::Identify { .. })));
    callbacks.identified(at(2), address(2), 7, said(1, &[address(1)]), true).unwrap();
    let (twin, other) = asked_twin(&callbacks.arrive(at(2), address(2), 7, true));
    (callbacks, twin, other)
}

#[test]
fn a_host_that_cannot_be_asked_holds_nothing_up() {
    for asked in [Asked::Silent, Asked::Refused, Asked::Failed] {
        let (mut callbacks, twin, other) = newcomer();
        let is_silent = asked == Asked::Silent;
        callbacks.twin_asked(at(2), twin, asked);
        assert_eq!(callbacks.hosts[twin].up, !is_silent);
        let (_, probed) = enter_as(&mut callbacks, at(2), address(2), said(1, &[address(1)]), true);
        assert_eq!(probed, !is_silent);
        let own = callbacks.arrive(at(3), other, 8, true);
        assert!(matches!(own, Arrival::First(Task::Identify { .. })), "its calls are not refused: {own:?}");
    }
}

/// It calls on another connection while it is asked for the sake of another host.
#[test]
fn a_twin_is_asked_beside_its_own_identification() {
    for asked in [said(1, &[]), Asked::Silent, Asked::Refused, Asked::Failed] {
        let (mut callbacks, twin, other) = newcomer();
        assert!(matches!(callbacks.arrive(at(2), other, 8, true), Arrival::First(Task::Identify { .. })));
        callbacks.twin_asked(at(2), twin, asked);
        assert_eq!(callbacks.arrive(at(2), other, 9, true), Arrival::Wait, "its own has not ended");
    }
}

/// The other host is gone before it answers.
#[test]
fn a_twin_that_was_dropped_does_not_come_back() {
    let (mut callbacks, twin, _) = newcomer();
    callbacks.drop_unnotified(twin);
    callbacks.twin_asked(at(2), twin, said(1, &[]));
    assert_eq!(callbacks.counters().hosts, 1);
}

/// A break was missed where the client was not known to be the same.
#[test]
fn a_client_that_gained_an_interface_is_reset() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    let both = [address(1), address(2)];
    let (gained, _) = enter_as(&mut callbacks, at(2), address(2), said(1, &both), true);
    promise(&mut callbacks, gained, 2);
    let lost = callbacks.break_files(&[fid(2)], None).remove(0);
    miss(&mut callbacks, &lost, |_| false);
    let arrival = identify_again(&mut callbacks, at(3), address(1), said(1, &both));
    let Arrival::First(Task::Deliver(reset)) = arrival else { panic!("{arrival:?}") };
    assert_eq!((reset.message, reset.address), (Message::Reset, address(1)));
}

#[test]
fn a_silent_interface_remains_one_of_the_client() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let both = [address(1), address(2)];
    let (first, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &both), true);
    promise(&mut callbacks, first, 2);
    let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
    miss(&mut callbacks, &breaking, |_| false);
    enter_as(&mut callbacks, at(2), address(1), said(1, &both), true);
    // The interface works again, is made promises, and loses its address to another client.
    let (second, _) = enter_as(&mut callbacks, at(3), address(2), said(1, &both), true);
    promise(&mut callbacks, second, 3);
    enter_as(&mut callbacks, at(4), address(2), said(7, &[]), true);
    assert_eq!(where_reset(&callbacks.break_files(&[fid(9)], None)), [address(1)]);
}

#[test]
fn a_client_that_comes_back_to_an_address_is_reset() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let old = enter(&mut callbacks, 1);
    // It does not answer there when it calls from elsewhere.
    let (new, probed) = enter_as(&mut callbacks, at(2), address(2), said(1, &[]), false);
    assert!(probed && !callbacks.hosts[old].up);
    promise(&mut callbacks, new, 2);
    let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
    assert_eq!(callbacks.delivered(&breaking, false), Delivered::Delayed, "it is nowhere now");
    let arrival = callbacks.arrive(at(3), address(1), 1, true);
    assert!(is_reset_of(&arrival, address(1)), "{arrival:?}");
}

/// It was made promises at another address, which it has lost to another client.
#[test]
fn an_impostor_does_not_hide_that_a_client_has_moved() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    enter_as(&mut callbacks, at(2), address(66), said(1, &[]), true);
    assert!(matches!(callbacks.arrive(at(90), address(2), 7, true), Arrival::First(Task::Identify { .. })));
    callbacks.identified(at(90), address(2), 7, said(1, &[]), true).unwrap();
    let mut probed = Vec::new();
    let moved = loop {
        match callbacks.arrive(at(90), address(2), 7, true) {
            Arrival::First(Task::Probe(probe)) => {
                probed.push(probe.address);
                callbacks.probed(at(90), &probe, probe.address == address(66));
            }
            Arrival::First(Task::Deliver(delivery)) => _ = callbacks.delivered(&delivery, true),
            Arrival::Ready(moved) => break moved,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(probed, [address(66), address(1)]);
    promise(&mut callbacks, moved, 2);
    let arrival = callbacks.arrive(at(91), address(1), 1 << 30, true);
    let old = callbacks.by_address[&address(1)];
    assert!(!callbacks.hosts[old].is_owed_nothing(), "{arrival:?}");
}

#[test]
fn an_interface_that_stood_in_is_reset_at_a_loss() {
    let config = CallbackConfig { delayed_max: 1, ..CallbackConfig::default() };
    let mut callbacks = Callbacks::new(config);
    let both = [address(1), address(77)];
    let (host, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &both), true);
    for vnode in 2..5 {
        promise(&mut callbacks, host, vnode);
    }
    let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
    miss(&mut callbacks, &breaking, |peer| peer == address(77));
    // The host has missed too much: its promise on the third file is dropped.
    let deliveries = callbacks.break_files(&[fid(3)], None);
    assert!(!callbacks.holds(host, fid(4)));
    assert_eq!(where_reset(&deliveries), [address(77)]);
    let reset = deliveries.iter().find(|delivery| delivery.message == Message::Reset).unwrap();
    assert_eq!(callbacks.check(SOON, reset), Check::Before);
    assert_eq!(
        where_reset(&callbacks.break_files(&[fid(9)], None)),
        [address(77)],
        "until it has received it"
    );
    callbacks.delivered(reset, true);
    assert!(where_reset(&callbacks.break_files(&[fid(9)], None)).is_empty());
}

/// The interface has received a message for one host of the client, and another host of it loses its promises.
#[test]
fn an_interface_stands_in_for_all_hosts_of_its_client() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let all = [address(1), address(2), address(77)];
    let hosts = [1, 2]
        .map(|number| enter_as(&mut callbacks, at(number), address(number as u8), said(1, &all), true).0);
    for host in hosts {
        promise(&mut callbacks, host, 2 + host.0 as u32);
    }
    let breaking = callbacks.break_files(&[fid(2 + hosts[0].0 as u32)], None).remove(0);
    miss(&mut callbacks, &breaking, |peer| peer == address(77));
    callbacks.drop_unnotified(hosts[1]);
    assert_eq!(where_reset(&callbacks.break_files(&[fid(9)], None)), [address(77)]);
}

/// Its host has been evicted, since it held nothing.
#[test]
fn an_interface_that_has_called_is_reset_at_a_loss() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let [down, empty] = enter_twice(&mut callbacks);
    promise(&mut callbacks, down, 2);
    callbacks.mark_down(down);
    assert!(callbacks.evict(empty).is_none() && callbacks.evict(down).is_none());
    assert_eq!(where_reset(&callbacks.break_files(&[fid(2)], None)), [address(2)]);
}

/// Another client would accept a message after the address has passed to it.
#[test]
fn a_break_after_a_pause_asks_who_is_there() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let [idle, twin] = enter_twice(&mut callbacks);
    for vnode in 2..5 {
        promise(&mut callbacks, idle, vnode);
    }
    // No client calls meanwhile.
    let change = |callbacks: &mut Callbacks, second: u64, vnode: u32| {
        let delivery = callbacks.break_files(&[fid(vnode)], None).remove(0);
        (callbacks.check(at(second), &delivery), delivery)
    };
    assert_eq!(change(&mut callbacks, 120, 2).0, Check::Unneeded);
    let (check, probed) = change(&mut callbacks, 121, 3);
    assert_eq!((check, probed.uuid), (Check::Before, Some(HostUuid([1; 16]))));
    let Delivered::Retry(copy) = callbacks.delivered(&probed, false) else { panic!("no copy") };
    let stand_in = Some(StandIn::Twin(twin, address(2)));
    assert_eq!((callbacks.check(at(121), &copy), copy.stand_in), (Check::Unneeded, stand_in));
    assert!(!callbacks.hosts[idle].is_owed_nothing(), "it hears of the change when it comes back");
    assert_eq!(change(&mut callbacks, 122, 4).0, Check::Before, "the other address is as old");
}

/// The time counts at which the volume server breaks promises, not that of the last call.
#[test]
fn a_release_on_a_quiet_server_asks_who_is_there() {
    for (second, check) in [(120, Check::Unneeded), (121, Check::Before)] {
        let mut callbacks = Callbacks::new(CallbackConfig::default());
        let (host, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
        promise(&mut callbacks, host, 2);
        let breaking = callbacks.break_volume(VolumeId(1)).remove(0);
        assert_eq!(callbacks.check(at(second), &breaking), check);
    }
}

/// The time counts at which the attempt before ended.
#[test]
fn a_copy_after_a_long_attempt_asks_who_is_there() {
    for (second, check) in [(121, Check::Unneeded), (122, Check::Before)] {
        let mut callbacks = Callbacks::new(CallbackConfig::default());
        let [host, _] = enter_twice(&mut callbacks);
        promise(&mut callbacks, host, 2);
        let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
        assert_eq!(callbacks.check(at(118), &breaking), Check::Unneeded);
        let Delivered::Retry(copy) = callbacks.delivered(&breaking, false) else { panic!() };
        assert_eq!((copy.address, callbacks.check(at(second), &copy)), (address(2), check));
    }
}

/// Has client 1 call from `peer`, where it names the addresses in `said`. Returns the hosts that are asked for this, which
/// answer `others` each.
pub(super) fn asked_for(
    callbacks: &mut Callbacks,
    now: Monotonic,
    peer: SocketAddr,
    said: &Asked,
    others: &Asked,
) -> Vec<SocketAddr> {
    let (connection, mut asked) = (1_000 + now.0, Vec::new());
    loop {
        match callbacks.arrive(now, peer, connection, true) {
            Arrival::First(Task::Identify { .. }) => {
                callbacks.identified(now, peer, connection, said.clone(), false).unwrap();
            }
            Arrival::First(Task::AskTwin { twin, address }) => {
                asked.push(address);
                callbacks.twin_asked(now, twin, others.clone());
            }
            Arrival::First(Task::Probe(probe)) => _ = callbacks.probed(now, &probe, true),
            Arrival::First(Task::Deliver(delivery)) => _ = callbacks.delivered(&delivery, true),
            Arrival::Ready(_) => return asked,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_host_is_asked_for_others_once_a_minute() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    let mut asked = |second: u64, number: u8| {
        let named = said(1, &[address(1)]);
        asked_for(&mut callbacks, at(second), address(number), &named, &said(1, &[])).len()
    };
    assert_eq!(
        [(2, 2), (2, 3), (61, 4), (62, 5)].map(|(second, number)| asked(second, number)),
        [1, 0, 0, 1]
    );
}

/// Two hosts name each other, but change what they say at every question.
#[test]
fn hosts_that_change_their_interfaces_delay_no_call() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    assert!(matches!(callbacks.arrive(at(2), address(2), 7, true), Arrival::First(Task::Identify { .. })));
    callbacks.identified(at(2), address(2), 7, said(1, &[address(1)]), true).unwrap();
    let (mut tasks, mut now) = (0, at(2));
    for round in 0..1_000_u16 {
        // Their calls are handled in turn.
        now = now + Duration::from_millis(10);
        for (peer, connection) in [(address(2), 7), (address(1), 1 << 30)] {
            let other = if peer == address(1) { address(2) } else { address(1) };
            let changed = SocketAddr::from(([10, 0, 9, 9], round));
            match callbacks.arrive(now, peer, connection, true) {
                Arrival::First(Task::AskTwin { twin, .. }) => {
                    tasks += 1;
                    callbacks.twin_asked(now, twin, said(1, &[peer, changed]));
                }
                Arrival::First(Task::Identify { .. }) => {
                    callbacks.identified(now, peer, connection, said(1, &[other]), false).unwrap();
                }
                Arrival::First(Task::Probe(probe)) => _ = callbacks.probed(now, &probe, true),
                Arrival::First(Task::Deliver(delivery)) => _ = callbacks.delivered(&delivery, true),
                Arrival::Ready(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert!((1..=2).contains(&tasks), "{tasks} questions within ten seconds");
}

#[test]
fn few_hosts_are_asked_for_one_call() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let all: Vec<_> = (1..=6).map(address).collect();
    for number in 1..=6 {
        enter_as(&mut callbacks, at(u64::from(number)), address(number), said(1, &[]), true);
    }
    let asked = asked_for(&mut callbacks, at(20), address(20), &said(1, &all), &Asked::Failed);
    assert_eq!(asked, [6, 5, 4].map(address), "those that called last");
}

/// It was listed by the last owner of a partition, and has not called since. It has reported nothing that a name could be checked by.
#[test]
fn a_host_that_has_not_called_is_asked_first() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    callbacks.owe_resets(at(2), [(address(2), Some(HostUuid([1; 16])))]);
    let named = said(1, &[address(1), address(2)]);
    let asked = asked_for(&mut callbacks, at(3), address(3), &named, &said(1, &[]));
    assert_eq!(asked, [address(2), address(1)]);
}
