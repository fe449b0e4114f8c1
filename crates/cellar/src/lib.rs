//! The cellar program as a library: configuration, the server, a plain client, the commands.

pub mod client;
pub mod commands;
pub mod config;
pub mod dump;
pub mod files;
pub mod jobs;
pub mod network;
pub mod output;
pub mod promotions;
pub mod quickstart;
pub mod serve;
pub mod sockets;
pub mod umask;
pub mod vicep;
