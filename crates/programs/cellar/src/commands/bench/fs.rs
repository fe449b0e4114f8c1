//! `cellar bench fs`: simulates many clients of a file server.

use crate::commands::context::load_settings;
use crate::output::{Format, line};
use anyhow::{Context, Result, bail, ensure};
use base::SecurityLevel;
use cell_client::network::local_authentication_at;
use clap::{Args, ValueEnum, value_parser};
use load::files::{Fid, volume_root};
use load::fs::{Mix, Options, Report, mix, svg};
use load::station::Station;
use rx_security::ClientSecurity;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Simulate many clients of a file server and measure the latency of their calls.
#[derive(Args)]
pub struct Fs {
    /// Workload of the clients: a file, or one of the mixes shown by `--list`.
    #[arg(required_unless_present = "list")]
    mix: Option<String>,
    /// List the built-in mixes.
    #[arg(long)]
    list: bool,
    /// Address of the file server.
    #[arg(long, required_unless_present = "list")]
    server: Option<IpAddr>,
    /// UDP port of the file server.
    #[arg(long, default_value_t = 7000)]
    port: u16,
    /// Address of the volume location server; defaults to the file server's.
    #[arg(long)]
    location_server: Option<IpAddr>,
    /// Local address for the clients; may be repeated. Clients use the addresses in rotation; with several
    /// groups, the last group has the last address to itself. The system chooses one by default.
    #[arg(long = "from", value_name = "ADDRESS")]
    sources: Vec<IpAddr>,
    /// Volume to work in; may be repeated. The clients need all rights in its root directory.
    #[arg(long = "volume", required_unless_present = "list")]
    volumes: Vec<String>,
    /// Number of clients in the first group, overriding the mix.
    #[arg(long, value_parser = value_parser!(u16).range(1..=mix::CLIENTS_MAX as i64))]
    clients: Option<u16>,
    /// Length of the measurement in seconds.
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Time in seconds over which the clients start, before the measurement; defaults to two seconds plus one
    /// per thousand clients. With 0, all start together, and their first calls are measured.
    #[arg(long, value_parser = seconds_or_none)]
    warm_up: Option<f64>,
    /// Seed for the order of operations; random by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads of the load generator; one per processor by default.
    #[arg(long, value_parser = value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Authenticate with the cell's key at this security level; calls are anonymous by default.
    #[arg(long)]
    level: Option<Level>,
    /// Configuration with the cell's key; OpenAFS's in /etc/openafs/server by default.
    #[arg(long, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// Receive datagrams one by one, as on most networks, by disabling UDP receive offload (UDP_GRO).
    #[arg(long)]
    no_gro: bool,
    /// PID of the server if it runs on this machine; found by its port by default.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Plot latency over time into this file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Security level: what rxkad protects in packets.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Protect packet headers only.
    Clear,
    /// Protect data against modification.
    Auth,
    /// Encrypt data.
    Crypt,
}

/// Runs the command.
pub fn run(arguments: &Fs) -> Result<()> {
    if arguments.list {
        return list();
    }
    let mix = chosen_mix(arguments)?;
    let options = options(arguments)?;
    let wanted = mix.groups.iter().map(|group| group.volumes).max().unwrap_or(1);
    if wanted > options.volumes.len() {
        eprintln!("cellar: the mix needs {wanted} volumes, but only {} exist", options.volumes.len());
    }
    let report = load::fs::run(&mix, &options)?;
    if let Some(path) = &arguments.plot {
        std::fs::write(path, svg(&report)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let format = if arguments.json { Format::Json } else { Format::Text };
    format.done(&report, report.text())?;
    judge(&report)
}

fn judge(report: &Report) -> Result<()> {
    ensure!(report.wrong() == 0, "{} replies differ from the stored data", report.wrong());
    ensure!(report.calls > 0, "no call succeeded");
    Ok(())
}

fn list() -> Result<()> {
    for (name, text) in mix::READY {
        let mix = Mix::parse(text)?;
        line(format_args!("{name:<20} {} ({} clients)", mix.title, mix.clients()))?;
    }
    Ok(())
}

fn chosen_mix(arguments: &Fs) -> Result<Mix> {
    let mut mix = Mix::find(arguments.mix.as_deref().unwrap_or_default())?;
    if let Some(clients) = arguments.clients {
        mix.groups[0].clients = usize::from(clients);
        mix.check()?;
    }
    Ok(mix)
}

fn options(arguments: &Fs) -> Result<Options> {
    let Some(server) = arguments.server else { bail!("--server ADDRESS is missing") };
    if let Some(source) = arguments.sources.iter().find(|source| source.is_ipv4() != server.is_ipv4()) {
        bail!(
            "--from {source} and --server {server} are of different address families: use IPv4 for both, \
            or IPv6 for both"
        );
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Options {
        server: SocketAddr::new(server, arguments.port),
        sources: arguments.sources.clone(),
        volumes: volumes(arguments, arguments.location_server.unwrap_or(server))?,
        security: arguments.level.map(|level| security(arguments, level)).transpose()?,
        duration: Duration::from_secs_f64(arguments.seconds),
        warm_up: arguments.warm_up.map(Duration::from_secs_f64),
        seed: arguments.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        threads: arguments.threads.map_or(cores, usize::from),
        server_pid: arguments.server_pid,
        receive_merging: !arguments.no_gro,
    })
}

/// Returns the root directories of the volumes.
fn volumes(arguments: &Fs, location_server: IpAddr) -> Result<Vec<Fid>> {
    let station = Station::start()?;
    let locations = station.connect(SocketAddr::new(location_server, 7003), 52, None);
    arguments.volumes.iter().map(|volume| volume_root(&*locations, volume)).collect()
}

fn security(arguments: &Fs, level: Level) -> Result<Arc<dyn ClientSecurity>> {
    let settings = load_settings(arguments.config.as_deref()).context("--level needs the cell's key")?;
    let level = match level {
        Level::Clear => SecurityLevel::Clear,
        Level::Auth => SecurityLevel::Authenticated,
        Level::Crypt => SecurityLevel::Encrypted,
    };
    local_authentication_at(&settings.keys, level)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("must be 0.1 to 86400".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn seconds_or_none(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        Ok(_) => Err("must be 0 to 86400".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        fs: Fs,
    }

    fn parse(line: &str) -> Result<Fs, clap::Error> {
        Program::try_parse_from(std::iter::once("fs").chain(line.split_whitespace())).map(|it| it.fs)
    }

    #[test]
    fn command_lines() {
        let arguments = parse("status --server 127.0.0.1 --volume a --volume b --clients 10000").unwrap();
        assert_eq!(chosen_mix(&arguments).unwrap().clients(), 10_000);
        assert_eq!(arguments.volumes, ["a", "b"]);
        assert!(parse("--list").is_ok());
        let at_once = parse("status --server 127.0.0.1 --volume a --warm-up 0").unwrap();
        assert_eq!(at_once.warm_up, Some(0.0));
        for bad in [
            "",
            "status --volume a",
            "status --server 127.0.0.1",
            "status --server 127.0.0.1 --volume a --clients 10001",
            "status --server 127.0.0.1 --volume a --seconds 0",
            "status --server 127.0.0.1 --volume a --warm-up -1",
            "status --server 127.0.0.1 --volume a --level secret",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        let wrong = parse("cern-250-readers --server 127.0.0.1 --volume a --clients 10000").unwrap();
        assert!(chosen_mix(&wrong).is_err(), "10,001 clients");
    }
}
