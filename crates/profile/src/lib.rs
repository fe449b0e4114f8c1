//! Profiles of this process while it serves, on demand.
//!
//! [`start`] begins one, [`state`] says how far it is, [`document`] gives what came of it: stacks in the
//! folded form that flame graphs are made of, and tables. There is one profile at a time in a process, since
//! there is one signal for it; a second is refused. Who started a profile must ask for its state now and
//! then: a profile whose owner has vanished ends by itself.
//!
//! **On the processor** ([`Kind::Cpu`]): a timer for each thread, which counts only the time that the thread runs,
//! interrupts it with SIGPROF. The handler unwinds nothing and allocates nothing: it copies the registers and
//! the upper part of the stack into a slot that was allocated before, by one system call that reads memory
//! without ever faulting. Everything else (unwinding by the tables that exceptions use, so that no frame
//! pointers are needed, also through RocksDB and the C library; names of functions) happens later, on the
//! profiler's own thread. The `unsafe` for that is in one module, `sys`.
//!
//! **Waiting** ([`Kind::Waits`]): the places where calls wait tell of each wait ([`waits::watch`]); the stack is
//! taken there, outside any signal handler, with the volume and the client of the call.
//!
//! While no profile runs nothing of this costs anything: there is no timer, and the watcher's flag is false.

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
