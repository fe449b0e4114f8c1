//! `cellar bench`: puts load on servers and measures the result. See docs/guide/load.md for its use.

pub mod fs;
pub mod rxperf;

use anyhow::Result;
use clap::Subcommand;

/// Measure servers under load.
#[derive(Subcommand)]
pub enum Bench {
    /// Measure Rx alone with OpenAFS's rxperf, as client or server.
    Rxperf {
        /// End to run.
        #[command(subcommand)]
        command: rxperf::Rxperf,
    },
    /// Simulate many clients of a file server and measure the latency of their calls.
    Fs(Box<fs::Fs>),
}

/// Runs the command.
pub fn run(command: &Bench) -> Result<()> {
    match command {
        Bench::Rxperf { command } => rxperf::run(command),
        Bench::Fs(arguments) => fs::run(arguments),
    }
}
