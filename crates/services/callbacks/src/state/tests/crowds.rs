//! Many hosts that must be reset at a time.

use super::*;

const CROWD: u16 = 200;
/// Number of ports with the same UUID.
const CLIENT: u16 = 20;

fn port(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 9, 0, 1], 1_000 + number))
}

/// Anyone can have many ports, and let the hosts there owe resets: those with one UUID, when one of them is lost.
fn crowd(callbacks: &mut Callbacks) {
    for number in 0..CROWD {
        let uuid = (number / CLIENT) as u8 + 1;
        let (host, _) = enter_as(callbacks, at(1), port(number), said(uuid, &[]), true);
        promise(callbacks, host, 2);
    }
    for first in (0..CROWD).step_by(usize::from(CLIENT)) {
        enter_as(callbacks, at(2), port(first), said(99, &[]), true);
    }
}

#[test]
fn many_ports_of_one_address_delay_no_change() {
    for is_first in [false, true] {
        let config = CallbackConfig { owing_per_ip_max: 8, ..CallbackConfig::default() };
        let mut callbacks = Callbacks::new(config);
        let (honest, _) = enter_as(&mut callbacks, at(1), address(1), said(200, &[]), true);
        if is_first {
            callbacks.need_reset(honest);
        }
        crowd(&mut callbacks);
        if !is_first {
            callbacks.need_reset(honest);
        }
        let resets = callbacks.break_files(&[fid(9)], None);
        let reset = where_reset(&resets);
        assert_eq!(reset.len(), 9, "{reset:?}");
        assert!(reset.contains(&address(1)), "the others displace nobody");
        // The crowd does not answer.
        for delivery in &resets {
            callbacks.delivered(delivery, delivery.address == address(1));
        }
        assert!(callbacks.break_files(&[fid(9)], None).is_empty(), "they do not answer");
        // Later it is the turn of others.
        callbacks.maintain(SOON);
        assert_eq!(callbacks.break_files(&[fid(9)], None).len(), 8);
    }
}

/// They are sent at the same time as far as possible, and in this order otherwise.
#[test]
fn many_ports_of_one_address_take_turns_with_others() {
    let mut callbacks = Callbacks::new(CallbackConfig::default());
    let everyone = (0..CROWD).map(port).chain([address(1), address(2)]);
    for (second, peer) in (1..).zip(everyone) {
        let (host, _) = enter_as(&mut callbacks, at(second), peer, said(second as u8, &[]), true);
        promise(&mut callbacks, host, 2);
    }
    let breaks = callbacks.break_files(&[fid(2)], None);
    let order: Vec<_> = callbacks.in_turn(breaks).iter().map(|delivery| delivery.address).collect();
    let recent_first = [address(2), address(1)].into_iter().chain((0..CROWD).rev().map(port));
    assert_eq!(order, recent_first.collect::<Vec<_>>());
}

/// Calls from `peer` until the call is ready. Returns the number of resets that it has received first.
fn resets_before_a_call(callbacks: &mut Callbacks, peer: SocketAddr) -> usize {
    let (mut resets, connection) = (0, u64::from(peer.port()) << 32);
    while resets < 10 {
        match callbacks.arrive(at(3), peer, connection, true) {
            Arrival::First(Task::Deliver(delivery)) => {
                assert_eq!(delivery.message, Message::Reset);
                resets += 1;
                callbacks.delivered(&delivery, true);
            }
            Arrival::First(Task::Probe(probe)) => _ = callbacks.probed(at(3), &probe, true),
            Arrival::Ready(_) => break,
            other => panic!("{other:?}"),
        }
    }
    resets
}

#[test]
fn none_of_a_crowd_is_served_before_its_reset() {
    let config = CallbackConfig { owing_per_ip_max: 8, ..CallbackConfig::default() };
    let mut callbacks = Callbacks::new(config);
    crowd(&mut callbacks);
    for number in (0..CROWD).filter(|number| number % CLIENT != 0) {
        assert_eq!(resets_before_a_call(&mut callbacks, port(number)), 1, "{number}");
        assert!(callbacks.hosts[callbacks.by_address[&port(number)]].up);
    }
}

/// It was down while a message to it was under way that has arrived, and its client may have been elsewhere.
#[test]
fn a_host_beyond_the_limit_is_reset_once_and_served() {
    let config = CallbackConfig { owing_per_ip_max: 0, ..CallbackConfig::default() };
    let mut callbacks = Callbacks::new(config);
    let hosts = [1, 2].map(|number| enter_as(&mut callbacks, at(1), address(number), said(1, &[]), true).0);
    callbacks.host_mut(hosts[0]).away = true;
    assert_eq!(resets_before_a_call(&mut callbacks, address(1)), 1);
}

/// It is up, and what concerns it is sent to it.
#[test]
fn a_host_beyond_the_limit_gets_its_breaks() {
    let config = CallbackConfig { owing_per_ip_max: 0, ..CallbackConfig::default() };
    let mut callbacks = Callbacks::new(config);
    let host = enter(&mut callbacks, 1);
    promise(&mut callbacks, host, 2);
    callbacks.need_reset(host);
    assert!(callbacks.break_files(&[fid(9)], None).is_empty(), "no other change waits for it");
    let breaks = callbacks.break_files(&[fid(2)], None);
    assert!(
        matches!(&breaks[..], [one] if one.address == address(1) && one.stand_in.is_none()),
        "{breaks:?}"
    );
    callbacks.delivered(&breaks[0], true);
    // Without promises it is not dropped before its reset either.
    let evicted = callbacks.evict(host);
    assert!(matches!(evicted, Some(Arrival::First(Task::Evict(reset))) if reset.message == Message::Reset));
}

/// No change waits for it.
#[test]
fn a_cleared_host_beyond_the_limit_is_reset() {
    let config = CallbackConfig { promises_max: 4, owing_per_ip_max: 0, ..CallbackConfig::default() };
    let mut callbacks = Callbacks::new(config);
    let (idle, busy) = (enter(&mut callbacks, 1), enter(&mut callbacks, 2));
    promise(&mut callbacks, idle, 2);
    let resets: Vec<Delivery> = (4..8).flat_map(|vnode| promise(&mut callbacks, busy, vnode)).collect();
    assert_eq!(where_reset(&resets), [address(1)]);
    assert!(callbacks.break_files(&[fid(100)], Some(busy)).is_empty());
    assert_eq!(callbacks.delivered(&resets[0], true), Delivered::Done);
    assert_eq!(callbacks.arrive(SOON, address(1), 1, true), Arrival::Ready(idle));
}

#[test]
fn one_promise_clears_few_hosts() {
    const HOSTS: u16 = 2_000;
    let config = CallbackConfig { promises_max: usize::from(HOSTS), ..CallbackConfig::default() };
    let mut callbacks = Callbacks::new(config);
    for number in 0..HOSTS {
        let (host, _) = enter_as(&mut callbacks, at(1), port(number), said(number as u8, &[]), true);
        assert!(promise(&mut callbacks, host, 2).is_empty());
    }
    let (asking, _) = enter_as(&mut callbacks, at(1), address(1), said(1, &[]), true);
    let cleared = promise(&mut callbacks, asking, 3).len();
    assert_eq!((cleared, callbacks.has_room(63)), (64, true));

    // Changes wait for no more at that address, so that no more are cleared than is necessary.
    callbacks.config.owing_per_ip_max = 64;
    let cleared: usize = (4..67).map(|vnode| promise(&mut callbacks, asking, vnode).len()).sum();
    assert_eq!(cleared, 0, "there is room");
    assert_eq!(promise(&mut callbacks, asking, 67).len(), 1);
}
