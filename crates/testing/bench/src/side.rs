//! One of the servers compared: its cell, and the load generator in it.

use crate::disturbed;
use crate::order::{Answer, Order, Outcome};
use anyhow::{Context, Result, bail};
use interop::cell::{Cell, Server, tools};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A cell with a generator that waits for orders. Dropping it ends both.
pub(crate) struct Side {
    generator: Generator,
    /// Dropped last.
    cell: Cell,
}

/// A process that executes orders from its standard input. Dropping it closes that input, which ends the
/// process, and waits for its end.
pub(crate) struct Generator {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
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
        Ok(Side { generator: Generator::start(&mut command(&cell, &VOLUMES)?)?, cell })
    }

    /// Starts a generator in a running cell that uses one volume, which exists.
    pub(crate) fn of_volume(cell: Cell, volume: &str) -> Result<Side> {
        Ok(Side { generator: Generator::start(&mut command(&cell, &[volume])?)?, cell })
    }

    /// Returns the cell.
    pub(crate) fn cell(&mut self) -> &mut Cell {
        &mut self.cell
    }

    /// Runs a workload once, repeating it if it was disturbed.
    pub(crate) fn run(&mut self, order: &Order) -> Result<Outcome> {
        self.generator.run(order)
    }

    /// Runs a workload once; returns the share of stolen time as well.
    pub(crate) fn run_once(&mut self, order: &Order) -> Result<(Outcome, f64)> {
        self.generator.run_once(order)
    }
}

impl Generator {
    /// Starts the process, and waits until it is ready for orders.
    pub(crate) fn start(command: &mut Command) -> Result<Generator> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = child.context("cannot start the load generator")?;
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("no pipe")?);
        let mut generator = Generator { process, orders, answers };
        match generator.answer()? {
            Answer::Ready => Ok(generator),
            Answer::Failed(why) => bail!("{why}"),
            other @ Answer::Done(_) => bail!("unexpected answer of the load generator: {other:?}"),
        }
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
            Answer::Ready => bail!("the load generator did not execute the order"),
        }
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the load generator ended with {}", self.process.wait()?);
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Closing its input ends the process.
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

/// Returns a command that runs this program inside the cell.
pub(crate) fn inside(cell: &Cell) -> Result<Command> {
    let mut command = Command::new(tools().join("openafs-cell"));
    command.arg("-d").arg(cell.path()).arg("run").arg(std::env::current_exe()?);
    Ok(command)
}

fn command(cell: &Cell, volumes: &[&str]) -> Result<Command> {
    let mut command = inside(cell)?;
    command.args(["generate", "--address", cell.address]);
    command.args(volumes.iter().flat_map(|volume| ["--volume", volume]));
    command.args(["--key-file", "/etc/openafs/server/KeyFileExt", "--partition", "/vicepa"]);
    Ok(command)
}
