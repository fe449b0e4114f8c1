//! The sync site according to a database server (VOTE, service 50, on every database port).
//!
//! VOTE_GetSyncSite would return just that, but its interface declares the result as an input argument, so
//! that nothing is returned. VOTE_DebugOld, which `udebug` uses, returns it as well.

use afs_idl::{ClientConnection, client};
use base::AbortCode;
use std::net::Ipv4Addr;
use xdr::{Decode, Encode, Source, XdrError, array};

/// Service ID.
pub const SERVICE: u16 = 50;
/// Opcode of VOTE_DebugOld.
const DEBUG_OLD: u32 = 10001;
/// Number of words in its reply (`ubik_debug_old`).
const WORDS: usize = 28;
/// Indices of words in the reply.
const NOW: usize = 0;
const LAST_YES_HOST: usize = 2;
const LAST_YES_WAS_SYNC_SITE: usize = 3;
const LAST_YES_CLAIM: usize = 4;
const AM_SYNC_SITE: usize = 13;
const SYNC_SITE_UNTIL: usize = 14;
/// Time for which a vote makes its receiver the sync site, in seconds (SMALLTIME).
const MANDATE_SECONDS: u32 = 60;

/// Empty arguments.
struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _: &mut Vec<u8>) {}
}

/// The reply.
struct State([u32; WORDS]);

impl Decode for State {
    fn decode<S: Source + ?Sized>(source: &mut S) -> Result<State, XdrError> {
        array::decode(source, u32::decode).map(State)
    }
}

/// Returns the sync site according to the server asked, whose address is `own`; `None` if it knows none.
pub fn sync_site(connection: &dyn ClientConnection, own: Ipv4Addr) -> Result<Option<Ipv4Addr>, AbortCode> {
    let State(words) = client::call(connection, DEBUG_OLD, &Nothing)?;
    Ok(named(&words, own))
}

fn named(words: &[u32; WORDS], own: Ipv4Addr) -> Option<Ipv4Addr> {
    // A server that was suspended too long still claims to be the sync site until it checks the time.
    if words[AM_SYNC_SITE] != 0 && words[SYNC_SITE_UNTIL] > words[NOW] {
        return Some(own);
    }
    let in_force = words[LAST_YES_CLAIM].saturating_add(MANDATE_SECONDS) >= words[NOW];
    (words[LAST_YES_WAS_SYNC_SITE] != 0 && in_force).then(|| words[LAST_YES_HOST].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sync_site_follows_the_latest_vote() {
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let other = Ipv4Addr::new(10, 0, 0, 2);
        let words = |until: u32, was_site: u32, age: u32| {
            let mut words = [0; WORDS];
            words[NOW] = 1000;
            words[LAST_YES_HOST] = other.into();
            words[LAST_YES_WAS_SYNC_SITE] = was_site;
            words[LAST_YES_CLAIM] = 1000 - age;
            words[AM_SYNC_SITE] = u32::from(until != 0);
            words[SYNC_SITE_UNTIL] = until;
            named(&words, own)
        };
        assert_eq!(words(1001, 0, 0), Some(own));
        assert_eq!(words(1000, 0, 0), None, "it was until now");
        assert_eq!(words(0, 1, 60), Some(other));
        assert_eq!(words(0, 1, 61), None, "its mandate has ended");
        assert_eq!(words(0, 0, 0), None, "it did not claim to be sync site");
    }
}
