//! A server named on the command line, optionally with its port.

use anyhow::{Context as _, Result};
use std::convert::Infallible;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::str::FromStr;

/// `HOST` or `HOST:PORT`; the host is a name or an IPv4 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress(String);

impl FromStr for ServerAddress {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ServerAddress, Infallible> {
        Ok(ServerAddress(text.to_owned()))
    }
}

impl ServerAddress {
    /// Returns whether it includes a port.
    pub(crate) fn has_port(&self) -> bool {
        self.0.contains(':')
    }

    /// Resolves it to an IPv4 address, with `port` if it includes none.
    pub(crate) fn resolve(&self, port: u16) -> Result<SocketAddrV4> {
        let ServerAddress(text) = self;
        let named = if self.has_port() { text.clone() } else { format!("{text}:{port}") };
        let doing = || format!("{text} is not a server (expected HOST or HOST:PORT)");
        let mut addresses = named.to_socket_addrs().with_context(doing)?;
        let found = addresses.find_map(|address| match address {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        });
        found.with_context(|| format!("{text} has no IPv4 address, and AFS supports only IPv4"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_named_or_the_usual() {
        let resolve = |text: &str| text.parse::<ServerAddress>().unwrap().resolve(7000);
        assert_eq!(resolve("10.0.0.1").unwrap(), "10.0.0.1:7000".parse().unwrap());
        assert_eq!(resolve("10.0.0.1:7003").unwrap(), "10.0.0.1:7003".parse().unwrap());
        assert!(resolve("10.0.0.1:x").unwrap_err().to_string().contains("expected HOST or HOST:PORT"));
    }
}
