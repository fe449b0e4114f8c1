//! The load generator for a peer: runs in the namespaces of its server and drives the clients.

use super::{CLIENTS, Protocol, tool};
use crate::cpu::Reading;
use crate::generator::{execute, share_bytes};
use crate::order::{Latency, Order, Outcome};
use crate::workload::{self, Kind, LIST_FILES};
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Options of the load generator.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DriveOptions {
    /// Protocol of the server on 127.0.0.1
    #[arg(long)]
    protocol: Protocol,
    /// The folder that the server exports
    #[arg(long)]
    export: PathBuf,
}

/// Executes orders until the end of the input.
pub(crate) fn drive(options: &DriveOptions) -> Result<()> {
    let clients = 0..CLIENTS;
    let mut clients = clients.map(|number| Client::start(options, number)).collect::<Result<Vec<_>>>()?;
    for client in &mut clients {
        client.answer().context("cannot connect")?;
    }
    execute(|order| obey(&mut clients, order))
}

/// An order for a client; `tools/peer-client` describes them.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Task {
    Make { kind: &'static str, bytes: u64, listed: u32 },
    Greet,
    Work { seconds: f64 },
    Finish,
}

/// A client's answer to an order.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Done {
    /// Bytes or operations completed.
    amount: u64,
    /// Duration of each operation.
    nanoseconds: Vec<u64>,
    /// Why the order failed.
    failed: Option<String>,
}

fn obey(clients: &mut [Client], order: &Order) -> Result<Outcome> {
    let workload =
        workload::by_name(&order.workload).with_context(|| format!("no workload {}", order.workload))?;
    let clients = &mut clients[..workload.clients];
    let bytes = share_bytes(workload, order.bytes);
    all(clients, Task::Make { kind: kind_name(workload.kind)?, bytes, listed: LIST_FILES })?;
    all(clients, Task::Greet)?;
    // Earlier writes do not continue during the measurement.
    rustix::fs::sync();
    let before = Reading::now()?;
    let begin = Instant::now();
    let done = all(clients, Task::Work { seconds: order.milliseconds as f64 / 1e3 })?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu = Reading::now()?.since(&before);
    let mut latency = Histogram::<u64>::new(3)?;
    for client in all(clients, Task::Finish)? {
        client.nanoseconds.into_iter().try_for_each(|nanoseconds| latency.record(nanoseconds))?;
    }
    let amount = done.iter().map(|done| done.amount).sum::<u64>() as f64;
    Ok(Outcome { amount, seconds, cpu, latency: Latency::of(&latency) })
}

/// Returns the name of a kind of load in orders for clients.
fn kind_name(kind: Kind) -> Result<&'static str> {
    match kind {
        Kind::Fetch { .. } => Ok("read"),
        Kind::Store { .. } => Ok("write"),
        Kind::Status => Ok("status"),
        Kind::Files => Ok("files"),
        Kind::List => Ok("list"),
        Kind::Mix { .. } => bail!("clients of other protocols have no mixes"),
    }
}

/// Has all clients execute an order at the same time.
fn all(clients: &mut [Client], task: Task) -> Result<Vec<Done>> {
    clients.iter_mut().try_for_each(|client| client.order(task))?;
    clients.iter_mut().map(Client::answer).collect()
}

/// A process that is one client. The end of its input, when this is dropped, ends it.
struct Client {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn start(options: &DriveOptions, number: usize) -> Result<Client> {
        let path = match options.protocol {
            Protocol::Nfs => options.export.as_path(),
            Protocol::Smb => Path::new("export"),
        };
        let mut command = Command::new(tool("peer-client"));
        command.args([options.protocol.name(), "127.0.0.1"]).arg(path).arg(number.to_string());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = child.context("cannot start a client")?;
        let orders = process.stdin.take().context("no pipe")?;
        let answers = BufReader::new(process.stdout.take().context("no pipe")?);
        Ok(Client { process, orders, answers })
    }

    fn order(&mut self, task: Task) -> Result<()> {
        let mut line = serde_json::to_string(&task)?;
        line.push('\n');
        self.orders.write_all(line.as_bytes()).context("a client has ended")
    }

    fn answer(&mut self) -> Result<Done> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("a client ended with {}", self.process.wait()?);
        }
        let mut done: Done = serde_json::from_str(&line).with_context(|| format!("no answer: {line}"))?;
        match done.failed.take() {
            Some(why) => bail!("{why}"),
            None => Ok(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_answers_are_lines() {
        let line = |task| serde_json::to_string(&task).unwrap();
        assert_eq!(
            line(Task::Make { kind: "read", bytes: 5, listed: 7 }),
            r#"{"do":"make","kind":"read","bytes":5,"listed":7}"#
        );
        assert_eq!(line(Task::Greet), r#"{"do":"greet"}"#);
        assert_eq!(line(Task::Work { seconds: 0.5 }), r#"{"do":"work","seconds":0.5}"#);
        let answer = |line| serde_json::from_str::<Done>(line).unwrap();
        assert_eq!(answer("{}"), Done::default());
        assert_eq!(answer(r#"{"amount": 3}"#).amount, 3);
        assert_eq!(answer(r#"{"failed": "no"}"#).failed.as_deref(), Some("no"));
    }

    #[test]
    fn clients_know_every_workload() {
        let names: Vec<_> =
            workload::OF_PEERS.iter().map(|workload| kind_name(workload.kind).unwrap()).collect();
        let program = std::fs::read_to_string(tool("peer-client")).unwrap();
        assert!(names.iter().all(|name| program.contains(&format!("\"{name}\""))), "{names:?}");
    }
}
