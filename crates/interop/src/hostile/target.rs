//! A cell and the network that attacks come from.

use crate::cell::{Cell, Server};
use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 4);
/// The attacker's own address: that of the bridge.
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);
/// How many addresses nobody answers at.
pub const STRANGERS: u32 = 1 << 16;

const NETWORK: &str = "10.98.0.0/16";
/// Drops (2) frames of IPv4 to that network and lets the others pass (0), in the classic instructions of packet filters.
const TO_STRANGERS: &str =
    "7,40 0 0 12,21 0 4 2048,32 0 0 30,84 0 0 4294901760,21 0 1 174194688,6 0 0 2,6 0 0 0";
const BRIDGE: &str = "afsbr0";
/// The port that clients of AFS call from.
const CLIENT_PORT: u16 = 7001;

/// An address that nobody answers at; after [`STRANGERS`] of them the same addresses follow with other ports.
pub fn stranger(number: u32) -> SocketAddrV4 {
    let [high, low] = ((number % STRANGERS) as u16).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, 98, high, low), CLIENT_PORT + (number / STRANGERS) as u16)
}

/// Where a service of the target is reached.
pub fn at(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(SERVER, port)
}

/// A cell of Cellar's, attacked from the namespace that the test runs in.
pub struct Target {
    /// The cell, with one server.
    pub cell: Cell,
}

impl Target {
    /// Starts a cell as OpenAFS's configuration has it.
    ///
    /// # Errors
    /// It does not start.
    pub fn start() -> Result<Target> {
        Target::of(Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?)
    }

    /// Starts a cell with these lines in Cellar's configuration file.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_configured(lines: &str) -> Result<Target> {
        Target::of(Cell::start_configured("cellar1", "10.99.0.4", lines)?)
    }

    fn of(cell: Cell) -> Result<Target> {
        // What is sent to strangers leaves the server and is lost silently: no ICMP message says so.
        ip(&["route", "add", "blackhole", NETWORK])?;
        let target = Target { cell };
        target.reach(&target.cell)?;
        Ok(target)
    }

    /// Lets another host on the bridge answer to strangers.
    ///
    /// # Errors
    /// What ip(8) said.
    pub fn reach(&self, host: &Cell) -> Result<()> {
        host.shell(&format!("ip route add {NETWORK} via {ATTACKER}"))?.ok().map(drop)
    }

    /// A host without servers in this cell, with the cell's key.
    ///
    /// # Errors
    /// It does not start.
    pub fn host(&self, name: &'static str, address: &'static str) -> Result<Cell> {
        let host = Cell::prepare_joining(&self.cell, name, address)?;
        self.reach(&host)?;
        Ok(host)
    }

    /// Gives the attacker's namespace another address, from which somebody may answer.
    ///
    /// # Errors
    /// What ip(8) said.
    pub fn add_address(&self, address: Ipv4Addr) -> Result<()> {
        ip(&["address", "add", &format!("{address}/24"), "dev", BRIDGE])
    }

    /// Drops what the server sends to strangers as soon as it has left the server's namespace. On a machine that is attacker
    /// and server, the way through the bridge would be a load that a server does not have.
    ///
    /// # Errors
    /// What tc(8) said.
    pub fn drop_answers(&self) -> Result<()> {
        let link = self.link();
        run("tc", &["qdisc", "add", "dev", &link, "clsact"])?;
        let filter =
            ["filter", "add", "dev", &link, "ingress", "bpf", "direct-action", "bytecode", TO_STRANGERS];
        run("tc", &filter)
    }

    /// The interface that the attacker's traffic with the server passes.
    pub fn interface(&self) -> &'static str {
        BRIDGE
    }

    /// The interface that all traffic of the server passes.
    pub fn link(&self) -> String {
        format!("v-{}", self.cell.name)
    }

    /// How much memory the server occupies, in bytes.
    ///
    /// # Errors
    /// It does not run.
    pub fn resident_bytes(&self) -> Result<u64> {
        let pid = self.cell.server_pid()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
        Ok(kib * 1024)
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {error}", arguments.join(" "));
    Ok(())
}
