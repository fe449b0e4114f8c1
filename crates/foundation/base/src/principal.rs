//! The identity of a caller, as proved by the security layer.

use crate::Connection;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A Kerberos 4 style name as carried by rxkad, converted from a Kerberos 5 name if necessary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal {
    /// First component.
    pub name: String,
    /// Second component; empty for most users.
    pub instance: String,
    /// Realm or cell; empty means the server's own.
    pub realm: String,
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.instance.is_empty() {
            write!(f, ".{}", self.instance)?;
        }
        if !self.realm.is_empty() {
            write!(f, "@{}", self.realm)?;
        }
        Ok(())
    }
}

/// Identity of a caller, as proved by the security layer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// Not authenticated (rxnull).
    Anonymous,
    /// Holder of a ticket that the cell's key decrypted.
    Known(Principal),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Anonymous => f.write_str("anonymous"),
            Identity::Known(principal) => principal.fmt(f),
        }
    }
}

/// Protection of a connection's packets (rxkad levels).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecurityLevel {
    /// None, or headers only (rxkad clear).
    Clear = 0,
    /// Integrity.
    Authenticated = 1,
    /// Integrity and confidentiality.
    Encrypted = 2,
}

/// Facts about an incoming call on which a service may base decisions.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Identity of the caller.
    pub identity: Identity,
    /// Protection of the packets.
    pub level: SecurityLevel,
    /// Address that the call came from.
    pub peer: SocketAddr,
    /// Address of the server that it was sent to.
    pub local: IpAddr,
    /// Connection that it arrived on.
    pub connection: Connection,
}
