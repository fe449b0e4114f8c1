//! Sinks that are slow, full, missing, and available again.

use super::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::Read as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn make_pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Records a call with a number to identify it.
pub(super) fn record(files: &ServiceTrail, number: u32) {
    let request = fs::FetchStatusRequest { fid: fid(number) };
    call(files, &caller(known("ann", "", "CELL")), fs::FETCH_STATUS, &request, Ok(vec![]));
}

/// Returns the numbers of the calls in some lines.
pub(super) fn numbers(text: &str) -> Vec<u32> {
    let number = |line: &str| line.rsplit_once(":1 ")?.0.rsplit_once(':')?.1.parse().ok();
    text.lines().filter_map(number).collect()
}

#[test]
fn a_file_that_was_renamed_is_made_again() {
    let (_folder, path) = place();
    let trail = start(&[settings(Target::File(path.clone()), Form::OpenAfs, Policy::Block)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    record(&files, 1);
    until("the first line", || numbers(&read(&path)) == [1]);
    let old = path.with_extension("old");
    std::fs::rename(&path, &old).unwrap();
    trail.reopen();
    until("nothing is written to the old name", || {
        record(&files, 2);
        !numbers(&read(&path)).is_empty()
    });
    // This time without a request to reopen: it is noticed within a second or so.
    std::fs::remove_file(&path).unwrap();
    until("the file is back", || {
        record(&files, 3);
        numbers(&read(&path)).contains(&3)
    });
    assert!(figures(&trail).opened >= 3);
    assert_eq!(figures(&trail).dropped, 0);
}

#[test]
fn a_pipe_that_nobody_reads_stops_nothing() {
    let (_folder, path) = place();
    make_pipe(&path);
    let trail = start(&[settings(Target::Pipe(path), Form::OpenAfs, Policy::Drop)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    (0..1000).for_each(|number| record(&files, number));
    let figures_then = figures(&trail);
    assert!(figures_then.dropped >= 1000 - 16 - 300, "{figures_then:?}");
    assert_eq!((figures_then.records, figures_then.waits), (0, 0));
    until("it is said that it fails", || figures(&trail).failing == 1);
    trail.stop();
    assert_eq!(figures(&trail).dropped, 1000);
}

#[test]
fn missing_or_full_sinks_are_reported() {
    let (_folder, path) = place();
    for target in [
        Target::File("/dev/full".into()),
        Target::File(path.join("no/such/folder")),
        Target::Pipe(path.clone()),
        Target::Socket(path.clone()),
        Target::Journal(path),
    ] {
        println!("{target:?}");
        let trail = start(&[settings(target, Form::Json, Policy::Drop)]);
        let files = trail.service("AFS", fs::PROCEDURES);
        (0..1000).for_each(|number| record(&files, number));
        until("it fails", || figures(&trail).failures >= 2);
        let figures = figures(&trail);
        assert!(figures.dropped > 0 && figures.failing == 1 && figures.records == 0, "{figures:?}");
    }
}

#[test]
fn calls_wait_for_a_reader_on_request_without_loss() {
    let (_folder, path) = place();
    make_pipe(&path);
    let trail = start(&[settings(Target::Pipe(path.clone()), Form::OpenAfs, Policy::Block)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    let is_done = Arc::new(AtomicBool::new(false));
    let served = {
        let (files, is_done) = (files.clone(), is_done.clone());
        std::thread::spawn(move || {
            (0..2000).for_each(|number| record(&files, number));
            is_done.store(true, Relaxed);
        })
    };
    until("a call waits", || figures(&trail).waits > 0);
    assert!(!is_done.load(Relaxed) && !trail.has_room());
    let mut pipe = std::fs::File::open(&path).unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    });
    served.join().unwrap();
    trail.stop();
    let numbers = numbers(&reader.join().unwrap());
    assert_eq!(numbers, (0..2000).collect::<Vec<u32>>());
    let figures = figures(&trail);
    assert_eq!((figures.dropped, figures.records), (0, 2000));
    assert!(figures.blocked > 0);
}

#[test]
fn nobody_waits_when_the_server_ends() {
    let (_folder, path) = place();
    make_pipe(&path);
    let trail = start(&[settings(Target::Pipe(path), Form::OpenAfs, Policy::Block)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    let served = std::thread::spawn(move || (0..1000).for_each(|number| record(&files, number)));
    until("a call waits", || figures(&trail).waits > 0);
    trail.ending();
    served.join().unwrap();
    trail.stop();
    assert_eq!(figures(&trail).dropped, 1000);
}

#[test]
fn the_trail_says_how_much_is_missing() {
    let (_folder, path) = place();
    make_pipe(&path);
    let trail = start(&[settings(Target::Pipe(path.clone()), Form::OpenAfs, Policy::Drop)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    (0..1000).for_each(|number| record(&files, number));
    let mut pipe = std::fs::File::open(&path).unwrap();
    until("something is written", || figures(&trail).records > 0);
    trail.stop();
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    let lost: u64 = text
        .lines()
        .filter_map(|line| line.rsplit_once("CELLAR_Aud_Lost CODE 0 LONG ")?.1.trim().parse::<u64>().ok())
        .sum();
    let figures = figures(&trail);
    assert_eq!((lost, figures.records), (figures.dropped, numbers(&text).len() as u64), "{text}");
    assert_eq!(lost + figures.records, 1000);
}

#[test]
fn a_socket_of_datagrams_gets_a_line_with_each_and_may_go_away() {
    let (_folder, path) = place();
    let receiver = UnixDatagram::bind(&path).unwrap();
    let trail = start(&[settings(Target::Socket(path.clone()), Form::OpenAfs, Policy::Drop)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    record(&files, 1);
    assert!(receive(&receiver).contains("AFS_Aud_On"));
    assert_eq!(numbers(&receive(&receiver)), [1]);
    drop(receiver);
    std::fs::remove_file(&path).unwrap();
    until("its absence is noticed", || {
        record(&files, 2);
        figures(&trail).failing == 1
    });
    let receiver = UnixDatagram::bind(&path).unwrap();
    receiver.set_nonblocking(true).unwrap();
    until("it is written again", || {
        record(&files, 3);
        let mut buffer = [0; 1024];
        let got = receiver.recv(&mut buffer).unwrap_or(0);
        numbers(&String::from_utf8_lossy(&buffer[..got])) == [3]
    });
}

fn receive(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let got = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..got]).into_owned()
}

#[test]
fn a_socket_may_be_a_stream() {
    let (_folder, path) = place();
    let listener = UnixListener::bind(&path).unwrap();
    let trail = start(&[settings(Target::Socket(path), Form::OpenAfs, Policy::Block)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    let served = std::thread::spawn(move || (0..5000).for_each(|number| record(&files, number)));
    let (mut stream, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    served.join().unwrap();
    trail.stop();
    assert_eq!(numbers(&reader.join().unwrap()), (0..5000).collect::<Vec<u32>>());
}

#[test]
fn the_journal_gets_fields() {
    let (_folder, path) = place();
    let receiver = UnixDatagram::bind(&path).unwrap();
    let trail = start(&[settings(Target::Journal(path), Form::OpenAfs, Policy::Drop)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    receive(&receiver);
    let request = fs::FetchStatusRequest { fid: fid(3) };
    let who = caller(known("ann", "", "CELL"));
    for (result, priority) in [(Ok(vec![]), 6), (Err(AbortCode::UAEACCES), 5)] {
        call(&files, &who, fs::FETCH_STATUS, &request, result);
        let text = receive(&receiver);
        let fields: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
        let expected = [
            ("PRIORITY", &*priority.to_string()),
            ("SYSLOG_FACILITY", "13"),
            ("SYSLOG_IDENTIFIER", "cellar-audit"),
        ];
        assert_eq!(fields[..3], expected);
        assert!(fields[3].0 == "MESSAGE" && fields[3].1.contains("EVENT AFS_SRX_FchStat CODE"), "{text}");
    }
}
