//! Callers of forwarded calls. The file service attaches what it knows of a caller to its connection, so calls of one
//! connection at a front have one connection here, too.

use base::Caller;
use cluster_proto::Incarnation;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Maximum number of connections that are remembered; beyond it all are forgotten, which costs some queries.
const CALLERS_MAX: usize = 16_384;

#[derive(Default)]
pub(crate) struct Callers {
    /// Callers by the front's membership and its number of the connection; nothing waits under the lock.
    known: Mutex<HashMap<(Incarnation, u64), Caller>>,
}

impl Callers {
    /// Returns the caller with the connection of its earlier calls, if it has made any.
    pub(crate) fn of(&self, front: Incarnation, connection: u64, caller: Caller) -> Caller {
        let mut known = self.known.lock();
        let is_same = |known: &&Caller| {
            (&known.identity, known.level, known.peer, known.local)
                == (&caller.identity, caller.level, caller.peer, caller.local)
        };
        if let Some(known) = known.get(&(front, connection)).filter(is_same) {
            return known.clone();
        }
        if known.len() >= CALLERS_MAX {
            known.clear();
        }
        known.insert((front, connection), caller.clone());
        caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Connection, Identity, SecurityLevel};

    #[test]
    fn calls_of_one_connection_have_one_connection() {
        let caller = |port| Caller {
            identity: Identity::Anonymous,
            level: SecurityLevel::Clear,
            peer: ([192, 0, 2, 1], port).into(),
            local: [192, 0, 2, 9].into(),
            connection: Connection::new(),
        };
        let (callers, front) = (Callers::default(), Incarnation { nonce: 1, count: 1 });
        let number =
            |front, connection, port| callers.of(front, connection, caller(port)).connection.number();
        let first = number(front, 1, 7001);
        assert_eq!(number(front, 1, 7001), first);
        let other = Incarnation { nonce: 2, count: 1 };
        let others = [number(front, 2, 7001), number(other, 1, 7001), number(front, 1, 7002)];
        assert!(!others.contains(&first), "another connection, front or address");
    }
}
