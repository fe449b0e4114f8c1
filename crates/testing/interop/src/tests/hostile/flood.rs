//! Fifty thousand calls per second from unproven addresses, to every port. Twenty verified clients keep half
//! of their throughput, and all of their calls succeed.
//!
//! Attacker, clients and server share this machine's processors, so the baseline is not an idle machine: the
//! same attacker runs, but sends to closed ports of a host without servers. The difference is the server's
//! work on the datagrams: it receives and answers each. Its replies are dropped when they have left its
//! namespace.

use anyhow::{Context, Result, bail, ensure};
use base::HostUuid;
use interop::cell::{Cell, Server};
use interop::hostile::{ATTACKER, Client, Flood, Load, SERVER, Shape, Target};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RATE: u32 = 50_000;
/// Number of source addresses, used in rotation.
const SOURCES: u32 = 4096;
/// Ports and services to call.
const SERVICES: [(u16, u16); 4] = [(7000, 1), (7002, 73), (7003, 52), (7005, 4)];
const SECONDS: u32 = 8;
const MIX: &str = "title = \"verified clients\"\n[[group]]\nname = \"verified\"\nclients = 20\nfiles = 20\n\
                   file_size = \"64KiB\"\nwork = { status = 6, read = 3, small_file = 1 }\n";
/// Pause between runs of the tools, whose processes compete with the clients.
const PAUSE: Duration = Duration::from_millis(300);
/// The host without servers.
const SINK: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 6);
/// Maximum time that a new client waits for its first reply after the flood.
const AT_ONCE: Duration = Duration::from_secs(7);
/// Number of attempts to measure the rate that is left: other work of the machine may disturb one.
const ATTEMPTS: usize = 3;

pub(super) fn flood() -> Result<()> {
    let target = Target::start()?;
    target.cell.open_volume(Server::Cellar, "work.1")?;
    let host = target.host("clients", "10.99.0.5")?;
    let _sink = target.host("sink", "10.99.0.6")?;
    target.drop_answers()?;
    let attack = Shape::calls(RATE, SOURCES, &SERVICES);
    let mut of_nobody = attack.clone();
    of_nobody.services.iter_mut().for_each(|(to, _)| *to = SocketAddrV4::new(SINK, to.port()));
    let mut rates = Vec::new();
    for _ in 0..ATTEMPTS {
        let undisturbed = work(&target.cell, &host, &of_nobody).context("beside an attacker of nobody")?;
        let flooded = work(&target.cell, &host, &attack).context("beside the attacker")?;
        at_once()?;
        ensure!(flooded.failed == 0 && flooded.busy == 0, "calls of verified clients failed: {flooded:?}");
        // The attacker and the refusals also take processor time of this machine: about half of the rate is left on two processors.
        if flooded.rate >= undisturbed.rate / 4.0 {
            return Ok(());
        }
        rates.push(format!("{:.0} calls a second are left of {:.0}", flooded.rate, undisturbed.rate));
    }
    bail!("{}", rates.join("; "))
}

/// Runs the clients and administrators' tools during a flood.
fn work(cell: &Cell, host: &Cell, shape: &Shape) -> Result<Load> {
    let before = dropped(cell)?;
    let flood = Flood::start(shape.clone())?;
    let (load, tools) = std::thread::scope(|scope| {
        let load = scope.spawn(|| Load::run(host, "work.1", MIX, SECONDS));
        let mut tools = Ok(0);
        while !load.is_finished() && tools.is_ok() {
            tools = use_tools(host).and_then(|()| Ok(tools? + 1));
            std::thread::sleep(PAUSE);
        }
        (load.join(), tools)
    });
    let dropped = dropped(cell)? - before;
    let flooded = flood.end()?;
    let load = load.map_err(|_| anyhow::anyhow!("the clients panicked"))??;
    println!(
        "hostile: {:.0} calls a second, {:.2} % of packets again, {} failed, {} busy; {} rounds of tools; {:.0} datagrams a second, {dropped} \
         dropped at the server",
        load.rate,
        load.repeated * 100.0,
        load.failed,
        load.busy,
        tools?,
        flooded.rate()
    );
    Ok(load)
}

/// Returns the number of datagrams that the kernel of a host dropped because a socket's buffer was full.
fn dropped(host: &Cell) -> Result<u64> {
    let lines = host.shell("grep ^Udp: /proc/net/snmp")?.ok()?;
    let [names, values] = [0, 1].map(|line| lines.lines().nth(line).unwrap_or_default().split_whitespace());
    let found = names.zip(values).find(|(name, _)| *name == "RcvbufErrors").context("no RcvbufErrors")?;
    Ok(found.1.parse()?)
}

/// Runs tools that each make a new connection.
fn use_tools(host: &Cell) -> Result<()> {
    for command in
        ["pts examine admin -localauth", "vos listaddrs -localauth", "vos listvol 10.99.0.4 -localauth"]
    {
        host.run(command)?.ok().with_context(|| command.to_owned())?;
    }
    Ok(())
}

/// Checks that a new client is answered promptly.
fn at_once() -> Result<()> {
    let start = Instant::now();
    let client = Arc::new(Client::anonymous(ATTACKER, HostUuid(rand::random()))?);
    let cell = client.of_cell(SERVER)?;
    let root = cell.root_of("work.1").context("a new client")?;
    cell.list(&root).context("a new client")?;
    ensure!(start.elapsed() <= AT_ONCE, "a new client waited {:?}", start.elapsed());
    Ok(())
}
