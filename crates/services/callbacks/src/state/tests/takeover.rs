//! Hosts that may hold promises of an earlier owner of a partition.

use super::interfaces::asked_for;
use super::*;

fn listed(host: u8, uuid: u8) -> (SocketAddr, Option<HostUuid>) {
    (address(host), Some(HostUuid([uuid; 16])))
}

#[test]
fn hosts_of_an_earlier_owner_are_reset_before_their_calls() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let known = enter(&mut callbacks, 1);
    promise(&mut callbacks, known, 2);
    let listed = [1, 2, 3].map(|host| (address(host), Some(HostUuid([host; 16]))));
    let resets = callbacks.owe_resets(Monotonic(10), listed);
    let sent: Vec<_> = resets.iter().map(|reset| (reset.address, reset.uuid, &reset.message)).collect();
    assert_eq!(sent, listed.map(|(address, uuid)| (address, uuid, &Message::Reset)));
    assert_eq!(callbacks.try_arrive(Monotonic(20), address(1), 1), None);
    assert!([1, 2, 3].iter().all(|host| callbacks.may_hold(address(*host)) == Some(true)));
    assert_eq!(callbacks.may_hold(address(4)), None);
    // A call of one whose reset is under way.
    assert!(matches!(
        callbacks.arrive(Monotonic(30), address(2), 7, true),
        Arrival::First(Task::Identify { .. })
    ));
    let said = Identification { uuid: Some(HostUuid([2; 16])), ..Identification::default() };
    callbacks.identified(Monotonic(30), address(2), 7, Asked::Known(said), true).unwrap();
    let own = match callbacks.arrive(Monotonic(30), address(2), 7, true) {
        Arrival::First(Task::Deliver(own)) => own,
        other => panic!("{other:?}"),
    };
    assert_eq!((&own.message, callbacks.delivered(&own, true)), (&Message::Reset, Delivered::Done));
    assert!(matches!(callbacks.arrive(Monotonic(30), address(2), 7, true), Arrival::Ready(_)));
    // Promises made since then stay.
    for (reset, reached) in resets.iter().zip([true, true, false]) {
        let expected = if reached { Delivered::Done } else { Delivered::Delayed };
        assert_eq!(callbacks.delivered(reset, reached), expected);
    }
    assert!(!callbacks.holds(known, fid(2)), "it was made before");
    let holding = [1, 2, 3].map(|host| callbacks.may_hold(address(host)).unwrap());
    assert_eq!(holding, [false, false, true], "the last one is reset before its next call");
    assert_eq!((callbacks.counters().hosts_down, callbacks.counters().deliveries_under_way), (1, 0));
    assert!(callbacks.break_files(&[fid(2)], None).is_empty(), "changes wait for no reset");
    promise(&mut callbacks, known, 3);
    assert_eq!(callbacks.may_hold(address(1)), Some(true));
}

/// The list does not say when its hosts called last.
#[test]
fn a_reset_that_another_client_accepts_does_not_count() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let reset = callbacks.owe_resets(at(1), [listed(1, 1)]).remove(0);
    assert_eq!((reset.address, callbacks.check(at(1), &reset)), (address(1), Check::After));
    assert_eq!(callbacks.delivered(&reset, false), Delivered::Delayed);
    // The listed one comes back.
    let arrival = callbacks.arrive(at(2), address(1), 7, true);
    assert!(matches!(arrival, Arrival::First(Task::Identify { .. })));
    callbacks.identified(at(2), address(1), 7, said(1, &[]), false).unwrap();
    let Arrival::First(Task::Deliver(own)) = callbacks.arrive(at(2), address(1), 7, true) else { panic!() };
    assert_eq!((&own.message, callbacks.check(at(2), &own)), (&Message::Reset, Check::Unneeded));
}

#[test]
fn a_listed_host_without_uuid_is_not_asked() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let reset = callbacks.owe_resets(at(1), [(address(1), None)]).remove(0);
    assert_eq!(callbacks.check(at(1), &reset), Check::Unneeded);
}

