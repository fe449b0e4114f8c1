//! Who is calling, as the security layer proved it.

use crate::Connection;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A Kerberos 4 style name as rxkad carries it, made from a Kerberos 5 one where need be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal {
    /// First component.
    pub name: String,
    /// Second component; empty for most people.
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

/// What the security layer proved about a caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// Nothing (rxnull).
    Anonymous,
    /// The holder of a ticket that the cell's key opened.
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

/// How the packets of a connection are protected (rxkad levels).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecurityLevel {
    /// Not at all, or headers only (rxkad clear).
    Clear = 0,
    /// Integrity.
    Authenticated = 1,
    /// Integrity and secrecy.
    Encrypted = 2,
}

/// The facts about one incoming call that a service may decide on.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub identity: Identity,
    /// Packet protection.
    pub level: SecurityLevel,
    /// Where the call came from.
    pub peer: SocketAddr,
    /// The server's address it was sent to.
    pub local: IpAddr,
    /// The connection that the call came on.
    pub connection: Connection,
}
