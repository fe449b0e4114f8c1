//! Tickets that a holder of the cell's key makes for itself (`-localauth`).

use base::UnixTime;
use zeroize::Zeroizing;

use super::names::SERVER_NAME;
use super::{KVNO_KERBEROS_5_SEALED_PART, NEVER, SessionKey, Ticket, krb4};
use crate::SecurityError;
use crate::key::{Enctype, KeySet, ServiceKey};
use crate::krb5::cipher::{self, CONFOUNDER_BYTES, USAGE_TICKET};
use crate::krb5::message::{Sealed, TicketBody};

/// End of a ticket that does not expire, as in OpenAFS's tools.
pub const LOCAL_TICKET_END_MAX: UnixTime = UnixTime(0x7fff_ffff);
/// Encryption type of the session key in such tickets, a DES key.
const SESSION_ENCTYPE: i32 = 1;

/// Seals a ticket for the cell's servers themselves (name `afs`, no instance, no realm) with the preferred
/// key. Both random arguments must be fresh and unpredictable. The ticket is already valid and ends at
/// `expires`; from [`LOCAL_TICKET_END_MAX`] on it never ends.
///
/// With a Kerberos 5 key this is the sealed part of a ticket; with only DES keys, a Kerberos 4 ticket.
/// OpenAFS's tools make the same for `-localauth`, without an end.
///
/// # Errors
/// There is no key, or the random session key is one of DES's weak keys.
pub fn forge_local_ticket(
    keys: &KeySet,
    random_session_key: [u8; 8],
    random_confounder: [u8; CONFOUNDER_BYTES],
    expires: UnixTime,
) -> Result<Ticket, SecurityError> {
    let (kvno, key) = keys.preferred().ok_or(SecurityError::UnknownKey { kvno: 0, enctype: 18 })?;
    let session_key = SessionKey::from_random(random_session_key)
        .ok_or(SecurityError::BadKey("random session key is weak; try another"))?;
    match key.enctype() {
        Enctype::DesCbcCrc | Enctype::DesCbcMd5 => Ok(kerberos_4(kvno, key, session_key, expires)),
        _ => Ok(kerberos_5(kvno, key, session_key, random_confounder, expires)),
    }
}

fn kerberos_5(
    kvno: u32,
    key: &ServiceKey,
    session_key: SessionKey,
    confounder: [u8; CONFOUNDER_BYTES],
    expires: UnixTime,
) -> Ticket {
    let end = expires.min(LOCAL_TICKET_END_MAX);
    let body = TicketBody {
        invalid: false,
        session_enctype: SESSION_ENCTYPE,
        session_key: Zeroizing::new(session_key.0.to_vec()),
        realm: Vec::new(),
        name: vec![SERVER_NAME.as_bytes().to_vec()],
        start: 0,
        end: end.0,
    };
    let ciphertext = cipher::seal(key, USAGE_TICKET, confounder, &body.encode());
    let enctype = key.enctype().number();
    let bytes = Sealed { enctype, kvno, ciphertext: &ciphertext }.encode();
    Ticket { kvno: KVNO_KERBEROS_5_SEALED_PART, bytes, session_key, expires: end }
}

fn kerberos_4(kvno: u32, key: &ServiceKey, session_key: SessionKey, expires: UnixTime) -> Ticket {
    let expires = if expires < LOCAL_TICKET_END_MAX { expires } else { UnixTime(NEVER) };
    let bytes = krb4::seal(key.des_bytes(), SERVER_NAME, &session_key, expires);
    Ticket { kvno, bytes, session_key, expires }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::krb5::der::Reader;

    /// A response of OpenAFS's `vos -localauth`: 28 bytes Rx header, 56 bytes response, the ticket.
    const OPENAFS: &[u8] = include_bytes!("../../testdata/openafs-localauth-crypt.response");

    #[test]
    fn the_same_as_openafs_makes() {
        let bytes: Vec<u8> = (0..32).map(|index| 7 * index + 32).collect();
        let key = ServiceKey::new(18, &bytes).unwrap();
        let open = |ticket: &[u8]| {
            let sealed = Sealed::decode(&mut Reader::new(ticket)).unwrap();
            assert_eq!((sealed.enctype, sealed.kvno), (18, 3));
            cipher::open(key.enctype(), &key, USAGE_TICKET, sealed.ciphertext).unwrap()
        };
        let theirs = &OPENAFS[84..];
        let session_key = TicketBody::decode(&open(theirs)).unwrap().session_key;
        let mut keys = KeySet::new();
        keys.insert(3, key.clone());
        let session_key = <[u8; 8]>::try_from(&session_key[..]).unwrap();
        let ours = forge_local_ticket(&keys, session_key, [0; 16], LOCAL_TICKET_END_MAX).unwrap();
        assert_eq!(*open(&ours.bytes), *open(theirs));
        assert_eq!(ours.bytes.len(), theirs.len());
    }
}