/// The earlier owner has seen another client there than this server, before or after.
#[test]
fn whichever_client_is_at_a_listed_address_is_reset() {
    for (second, expected) in [(120, Check::Unneeded), (121, Check::After)] {
        let mut callbacks = Callbacks::new(CallbackConfig::default());
        let (host, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
        let resets = callbacks.owe_resets(at(2), [listed(1, 9)]);
        let check = |reset| callbacks.check(at(second), reset);
        let sent: Vec<_> = resets.iter().map(|reset| (reset.host, reset.uuid, check(reset))).collect();
        assert_eq!(sent, [(host, Some(HostUuid([1; 16])), expected)]);
        assert_eq!(callbacks.counters().hosts, 1);
    }
}

/// Another client may have that address, too.
#[test]
fn a_copy_to_a_listed_host_asks_who_is_there() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let resets = callbacks.owe_resets(at(1), [listed(1, 1), listed(2, 1)]);
    assert_eq!(callbacks.delivered(&resets[1], true), Delivered::Done);
    let Delivered::Retry(copy) = callbacks.delivered(&resets[0], false) else { panic!("no copy") };
    assert_eq!((copy.address, callbacks.check(at(1), &copy)), (address(2), Check::Before));
}

/// Neither address answers, and each is sent its own reset.
#[test]
fn no_copy_goes_to_a_host_whose_own_reset_is_under_way() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let resets = callbacks.owe_resets(at(1), [listed(1, 1), listed(2, 1)]);
    for reset in &resets {
        assert_eq!(callbacks.delivered(reset, false), Delivered::Delayed);
    }
    assert!(callbacks.break_files(&[fid(2)], None).is_empty(), "changes wait for no other reset");
    assert!(callbacks.hosts().all(|host| !host.up && callbacks.may_hold(host.address) == Some(true)));
}

/// It was reset, has not called since, and its client has lost promises at another address.
#[test]
fn a_listed_host_is_reset_at_a_loss() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let reset = callbacks.owe_resets(at(1), [listed(1, 1)]).remove(0);
    assert_eq!(callbacks.delivered(&reset, true), Delivered::Done);
    let both = [address(1), address(2)];
    let (host, _) = enter_as(&mut callbacks, at(2), address(2), said(1, &both), true);
    promise(&mut callbacks, host, 2);
    enter_as(&mut callbacks, at(3), address(2), said(7, &[]), true);
    assert_eq!(where_reset(&callbacks.break_files(&[fid(9)], None)), [address(1)]);
}

/// It was reset, and its client comes back from an address that it has lost.
#[test]
fn a_listed_host_is_reset_after_calls_from_elsewhere() {
    for elsewhere in [false, true] {
        let mut callbacks = Callbacks::new(CallbackConfig::default());
        let reset = callbacks.owe_resets(at(1), [listed(1, 1)]).remove(0);
        assert_eq!(callbacks.delivered(&reset, true), Delivered::Done);
        if elsewhere {
            let both = [address(1), address(2)];
            let (host, _) = enter_as(&mut callbacks, at(2), address(2), said(1, &both), true);
            promise(&mut callbacks, host, 2);
        }
        assert!(matches!(
            callbacks.arrive(at(3), address(1), 7, true),
            Arrival::First(Task::Identify { .. })
        ));
        callbacks.identified(at(3), address(1), 7, said(1, &[address(1)]), false).unwrap();
        let mut arrival = callbacks.arrive(at(3), address(1), 7, true);
        if let Arrival::First(Task::Probe(probe)) = &arrival {
            callbacks.probed(at(3), probe, false);
            arrival = callbacks.arrive(at(3), address(1), 7, true);
        }
        let is_reset =
            matches!(&arrival, Arrival::First(Task::Deliver(own)) if own.message == Message::Reset);
        assert_eq!((is_reset, matches!(arrival, Arrival::Ready(_))), (elsewhere, !elsewhere), "{arrival:?}");
    }
}

/// An impostor has the UUID of a listed client, obtains promises, and loses its host as often as it wants to.
#[test]
fn an_impostor_has_a_listed_host_reset_once() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let reset = callbacks.owe_resets(at(1), [listed(1, 1)]).remove(0);
    assert_eq!(callbacks.delivered(&reset, true), Delivered::Done);
    let client = said(1, &[address(1)]);
    let (mut resets, mut asked) = (0, Vec::new());
    for second in (2..200).step_by(2) {
        let named = said(1, &[address(66), address(1)]);
        asked.extend(asked_for(&mut callbacks, at(second), address(66), &named, &client));
        let impostor = callbacks.by_address[&address(66)];
        promise(&mut callbacks, impostor, 2);
        asked.extend(asked_for(&mut callbacks, at(second + 1), address(66), &said(66, &[]), &client));
        for delivery in callbacks.break_files(&[fid(9)], None) {
            assert_eq!(delivery.address, address(1));
            resets += 1;
            callbacks.delivered(&delivery, true);
        }
    }
    assert_eq!((resets, asked), (1, vec![address(1); 4]), "it is asked once a minute");
}
