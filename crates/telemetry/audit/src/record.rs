//! A call that has ended, as read by the thread of a sink: the words written by [`crate::raw_record`].
//!
//! |---|---|
//!
//! Name, instance, realm, the address if it is IPv6, request and reply follow. Each starts at a new word,
//! with the first byte in the lowest bits. The words from 4 to the address are common to many calls.

use crate::argument::Argument;
use crate::class::Class;
use crate::draft::Outline;
use crate::event::Shape;
use afs_idl::common::Fid;
use base::{AbortCode, Principal, Privileges, SecurityLevel};
use events::catalogue::Outcome;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Number of words before the texts.
pub(crate) const HEAD_WORDS: usize = 8;

/// The call succeeded.
pub(crate) const GOOD: u64 = 1;
/// The caller was verified.
pub(crate) const KNOWN: u64 = 1 << 1;
/// Something was denied.
pub(crate) const DENIED: u64 = 1 << 2;
/// The address is IPv6.
pub(crate) const LONG_ADDRESS: u64 = 1 << 3;
/// Flags by [`SecurityLevel`].
pub(crate) const LEVELS: [u64; 3] = [0, 1 << 4, 1 << 5];

/// Size of a FID in a request.
const FID_BYTES: usize = 12;

/// Index of the first word that calls have in common.
const COMMON: usize = 4;

/// Buffers for decoded records.
#[derive(Debug, Default)]
pub(crate) struct Found {
    bytes: Vec<u8>,
    arguments: Vec<Argument>,
}

/// A call that has ended: caller, procedure, outcome, and the bytes of its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    words: &'a [AtomicU64],
    pub(crate) outline: &'a Outline,
    /// Number of the thread that served the call, among the threads with records in this sink.
    pub(crate) thread: u32,
}

/// EPERM, which only the file service returns for a denied operation; elsewhere 1 is the end of a list.
const EPERM: AbortCode = AbortCode(1);

/// Returns the outcome of a call as it is counted.
pub(crate) fn outcome(service: &str, result: Result<(), AbortCode>) -> Outcome {
    if service == "AFS" && result == Err(EPERM) { Outcome::Denied } else { observe::outcome(result) }
}

/// Returns the number of words that hold `bytes` bytes.
pub(crate) fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// Returns the number of words in the record at the start of `words`.
pub(crate) fn words(words: &[AtomicU64]) -> usize {
    (at(words, 0) >> 32) as usize
}

/// Returns when the call of the record at the start of `words` ended.
pub(crate) fn ended_ns(words: &[AtomicU64]) -> u64 {
    at(words, 2)
}

/// Returns the number of the procedure.
pub(crate) fn procedure(words: &[AtomicU64]) -> u16 {
    (at(words, COMMON) >> 48) as u16
}

fn at(words: &[AtomicU64], place: usize) -> u64 {
    words.get(place).map_or(0, |word| word.load(Relaxed))
}

