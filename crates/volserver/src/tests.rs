//! The service over volumes in memory.

mod basics;
mod counting;
mod dumps;
mod forwards;
mod history;
mod network;
mod released;
mod splitting;
mod support;
mod transfers;
mod within;
