//! Where threads wait, and who is notified.
//!
//! The code in which a call can wait (for a worker, a lock, a disk, clients) reports the wait here, once. The
//! report goes to the breakdown of slow calls ([`events::parts`]), to the figures of locks
//! ([`lock_figures`]), to the watcher while a profile runs ([`watch`]), and to the static probes for tracers
//! ([`probes`]). Without a watcher, a wait costs one additional check of a flag, and a probe is an
//! instruction that does nothing.
//!
//! A watcher is called on the waiting thread itself, after the wait and outside any signal handler, so it may
//! take the stack.

mod call;
mod lock;
pub mod probes;
mod raw;
mod waiting;
mod watch;

pub use call::{Client, Current, begin, current, opcode, set_client, set_volume};
pub use lock::{LOCKS, Lock, LockName, SharedLock, lock_figures};
pub use waiting::{Span, cache, disk, enter, queued, waited};
pub use watch::{Access, Called, Contended, Wait, Watcher, Watching, called, is_watched, watch};
