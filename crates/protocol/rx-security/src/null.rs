//! The null class: no handshake, no protection, anonymous callers.

use base::{Identity, SecurityLevel, UnixTime};
use bytes::Bytes;

use crate::{
    ClientHandshake, ClientSecurity, ConnectionFacts, Overhead, PacketFacts, PacketProtection, Protected,
    SecurityError, ServerHandshake, ServerSecurity, Verified,
};

/// Security class 0 for both ends, including its handshakes and its protection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

/// Number of the class in packet headers.
pub const NULL_INDEX: u8 = 0;

impl ClientSecurity for Null {
    fn index(&self) -> u8 {
        NULL_INDEX
    }

    fn start(&self, _: ConnectionFacts) -> Result<Box<dyn ClientHandshake>, SecurityError> {
        Ok(Box::new(Null))
    }
}

impl ClientHandshake for Null {
    fn protection(&self) -> Box<dyn PacketProtection> {
        Box::new(Null)
    }

    /// A null connection is never challenged.
    fn respond(&mut self, _: &[u8], _: [u32; 4]) -> Result<Vec<u8>, SecurityError> {
        Err(SecurityError::Inconsistent("challenge on a connection without security"))
    }
}

impl ServerSecurity for Null {
    fn index(&self) -> u8 {
        NULL_INDEX
    }

    fn needs_challenge(&self) -> bool {
        false
    }

    fn accept(&self, _: ConnectionFacts, _: [u8; 16]) -> Box<dyn ServerHandshake> {
        Box::new(Null)
    }
}

impl ServerHandshake for Null {
    fn challenge(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn verify(&mut self, response: &[u8], _: UnixTime) -> Result<Verified, SecurityError> {
        if !response.is_empty() {
            return Err(SecurityError::Inconsistent("response on a connection without security"));
        }
        Ok(Verified {
            lease: None,
            protection: Box::new(Null),
            identity: Identity::Anonymous,
            level: SecurityLevel::Clear,
            begins: None,
            expires: None,
            call_numbers: None,
        })
    }
}

impl PacketProtection for Null {
    fn overhead(&self) -> Overhead {
        Overhead::NONE
    }

    fn protect(&mut self, _: PacketFacts, payload: &[Bytes]) -> Result<Protected, SecurityError> {
        Ok(Protected { checksum: 0, pieces: payload.to_vec() })
    }

    fn unprotect(&mut self, _: PacketFacts, _: u16, payload: Bytes) -> Result<Bytes, SecurityError> {
        Ok(payload)
    }
}
