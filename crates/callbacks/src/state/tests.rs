//! What random histories cannot reach because they finish every delivery at once.

use super::*;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7001))
}

fn fid(vnode: u32) -> Fid {
    Fid { volume: VolumeId(1), vnode: VnodeId(vnode), unique: 1 }
}

/// Lets host number `host` in for the first time.
fn enter(callbacks: &mut Callbacks, host: u8) -> HostId {
    let at = Monotonic(u64::from(host));
    assert!(matches!(callbacks.arrive(at, address(host), 1, true), Arrival::First(Task::Identify { .. })));
    let said = Identification { uuid: Some(HostUuid([host; 16])), ..Identification::default() };
    callbacks.identified(at, address(host), 1, Some(said), false).unwrap();
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

#[test]
fn at_once_only_who_is_known_up_and_owed_nothing() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let at_once = |callbacks: &mut Callbacks| callbacks.arrive_at_once(Monotonic(50), address(1), 1);
    assert_eq!(at_once(&mut callbacks), None, "a stranger");
    let host = enter(&mut callbacks, 1);
    assert_eq!(at_once(&mut callbacks), Some((host, 0)));
    assert_eq!(callbacks.hosts().next().unwrap().last_call, Monotonic(50));
    // Somebody asked on another connection who is there, and nobody answered.
    assert!(matches!(callbacks.arrive(Monotonic(60), address(1), 2, true), Arrival::First(_)));
    assert_eq!(callbacks.identified(Monotonic(60), address(1), 2, None, false), Err(Refusal::Unreachable));
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
    // Whatever changes now, the cleared host must hear first that it holds nothing.
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
fn another_address_is_tried_before_a_host_is_down() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let host = enter(&mut callbacks, 1);
    let said = Identification {
        uuid: Some(HostUuid([1; 16])),
        addresses: vec![address(1), address(77)],
        capabilities: 0,
    };
    callbacks.arrive(Monotonic(9), address(1), 2, true);
    callbacks.identified(Monotonic(9), address(1), 2, Some(said), false).unwrap();
    promise(&mut callbacks, host, 2);
    let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
    let Delivered::Retry(retry) = callbacks.delivered(&breaking, false) else { panic!("no retry") };
    assert_eq!((retry.address, retry.probe), (address(77), true));
    assert_eq!(callbacks.delivered(&retry, true), Delivered::Done);
    let primary = callbacks.hosts().next().unwrap().primary;
    assert_eq!(primary, address(77));
}

#[test]
fn messages_to_a_host_that_is_forgotten_meanwhile_are_counted_by_what_became_of_them() {
    for (reached, told, counted) in [(true, Delivered::Done, (2, 0)), (false, Delivered::Forgotten, (1, 1))] {
        let mut callbacks = Callbacks::new(CallbackConfig::default());
        let host = enter(&mut callbacks, 1);
        promise(&mut callbacks, host, 2);
        let breaking = callbacks.break_files(&[fid(2)], None).remove(0);
        callbacks.drop_host(host);
        assert_eq!(callbacks.delivered(&breaking, reached), told);
        let Counters { breaks_delivered, breaks_failed, deliveries_under_way, .. } = callbacks.counters();
        // The first message was that to forget everything.
        assert_eq!((breaks_delivered, breaks_failed, deliveries_under_way), (counted.0, counted.1, 0));
    }
}

/// A new host may be told to forget everything while it is asked who it is; a known one stays what it was.
#[test]
fn who_forgot_everything_while_it_was_asked_is_let_in_at_once() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let ask = |callbacks: &mut Callbacks, port: u16, expected: bool| {
        let peer = SocketAddr::from(([10, 0, 0, 9], port));
        match callbacks.arrive(Monotonic(1), peer, u64::from(port), true) {
            Arrival::First(Task::Identify { may_reset, .. }) => assert_eq!(may_reset, expected),
            other => panic!("{other:?}"),
        }
        let said = Identification { uuid: Some(HostUuid([9; 16])), ..Identification::default() };
        callbacks.identified(Monotonic(1), peer, u64::from(port), Some(said), expected).unwrap();
        match callbacks.arrive(Monotonic(1), peer, u64::from(port), true) {
            Arrival::Ready(host) => host,
            other => panic!("{other:?}"),
        }
    };
    let host = ask(&mut callbacks, 7001, true);
    let fid = Fid { volume: VolumeId(1), vnode: VnodeId(2), unique: 3 };
    callbacks.promise(Monotonic(1), host, fid, CallbackKind::File);
    // The same host at another address, where nobody was known: it is told for nothing, and loses nothing here.
    assert_eq!(ask(&mut callbacks, 7002, true), host);
    assert!(callbacks.holds(host, fid));
}
