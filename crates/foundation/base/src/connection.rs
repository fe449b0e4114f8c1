//! A caller's connection as seen by services.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of the process's next connection. It cannot overflow in practice.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A connection on which calls arrive. Clones refer to the same connection.
///
/// Its number identifies it in logs and tables. A service does not look up its data about the caller by that
/// number but attaches it to the connection, so that the data is dropped with the connection and can never be
/// reached through another one.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

struct Shared {
    number: u64,
    /// Guards only the reference.
    attached: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Connection {
    /// Creates a connection with a number that is unique in the process.
    pub fn new() -> Connection {
        let number = NEXT.fetch_add(1, Relaxed);
        assert!(number < u64::MAX, "the process has no connection numbers left");
        Connection { shared: Arc::new(Shared { number, attached: Mutex::default() }) }
    }

    /// Returns the number, unique while the process runs. It is for logs and for tables that also compare the
    /// caller; no permission may depend on it alone.
    pub fn number(&self) -> u64 {
        self.shared.number
    }

    /// Returns the value that the connection's service attached last, if it is a `T`.
    pub fn attached<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let attached = self.shared.attached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        attached.and_then(|it| it.downcast().ok())
    }

    /// Attaches a value, replacing the previous one. A connection belongs to one service, so there is only
    /// one slot.
    pub fn attach<T: Any + Send + Sync>(&self, value: Arc<T>) {
        let old = self.shared.attached.lock().unwrap_or_else(PoisonError::into_inner).replace(value);
        drop(old);
    }
}

impl Default for Connection {
    fn default() -> Connection {
        Connection::new()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.number()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_never_repeat_in_a_process() {
        let draw = || (0..1000).map(|_| Connection::new().number()).collect::<Vec<_>>();
        let numbers: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 4000);
    }

    #[test]
    fn attachments_stay_with_the_connection() {
        let (first, second) = (Connection::new(), Connection::new());
        first.attach(Arc::new(7_u32));
        assert_eq!(first.clone().attached::<u32>().as_deref(), Some(&7));
        assert_eq!(first.attached::<u64>(), None, "another type");
        assert_eq!(second.attached::<u32>(), None, "another connection");
        first.attach(Arc::new(8_u32));
        assert_eq!(first.attached::<u32>().as_deref(), Some(&8));
    }
}
