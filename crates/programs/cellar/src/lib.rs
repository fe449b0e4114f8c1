//! The cellar program as a library: the commands of administrators.

pub mod commands;
pub mod output;
pub mod quickstart;
