use super::*;

const NOW: Monotonic = Monotonic(1_000);
const LATER: Monotonic = Monotonic(2_000);
const NONE: Flags = Flags(0);

/// A queue with a window of 255, used as an endpoint would use it.
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
fn packets_beyond_the_window_are_refused_until_read() {
    let mut queue = Harness::new();
    assert_eq!(queue.arrives(256, NONE), Arrival::BeyondWindow);
    assert_eq!(queue.ack(), Some(Reason::ExceedsWindow));
    assert_eq!(queue.arrives(1, NONE), Arrival::InOrder);
    queue.reads(1);
    assert_eq!(queue.arrives(256, NONE), Arrival::OutOfOrder);
}

#[test]
fn every_second_packet_and_every_ping_is_acknowledged() {
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

/// Reads `at_once` packets at a time from a sender that continues only when an ACK reports them as read.
/// Returns how many packets had been read when each ACK was sent.
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
fn a_reader_opens_the_window_before_the_sender_waits() {
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

/// Returns whether an ACK is due now, and the deadline of a delayed one.
fn plan(queue: &Harness) -> (bool, Option<Monotonic>) {
    (queue.0.acks.is_due(), queue.0.acks.deadline())
}

#[test]
fn a_late_reader_acknowledges_and_answers_pings() {
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
fn an_absent_reader_is_not_awaited() {
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
fn errors_are_reported_without_a_reader() {
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

fn room(bytes: usize) -> RecvBuffer {
    RecvBuffer::new(vec![0; bytes + 8], 8..8 + bytes)
}

/// Returns the contents of the receive buffers that are ready.
fn take_filled(queue: &mut ReceiveQueue) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| queue.take_room()).map(|room| room.filled().to_vec()).collect()
}

fn insert(queue: &mut ReceiveQueue, sequence: u32, flags: Flags, body: &'static [u8], sealed: bool) {
    assert!(matches!(queue.classify(sequence, flags), Arrival::InOrder | Arrival::OutOfOrder));
    queue.insert(sequence, flags, Bytes::from_static(body), 0, sealed);
}

#[test]
fn buffers_are_filled_in_order() {
    let mut queue = Harness::new().0;
    insert(&mut queue, 1, NONE, b"abc", false);
    for bytes in [2, 4, 0, 3] {
        queue.post_buffer(room(bytes));
    }
    assert_eq!((queue.land(), queue.next(), queue.missing()), (1, 2, 2));
    assert_eq!(take_filled(&mut queue), [b"ab"]);
    // No data is copied from behind a gap until the gap is filled; data that does not fit waits.
    insert(&mut queue, 3, NONE, b"fgh", false);
    assert_eq!((queue.land(), queue.is_readable()), (0, false));
    insert(&mut queue, 2, NONE, b"de", false);
    insert(&mut queue, 4, Flags::LAST_PACKET, b"ijkl", false);
    assert_eq!((queue.land(), queue.held(), queue.next(), queue.missing()), (2, 1, 4, 5));
    assert!(queue.is_readable() && queue.is_complete() && !queue.is_read());
    assert_eq!(take_filled(&mut queue), [&b"cdef"[..], b"", b"ghi"]);
    assert!(!queue.has_rooms() && queue.is_readable());
    // At the end of the data a partly filled buffer is returned.
    queue.post_buffer(room(9));
    assert_eq!((queue.land(), queue.is_read()), (1, true));
    assert_eq!(take_filled(&mut queue), [b"jkl"]);
}

#[test]
fn a_room_is_given_when_it_is_full_or_at_the_end() {
    let mut queue = Harness::new().0;
    queue.post_buffer(room(4));
    queue.post_buffer(room(4));
    insert(&mut queue, 1, NONE, b"abc", false);
    assert_eq!((queue.land(), queue.take_room().is_none(), queue.is_readable()), (1, true, false));
    insert(&mut queue, 2, NONE, b"de", false);
    assert_eq!((queue.land(), take_filled(&mut queue)), (1, vec![b"abcd".to_vec()]));
    assert!(queue.has_rooms() && !queue.is_readable());
    insert(&mut queue, 3, Flags::LAST_PACKET, b"", false);
    assert_eq!((queue.land(), take_filled(&mut queue)), (1, vec![b"e".to_vec()]));
}

#[test]
fn sealed_data_fills_buffers_only_when_opened_and_read() {
    let mut queue = Harness::new().0;
    queue.post_buffer(room(10));
    insert(&mut queue, 1, NONE, b"xyz", true);
    assert_eq!((queue.land(), queue.has_unread()), (0, true));
    queue.unseal(|_, _, _| Some(Bytes::from_static(b"abc")));
    assert_eq!(queue.land(), 1);
    queue.discard();
    assert!(!queue.has_rooms() && queue.take_room().is_none());
}

#[test]
fn posted_buffers_count_as_read() {
    let mut queue = Harness::new();
    queue.0.post_buffer(room(255));
    for sequence in 1..=255 {
        queue.arrives(sequence, NONE);
        queue.0.land();
    }
    assert!(queue.ack().is_some());
    assert_eq!((queue.0.held(), queue.0.next()), (0, 256));
    assert_eq!(queue.arrives(510, NONE), Arrival::OutOfOrder, "the window has moved on");
}
