//! x
mod gather;
mod pool;
mod clock;
mod waker;
mod socket;
mod statistics;
mod steering;
mod sys;
pub use socket::SocketOptions;
