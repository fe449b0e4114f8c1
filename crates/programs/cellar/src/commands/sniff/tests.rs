use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    sniff: Sniff,
}

fn parse(words: &[&str]) -> Result<Sniff, clap::Error> {
    Line::try_parse_from([&["sniff"], words].concat()).map(|line| line.sniff)
}

/// Returns how many packets with these times each report counts.
fn counted(words: &[&str], times_ms: &[u64]) -> Vec<usize> {
    let mut clock = Clock::new(&parse(words).unwrap());
    let mut reports = vec![0];
    for time_ms in times_ms {
        match clock.tick(time_ms * 1_000_000) {
            Tick::Over => break,
            Tick::Due => reports.push(1),
            Tick::Running => *reports.last_mut().unwrap() += 1,
        }
    }
    reports
}

#[test]
fn intervals_end_by_the_packets_times() {
    let times = [5000, 5400, 6000, 6100, 9000, 9001];
    assert_eq!(counted(&["x"], &times), [6]);
    assert_eq!(counted(&["x", "--interval", "1"], &times), [2, 2, 2]);
    assert_eq!(counted(&["x", "--interval", "1", "--once"], &times), [2]);
    assert_eq!(counted(&["x", "--once"], &times), [6], "the file is shorter");
    assert_eq!(counted(&["x", "--seconds", "2"], &times), [4]);
    assert_eq!(counted(&["x", "--seconds", "2", "--interval", "1"], &times), [2, 2]);
}

#[test]
fn ports_are_those_of_afs_unless_named() {
    let ports = |words: &[&str]| parse(words).unwrap().ports();
    assert_eq!(ports(&["x"]).unwrap(), PORTS);
    assert_eq!(ports(&["x", "--port", "7000", "--port", "9"]).unwrap(), [7000, 9]);
    assert!(ports(&["x", "--all-ports"]).unwrap().is_empty());
    let many: Vec<String> = (1..200).map(|port| format!("--port={port}")).collect();
    let many: Vec<&str> = std::iter::once("x").chain(many.iter().map(String::as_str)).collect();
    let error = ports(&many).unwrap_err().to_string();
    assert_eq!(error, "199 ports are too many: at most 100 can be named");
    assert!(parse(&[]).is_err() && parse(&["x", "--interface", "lo"]).is_err());
}
