//! The voting service of Ubik (VOTE, service 50), as far as `udebug` needs it.
//!
//! OpenAFS replicates its databases by voting, and `udebug` shows the state of the vote. A database of this
//! program is on one server, which is always the sync site, or it is shared by the nodes of a cluster: then the one that
//! has it open is the sync site. There is no vote, so beacons of other servers are rejected, so that they do not count
//! this server as a voter. Clients, `vos` and `pts` do not need this service: they try another server only if this one
//! reports that it has no quorum.
//!
//! The same service runs on both database ports (7002, 7003).

use crate::Clock;
use afs_idl::CallStream;
use afs_idl::stream::StreamSource;
use base::{AbortCode, CallContext, UnixTime};
use std::net::Ipv4Addr;
use xdr::Encode;

/// Rx service number (VOTE_SERVICE_ID).
pub const SERVICE_ID: u16 = 50;

/// Opcodes of the procedures (ubik_int.xg).
#[allow(missing_docs, reason = "they have the names of the procedures")]
pub mod opcode {
    pub const DEBUG_OLD: u32 = 10001;
    pub const SDEBUG_OLD: u32 = 10002;
    pub const GET_SYNC_SITE: u32 = 10003;
    pub const DEBUG: u32 = 10004;
    pub const SDEBUG: u32 = 10005;
    pub const XDEBUG: u32 = 10006;
    pub const XSDEBUG: u32 = 10007;
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
/// Index of the first word of the database's version (`localVersion`) in the reply to DebugOld.
const VERSION_AT: usize = 18;
/// The requested other server does not exist.
const NO_SUCH_SERVER: AbortCode = AbortCode(2);

/// The version of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// When it was opened by the server that makes its changes.
    pub epoch: UnixTime,
    /// Number of changes since then.
    pub counter: u32,
}

/// The part of this server in the service of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has the database, and no other server does.
    Alone {
        /// Number of changes since the start.
        writes: u32,
    },
    /// It has the database open, and others can take it over.
    SyncSite {
        /// The present version.
        version: Version,
        /// For how long this is certain, in seconds.
        seconds: u32,
        /// The addresses of each of the others, the preferred one first.
        others: Vec<Vec<Ipv4Addr>>,
    },
    /// It passes calls on.
    Other {
        /// The server that has the database open, and the version there; `None` if there is none at present.
        sync_site: Option<(Ipv4Addr, Version)>,
    },
}

