//! Where threads wait, and who wants to know.
//!
//! The places where a call can wait (a worker, a lock, a disk, clients) tell it here, once: what they tell
//! goes to the parts of slow calls ([`events::current`]), to the figures of locks ([`lock_figures`]), to
//! whoever watches while a profile runs ([`watch`]), and to the static probes that tracers find in the program
//! ([`probes`]). While nobody watches, a wait costs one look at a flag more, and a probe is an instruction
//! that does nothing.
//!
//! A watcher is told on the waiting thread itself, after the wait and outside any signal handler: it may take
//! the stack.

mod call;
mod lock;
pub mod probes;
mod raw;
mod waiting;
mod watch;

pub use call::{Client, Current, begin, current, opcode, set_client};
pub use lock::{LOCKS, Lock, LockName, SharedLock, lock_figures};
pub use waiting::{Span, cache, disk, enter, queued, waited};
pub use watch::{Access, Called, Contended, Wait, Watcher, Watching, called, is_watched, watch};
