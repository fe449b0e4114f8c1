//! Kerberos 5 tickets (rxkad-k5): decryption, and conversion of their names to Kerberos 4 style.

use super::ticket::Opened;
use super::{KVNO_KERBEROS_5, SessionKey, names};
use crate::SecurityError;
use crate::key::{Enctype, KeyLease, KeySource};
use crate::krb5::cipher::{self, USAGE_TICKET};
use crate::krb5::der::{DerError, Reader};
use crate::krb5::message::{Sealed, TicketBody, sealed_part_of_ticket};

impl From<DerError> for SecurityError {
    fn from(error: DerError) -> SecurityError {
        SecurityError::BadTicket(error.0)
    }
}

/// Opens a complete ticket or the sealed part of one, depending on the response's kvno field.
pub(super) fn open(
    kind: u32,
    ticket: &[u8],
    keys: &dyn KeySource,
    dots_allowed: bool,
) -> Result<Opened, SecurityError> {
    let sealed = if kind == KVNO_KERBEROS_5 {
        sealed_part_of_ticket(ticket)?
    } else {
        Sealed::decode(&mut Reader::new(ticket))?
    };
    let (body, lease) = unseal(&sealed, keys)?;
    if body.invalid {
        return Err(SecurityError::NotAuthenticated);
    }
    let (name, instance) = names::from_kerberos_5(&body.name, dots_allowed)?;
    Ok(Opened {
        name,
        instance,
        realm: names::text(&body.realm)?,
        session_key: SessionKey::from_kerberos(body.session_enctype, &body.session_key)?,
        start: body.start,
        end: body.end,
        lease,
    })
}

fn unseal(sealed: &Sealed<'_>, keys: &dyn KeySource) -> Result<(TicketBody, KeyLease), SecurityError> {
    let (kvno, number) = (sealed.kvno, sealed.enctype);
    let unknown = SecurityError::UnknownKey { kvno, enctype: number };
    let enctype = Enctype::from_number(number).ok_or(unknown.clone())?;
    let (key, lease) = keys.leased(kvno, enctype).ok_or(unknown)?;
    let plain = cipher::open(enctype, &key, USAGE_TICKET, sealed.ciphertext)
        .map_err(|_| SecurityError::BadTicket("ticket does not decrypt"))?;
    Ok((TicketBody::decode(&plain)?, lease))
}
