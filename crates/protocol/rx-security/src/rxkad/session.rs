//! The key shared by the two ends of a connection.

use std::fmt;

use zeroize::ZeroizeOnDrop;

use super::kdf;
use crate::SecurityError;
use crate::krb5::des_key;

/// A session key: 56 bits in DES's form. Wiped when dropped and never printed.
#[derive(Clone, ZeroizeOnDrop)]
pub struct SessionKey(pub(crate) [u8; 8]);

impl SessionKey {
    /// Returns the session key for a Kerberos session key of any type: a DES key unchanged, others by the
    /// derivation of rxkad-kdf.
    pub fn from_kerberos(enctype: i32, key: &[u8]) -> Result<SessionKey, SecurityError> {
        kdf::session_key(enctype, key)
    }

    /// Creates a session key from eight random bytes by setting the parity. Returns `None` in the rare case
    /// of a weak DES key; try other bytes.
    pub fn from_random(bytes: [u8; 8]) -> Option<SessionKey> {
        let key = des_key::with_odd_parity(bytes);
        (!des_key::is_weak(key)).then_some(SessionKey(key))
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(secret)")
    }
}