impl<'a> Record<'a> {
    /// Parses a record of a call of that procedure.
    pub(crate) fn new(words: &'a [AtomicU64], outline: &'a Outline, thread: u32) -> Record<'a> {
        Record { words, outline, thread }
    }

    fn at(&self, place: usize) -> u64 {
        at(self.words, place)
    }

    fn has(&self, flag: u64) -> bool {
        self.at(COMMON) >> 32 & flag != 0
    }

    /// Returns the index of the request's first word.
    fn place(&self) -> usize {
        self.at(0) as u32 as usize
    }

    fn request_bytes(&self) -> usize {
        (self.at(1) >> 32) as usize
    }

    fn reply_bytes(&self) -> usize {
        self.at(1) as u32 as usize
    }

    pub(crate) fn ended_ns(&self) -> u64 {
        ended_ns(self.words)
    }

    pub(crate) fn took_ns(&self) -> u64 {
        self.at(3)
    }

    /// Returns the caller's number in the protection database; 0 if it was not looked up.
    pub(crate) fn user(&self) -> i32 {
        (self.at(5) >> 32) as i32
    }

    /// Returns the administrator privileges that the call used.
    pub(crate) fn privileges(&self) -> Privileges {
        Privileges::of_bits((self.at(COMMON) >> 40) as u8)
    }

    /// Returns the abort code, 0 for none.
    pub(crate) fn code(&self) -> i32 {
        self.at(COMMON) as i32
    }

    /// Returns the outcome of the call as it is counted.
    pub(crate) fn outcome(&self) -> Outcome {
        let result = if self.has(GOOD) { Ok(()) } else { Err(AbortCode(self.code())) };
        outcome(self.outline.service, result)
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.has(DENIED)
    }

    /// Whether the caller was verified.
    pub(crate) fn is_known(&self) -> bool {
        self.has(KNOWN)
    }

    pub(crate) fn level(&self) -> SecurityLevel {
        let levels = [SecurityLevel::Encrypted, SecurityLevel::Authenticated];
        levels.into_iter().find(|level| self.has(LEVELS[*level as usize])).unwrap_or(SecurityLevel::Clear)
    }

    pub(crate) fn connection(&self) -> u64 {
        self.at(6)
    }

    pub(crate) fn port(&self) -> u16 {
        (self.at(7) >> 48) as u16
    }

    /// Returns the lengths in bytes of name, instance and realm.
    fn names_bytes(&self) -> [usize; 3] {
        [32, 16, 0].map(|bits| usize::from((self.at(7) >> bits) as u16))
    }

    pub(crate) fn address(&self) -> IpAddr {
        if !self.has(LONG_ADDRESS) {
            return Ipv4Addr::from_bits(self.at(5) as u32).into();
        }
        // The address is in the two words before the request.
        let [low, high] = [2, 1].map(|before| u128::from(self.at(self.place().saturating_sub(before))));
        Ipv6Addr::from((high << 64 | low).to_le_bytes()).into()
    }

    /// Returns the verified caller, if any.
    pub(crate) fn principal(&self) -> Option<Principal> {
        let mut place = HEAD_WORDS;
        let [name, instance, realm] = self.names_bytes().map(|bytes| {
            let mut text = Vec::new();
            self.text(&mut place, bytes, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        self.is_known().then_some(Principal { name, instance, realm })
    }

    /// Appends the bytes of a text and advances to the next one.
    fn text(&self, place: &mut usize, bytes: usize, out: &mut Vec<u8>) {
        let words = self.words.get(*place..).unwrap_or_default();
        let end = out.len() + bytes;
        words
            .iter()
            .take(words_of(bytes))
            .for_each(|word| out.extend_from_slice(&word.load(Relaxed).to_le_bytes()));
        out.truncate(end);
        *place += words_of(bytes);
    }

    /// Decodes the arguments of the call into `found` and returns them; `None` if the request was truncated
    /// or is malformed.
    pub(crate) fn arguments<'b>(&self, found: &'b mut Found) -> Option<&'b [Argument]> {
        let Found { bytes, arguments } = found;
        bytes.clear();
        arguments.clear();
        let mut place = self.place();
        self.text(&mut place, self.request_bytes(), bytes);
        self.text(&mut place, self.reply_bytes(), bytes);
        let (request, reply) = bytes.split_at(self.request_bytes().min(bytes.len()));
        (self.outline.event.arguments)(request, reply, arguments)?;
        Some(arguments)
    }

    /// Returns the FID that the call was about, if it is the procedure's only argument and the request was
    /// complete. Saves decoding the arguments.
    pub(crate) fn fid(&self) -> Option<Fid> {
        if self.outline.event.shape != Shape::Fid || self.request_bytes() < FID_BYTES {
            return None;
        }
        let [two, one] = [0, 1].map(|more| self.at(self.place() + more));
        let [volume, vnode, unique] = [two, two >> 32, one].map(|word| (word as u32).swap_bytes());
        Some(Fid { volume, vnode, unique })
    }

    /// Returns the part that it has in common with other calls: procedure, outcome, privileges, caller.
    pub(crate) fn common(&self) -> &'a [AtomicU64] {
        self.words.get(COMMON..self.place()).unwrap_or_default()
    }

    /// Returns a number that is equal for equal common parts, and rarely equal for others.
    pub(crate) fn hint(&self) -> u64 {
        self.at(COMMON).wrapping_add(self.at(5)).wrapping_add(self.connection())
    }

    pub(crate) fn class(&self) -> Class {
        self.outline.event.class
    }

    /// Returns OpenAFS's name of the event, or Cellar's own.
    pub(crate) fn event_name(&self) -> Cow<'static, str> {
        let Outline { event, service, procedure, .. } = *self.outline;
        match (event.name, service) {
            ("", "CELLAR") => format!("CELLAR_{procedure}").into(),
            ("", service) => format!("CELLAR_{service}_{procedure}").into(),
            (name, _) => name.into(),
        }
    }
}
