//! `cellar bench rxperf`: Rx throughput, with the option letters of OpenAFS's rxperf.

use crate::output::Format;
use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args, Subcommand, ValueEnum, value_parser};
use load::rxperf::{self, ClientOptions, PORT, Request, ServerOptions, Tuning, Work, parse_list};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Measure Rx alone with OpenAFS's rxperf, as client or server.
#[derive(Subcommand)]
pub enum Rxperf {
    /// Serve calls until SIGINT or SIGTERM.
    Server(ServerArguments),
    /// Make calls and report their throughput.
    Client(Box<ClientArguments>),
}

/// Options of both ends.
#[derive(Args)]
struct TuningArguments {
    /// UDP socket buffer size in KiB.
    #[arg(short = 'u', long = "udp-buffer", value_name = "KIB", value_parser = value_parser!(u32).range(1..=1 << 20))]
    udp_buffer: Option<u32>,
    /// Send and receive window in packets.
    #[arg(short = 'W', long = "window", value_name = "PACKETS", value_parser = value_parser!(u16).range(1..=4096))]
    window: Option<u16>,
    /// Maximum IP packet size in bytes.
    #[arg(short = 'm', long = "mtu", value_name = "BYTES", value_parser = value_parser!(u32).range(576..=1500))]
    mtu: Option<u32>,
    /// Receive datagrams one by one, as on most networks, by disabling UDP receive offload (UDP_GRO).
    #[arg(long)]
    no_gro: bool,
    /// OpenAFS options that have no effect here: jumbograms are never sent, there is no hot thread, and
    /// statistics cost nothing.
    #[command(flatten)]
    ignored: Ignored,
}

#[derive(Args)]
struct Ignored {
    #[arg(short = 'j', hide = true)]
    no_jumbo: bool,
    #[arg(short = 'N', hide = true)]
    no_statistics: bool,
    #[arg(short = 'H', hide = true)]
    hot_thread: bool,
    #[arg(short = 'V', hide = true)]
    readv: bool,
    #[arg(short = '4', hide = true)]
    ipv4: Option<String>,
    #[arg(short = 'P', hide = true)]
    peer_timeout: Option<u32>,
}

/// Options of the server.
#[derive(Args)]
#[command(disable_version_flag = true)]
pub struct ServerArguments {
    /// UDP port.
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Number of threads that always run.
    #[arg(short = 's', long = "threads-min", default_value_t = 16, value_parser = value_parser!(u16).range(1..=1000))]
    threads_min: u16,
    /// Maximum number of concurrent calls.
    #[arg(short = 'S', long = "threads-max", default_value_t = 256, value_parser = value_parser!(u16).range(1..=1000))]
    threads_max: u16,
    /// Number of receiving threads; one per processor by default.
    #[arg(long, value_parser = value_parser!(u16).range(1..=64))]
    lanes: Option<u16>,
    #[command(flatten)]
    tuning: TuningArguments,
}

/// What the client does in each call.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Command {
    /// Send data to the server.
    Send,
    /// Receive data from the server.
    Recv,
    /// Send a request and receive a reply.
    Rpc,
    /// Send and receive as a file specifies.
    File,
}

/// Options of the client.
#[derive(Args)]
#[command(disable_version_flag = true)]
pub struct ClientArguments {
    /// Kind of call.
    #[arg(short = 'c', long = "command", ignore_case = true)]
    command: Command,
    /// Bytes transferred in a send or recv call.
    #[arg(short = 'b', long = "bytes", default_value_t = 1 << 20, value_parser = value_parser!(u32).range(0..=i64::from(i32::MAX)))]
    bytes: u32,
    /// Bytes sent in an rpc call.
    #[arg(short = 'S', long = "send-bytes", default_value_t = 3, value_parser = value_parser!(u32).range(0..=i64::from(i32::MAX)))]
    send_bytes: u32,
    /// Bytes received in an rpc call.
    #[arg(short = 'R', long = "receive-bytes", default_value_t = 30, value_parser = value_parser!(u32).range(0..=i64::from(i32::MAX)))]
    receive_bytes: u32,
    /// File that describes the file calls: a number of four-byte words per line; an empty line switches from
    /// sending to receiving.
    #[arg(short = 'f', long = "file", required_if_eq("command", "file"))]
    file: Option<PathBuf>,
    /// Number of calls per thread.
    #[arg(short = 'T', long = "times", default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    times: u32,
    /// Number of threads, each with one call at a time.
    #[arg(short = 't', long = "threads", default_value_t = 1, value_parser = value_parser!(u16).range(1..=1000))]
    threads: u16,
    /// Address or name of the server.
    #[arg(short = 's', long = "server", default_value = "127.0.0.1")]
    server: String,
    /// UDP port of the server.
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Bytes written at a time.
    #[arg(short = 'w', long = "write-bytes", default_value_t = 512 << 10, value_parser = value_parser!(u32).range(1..=512 << 10))]
    write_bytes: u32,
    /// Bytes read at a time.
    #[arg(short = 'r', long = "read-bytes", default_value_t = 512 << 10, value_parser = value_parser!(u32).range(1..=512 << 10))]
    read_bytes: u32,
    /// PID of the server if it runs on this machine; found by its port by default.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Accepted for compatibility with OpenAFS: statistics are always printed.
    #[arg(short = 'D', hide = true, action = ArgAction::SetTrue)]
    statistics: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tuning: TuningArguments,
}

