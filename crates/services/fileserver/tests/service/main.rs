//! The file service as seen by its clients, on volumes in memory and with simulated clients.

mod access;
mod administration;
mod bulk;
mod callbacks;
mod data;
mod directories;
mod durability;
mod fast_path;
mod hosts;
mod locks;
mod people;
mod races;
mod repeating;
mod session;
mod statistics;
mod takeover;
mod usage;
mod wire;
mod world;
