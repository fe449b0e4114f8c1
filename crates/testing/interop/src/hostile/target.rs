//! A cell, and the network from which it is attacked.

use crate::cell::{Cell, Server};
use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

/// Address of the server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 4);
/// The attacker's own address, which is that of the bridge.
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);
/// Number of addresses at which no host answers.
pub const STRANGERS: u32 = 1 << 16;

const NETWORK: &str = "10.98.0.0/16";
/// Classic BPF program that drops (2) IPv4 frames to that network and passes all others (0).
const TO_STRANGERS: &str =
    "7,40 0 0 12,21 0 4 2048,32 0 0 30,84 0 0 4294901760,21 0 1 174194688,6 0 0 2,6 0 0 0";
const BRIDGE: &str = "afsbr0";
/// Port from which AFS clients call.
const CLIENT_PORT: u16 = 7001;

/// Returns an address at which no host answers; numbers from [`STRANGERS`] on repeat the addresses with other
/// ports.
pub fn stranger(number: u32) -> SocketAddrV4 {
    let [high, low] = ((number % STRANGERS) as u16).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, 98, high, low), CLIENT_PORT + (number / STRANGERS) as u16)
}

/// Returns the address of a service of the target.
pub fn at(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(SERVER, port)
}

/// A Cellar cell, attacked from the namespace in which the test runs.
pub struct Target {
    /// The server that is attacked.
    pub cell: Cell,
    /// The host of the cell's databases, if it is another one.
    _databases: Option<Cell>,
}

impl Target {
    /// Starts a cell with OpenAFS's configuration.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start() -> Result<Target> {
        Target::of(Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?, None)
    }

    /// Starts the only node of a cluster, whose bucket is a folder. The cell's databases are on another host.
    ///
    /// # Errors
    /// If it does not start, or does not open its partition within a minute.
    pub fn start_node() -> Result<Target> {
        let databases = Cell::start_configured("cellar2", "10.99.0.5", "")?;
        let bucket = databases.path().join("bucket");
        std::fs::create_dir_all(bucket.join("b"))?;
        let section = format!(
            "[cluster]\nbucket = \"file://{}\"\npartitions = [\"b\"]\nnode = \"cellar1\"\naddress = \"{SERVER}\"\n",
            bucket.display()
        );
        let mut node = Cell::prepare_configured_joining(&databases, "cellar1", "10.99.0.4", &section)?;
        node.start_cellar_alone()?;
        node.await_partition("/vicepb")?;
        Target::of(node, Some(databases))
    }

    /// Starts a cell with these lines in Cellar's configuration file.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_configured(lines: &str) -> Result<Target> {
        Target::of(Cell::start_configured("cellar1", "10.99.0.4", lines)?, None)
    }

    fn of(cell: Cell, databases: Option<Cell>) -> Result<Target> {
        // Datagrams to these addresses leave the server and are dropped silently, without an ICMP error.
        ip(&["route", "add", "blackhole", NETWORK])?;
        let target = Target { cell, _databases: databases };
        target.reach(&target.cell)?;
        Ok(target)
    }

    /// Lets another host on the bridge send to the addresses of [`stranger`].
    ///
    /// # Errors
    /// Errors of ip(8).
    pub fn reach(&self, host: &Cell) -> Result<()> {
        host.shell(&format!("ip route add {NETWORK} via {ATTACKER}"))?.ok().map(drop)
    }

    /// Creates a host without servers in this cell, with the cell's key.
    ///
    /// # Errors
    /// If it does not start.
    pub fn host(&self, name: &'static str, address: &'static str) -> Result<Cell> {
        let host = Cell::prepare_joining(&self.cell, name, address)?;
        self.reach(&host)?;
        Ok(host)
    }

    /// Adds an address to the attacker's namespace, at which a program can answer.
    ///
    /// # Errors
    /// Errors of ip(8).
    pub fn add_address(&self, address: Ipv4Addr) -> Result<()> {
        ip(&["address", "add", &format!("{address}/24"), "dev", BRIDGE])
    }

    /// Drops datagrams to the addresses of [`stranger`] as soon as they have left the server's namespace.
    /// Since one machine is both attacker and server, forwarding them through the bridge would be a load that
    /// a real server does not have.
    ///
    /// # Errors
    /// Errors of tc(8).
    pub fn drop_answers(&self) -> Result<()> {
        let link = self.link();
        run("tc", &["qdisc", "add", "dev", &link, "clsact"])?;
        let filter =
            ["filter", "add", "dev", &link, "ingress", "bpf", "direct-action", "bytecode", TO_STRANGERS];
        run("tc", &filter)
    }

    /// Returns the interface for the attacker's traffic with the server.
    pub fn interface(&self) -> &'static str {
        BRIDGE
    }

    /// Returns the interface for all traffic of the server.
    pub fn link(&self) -> String {
        format!("v-{}", self.cell.name)
    }

    /// Returns the server's resident memory in bytes.
    ///
    /// # Errors
    /// If the server is not running.
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
