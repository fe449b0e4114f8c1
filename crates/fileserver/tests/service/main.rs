//! The file service as its clients see it, on volumes in memory, with clients that only exist here.

mod access;
mod administration;
mod at_once;
mod bulk;
mod callbacks;
mod data;
mod directories;
mod hosts;
mod locks;
mod people;
mod races;
mod session;
mod statistics;
mod usage;
mod wire;
mod world;
