//! Selects the events that are logged, and limits their number.
//!
//! Code that produces an event calls [`Lines::wants`], one relaxed load while no lines are enabled, and then
//! [`Lines::tell`]. Lines go to a bounded queue, which the receiver of [`Lines::open`] drains: producers
//! never wait. Lines that do not fit into the queue or exceed the limit per second are counted.

use crate::catalogue::EventFigures;
use crate::{FieldValue, LoggedEvent};
use parking_lot::RwLock;
use std::array::from_fn;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call has ended.
    Call,
    /// An access to a disk has ended.
    Disk,
    /// A thread has waited for a lock.
    Lock,
    /// A callback break was delivered or abandoned.
    Callback,
    /// A DATA packet was retransmitted.
    Packet,
    /// A cache missed or evicted an entry.
    Cache,
}

/// Names of [`Event`], in order.
pub const EVENTS: [&str; 6] = ["call", "disk", "lock", "callback", "packet", "cache"];

/// Word that selects all events.
const ALL: &str = "all";

/// Valid limits of lines per second.
pub const PER_SECOND: RangeInclusive<u64> = 1..=1_000_000;

/// Maximum number of queued lines.
const QUEUE_LINES: usize = 4096;

/// Value in [`Lines::from_ns`] for events that are not logged.
const NONE: u64 = u64::MAX;

/// The lines of this process.
pub static LINES: Lines = Lines::new();

/// A line to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Name of the event.
    pub event: &'static str,
    /// Fields of the event.
    pub reported: Vec<(&'static str, FieldValue)>,
}

/// Minimum duration, in nanoseconds, of each event that is logged; `None` for events that are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice(pub [Option<u64>; EVENTS.len()]);

impl Choice {
    /// Parses words like `call`, `disk=10ms` and `all`.
    ///
    /// # Errors
    /// The invalid word and the valid ones.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Choice, String> {
        let mut choice = Choice::default();
        for word in words {
            let (name, from_ns) = match word.split_once('=') {
                None => (word, 0),
                Some((name, time)) => (name, nanoseconds(time).ok_or_else(|| wrong_time(word, time))?),
            };
            if name != ALL && !EVENTS.contains(&name) {
                return Err(format!("`{name}` is not an event; valid are {} and {ALL}", EVENTS.join(", ")));
            }
            for (chosen, of) in choice.0.iter_mut().zip(EVENTS) {
                if name == of || name == ALL {
                    *chosen = Some(from_ns);
                }
            }
        }
        Ok(choice)
    }

    /// Returns the words for this choice.
    pub fn words(&self) -> Vec<String> {
        let word = |(name, from): (&str, &Option<u64>)| match (*from)? {
            0 => Some(name.to_owned()),
            ns => Some(format!("{name}={ns}ns")),
        };
        EVENTS.into_iter().zip(&self.0).filter_map(word).collect()
    }
}

fn wrong_time(word: &str, time: &str) -> String {
    format!("`{time}` in `{word}` is not a time; write it like 10ms, 500us, 2s")
}

/// Parses `10ms`, `500us`, `7ns` or `2s`.
fn nanoseconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|ns| *ns != NONE)
}

/// Log lines of events: which are enabled, how many were written, and how many were dropped.
#[derive(Debug)]
pub struct Lines {
    /// Minimum duration by event; [`NONE`] if it is not logged.
    from_ns: [AtomicU64; EVENTS.len()],
    /// Number of lines that may still be written in this second.
    left: AtomicU64,
    per_second: AtomicU64,
    written: [AtomicU64; EVENTS.len()],
    dropped: [AtomicU64; EVENTS.len()],
    /// Guards the channel to the log writer; nothing blocks under the lock.
    queue: RwLock<Option<SyncSender<Line>>>,
}

impl Lines {
    const fn new() -> Lines {
        Lines {
            from_ns: [const { AtomicU64::new(NONE) }; EVENTS.len()],
            left: AtomicU64::new(0),
            per_second: AtomicU64::new(0),
            written: [const { AtomicU64::new(0) }; EVENTS.len()],
            dropped: [const { AtomicU64::new(0) }; EVENTS.len()],
            queue: RwLock::new(None),
        }
    }

    /// Enables lines for these events, at most `per_second`.
    pub fn choose(&self, choice: &Choice, per_second: u64) {
        self.per_second.store(per_second, Relaxed);
        self.refill();
        for (own, chosen) in self.from_ns.iter().zip(choice.0) {
            own.store(chosen.unwrap_or(NONE), Relaxed);
        }
    }

    /// Whether lines of this event are enabled; if not, producing it can be skipped.
    #[inline]
    pub fn wants(&self, event: Event) -> bool {
        self.from_ns[event as usize].load(Relaxed) != NONE
    }

