use super::*;
use crate::call::{NewCall, TimeLimits};
use crate::congestion::Congestion;
use crate::header::Flags;
use crate::rtt::Rtt;
use crate::slab::Slab;
use rx_security::Protected;
use std::time::Duration;

const SENT: Monotonic = Monotonic(7_000);
const DEADLINE: Monotonic = Monotonic(9_000);
const LEARNT: Learnt = Learnt { window: 20, threshold: 30, at: SENT };

fn call() -> Call {
    let limits = TimeLimits { dead: Duration::from_secs(30), idle: None, total: None };
    let parts = NewCall {
        connection: Slab::new().insert_with(|_| ()),
        side: Side::Server,
        channel: 2,
        number: 9,
        state: State::Active,
        send_window: 32,
        send_window_max: 255,
        receive_window: 100,
        congestion: Congestion::new(Some(LEARNT), SENT),
        limits,
        standing: Standing::Reachable,
    };
    *Call::reusing(None, parts, Monotonic(5_000))
}

/// Returns a call that has read its request and sent this reply.
fn answered(reply: &[u8], is_sealed: bool) -> Call {
    let mut call = call();
    for sequence in 1..=3 {
        let flags = Flags::default().with_if(sequence == 3, Flags::LAST_PACKET);
        call.receive.insert(sequence, flags, Bytes::from_static(b"asks"), 0, false);
    }
    while call.receive.pop().is_some() {}
    call.receive.discard();
    call.send.push(&mut Bytes::copy_from_slice(reply), usize::MAX);
    call.send.end();
    assert_eq!(call.send.cut(1400, 9), 1);
    if is_sealed {
        let pieces = vec![Bytes::copy_from_slice(&reply[1..])];
        call.send.set_sealed(0, vec![Protected { checksum: 77, pieces }]);
    } else {
        call.send.set_checksums(0, &[55]);
    }
    call.send.on_sent(0, SENT);
    call.clocks.sent = SENT;
    call.receive.acks.cancel();
    call.send.deadline(SENT, &Rtt::default(), false);
    call.apply(StateEvent::Released);
    call
}

#[test]
fn a_call_is_made_again_as_it_was() {
    let long = [3; SHORT_BYTES + 1];
    for (reply, is_sealed, is_probe) in [
        (&b"short"[..], false, true),
        (&long[..SHORT_BYTES], false, false),
        (&long, false, false),
        (b"sealed", true, true),
        (&long, true, false),
    ] {
        let mut before = answered(reply, is_sealed);
        if is_probe {
            before.send.add_probe(4_711, SENT, &Rtt::default());
        }
        before.damaged = 3;
        let rest = before.rest(DEADLINE).expect("nothing else is to be done");
        assert_eq!((rest.deadline, rest.request_last), (DEADLINE, 3));
        let mut after = call();
        after.resume(&rest);
        assert_eq!(format!("{after:?}"), format!("{before:?}"), "{} bytes, {is_sealed}", reply.len());
    }
}

/// A change that prevents a call from resting.
type Change = fn(&mut Call);

#[test]
fn calls_with_other_timers_do_not_rest() {
    let changes: [(&str, Change); 11] = [
        ("held by its user", |call| call.state = State::Active),
        ("about to send", |call| call.ready = true),
        ("to be armed", |call| call.unarmed = true),
        ("about to ask", |call| call.ping = Some(super::super::Ping::Plain)),
        ("failed", |call| call.state = State::Aborted(base::AbortCode::VBUSY)),
        ("owes an answer", |call| call.receive.acks.on_ping(5)),
        ("owes an ACK", |call| call.receive.acks.propose_at(DEADLINE)),
        ("has more to send", |call| {
            call.send.push(&mut Bytes::from_static(b"more"), usize::MAX);
        }),
        ("sent twice", |call| {
            call.send.on_time(DEADLINE + Duration::from_secs(60), &Rtt::default());
            call.send.on_sent(0, DEADLINE);
        }),
        ("acknowledged", |call| call.send.on_all_received(DEADLINE)),
        ("of several packets", |call| {
            *call = answered(&[1; 100], false);
            call.send = {
                let mut other = self::call();
                other.send.push(&mut Bytes::from(vec![1; 2_000]), usize::MAX);
                other.send.end();
                assert_eq!(other.send.cut(1_400, 9), 2);
                other.send.on_sent(0, SENT);
                other.send.on_sent(1, SENT);
                other.send
            };
        }),
    ];
    assert!(answered(b"reply", false).rest(DEADLINE).is_some());
    for (what, change) in changes {
        let mut call = answered(b"reply", false);
        change(&mut call);
        assert!(call.rest(DEADLINE).is_none(), "{what}");
    }
    assert!(call().rest(DEADLINE).is_none(), "has not answered");
}
