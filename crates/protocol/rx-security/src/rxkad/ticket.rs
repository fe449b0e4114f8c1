//! Tickets: as held by a client, and as decrypted by a server.

use base::UnixTime;

use super::{KVNO_KERBEROS_5, SessionKey, krb4, ticket5};
use crate::SecurityError;
use crate::key::{KeyLease, KeySource};

/// A ticket with the data that its holder needs to use it.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// The kvno field of the response, which identifies the kind of ticket ([`super::KVNO_KERBEROS_5`],
    /// [`super::KVNO_KERBEROS_5_SEALED_PART`], or the key version of a Kerberos 4 ticket).
    pub kvno: u32,
    /// The encoded ticket.
    pub bytes: Vec<u8>,
    /// The key that is sealed in the ticket.
    pub session_key: SessionKey,
    /// End of the ticket's validity.
    pub expires: UnixTime,
}

impl Ticket {
    /// Creates a client ticket from a Kerberos 5 ticket for the cell's service (DER, as in a credentials
    /// cache) and its session key.
    pub fn from_kerberos(
        ticket: Vec<u8>,
        session_enctype: i32,
        session_key: &[u8],
        expires: UnixTime,
    ) -> Result<Ticket, SecurityError> {
        let session_key = SessionKey::from_kerberos(session_enctype, session_key)?;
        Ok(Ticket { kvno: KVNO_KERBEROS_5, bytes: ticket, session_key, expires })
    }
}

/// The contents of a decrypted ticket.
#[derive(Debug)]
pub(super) struct Opened {
    /// First component of the client's name, in Kerberos 4 style.
    pub(super) name: String,
    pub(super) instance: String,
    /// Realm as in the ticket; empty in tickets that a cell's servers make for themselves.
    pub(super) realm: String,
    pub(super) session_key: SessionKey,
    pub(super) start: u32,
    pub(super) end: u32,
    /// Lease of the key that opened the ticket.
    pub(super) lease: KeyLease,
}

/// Opens a ticket of any kind.
pub(super) fn open(
    kvno: u32,
    ticket: &[u8],
    keys: &dyn KeySource,
    dots_allowed: bool,
) -> Result<Opened, SecurityError> {
    match kvno {
        super::KVNO_KERBEROS_5 | super::KVNO_KERBEROS_5_SEALED_PART => {
            ticket5::open(kvno, ticket, keys, dots_allowed)
        }
        0..=super::KVNO_KERBEROS_4_MAX => krb4::open(kvno, ticket, keys),
        _ => Err(SecurityError::UnknownKey { kvno, enctype: 1 }),
    }
}
