//! The service over volumes in memory.

mod basics;
mod history;
mod support;
