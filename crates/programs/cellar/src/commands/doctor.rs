//! `cellar doctor`: finds known problems of a server and reports the evidence for each.

mod around;
pub(super) mod cell;
mod cluster;
mod foreign;
mod own;

use super::Context;
use super::stat::address::ServerAddress;
use super::stat::transport;
use crate::output::{Format, line};
use afs_idl::cellar::{self, GetServerInfoReply, GetServerInfoRequest};
use anyhow::{Context as _, Result};
use cell_client::network::AfsNetwork;
use cell_client::patience::Patience;
use cell_client::{CellClient, Interface};
use clap::Args;
use doctor::{Finding, Snapshot};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;
use std::sync::Arc;

/// Exit statuses: no finding, at least one finding, examination failed.
const HEALTHY: u8 = 0;
const ILL: u8 = 1;
const UNSEEN: u8 = 2;

/// Columns per line of text.
const WIDTH: usize = 100;

/// UDP port of file servers.
const FILE_PORT: u16 = 7000;

/// Find known problems of a server.
#[derive(Args)]
pub struct Examining {
    /// Server to examine, Cellar's or OpenAFS's, with a port to examine only that port; defaults to the file
    /// server in this machine's configuration, or else the first database server.
    #[arg(long, value_name = "HOST[:PORT]")]
    on: Option<ServerAddress>,
    /// Seconds between the two samples.
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
}

/// Results of an examination.
struct Examined {
    server: SocketAddrV4,
    version: String,
    snapshot: Snapshot,
    /// What could not be examined, and why.
    unseen: Vec<String>,
}

/// The client that examines, with what it could not do.
struct Asking {
    client: CellClient,
    unseen: Vec<String>,
}

/// Runs the command; the exit status tells whether there are findings.
pub fn run(context: &Context, examining: &Examining) -> ExitCode {
    let reported = examine(context, examining).and_then(|examined| print_findings(context.format, &examined));
    match reported {
        Ok(false) => ExitCode::from(HEALTHY),
        Ok(true) => ExitCode::from(ILL),
        Err(error) => {
            eprintln!("cellar: {error:#}");
            ExitCode::from(UNSEEN)
        }
    }
}

fn examine(context: &Context, examining: &Examining) -> Result<Examined> {
    let named = examining.on.as_ref().map(|on| on.resolve(FILE_PORT)).transpose()?;
    let Asking { client, unseen } = asking(context, named)?;
    let server = named.unwrap_or_else(|| SocketAddrV4::new(context.default_server(&client), FILE_PORT));
    transport::version(server)?;
    // Without a key, a Cellar server is examined like a foreign one, through what it reveals to any caller.
    let may_ask = server.port() == FILE_PORT && unseen.is_empty() && !context.is_anonymous();
    let info = if may_ask { who(&client, *server.ip()) } else { None };
    let begun = around::Begun::now(*server.ip());
    let mut examined = if let Some(info) = info {
        own::examine(&client, *server.ip(), examining.interval, &info)?
    } else {
        let all = examining.on.as_ref().is_none_or(|on| !on.has_port());
        foreign::examine(server, all, examining.interval)?
    };
    examined.unseen.splice(0..0, unseen);
    begun.finish(context, &client, &mut examined);
    Ok(examined)
}

/// Returns a client that has the cell's key if there is one; most requests need no authentication.
fn asking(context: &Context, named: Option<SocketAddrV4>) -> Result<Asking> {
    let refused = match (context.observer(), named) {
        (Ok(client), _) => return Ok(Asking { client, unseen: vec![] }),
        (Err(error), None) => return Err(error),
        (Err(error), Some(_)) => error,
    };
    let network = Arc::new(AfsNetwork::start(None)?);
    let client = CellClient::new(network, named.map(|named| *named.ip()).into_iter().collect())?;
    let client = client.with_patience(Patience::NONE, |_| ());
    Ok(Asking { client, unseen: vec![format!("connected without authentication: {refused:#}")] })
}

/// Asks a Cellar server about itself; `None` for a foreign server or one that does not answer.
fn who(client: &CellClient, server: Ipv4Addr) -> Option<GetServerInfoReply> {
    let connection = client.connection(server, Interface::Cellar);
    cellar::get_server_info(&*connection, &GetServerInfoRequest).ok()
}