    /// Logs an event that took long enough, together with the fields that `about` returns.
    #[cold]
    pub fn log<E: LoggedEvent>(&self, event: &E, about: impl FnOnce() -> Vec<(&'static str, FieldValue)>) {
        let which = E::EVENT as usize;
        let from_ns = self.from_ns[which].load(Relaxed);
        if from_ns == NONE || event.took_ns().is_some_and(|took| took < from_ns) {
            return;
        }
        let line = || {
            let reported = E::NAMES.iter().copied().zip(event.values()).chain(about()).collect();
            Line { event: EVENTS[which], reported }
        };
        let may = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        let queue = self.queue.read();
        let is_written = may && queue.as_ref().is_some_and(|queue| queue.try_send(line()).is_ok());
        let counter = if is_written { &self.written } else { &self.dropped };
        counter[which].fetch_add(1, Relaxed);
    }

    /// Resets the limit; called once per second.
    pub fn refill(&self) {
        self.left.store(self.per_second.load(Relaxed), Relaxed);
    }

    /// Returns a receiver for all further lines. A receiver opened earlier gets no more.
    pub fn open(&self) -> Receiver<Line> {
        let (sender, receiver) = sync_channel(QUEUE_LINES);
        *self.queue.write() = Some(sender);
        receiver
    }

    /// Returns the counters for the lines of each event.
    pub fn figures(&self) -> [EventFigures; EVENTS.len()] {
        from_fn(|which| {
            let from_ns = self.from_ns[which].load(Relaxed);
            EventFigures {
                on: u64::from(from_ns != NONE),
                from: if from_ns == NONE { 0 } else { from_ns },
                written: self.written[which].load(Relaxed),
                dropped: self.dropped[which].load(Relaxed),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{DiskAccess, PacketResent};

    const RESENT: PacketResent = PacketResent { connection: 1, call: 2, sequence: 3, sent: 4 };

    fn access(time: u64) -> DiskAccess {
        DiskAccess { access: "read", failed: 0, buffered: 0, moved: 0, time }
    }

    fn count(lines: &Lines, event: Event) -> (u64, u64) {
        let figures = &lines.figures()[event as usize];
        (figures.written, figures.dropped)
    }

    #[test]
    fn events_that_were_chosen_and_took_long_leave_lines() {
        let lines = Lines::new();
        let written = lines.open();
        assert!(!lines.wants(Event::Disk));
        lines.choose(&Choice::parse(["disk=5us", "packet"]).unwrap(), 100);
        assert!(lines.wants(Event::Disk) && lines.wants(Event::Packet) && !lines.wants(Event::Call));
        lines.log(&access(4999), Vec::new);
        lines.log(&access(5000), || vec![("volume", FieldValue::Number(7))]);
        lines.log(&RESENT, Vec::new);
        let came: Vec<Line> = written.try_iter().collect();
        assert_eq!(came.iter().map(|line| line.event).collect::<Vec<_>>(), ["disk", "packet"]);
        let reported = |name: &str| {
            came[0].reported.iter().find(|(of, _)| *of == name).map(|(_, reported)| reported.clone())
        };
        assert_eq!(
            (reported("time_ns"), reported("volume")),
            (Some(FieldValue::Number(5000)), Some(FieldValue::Number(7)))
        );
        assert_eq!((count(&lines, Event::Disk), count(&lines, Event::Packet)), ((1, 0), (1, 0)));
        lines.choose(&Choice::default(), 100);
        lines.log(&access(5000), Vec::new);
        assert_eq!(written.try_iter().count(), 0);
        assert_eq!(count(&lines, Event::Disk), (1, 0), "not wanted is not left out");
    }

    #[test]
    fn suppressed_lines_are_counted() {
        let lines = Lines::new();
        let all = Choice::parse(["all"]).unwrap();
        lines.choose(&all, 2);
        lines.log(&RESENT, Vec::new);
        assert_eq!(count(&lines, Event::Packet), (0, 1), "nobody writes");
        lines.refill();
        let written = lines.open();
        (0..5).for_each(|_| lines.log(&RESENT, Vec::new));
        assert_eq!((written.try_iter().count(), count(&lines, Event::Packet)), (2, (2, 4)));
        lines.refill();
        lines.log(&RESENT, Vec::new);
        assert_eq!(count(&lines, Event::Packet), (3, 4));
        lines.choose(&all, u64::MAX);
        (0..=QUEUE_LINES).for_each(|_| lines.log(&RESENT, Vec::new));
        assert_eq!(count(&lines, Event::Packet), (3 + QUEUE_LINES as u64 - 1, 4 + 2), "one waited already");
    }

    #[test]
    fn choices_are_words() {
        let choice = Choice::parse(["all=1s", "disk", "lock=20us"]).unwrap();
        let second = Some(1_000_000_000);
        assert_eq!(choice.0, [second, Some(0), Some(20_000), second, second, second]);
        let words = choice.words();
        assert_eq!(words[..3], ["call=1000000000ns", "disk", "lock=20000ns"]);
        assert_eq!(Choice::parse(words.iter().map(String::as_str)), Ok(choice));
        assert_eq!(Choice::parse([]), Ok(Choice::default()));
        for (word, right) in [
            ("disc", "call, disk, lock, callback, packet, cache and all"),
            ("disk=10", "10ms"),
            ("disk=ms", "10ms"),
            ("disk=-1ms", "10ms"),
            ("disk=99999999999999999999s", "10ms"),
            ("disk=18446744073709551615ns", "10ms"),
            ("", "call, disk"),
        ] {
            let refusal = Choice::parse([word]).unwrap_err();
            assert!(refusal.contains(right), "{refusal}");
        }
    }
}
