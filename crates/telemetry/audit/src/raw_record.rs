//! A call that has ended, as left by the thread that served it: copied into words of memory without decoding.
//! [`crate::record`] describes their order.

use crate::draft::{Messages, Outline};
use crate::record::{DENIED, GOOD, HEAD_WORDS, KNOWN, LEVELS, LONG_ADDRESS, words_of};
use base::{AbortCode, CallFacts, Caller, Identity, Monotonic};
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The caller.
    pub caller: &'a Caller,
    /// Success or abort code.
    pub result: Result<(), AbortCode>,
    /// Facts facts while it ran.
    pub facts: &'a CallFacts,
    /// Nanoseconds from arrival to end.
    pub took_ns: u64,
    /// End time by the trail's clock.
    pub ended: Monotonic,
}

/// What is recorded of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRecord<'a> {
    outline: &'a Outline,
    call: &'a Call<'a>,
    is_denied: bool,
    /// Request without its opcode.
    request: &'a [u8],
    reply: &'a [u8],
}

/// The parts of a slip as they are written.
pub(crate) struct Parts<'a> {
    /// Name, instance, realm.
    names: [&'a [u8]; 3],
    /// An address that does not fit into the head.
    octets: Option<[u8; 16]>,
    /// Index of the request's first word.
    place: usize,
    /// Total number of words.
    pub(crate) words: usize,
}

impl<'a> RawRecord<'a> {
    #[inline]
    pub(crate) fn new(
        outline: &'a Outline,
        call: &'a Call<'a>,
        messages: Messages<'a>,
        is_denied: bool,
    ) -> RawRecord<'a> {
        let event = outline.event;
        let request = first(messages.request, event.request_max).get(4..).unwrap_or_default();
        let reply = first(messages.reply, event.reply_max);
        RawRecord { outline, call, is_denied, request, reply }
    }

    #[inline]
    pub(crate) fn parts(&self) -> Parts<'a> {
        let names = match &self.call.caller.identity {
            Identity::Anonymous => [&[][..]; 3],
            Identity::Known(who) => [&who.name, &who.instance, &who.realm].map(|part| name(part)),
        };
        let octets = match self.call.caller.peer.ip() {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.octets()),
        };
        let [a, b, c] = names.map(|name| words_of(name.len()));
        let place = HEAD_WORDS + a + b + c + octets.map_or(0, |octets| words_of(octets.len()));
        let words = place + words_of(self.request.len()) + words_of(self.reply.len());
        Parts { names, octets, place, words }
    }

    #[inline]
    fn flags(&self) -> u64 {
        let caller = self.call.caller;
        let known = if matches!(caller.identity, Identity::Anonymous) { 0 } else { KNOWN };
        let good = if self.call.result.is_ok() { GOOD } else { 0 };
        let denied = if self.is_denied { DENIED } else { 0 };
        let long_address = if caller.peer.is_ipv6() { LONG_ADDRESS } else { 0 };
        known | good | denied | long_address | LEVELS[caller.level as usize]
    }

    /// Writes the record into `words`, whose length must be that of its parts.
    #[inline]
    pub(crate) fn write(&self, parts: &Parts<'_>, words: &[AtomicU64]) {
        let Some((head, mut rest)) = words.split_first_chunk::<HEAD_WORDS>() else { return };
        let Call { caller, result, facts, took_ns, ended } = *self.call;
        let code = result.err().map_or(0, |code| code.0 as u32);
        let address = match caller.peer.ip() {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(_) => 0,
        };
        let [a, b, c] = parts.names.map(|name| name.len() as u64);
        let (procedure, privileges) = (u64::from(self.outline.number), u64::from(facts.privileges.bits()));
        let values = [
            (parts.words as u64) << 32 | parts.place as u64,
            (self.request.len() as u64) << 32 | self.reply.len() as u64,
            ended.0,
            took_ns,
            procedure << 48 | privileges << 40 | self.flags() << 32 | u64::from(code),
            u64::from(facts.user as u32) << 32 | u64::from(address),
            caller.connection.number(),
            u64::from(caller.peer.port()) << 48 | a << 32 | b << 16 | c,
        ];
        for (place, value) in head.iter().zip(values) {
            place.store(value, Relaxed);
        }
        for name in parts.names {
            rest = put(rest, name);
        }
        if let Some(octets) = &parts.octets {
            rest = put(rest, octets);
        }
        rest = put(rest, self.request);
        put(rest, self.reply);
    }
}

fn first(bytes: &[u8], bytes_max: usize) -> &[u8] {
    bytes.get(..bytes_max).unwrap_or(bytes)
}

/// A name's length is stored in two bytes; no name is longer than a packet.
fn name(name: &str) -> &[u8] {
    first(name.as_bytes(), u16::MAX.into())
}

/// Copies bytes into the first words, padding the last with zeros; returns the remaining words.
#[inline]
fn put<'a>(words: &'a [AtomicU64], bytes: &[u8]) -> &'a [AtomicU64] {
    if bytes.is_empty() {
        return words;
    }
    let (whole, last) = bytes.as_chunks();
    let (here, rest) = words.split_at(whole.len());
    for (place, chunk) in here.iter().zip(whole) {
        place.store(u64::from_le_bytes(*chunk), Relaxed);
    }
    match rest.split_first() {
        Some((place, rest)) if !last.is_empty() => {
            place.store(short(last), Relaxed);
            rest
        }
        _ => rest,
    }
}

/// Returns fewer than eight bytes as a word. Bytes in the middle are read twice, which avoids a loop.
#[inline]
fn short(bytes: &[u8]) -> u64 {
    let above = |bytes_each: usize| 8 * (bytes.len() - bytes_each) as u32;
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*low)) | u64::from(u32::from_le_bytes(*high)) << above(4)
    } else if let (Some(low), Some(high)) = (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
        u64::from(u16::from_le_bytes(*low)) | u64::from(u16::from_le_bytes(*high)) << above(2)
    } else {
        bytes.first().map_or(0, |byte| u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_are_in_words_as_they_were(bytes in prop::collection::vec(any::<u8>(), 0..40), more in 0_usize..3) {
            let words: Vec<AtomicU64> = (0..words_of(bytes.len()) + more).map(|_| AtomicU64::new(u64::MAX)).collect();
            prop_assert_eq!(put(&words, &bytes).len(), more);
            let found: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
            let mut expected = bytes.clone();
            expected.resize(8 * words_of(bytes.len()), 0);
            expected.resize(8 * words.len(), 0xff);
            prop_assert_eq!(found, expected);
        }
    }
}
