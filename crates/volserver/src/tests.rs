//! The service over volumes in memory.

mod basics;
mod dumps;
mod history;
mod support;
