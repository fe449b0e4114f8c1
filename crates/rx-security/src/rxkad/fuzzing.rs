//! Tickets around arbitrary plaintext, so that fuzzers get behind the seal. No holder of a key makes
//! such tickets; nothing but tests uses this.

use des::Des;
use des::cipher::KeyInit;
use zeroize::Zeroizing;

use crate::key::ServiceKey;
use crate::krb5::cipher::{self, CONFOUNDER_BYTES, USAGE_TICKET};
use crate::krb5::message::{Sealed, TicketBody};
use crate::krb5::modes;

/// A Kerberos 4 ticket that opens to `plain`, with zeros up to a whole block; `key` must be a DES key.
pub fn kerberos_4_ticket(key: &ServiceKey, plain: &[u8]) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    bytes.resize(plain.len().next_multiple_of(8), 0);
    modes::pcbc_encrypt(&Des::new(&key.des_bytes().into()), &key.des_bytes(), &mut bytes);
    bytes
}

/// The sealed part of a Kerberos 5 ticket, opening to `plain`.
pub fn kerberos_5_ticket(kvno: u32, key: &ServiceKey, plain: &[u8]) -> Vec<u8> {
    let ciphertext = cipher::seal(key, USAGE_TICKET, [7; CONFOUNDER_BYTES], plain);
    Sealed { enctype: key.enctype().number(), kvno, ciphertext: &ciphertext }.encode()
}

/// A proper plaintext of a Kerberos 5 ticket.
pub fn kerberos_5_body(name: &[&str], session_enctype: i32, session_key: &[u8], end: u32) -> Vec<u8> {
    let body = TicketBody {
        invalid: false,
        session_enctype,
        session_key: Zeroizing::new(session_key.to_vec()),
        realm: b"TEST.EXAMPLE".to_vec(),
        name: name.iter().map(|part| part.as_bytes().to_vec()).collect(),
        start: 0,
        end,
    };
    body.encode().to_vec()
}
