//! What is remembered of a call until its line is written.

use crate::argument::Argument;
use crate::class::Class;
use crate::event::Event;
use base::{AbortCode, Caller, Identity, Principal, SecurityLevel};
use events::catalogue::Outcome;
use events::current::Privileges;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

/// What is known of a call besides its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// When it ended, since 1970.
    pub(crate) at: Duration,
    pub(crate) result: Result<(), AbortCode>,
    /// The caller's number in the protection database; 0 if nobody asked.
    pub(crate) user: i32,
    /// What an administrator's privileges let it do.
    pub(crate) privileges: Privileges,
    /// Nanoseconds from its arrival to its end.
    pub(crate) took_ns: u64,
}

/// Memory for the name of a caller.
pub(crate) struct Who(Principal);

impl Default for Who {
    fn default() -> Who {
        let (name, instance, realm) = Default::default();
        Who(Principal { name, instance, realm })
    }
}

/// A call that has ended: who called what, how it ended, and the bytes that say the rest.
#[derive(Clone, Debug)]
pub struct Record {
    pub(crate) facts: Facts,
    pub(crate) service: &'static str,
    pub(crate) procedure: &'static str,
    pub(crate) event: &'static Event,
    pub(crate) peer: SocketAddr,
    pub(crate) level: SecurityLevel,
    pub(crate) connection: u64,
    is_known: bool,
    /// Name, instance, realm, request without opcode, reply, one behind the other.
    bytes: Bytes,
    /// Where each of them ends.
    ends: [u32; 4],
}

/// What the same is said of in lines: a caller on a connection.
#[derive(Clone, Debug)]
pub(crate) struct CallerKey {
    /// Name, instance and realm.
    name: Box<[u8]>,
    facts: CallerFacts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CallerFacts {
    /// Where name, instance and realm end.
    ends: [u32; 3],
    is_known: bool,
    peer: SocketAddr,
    level: SecurityLevel,
    connection: u64,
}

/// Bytes that a record has room for: more of them take memory of their own.
const NEAR_BYTES: usize = 120;

/// What is remembered of a call's messages.
#[derive(Clone, Debug)]
enum Bytes {
    /// The first so many of these.
    Near([u8; NEAR_BYTES], u8),
    Far(Box<[u8]>),
}

impl Bytes {
    /// Pieces, one behind the other, and where each ends.
    fn of<const N: usize>(pieces: [&[u8]; N]) -> (Bytes, [u32; N]) {
        let mut ends = [0; N];
        let mut length = 0;
        for (end, piece) in ends.iter_mut().zip(pieces) {
            length += piece.len();
            *end = length as u32;
        }
        let mut near = [0; NEAR_BYTES];
        let Some(mut room) = near.get_mut(..length) else {
            return (Bytes::Far(pieces.concat().into_boxed_slice()), ends);
        };
        for piece in pieces {
            let (here, rest) = room.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            room = rest;
        }
        (Bytes::Near(near, length as u8), ends)
    }

    fn all(&self) -> &[u8] {
        match self {
            Bytes::Near(bytes, length) => &bytes[..usize::from(*length)],
            Bytes::Far(bytes) => bytes,
        }
    }

    fn far_bytes(&self) -> usize {
        match self {
            Bytes::Near(..) => 0,
            Bytes::Far(bytes) => bytes.len(),
        }
    }
}

/// EPERM, which only the file service says of what is not allowed; elsewhere 1 is the end of a list.
const EPERM: AbortCode = AbortCode(1);

/// How a call of a service ended, as it is counted.
pub(crate) fn outcome(service: &str, result: Result<(), AbortCode>) -> Outcome {
    if service == "AFS" && result == Err(EPERM) { Outcome::Denied } else { observe::outcome(result) }
}

/// The messages of a call as far as they were kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages<'a> {
    /// With its opcode.
    pub(crate) request: &'a [u8],
    pub(crate) reply: &'a [u8],
}

impl Record {
    pub(crate) fn new(
        service: &'static str,
        procedure: &'static str,
        event: &'static Event,
        caller: &Caller,
        facts: Facts,
        messages: Messages<'_>,
    ) -> Record {
        let [name, instance, realm] = match &caller.identity {
            Identity::Anonymous => [""; 3],
            Identity::Known(who) => [&who.name[..], &who.instance, &who.realm],
        };
        let request = messages.request.get(4..).unwrap_or_default();
        let parts = [name.as_bytes(), instance.as_bytes(), realm.as_bytes(), request, messages.reply];
        let (bytes, [a, b, c, d, _]) = Bytes::of(parts);
        Record {
            facts,
            service,
            procedure,
            event,
            peer: caller.peer,
            level: caller.level,
            connection: caller.connection,
            is_known: caller.identity != Identity::Anonymous,
            bytes,
            ends: [a, b, c, d],
        }
    }

    /// What it holds of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Record>() + self.bytes.far_bytes()
    }

    fn part(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let bytes = self.bytes.all();
        let end = self.ends.get(number).map_or(bytes.len(), |end| *end as usize);
        &bytes[start..end]
    }

    /// Who called, if the caller proved it; put into `who`, whose memory is used again.
    pub(crate) fn principal<'a>(&self, Who(who): &'a mut Who) -> Option<&'a Principal> {
        for (number, text) in [&mut who.name, &mut who.instance, &mut who.realm].into_iter().enumerate() {
            text.clear();
            text.push_str(&String::from_utf8_lossy(self.part(number)));
        }
        self.is_known.then_some(who)
    }

    /// Puts what the call was about into `found`; `None`, and nothing, if its request was cut off, or none.
    pub(crate) fn arguments(&self, found: &mut Vec<Argument>) -> Option<()> {
        found.clear();
        (self.event.arguments)(self.part(3), self.part(4), found)
    }

    /// Whether the caller proved who it is.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// What tells its caller from others.
    pub(crate) fn caller(&self) -> CallerKey {
        let name = self.bytes.all()[..self.ends[2] as usize].into();
        CallerKey { name, facts: self.caller_facts() }
    }

    /// Whether that is its caller.
    pub(crate) fn is_of(&self, key: &CallerKey) -> bool {
        key.facts == self.caller_facts() && *key.name == self.bytes.all()[..self.ends[2] as usize]
    }

    fn caller_facts(&self) -> CallerFacts {
        let [name, instance, realm, _] = self.ends;
        CallerFacts {
            ends: [name, instance, realm],
            is_known: self.is_known,
            peer: self.peer,
            level: self.level,
            connection: self.connection,
        }
    }

    /// How the call ended, as it is counted.
    pub(crate) fn outcome(&self) -> Outcome {
        outcome(self.service, self.facts.result)
    }

    /// The abort code, 0 for none.
    pub(crate) fn code(&self) -> i32 {
        self.facts.result.err().map_or(0, |code| code.0)
    }

    pub(crate) fn class(&self) -> Class {
        self.event.class
    }

    /// OpenAFS's name of the event, or one of our own.
    pub(crate) fn event_name(&self) -> Cow<'static, str> {
        match (self.event.name, self.service) {
            ("", "CELLAR") => format!("CELLAR_{}", self.procedure).into(),
            ("", service) => format!("CELLAR_{service}_{}", self.procedure).into(),
            (name, _) => name.into(),
        }
    }
}