/// Runs the command.
pub fn run(command: &Rxperf) -> Result<()> {
    match command {
        Rxperf::Server(arguments) => serve(arguments),
        Rxperf::Client(arguments) => call(arguments),
    }
}

impl TuningArguments {
    fn tuning(&self) -> Tuning {
        Tuning {
            buffer_bytes: self.udp_buffer.map(|kib| kib as usize * 1024),
            window_packets: self.window,
            mtu_bytes: self.mtu.map(|bytes| bytes as usize),
            no_merging: self.no_gro,
        }
    }
}

fn serve(arguments: &ServerArguments) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let server = rxperf::serve(&ServerOptions {
        port: arguments.port,
        threads_min: usize::from(arguments.threads_min),
        threads_max: usize::from(arguments.threads_max.max(arguments.threads_min)),
        lanes: arguments.lanes.map(usize::from),
        tuning: arguments.tuning.tuning(),
    })?;
    signals.forever().next();
    let statistics = server.statistics();
    let total = statistics.total();
    crate::output::line(format_args!(
        "{} calls, {} failed; {} datagrams received, {} sent, {} dropped for lack of buffer space",
        statistics.calls.arrived,
        statistics.calls.failed,
        total.datagrams_received,
        total.datagrams_sent,
        total.kernel_drops
    ))
}

fn call(arguments: &ClientArguments) -> Result<()> {
    let request = Request {
        read_bytes: arguments.read_bytes,
        write_bytes: arguments.write_bytes,
        work: work(arguments)?,
    };
    let outcome = rxperf::run(&ClientOptions {
        server: resolve(&arguments.server, arguments.port)?,
        request: request.clone(),
        threads: usize::from(arguments.threads),
        times: arguments.times,
        server_pid: arguments.server_pid,
        tuning: arguments.tuning.tuning(),
    })?;
    let format = if arguments.json { Format::Json } else { Format::Text };
    let file = arguments.file.as_deref().unwrap_or_else(|| "".as_ref()).display().to_string();
    format.done(&outcome, outcome.text(&request, &file))
}

fn work(arguments: &ClientArguments) -> Result<Work> {
    Ok(match arguments.command {
        Command::Send => Work::Send(arguments.bytes),
        Command::Recv => Work::Receive(arguments.bytes),
        Command::Rpc => Work::Rpc(arguments.send_bytes, arguments.receive_bytes),
        Command::File => {
            let path = arguments.file.as_deref().context("-c file needs -f LIST")?;
            let name = path.display();
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            Work::File(parse_list(&text).with_context(|| name.to_string())?)
        }
    })
}

/// Resolves a host to its first IPv4 address, or to its first address if it has no IPv4 address.
fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let found: Vec<SocketAddr> =
        (host, port).to_socket_addrs().with_context(|| format!("cannot find {host}"))?.collect();
    match found.iter().find(|address| address.is_ipv4()).or(found.first()) {
        Some(address) => Ok(*address),
        None => bail!("{host} has no address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(subcommand)]
        command: Rxperf,
    }

    fn client(line: &str) -> Result<Box<ClientArguments>, clap::Error> {
        let words = ["rxperf", "client"].into_iter().chain(line.split_whitespace());
        match Program::try_parse_from(words)?.command {
            Rxperf::Client(arguments) => Ok(arguments),
            Rxperf::Server(_) => unreachable!("the words say client"),
        }
    }

    #[test]
    fn command_lines_of_openafs() {
        let arguments =
            client("-c RECV -b 1000 -T 7 -t 4 -p 7010 -s localhost -u 1024 -W 64 -j -N -D").unwrap();
        assert_eq!(work(&arguments).unwrap(), Work::Receive(1000));
        let tuning = Tuning {
            buffer_bytes: Some(1 << 20),
            window_packets: Some(64),
            mtu_bytes: None,
            no_merging: false,
        };
        assert_eq!(arguments.tuning.tuning(), tuning);
        assert_eq!(work(&client("-c rpc").unwrap()).unwrap(), Work::Rpc(3, 30));
        assert_eq!(work(&client("-c send").unwrap()).unwrap(), Work::Send(1 << 20));
        let server = ["rxperf", "server", "-p", "7010", "-s", "2", "-S", "20", "-u", "64", "-H"];
        assert!(Program::try_parse_from(server).is_ok());
    }

    #[test]
    fn command_lines_that_are_refused() {
        for bad in [
            "",
            "-c file",
            "-c fly",
            "-c send -b -1",
            "-c send -b 3000000000",
            "-c recv -t 0",
            "-c recv -W 0",
            "-c recv -W 4097",
            "-c recv -w 600000",
        ] {
            assert!(client(bad).is_err(), "{bad:?}");
        }
        assert!(work(&client("-c file -f /nonexistent").unwrap()).is_err());
    }

    #[test]
    fn hosts() {
        assert_eq!(resolve("127.0.0.1", 7009).unwrap(), SocketAddr::from(([127, 0, 0, 1], 7009)));
        assert!(resolve("no host", 7009).is_err());
    }
}
