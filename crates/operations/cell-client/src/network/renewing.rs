//! Connections that outlive their tickets.

use afs_idl::{ClientCall, ClientConnection};
use base::AbortCode;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Age from which a connection begins no more calls. A ticket lasts for an hour and is at most a quarter of
/// an hour old when a connection is made, so that calls begin at least a quarter of an hour before its end.
pub const RENEWAL: Duration = Duration::from_secs(1800);

type Connect = Box<dyn Fn() -> Arc<dyn ClientConnection> + Send + Sync>;

/// A connection that is replaced when it is old. Active calls finish on the old one.
pub struct Renewing {
    connect: Connect,
    renewal: Duration,
    peer: SocketAddr,
    current: Mutex<(Instant, Arc<dyn ClientConnection>)>,
}

impl Renewing {
    /// Creates a connection with `connect`, and a new one each time it has reached the age `renewal`.
    pub fn new(connect: Connect, renewal: Duration) -> Renewing {
        let connection = connect();
        let peer = connection.peer();
        Renewing { connect, renewal, peer, current: Mutex::new((Instant::now(), connection)) }
    }

    fn current(&self) -> Arc<dyn ClientConnection> {
        let mut current = self.current.lock();
        if current.0.elapsed() >= self.renewal {
            *current = (Instant::now(), (self.connect)());
        }
        current.1.clone()
    }
}

impl ClientConnection for Renewing {
    fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
        // Not under the lock, because it may wait for a channel.
        self.current().begin()
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Silent;

    impl ClientConnection for Silent {
        fn begin(&self) -> Result<Box<dyn ClientCall>, AbortCode> {
            Err(AbortCode::RX_CALL_DEAD)
        }

        fn peer(&self) -> SocketAddr {
            "192.0.2.1:7005".parse().unwrap()
        }
    }

    #[test]
    fn only_an_old_connection_is_replaced() {
        for (renewal, connections) in [(Duration::ZERO, 3), (Duration::MAX, 1)] {
            let made = Arc::new(AtomicU32::new(0));
            let counter = made.clone();
            let connect = move || {
                counter.fetch_add(1, Ordering::Relaxed);
                Arc::new(Silent) as Arc<dyn ClientConnection>
            };
            let connection = Renewing::new(Box::new(connect), renewal);
            assert_eq!(connection.peer(), Silent.peer());
            assert!(connection.begin().is_err() && connection.begin().is_err());
            assert_eq!(made.load(Ordering::Relaxed), connections);
        }
    }
}
