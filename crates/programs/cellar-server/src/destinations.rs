//! Permitted destinations of volumes. The caller names the address, but the connection has the cell's
//! identity.

use base::AbortCode;
use cell_client::CellClient;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// UDP port of volume servers.
pub(crate) const PORT: u16 = 7005;

/// Time for which the cell's file servers are cached.
const KNOWN_LIFETIME: Duration = Duration::from_secs(60);

/// EACCES, which `vos` prints as "Permission denied".
const REFUSED: AbortCode = AbortCode(13);

/// Servers that volumes may be sent to.
pub struct Destinations {
    /// Servers listed in the configuration.
    listed: Vec<SocketAddrV4>,
    cell: Arc<CellClient>,
    /// The cell's file servers, and when they were requested. No call is made under the lock.
    known: Mutex<Option<(Instant, BTreeSet<Ipv4Addr>)>>,
}

impl Destinations {
    /// Permits the listed servers, and those of the cell.
    pub fn new(listed: Vec<SocketAddrV4>, cell: Arc<CellClient>) -> Destinations {
        Destinations { listed, cell, known: Mutex::default() }
    }

    /// Checks whether volumes may be sent to a server.
    ///
    /// # Errors
    /// If they may not (EACCES), or no location server answers.
    pub fn check(&self, server: SocketAddrV4) -> Result<(), AbortCode> {
        if self.listed.contains(&server) || server.port() == PORT && self.is_file_server(*server.ip())? {
            return Ok(());
        }
        tracing::warn!(to = %server, "a volume is not sent: the destination is neither a file server of the location database \
            (port 7005) nor in `security.forward_destinations`");
        Err(REFUSED)
    }

    fn is_file_server(&self, address: Ipv4Addr) -> Result<bool, AbortCode> {
        let is_known = |known: &Option<(Instant, BTreeSet<Ipv4Addr>)>| {
            let fresh = known.as_ref().filter(|(asked, _)| asked.elapsed() < KNOWN_LIFETIME);
            fresh.is_some_and(|(_, servers)| servers.contains(&address))
        };
        if is_known(&self.known.lock()) {
            return Ok(true);
        }
        // A server may have registered in the meantime.
        let servers: BTreeSet<Ipv4Addr> = self.cell.file_server_table()?.into_iter().flatten().collect();
        let found = servers.contains(&address);
        *self.known.lock() = Some((Instant::now(), servers));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::vl;
    use base::{CallContext, Caller, Identity, SecurityLevel};
    use cell_client::fakes::Fakes;

    /// Two servers, the second with two addresses.
    struct Registered;

    impl vl::Server for Registered {
        fn get_addrs(
            &self,
            _: &CallContext<'_>,
            _: vl::GetAddrsRequest,
        ) -> Result<vl::GetAddrsReply, AbortCode> {
            Ok(vl::GetAddrsReply { entry_count: 2, addresses: vec![0xff00_0000; 2], ..Default::default() })
        }

        fn get_addrs_u(
            &self,
            _: &CallContext<'_>,
            request: vl::GetAddrsURequest,
        ) -> Result<vl::GetAddrsUReply, AbortCode> {
            let addresses = match request.attributes.index {
                1 => vec![0xc000_0201],
                _ => vec![0xc000_0202, 0xc633_6402],
            };
            Ok(vl::GetAddrsUReply { addresses, ..Default::default() })
        }
    }

    #[test]
    fn volumes_go_to_the_cells_file_servers_only() {
        let fakes = Fakes::new(|address, _, stream| {
            let (identity, level) = (Identity::Anonymous, SecurityLevel::Clear);
            let (peer, local) = ((address, 7001).into(), address.into());
            let caller = Caller { identity, level, peer, local, connection: base::Connection::new() };
            vl::dispatch(&Registered, &CallContext::new(&caller), stream)
        });
        let destinations = Destinations::new(Vec::new(), fakes.cell(1));
        for (server, outcome) in [
            ("192.0.2.1:7005", Ok(())),
            ("192.0.2.2:7005", Ok(())),
            ("198.51.100.2:7005", Ok(())),
            ("192.0.2.1:7000", Err(REFUSED)),
            ("192.0.2.3:7005", Err(REFUSED)),
            ("127.0.0.1:7005", Err(REFUSED)),
        ] {
            assert_eq!(destinations.check(server.parse().unwrap()), outcome, "{server}");
        }
        fakes.fail(cell_client::fakes::server(1), Some(AbortCode::RX_CALL_DEAD));
        assert_eq!(destinations.check("192.0.2.1:7005".parse().unwrap()), Ok(()), "remembered");
        assert!(destinations.check("192.0.2.9:7005".parse().unwrap()).is_err());
    }

    #[test]
    fn listed_destinations_need_no_database() {
        let fakes = Fakes::new(|_, _, _| Err(AbortCode::RX_CALL_DEAD));
        let destinations = Destinations::new(vec!["192.0.2.7:17005".parse().unwrap()], fakes.cell(1));
        assert_eq!(destinations.check("192.0.2.7:17005".parse().unwrap()), Ok(()));
        assert_eq!(destinations.check("192.0.2.7:7000".parse().unwrap()), Err(REFUSED));
        assert_eq!(destinations.check("192.0.2.7:7005".parse().unwrap()), Err(AbortCode::RX_CALL_DEAD));
    }
}
