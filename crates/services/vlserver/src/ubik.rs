//! The voting service of Ubik (VOTE, service 50), as far as `udebug` needs it.
//!
//! OpenAFS replicates its databases by voting, and `udebug` shows the state of the vote. A database of this
//! program is on one server, so the replies are those of a cell with a single database server, which is
//! always the sync site. Beacons of other servers are rejected, so that they do not count this server as a
//! voter. Clients, `vos` and `pts` do not need this service: they try another server only if this one reports
//! that it has no quorum.
//!
//! The same service runs on both database ports (7002, 7003).

use crate::Clock;
use afs_idl::CallStream;
use afs_idl::stream::StreamSource;
use base::{AbortCode, UnixTime};
use std::net::Ipv4Addr;
use std::sync::Arc;
use xdr::Encode;

/// Rx service number (VOTE_SERVICE_ID).
pub const SERVICE_ID: u16 = 50;

/// Opcodes (ubik_int.xg).
mod opcode {
    pub(super) const DEBUG_OLD: u32 = 10001;
    pub(super) const SDEBUG_OLD: u32 = 10002;
    pub(super) const GET_SYNC_SITE: u32 = 10003;
    pub(super) const DEBUG: u32 = 10004;
    pub(super) const SDEBUG: u32 = 10005;
    pub(super) const XDEBUG: u32 = 10006;
    pub(super) const XSDEBUG: u32 = 10007;
}

/// Names of the procedures by opcode.
pub const PROCEDURES: &[(u32, &str)] = &[
    (opcode::DEBUG_OLD, "DebugOld"),
    (opcode::SDEBUG_OLD, "SDebugOld"),
    (opcode::GET_SYNC_SITE, "GetSyncSite"),
    (opcode::DEBUG, "Debug"),
    (opcode::SDEBUG, "SDebug"),
    (opcode::XDEBUG, "XDebug"),
    (opcode::XSDEBUG, "XSDebug"),
];

/// Number of addresses in a reply (UBIK_MAX_INTERFACE_ADDR).
const ADDRESSES: usize = 256;
/// No vote was given to any host.
const NO_HOST: u32 = u32::MAX;
/// Time at which the sync site's mandate ends: never.
const FOREVER: u32 = i32::MAX as u32;
/// Recovery state: sync site, with the best and only copy of the database, labelled and sent to all servers.
const RECOVERY_STATE: u32 = 0x1f;
/// The requested other server does not exist.
const NO_SUCH_SERVER: AbortCode = AbortCode(2);

/// The voting service of one database.
pub struct VoteService {
    addresses: Vec<Ipv4Addr>,
    started: UnixTime,
    writes: Arc<dyn Fn() -> u32 + Send + Sync>,
    clock: Clock,
}

impl VoteService {
    /// Creates the service for the database of a server with these addresses. `writes` returns the number of
    /// changes since the server started.
    pub fn new(
        addresses: Vec<Ipv4Addr>,
        writes: Arc<dyn Fn() -> u32 + Send + Sync>,
        clock: Clock,
    ) -> VoteService {
        VoteService { addresses, started: clock(), writes, clock }
    }

    /// Serves one call.
    pub fn dispatch(&self, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
        let mut source = StreamSource::new(stream);
        let mut reply = Vec::new();
        match source.decode_request()? {
            opcode::DEBUG_OLD => self.state(&mut reply),
            opcode::DEBUG => self.state_and_addresses(&mut reply),
            opcode::XDEBUG => {
                self.state_and_addresses(&mut reply);
                // Not a clone; a clone can never become the sync site.
                0u32.encode(&mut reply);
            }
            // The interface declares the site as an input argument, so the reply is empty.
            opcode::GET_SYNC_SITE => drop(source.decode_request::<i32>()?),
            opcode::SDEBUG_OLD | opcode::SDEBUG | opcode::XSDEBUG => {
                source.decode_request::<i32>()?;
                return Err(NO_SUCH_SERVER);
            }
            _ => return Err(AbortCode::RXGEN_OPCODE),
        }
        if reply.is_empty() { Ok(()) } else { source.write(reply.into()) }
    }

    /// Writes `ubik_debug` up to its addresses.
    fn state(&self, out: &mut Vec<u8>) {
        let now = (self.clock)().0;
        let version = [self.started.0, (self.writes)()];
        let votes = [0, NO_HOST, 0, 0, NO_HOST, 0, 0, 0];
        let sync_transaction = [0, 0];
        let beacon = [1, FOREVER, 1];
        let locked_pages = [0, 0];
        // Active write, transaction counter, read locks, write locks.
        let activity = [0, version[1], 0, 0];
        let current_transaction = [0, 0];
        let words = [
            &[now],
            &votes[..],
            &version,
            &sync_transaction,
            &beacon,
            &locked_pages,
            &version,
            &activity,
            &[RECOVERY_STATE],
            &current_transaction,
            &[self.started.0],
        ];
        for word in words.concat() {
            word.encode(out);
        }
    }

    fn state_and_addresses(&self, out: &mut Vec<u8>) {
        self.state(out);
        let mut addresses = self.addresses.iter().map(|address| address.to_bits());
        for _ in 0..ADDRESSES {
            addresses.next().unwrap_or(0).encode(out);
        }
    }
}
