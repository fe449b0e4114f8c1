//! One of the two servers compared: its cell, and the load generator in it.

use crate::disturbed;
use crate::order::{Answer, Order, Outcome};
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server, tools};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A cell with a generator that waits for orders. Dropping it ends both.
pub(crate) struct Side {
    generator: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Dropped last.
    cell: Cell,
}

/// Volumes for the load: as many as a mix uses.
const VOLUMES: [&str; 12] = [
    "bench", "bench.2", "bench.3", "bench.4", "bench.5", "bench.6", "bench.7", "bench.8", "bench.9",
    "bench.10", "bench.11", "bench.12",
];

impl Side {
    /// Starts a cell for `server`; `arguments` are those of OpenAFS's file server.
    pub(crate) fn start(server: Server, arguments: &str) -> Result<Side> {
        let (name, address) = match server {
            Server::OpenAfs => ("benchafs", "10.99.1.1"),
            Server::Cellar => ("benchcel", "10.99.1.4"),
        };
        Side::in_cell(server, Cell::start_with(server, name, address, &["-f", arguments])?)
    }

    /// Starts a generator in a running cell.
    pub(crate) fn in_cell(server: Server, cell: Cell) -> Result<Side> {
        VOLUMES.iter().try_for_each(|volume| cell.open_volume(server, volume))?;
        let mut generator = generator(&cell)?;
        let orders = generator.stdin.take();
        let answers = BufReader::new(generator.stdout.take().context("no pipe")?);
        let mut side = Side { generator, orders, answers, cell };
        match side.answer()? {
            Answer::Ready => Ok(side),
            other => bail!("the load generator says {other:?}"),
        }
    }

    /// Returns the cell.
    pub(crate) fn cell(&mut self) -> &mut Cell {
        &mut self.cell
    }

    /// Runs a workload once, repeating it if it was disturbed.
    pub(crate) fn run(&mut self, order: &Order) -> Result<Outcome> {
        disturbed::least(disturbed::PAUSE, || self.run_once(order)).map(|(outcome, _)| outcome)
    }

    /// Runs a workload once; returns the share of stolen time as well.
    pub(crate) fn run_once(&mut self, order: &Order) -> Result<(Outcome, f64)> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.orders.as_mut().context("no pipe")?.write_all(line.as_bytes())?;
        match self.answer()? {
            Answer::Done(outcome) => {
                let share = outcome.stolen_share();
                Ok((outcome, share))
            }
            Answer::Failed(why) => bail!("{why}"),
            Answer::Ready => bail!("the load generator did nothing"),
        }
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the load generator ended with {}", self.generator.wait()?);
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Closing its input ends the generator.
        drop(self.orders.take());
        let _ = self.generator.wait();
    }
}

fn generator(cell: &Cell) -> Result<Child> {
    let mut command = Command::new(tools().join("openafs-cell"));
    command.arg("-d").arg(cell.path()).arg("run").arg(std::env::current_exe()?);
    command.args(["generate", "--address", cell.address]);
    command.args(VOLUMES.iter().flat_map(|volume| ["--volume", volume]));
    command.args(["--key-file", "/etc/openafs/server/KeyFileExt", "--partition", "/vicepa"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    child.context("cannot start the load generator")
}
