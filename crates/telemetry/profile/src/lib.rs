//! Profiles of this process while it serves, on demand.
//!
//! [`start`] begins a profile, [`state`] returns its progress, and [`document`] its results: stacks in the
//! folded format that flame graphs are made from, and tables. A process takes one profile at a time, since it
//! has one signal for it; a second request is refused. The owner of a profile must query its state regularly:
//! a profile whose owner has disappeared ends by itself.
//!
//! **On the processor** ([`Kind::Cpu`]): a timer for each thread, which counts only the time that the thread
//! runs, interrupts it with SIGPROF. The handler neither unwinds nor allocates: it copies the registers and
//! the upper part of the stack into a preallocated slot, with one system call that reads memory without ever
//! faulting. Everything else happens later, on the profiler's own thread: unwinding by the tables that
//! exceptions use, so that no frame pointers are needed, also through RocksDB and the C library; and finding
//! the names of functions. The `unsafe` for that is in one module, `sys`.
//!
//! **Waiting** ([`Kind::Waits`]): the code that makes calls wait reports each wait ([`waits::watch`]). The
//! stack is taken there, outside any signal handler, together with the volume and the client of the call.
//!
//! While no profile runs, all of this costs nothing: there is no timer, and the watcher's flag is false.

mod cpu;
mod flame;
mod folded;
mod maps;
mod modules;
mod naming;
mod profiler;
mod report;
mod sum;
mod symbols;
mod sys;
mod tables;
mod unwinding;
mod waiting;

pub use flame::{FlameError, Flavour, svg};
pub use folded::{FunctionTime, functions};
pub use profiler::{
    HZ_MAX, Kind, LEASE, Refusal, Request, SECONDS_MAX, Stage, State, document, start, state, stop,
};
pub use report::Document;
pub use tables::{IoRow, LatencyRow, LockRow, Table, TableError};

#[cfg(test)]
mod tests;
