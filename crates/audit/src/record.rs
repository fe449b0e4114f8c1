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
    bytes: Box<[u8]>,
    /// Where each of them ends.
    ends: [u32; 4],
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
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        let mut ends = [0; 5];
        for (end, part) in ends.iter_mut().zip(parts) {
            bytes.extend_from_slice(part);
            *end = bytes.len() as u32;
        }
        let [a, b, c, d, _] = ends;
        Record {
            facts,
            service,
            procedure,
            event,
            peer: caller.peer,
            level: caller.level,
            connection: caller.connection,
            is_known: caller.identity != Identity::Anonymous,
            bytes: bytes.into_boxed_slice(),
            ends: [a, b, c, d],
        }
    }

    /// What it holds of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Record>() + self.bytes.len()
    }

    fn part(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let end = self.ends.get(number).map_or(self.bytes.len(), |end| *end as usize);
        &self.bytes[start..end]
    }

    /// Who called, if the caller proved it; put into `who`, whose memory is used again.
    pub(crate) fn principal<'a>(&self, Who(who): &'a mut Who) -> Option<&'a Principal> {
        for (number, text) in [&mut who.name, &mut who.instance, &mut who.realm].into_iter().enumerate() {
            text.clear();
            text.push_str(&String::from_utf8_lossy(self.part(number)));
        }
        self.is_known.then_some(who)
    }

    /// What the call was about; `None` if its request was cut off, or none.
    pub(crate) fn arguments(&self) -> Option<Vec<Argument>> {
        (self.event.arguments)(self.part(3), self.part(4))
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