/// Returns the standing at the time of a call. It may ask another server.
pub type Ask = dyn Fn(&CallContext<'_>) -> Standing + Send + Sync;

/// The voting service of one database.
pub struct VoteService {
    addresses: Vec<Ipv4Addr>,
    started: UnixTime,
    standing: Box<Ask>,
    clock: Clock,
}

impl VoteService {
    /// Creates the service for the database of a server with these addresses.
    pub fn new(addresses: Vec<Ipv4Addr>, standing: Box<Ask>, clock: Clock) -> VoteService {
        VoteService { addresses, started: clock(), standing, clock }
    }

    /// Serves one call.
    pub fn dispatch(&self, caller: &CallContext<'_>, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
        let mut source = StreamSource::new(stream);
        let mut reply = Vec::new();
        match source.decode_request()? {
            opcode::DEBUG_OLD => self.state(caller, &mut reply),
            opcode::DEBUG => self.state_and_addresses(caller, &mut reply),
            opcode::XDEBUG => {
                self.state_and_addresses(caller, &mut reply);
                // Not a clone; a clone can never become the sync site.
                0u32.encode(&mut reply);
            }
            // The interface declares the site as an input argument, so the reply is empty.
            opcode::GET_SYNC_SITE => drop(source.decode_request::<i32>()?),
            procedure @ (opcode::SDEBUG_OLD | opcode::SDEBUG | opcode::XSDEBUG) => {
                let index = usize::try_from(source.decode_request::<i32>()?).map_err(|_| NO_SUCH_SERVER)?;
                self.other(caller, index, procedure, &mut reply)?;
            }
            _ => return Err(AbortCode::RXGEN_OPCODE),
        }
        if reply.is_empty() { Ok(()) } else { source.write(reply.into()) }
    }

    /// Writes `ubik_debug` up to its addresses.
    fn state(&self, caller: &CallContext<'_>, out: &mut Vec<u8>) {
        state(&(self.standing)(caller), &self.addresses, self.started, (self.clock)(), out);
    }

    fn state_and_addresses(&self, caller: &CallContext<'_>, out: &mut Vec<u8>) {
        self.state(caller, out);
        addresses(&self.addresses, ADDRESSES, out);
    }

    /// Writes `ubik_sdebug`: what the sync site knows of another server.
    fn other(
        &self,
        caller: &CallContext<'_>,
        index: usize,
        procedure: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), AbortCode> {
        let Standing::SyncSite { version, others, .. } = (self.standing)(caller) else {
            return Err(NO_SUCH_SERVER);
        };
        let server = others.get(index).ok_or(NO_SUCH_SERVER)?;
        let (first, alternative) = server.split_first().ok_or(NO_SUCH_SERVER)?;
        let now = (self.clock)().0;
        // Last vote received, last beacon sent, last vote was yes; its database is current, beacon since it was down, it is up.
        let words = [first.to_bits(), now, now, 1, version.epoch.0, version.counter, 1, 1, 1];
        for word in words {
            word.encode(out);
        }
        if procedure != opcode::SDEBUG_OLD {
            addresses(alternative, ADDRESSES - 1, out);
        }
        if procedure == opcode::XSDEBUG {
            // Not a clone.
            0u32.encode(out);
        }
        Ok(())
    }
}

/// Returns the version in the reply of a sync site to DebugOld; `None` if it is not one.
pub fn version_in(reply: &[u8]) -> Option<Version> {
    let word = |index: usize| reply.get(4 * index..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
    Some(Version { epoch: UnixTime(word(VERSION_AT)?), counter: word(VERSION_AT + 1)? })
}

/// Writes `count` addresses, with 0 for those that are missing.
fn addresses(some: &[Ipv4Addr], count: usize, out: &mut Vec<u8>) {
    let bits = some.iter().map(|address| address.to_bits());
    for word in bits.chain(std::iter::repeat(0)).take(count) {
        word.encode(out);
    }
}

/// Writes `ubik_debug` up to its addresses.
fn state(standing: &Standing, own: &[Ipv4Addr], started: UnixTime, now: UnixTime, out: &mut Vec<u8>) {
    let now = now.0;
    let own = own.first().map_or(0, |address| address.to_bits());
    // Votes: host and times, the lowest host, the sync site. Beacon: am sync site, until when, number of servers.
    let (votes, version, beacon, recovery) = match standing {
        Standing::Alone { writes } => {
            let version = Version { epoch: started, counter: *writes };
            ([0, NO_HOST, 0, 0, NO_HOST, 0, 0, 0], version, [1, FOREVER, 1], RECOVERY_STATE)
        }
        Standing::SyncSite { version, seconds, others } => {
            let count = u32::try_from(others.len()).unwrap_or(u32::MAX).saturating_add(1);
            let beacon = [1, now.saturating_add(*seconds), count];
            ([now, own, 1, now, own, now, own, now], *version, beacon, RECOVERY_STATE)
        }
        Standing::Other { sync_site: Some((address, version)) } => {
            let site = address.to_bits();
            ([now, site, 1, now, site, now, site, now], *version, [0, 0, 0], 0)
        }
        Standing::Other { sync_site: None } => {
            ([0, NO_HOST, 0, 0, NO_HOST, now, 0, now], Version::default(), [0, 0, 0], 0)
        }
    };
    let version = [version.epoch.0, version.counter];
    let sync_transaction = [0, 0];
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
        &[recovery],
        &current_transaction,
        &version[..1],
    ];
    for word in words.concat() {
        word.encode(out);
    }
}
