//! `cellar bench`: load on servers, and what they make of it. docs/guide/load.md says how to use it.

pub mod fs;
pub mod rxperf;

use anyhow::Result;
use clap::Subcommand;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// Rx alone: OpenAFS's rxperf, client and server.
    Rxperf {
        /// Which end.
        #[command(subcommand)]
        command: rxperf::Rxperf,
    },
    /// Many clients of a file server, and how long it lets them wait.
    Fs(Box<fs::Fs>),
}

/// Does it.
pub fn run(command: &Bench) -> Result<()> {
    match command {
        Bench::Rxperf { command } => rxperf::run(command),
        Bench::Fs(arguments) => fs::run(arguments),
    }
}