/// Prints the findings and returns whether there are any.
fn print_findings(format: Format, examined: &Examined) -> Result<bool> {
    let findings = doctor::diagnose(&examined.snapshot);
    if format == Format::Json {
        format.done(&json_of(examined, &findings), "")?;
    } else {
        lines(examined, &findings).into_iter().try_for_each(line)?;
    }
    Ok(!findings.is_empty())
}

fn lines(examined: &Examined, findings: &[Finding]) -> Vec<String> {
    let count = match findings.len() {
        0 => "no known problem".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    let seconds = examined.snapshot.seconds;
    let mut lines =
        vec![format!("{}: {}, sampled for {seconds:.1} s: {count}", examined.server, examined.version)];
    for (number, finding) in (1..).zip(findings) {
        lines.push(String::new());
        lines.push(format!("{number}. {} ({}, {})", finding.what, finding.severity(), finding.problem));
        let evidence = finding.evidence.iter().map(|evidence| ("evidence", evidence));
        for (heading, text) in evidence.chain([("cause", &finding.cause), ("remedy", &finding.remedy)]) {
            lines.extend(paragraph(heading, text));
        }
    }
    if !examined.unseen.is_empty() {
        lines.push(String::new());
        lines.extend(examined.unseen.iter().map(|unseen| format!("not checked: {unseen}")));
    }
    lines
}

/// Formats text under a heading, in lines of at most [`WIDTH`] columns unless a word is longer.
fn paragraph(heading: &str, text: &str) -> Vec<String> {
    let mut lines = vec![format!("   {heading:<9}")];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{:<12} {word}", ""));
        } else {
            lines[last].push(' ');
            lines[last].push_str(word);
        }
    }
    lines
}

fn json_of(examined: &Examined, findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "problem": finding.problem,
            "severity": finding.severity(),
            "weight": finding.weight,
            "what": finding.what,
            "evidence": finding.evidence,
            "cause": finding.cause,
            "remedy": finding.remedy,
        })
    };
    json!({
        "server": examined.server.to_string(),
        "version": examined.version,
        "seconds": examined.snapshot.seconds,
        "not_checked": examined.unseen,
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

impl Examined {
    fn new(server: SocketAddrV4, version: String) -> Examined {
        Examined { server, version, snapshot: Snapshot::default(), unseen: vec![] }
    }

    /// Returns the value of an answer; for an error, records it and returns the default.
    fn seen<T: Default>(&mut self, what: &str, answer: Result<T>) -> T {
        answer.with_context(|| what.to_owned()).unwrap_or_else(|error| {
            let line = format!("{error:#}");
            if !self.unseen.contains(&line) {
                self.unseen.push(line);
            }
            T::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examined() -> Examined {
        let mut examined = Examined::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7000), "Cellar 1".into());
        examined.snapshot.seconds = 5.0;
        examined
    }

    #[test]
    fn reports_are_complete_with_short_lines() {
        let mut examined = examined();
        let refused: Result<u64> = Err(anyhow::anyhow!("refused"));
        assert_eq!(examined.seen("volumes", refused), 0);
        let finding = Finding {
            problem: "disk-full",
            weight: 90,
            what: "The partition /vicepa is nearly full.".into(),
            evidence: vec!["1 of 100".into(), "word ".repeat(60)],
            cause: "Too much.".into(),
            remedy: "Less.".into(),
        };
        let lines = lines(&examined, std::slice::from_ref(&finding));
        assert_eq!(lines[0], "127.0.0.1:7000: Cellar 1, sampled for 5.0 s: 1 finding");
        assert_eq!(lines[2], "1. The partition /vicepa is nearly full. (critical, disk-full)");
        assert_eq!(lines[3], "   evidence  1 of 100");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert_eq!(lines.iter().map(|line| line.matches("word").count()).sum::<usize>(), 60);
        assert_eq!(lines.last().unwrap(), "not checked: volumes: refused");
        let json = json_of(&examined, &[finding]);
        assert_eq!(json["findings"][0]["severity"], "critical");
        assert_eq!(json["not_checked"][0], "volumes: refused");
    }

    #[test]
    fn a_healthy_server_has_no_findings() {
        assert_eq!(
            lines(&examined(), &[]),
            ["127.0.0.1:7000: Cellar 1, sampled for 5.0 s: no known problem"]
        );
    }
}
