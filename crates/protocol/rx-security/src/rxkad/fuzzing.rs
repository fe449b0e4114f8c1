//! Tickets around arbitrary plaintext, so that fuzzers reach the code behind the encryption. Real key holders
//! never make such tickets; only tests use this.

use des::Des;
use des::cipher::KeyInit;
use zeroize::Zeroizing;

use crate::key::ServiceKey;
use crate::krb5::cipher::{self, CONFOUNDER_BYTES, USAGE_TICKET};
use crate::krb5::message::{Sealed, TicketBody};
use crate::krb5::modes;

/// Returns a Kerberos 4 ticket that decrypts to `plain`, padded with zeros to a whole block; `key` must be a
/// DES key.
pub fn kerberos_4_ticket(key: &ServiceKey, plain: &[u8]) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    bytes.resize(plain.len().next_multiple_of(8), 0);
    modes::pcbc_encrypt(&Des::new(&key.des_bytes().into()), &key.des_bytes(), &mut bytes);
    bytes
}

/// Returns the sealed part of a Kerberos 5 ticket that decrypts to `plain`.
pub fn kerberos_5_ticket(kvno: u32, key: &ServiceKey, plain: &[u8]) -> Vec<u8> {
    let ciphertext = cipher::seal(key, USAGE_TICKET, [7; CONFOUNDER_BYTES], plain);
    Sealed { enctype: key.enctype().number(), kvno, ciphertext: &ciphertext }.encode()
}

/// Returns a well-formed plaintext of a Kerberos 5 ticket.
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
