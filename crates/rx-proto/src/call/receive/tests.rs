use super::*;

const NOW: Monotonic = Monotonic(1_000);
const LATER: Monotonic = Monotonic(2_000);
const NONE: Flags = Flags(0);

/// A queue of a window of 255, and what it does with packets as an endpoint would.
struct Harness(ReceiveQueue);

impl Harness {
    fn new() -> Harness {
        Harness(ReceiveQueue::new(255, SpareQueue::default()))
    }

    fn arrives(&mut self, sequence: u32, flags: Flags) -> Arrival {
        let arrival = self.0.classify(sequence, flags);
        if matches!(arrival, Arrival::InOrder | Arrival::OutOfOrder) {
            self.0.insert(sequence, flags, Bytes::from(vec![sequence as u8]), 0, false);
        }
        self.0.plan_ack(arrival, flags, sequence, LATER);
        arrival
    }

    fn reads(&mut self, packets: u32) {
        for _ in 0..packets {
            assert!(self.0.pop().is_some());
        }
        self.0.plan_window_ack(LATER);
    }

    fn ack(&mut self) -> Option<Reason> {
        self.0.acks.take().map(|(reason, _)| reason)
    }
}

#[test]
fn packets_come_out_in_order_and_once() {
    let mut queue = Harness::new();
    assert_eq!(queue.arrives(2, NONE), Arrival::OutOfOrder);
    assert_eq!(queue.ack(), Some(Reason::OutOfSequence));
    assert!(queue.0.pop().is_none());
    assert_eq!(queue.arrives(1, NONE), Arrival::InOrder);
    assert_eq!(queue.arrives(2, NONE), Arrival::Duplicate);
    assert_eq!(queue.ack(), Some(Reason::Duplicate));
    assert_eq!(queue.arrives(3, Flags::LAST_PACKET), Arrival::InOrder);
    assert_eq!(queue.arrives(4, NONE), Arrival::Impossible);
    assert_eq!(queue.arrives(0, NONE), Arrival::Impossible);
    let read: Vec<u8> = std::iter::from_fn(|| queue.0.pop()).flatten().collect();
    assert_eq!(read, [1, 2, 3]);
    assert!(queue.0.is_complete());
    assert_eq!(queue.arrives(1, NONE), Arrival::Duplicate);
}

#[test]
fn what_lies_beyond_the_window_is_refused_until_the_reader_reads() {
    let mut queue = Harness::new();
    assert_eq!(queue.arrives(256, NONE), Arrival::BeyondWindow);
    assert_eq!(queue.ack(), Some(Reason::ExceedsWindow));
    assert_eq!(queue.arrives(1, NONE), Arrival::InOrder);
    queue.reads(1);
    assert_eq!(queue.arrives(256, NONE), Arrival::OutOfOrder);
}

#[test]
fn every_second_packet_and_what_was_asked_for_is_acknowledged_at_once() {
    let mut queue = Harness::new();
    queue.arrives(1, NONE);
    assert_eq!((queue.ack(), queue.0.acks.deadline()), (None, Some(LATER)));
    queue.arrives(2, NONE);
    assert_eq!(queue.ack(), Some(Reason::Idle));
    queue.arrives(3, Flags::REQUEST_ACK);
    assert_eq!(queue.ack(), Some(Reason::Requested));
    queue.arrives(4, NONE);
    queue.0.acks.on_time(NOW);
    assert_eq!(queue.ack(), None);
    queue.0.acks.on_time(LATER);
    assert_eq!(queue.ack(), Some(Reason::Delay));
}

/// Reads so many packets at a time of a sender that goes on only when it hears that they were read; tells how many were
/// read when each ACK was sent for it.
fn reads_per_ack(window: u32, at_once: u32) -> Vec<u32> {
    let (mut queue, mut sent, mut read, mut acknowledged) = (Harness::new(), 0, 0, 0);
    let mut acks = Vec::new();
    while acks.len() < 8 {
        while sent < acknowledged + window {
            sent += 1;
            queue.arrives(sent, NONE);
        }
        queue.0.acks.take();
        let packets = at_once.min(sent - read);
        queue.reads(packets);
        read += packets;
        if queue.ack() == Some(Reason::Delay) {
            acks.push(read - acknowledged);
            acknowledged = read;
        } else {
            assert!(read < sent, "the sender waits for an ACK, and so does the reader for data");
        }
    }
    acks
}

#[test]
fn a_reader_tells_the_sender_of_what_it_has_read_before_that_waits_for_it() {
    assert_eq!(reads_per_ack(255, 1), [4; 8]);
    assert_eq!(reads_per_ack(32, 10), [10; 8]);
    assert_eq!(reads_per_ack(4, 1), [4; 8]);
    assert_eq!(reads_per_ack(5, 100), [5; 8]);
}

#[test]
fn of_less_the_sender_hears_later() {
    let mut queue = Harness::new();
    for sequence in 1..=3 {
        queue.arrives(sequence, NONE);
    }
    queue.0.acks.take();
    queue.reads(3);
    assert_eq!((queue.ack(), queue.0.acks.deadline()), (None, Some(LATER)));
}

/// Whether an ACK is due at once, and when one is due at last.
fn plan(queue: &Harness) -> (bool, Option<Monotonic>) {
    (queue.0.acks.is_due(), queue.0.acks.deadline())
}

#[test]
fn a_reader_who_comes_acknowledges_what_he_reads_and_answers_what_was_asked() {
    let mut queue = Harness::new();
    queue.0.leave_acks_to_reader(NOW);
    (1..=40).for_each(|sequence| _ = queue.arrives(sequence, NONE));
    queue.arrives(41, Flags::REQUEST_ACK);
    assert!(!queue.0.acks.is_due());
    queue.reads(41);
    assert!(queue.0.acks.is_due());
    assert_eq!(queue.0.acks.take(), Some((Reason::Requested, 41)));
    assert_eq!(plan(&queue), (false, None));
}

#[test]
fn a_reader_who_does_not_come_is_not_waited_for() {
    let mut queue = Harness::new();
    queue.0.leave_acks_to_reader(NOW);
    queue.0.leave_acks_to_reader(LATER);
    assert_eq!(plan(&queue), (false, None));
    queue.arrives(1, Flags::REQUEST_ACK);
    let until = NOW + READER_TIME;
    assert_eq!(plan(&queue), (false, Some(until)));
    queue.0.acks.on_time(Monotonic(until.0 - 1));
    assert!(!queue.0.acks.is_due());
    queue.0.acks.on_time(until);
    assert!(queue.0.acks.is_due());
    assert_eq!(queue.ack(), Some(Reason::Requested));
}

#[test]
fn what_is_wrong_is_told_without_a_reader() {
    for wrong in [4, 1, 300] {
        let mut queue = Harness::new();
        queue.0.leave_acks_to_reader(NOW);
        queue.arrives(1, NONE);
        queue.arrives(2, NONE);
        assert!(!queue.0.acks.is_due());
        queue.arrives(wrong, NONE);
        assert!(queue.0.acks.is_due(), "packet {wrong}");
    }
    let mut queue = Harness::new();
    queue.0.leave_acks_to_reader(NOW);
    queue.0.acks.on_ping(9);
    assert!(queue.0.acks.is_due());
    assert_eq!(queue.ack(), Some(Reason::PingResponse));
}
