use super::client::{Done, End, Reply};
use super::latency::Measured;
use super::mix::{Group, Mix, Operation, READY, Size};
use super::plan::Place;
use super::runner::{Share, shares};
use super::step::{CallKind, Step, steps};
use super::*;
use crate::watch::Used;
use base::AbortCode;
use bytes::Bytes;
use proptest::prelude::*;

fn group(text: &str) -> Group {
    let text = format!("title = \"t\"\n[[group]]\nname = \"g\"\nclients = 3\n{text}");
    Mix::parse(&text).unwrap().groups.remove(0)
}

#[test]
fn ready_mixes_are_in_order() {
    for (name, _) in READY {
        let mix = Mix::find(name).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert!(mix.clients() <= 1000 && !mix.title.is_empty());
    }
    let error = format!("{:#}", Mix::find("nonsense").unwrap_err());
    assert!(error.contains("bulk-read") && error.contains("nonsense"), "{error}");
}

#[test]
fn mixes_that_are_refused() {
    let base = "title = \"t\"\n[[group]]\nname = \"g\"\nclients = 3\n";
    for (bad, why) in [
        ("work = { read = 0 }", "no operations"),
        ("work = { reed = 1 }", "reed"),
        ("clients = 4", "duplicate"),
        ("streams = 33\nwork = { read = 1 }", "streams = 33"),
        ("files = 0\nwork = { read = 1 }", "files = 0"),
        ("file_size = \"2TB\"\nwork = { read = 1 }", "2TB"),
        ("file_size = \"2GiB\"\nwork = { read = 1 }", "file_size"),
        ("file_size = true\nwork = { read = 1 }", "number of bytes"),
        ("work = { read = 4294967295, list = 1 }", "too large"),
        ("work = { read = 1 }\n[[group]]\nname = \"g\"\nclients = 1\nwork = { read = 1 }", "two groups"),
        ("work = { read = 1 }\n[[group]]\nname = \"h\"\nclients = 9998\nwork = { read = 1 }", "10000"),
        ("work = { read = 1 }\n[[group]]\nname = \"../h\"\nclients = 1\nwork = { read = 1 }", "letters"),
    ] {
        let error = format!("{:#}", Mix::parse(&format!("{base}{bad}")).unwrap_err());
        assert!(error.contains(why), "{bad}: {error}");
    }
    assert!(Mix::parse("title = \"t\"\ngroup = []").is_err());
}

#[test]
fn sizes() {
    for (text, bytes) in
        [("7", 7), ("64KiB", 65_536), ("20MB", 20_000_000), ("1 GiB", 1 << 30), ("3 kB", 3000)]
    {
        assert_eq!(Size::parse(text).unwrap(), Size(bytes));
    }
    for bad in ["", "x", "-1", "1.5MB", "1TB", "99999999999999999999", "18446744073709551615kB"] {
        assert!(Size::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn operations_are_calls() {
    let group = group("files = 120\nfile_size = 2500\ncall_size = 1000\nwork = { read = 1 }");
    let steps = |operation| steps(operation, &group, |below| below - 1);
    let read = |position, length| Step::Read { file: 119, position, length };
    assert_eq!(steps(Operation::Read), [read(0, 1000), read(1000, 1000), read(2000, 500)]);
    assert_eq!(steps(Operation::BulkStatus), [Step::BulkStatus { file: 70, count: 50 }]);
    let bulk = |file, count| Step::BulkStatus { file, count };
    assert_eq!(steps(Operation::Scan), [Step::List, bulk(0, 50), bulk(50, 50), bulk(100, 20)]);
    assert_eq!(steps(Operation::SmallFile), [Step::Create, Step::WriteSmall, Step::Remove]);
}

#[test]
fn clients_and_parked_groups_have_threads_of_their_own() {
    let group = |name, clients, apart| {
        format!(
            "[[group]]\nname = \"{name}\"\nclients = {clients}\napart = {apart}\nwork = {{ status = 1 }}\n"
        )
    };
    let batch_and_terminal = [group("a", 5, false), group("b", 2, true), group("c", 2, false)].concat();
    for (groups, threads, expected) in
        [(batch_and_terminal, 2, 3), (group("a", 3, true), 2, 1), (group("a", 2, false), 64, 2)]
    {
        let mix = Mix::parse(&format!("title = \"t\"\n{groups}")).unwrap();
        let shares = shares(&mix, threads);
        assert_eq!(shares.len(), expected);
        let groups = mix.groups.iter().enumerate();
        let everybody = groups.flat_map(|(number, group)| std::iter::repeat_n(number, group.clients));
        for (number, group) in everybody.enumerate() {
            let of: Vec<&Share> = shares.iter().filter(|share| share.has(&mix, number, group)).collect();
            assert_eq!(of.len(), 1, "client {number} of group {group}: {of:?}");
            let is_apart = *of[0] == Share::Apart { group };
            assert_eq!(is_apart, mix.groups[group].apart);
        }
    }
}

fn place() -> Place {
    let contents = Bytes::from((0..5000).map(|n| n as u8).collect::<Vec<u8>>());
    Place {
        directory: Fid::default(),
        files: std::sync::Arc::new([]),
        own_directory: Fid::default(),
        own_files: Vec::new(),
        small: contents.slice(..4096),
        contents,
    }
}

fn read_reply(data: &[u8], file_bytes: u32) -> Vec<u8> {
    let status = afs_idl::fs::FetchStatus { length: file_bytes, ..Default::default() };
    let mut reply = (data.len() as u64).to_be_bytes().to_vec();
    reply.extend_from_slice(data);
    let messages = afs_idl::fs::FetchData64Reply { status, ..Default::default() };
    reply.extend(xdr::to_vec(&messages));
    reply
}

fn judge(reply: &[u8], piece_bytes: usize) -> Result<(), &'static str> {
    let (place, step) = (place(), Step::Read { file: 0, position: 1000, length: 3000 });
    let mut state = Reply::new(true, step.expected(&place));
    reply.chunks(piece_bytes).for_each(|piece| state.take(piece));
    state.check(step, &place).map(|_| ()).map_err(|wrong| wrong.0)
}

#[test]
fn replies_are_compared() {
    let right = place().contents.slice(1000..4000);
    let mut damaged = right.to_vec();
    damaged[1500] ^= 1;
    for piece_bytes in [1, 3, 7, 1412, 10_000] {
        let judge = |reply: &[u8]| judge(reply, piece_bytes);
        assert_eq!(judge(&read_reply(&right, 5000)), Ok(()));
        assert_eq!(judge(&read_reply(&damaged, 5000)), Err("the data"));
        assert_eq!(judge(&read_reply(&right[..2999], 5000)), Err("the data"));
        assert_eq!(judge(&read_reply(&[&right[..], b"x"].concat(), 5000)), Err("the data"));
        assert_eq!(judge(&read_reply(&right, 4999)), Err("the file's length"));
        assert_eq!(judge(&read_reply(&right, 5000)[..3010]), Err("the reply's form"));
        assert_eq!(judge(&[]), Err("the data"));
    }
}

proptest! {
    #[test]
    fn any_reply_is_judged(reply in prop::collection::vec(any::<u8>(), 0..200), piece_bytes in 1usize..50) {
        prop_assert!(judge(&reply, piece_bytes).is_err());
        let place = place();
        for step in [Step::List, Step::Create, Step::BulkStatus { file: 0, count: 3 }, Step::GiveUp] {
            let mut state = Reply::new(step.has_reply_data(), step.expected(&place));
            reply.chunks(piece_bytes).for_each(|piece| state.take(piece));
            let _ = state.check(step, &place);
        }
    }
}

fn schedule() -> Schedule {
    Schedule { start: Monotonic(0), from: Monotonic(1_000_000_000), to: Monotonic(4_000_000_000) }
}

fn options(sources: &[&str]) -> Options {
    Options {
        server: ([127, 0, 0, 1], 7000).into(),
        sources: sources.iter().map(|source| source.parse().unwrap()).collect(),
        volumes: vec![Fid::default()],
        security: None,
        duration: Duration::from_secs(3),
        warm_up: None,
        seed: 1,
        threads: 1,
        server_pid: None,
        receive_merging: true,
    }
}

fn report(measured: &Measured) -> Report {
    let mix =
        Mix::parse("title = \"a < b\"\n[[group]]\nname = \"g\"\nclients = 3\nwork = { read = 1 }").unwrap();
    let options = options(&[]);
    let used = Used { seconds: 3.0, cores: 2, server_cpu: Some(1.5), ..Used::default() };
    Report::new(&mix, &options, measured, used)
}

#[test]
fn calls_that_end_within_the_period_count() {
    let mut measured = Measured::new(1, schedule());
    let done =
        |end, begun| Done { kind: CallKind::Read, begun: Monotonic(begun), end, resume: None, stream: 0 };
    let right = End::Right { payload: 1_000_000 };
    for (end, begun, ended) in [
        (right, 0, 999_999_999),
        (right, 0, 1_000_000_000),
        (right, 2_000_000_000, 2_010_000_000),
        (End::Busy, 0, 2_000_000_000),
        (End::Failed(AbortCode::VNOVNODE), 0, 2_000_000_000),
        (End::Wrong("the data"), 0, 5_000_000_000),
        (right, 2_000_000_000, 4_000_000_000),
    ] {
        measured.record(0, &done(end, begun), Monotonic(ended));
    }
    let mut other = Measured::new(1, schedule());
    other.record(0, &done(right, 3_000_000_000), Monotonic(3_500_000_000));
    other.record_first(0, Duration::from_millis(984));
    measured.merge(&other);
    let report = report(&measured);
    assert_eq!((report.calls, report.bytes, report.wrong()), (3, 3_000_000, 1));
    assert_eq!(
        (report.server_cpu_per_gb, report.server_cpu_per_million_calls),
        (Some(500.0), Some(500_000.0))
    );
    let group = &report.groups[0];
    assert_eq!((group.kinds.len(), group.kinds[0].busy, group.kinds[0].failed), (1, 1, 1));
    assert_eq!(group.timeline.iter().map(|it| it.latency.calls).collect::<Vec<_>>(), [1, 1, 1]);
    let first = group.first_calls;
    assert!(first.calls == 1 && (first.max_us - 984_000.0).abs() < 1000.0, "in no other figure: {first:?}");
    let latency = group.kinds[0].latency;
    assert!((latency.p50_us - 500_000.0).abs() < 1000.0 && latency.max_us > 999_000.0, "{latency:?}");
    let text = report.text();
    for part in ["FetchData64", "500.00 CPU s per GB", "1 calls failed with", "replies were wrong: the data"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn pictures_hold_together() {
    let empty = svg(&report(&Measured::new(1, schedule())));
    let mut measured = Measured::new(1, schedule());
    for second in 1..4u64 {
        let now = Monotonic(second * 1_000_000_000);
        let begun = Monotonic(now.0 - 10u64.pow(second as u32 + 3));
        let done =
            Done { kind: CallKind::Status, begun, end: End::Right { payload: 0 }, resume: None, stream: 0 };
        measured.record(0, &done, now);
    }
    let picture = svg(&report(&measured));
    for picture in [&empty, &picture] {
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("a &lt; b") && !picture.contains("NaN") && !picture.contains("inf"));
        assert_eq!(picture.matches("<polyline").count(), 3);
    }
    let points = picture.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(points.split(' ').count(), 3, "{points}");
}

#[test]
fn the_last_group_has_an_address_of_its_own() {
    let of = |sources: &[&str], clients: &[(usize, usize)], groups| -> Vec<String> {
        let options = options(sources);
        clients.iter().map(|(number, group)| options.source(*number, *group, groups).to_string()).collect()
    };
    let clients = [(0, 0), (1, 0), (2, 0), (3, 1)];
    let several = of(&["127.0.0.2", "127.0.0.3", "127.0.0.9"], &clients, 2);
    assert_eq!(several, ["127.0.0.2", "127.0.0.3", "127.0.0.2", "127.0.0.9"]);
    assert_eq!(of(&["127.0.0.2", "127.0.0.3"], &clients[..3], 1), ["127.0.0.2", "127.0.0.3", "127.0.0.2"]);
    assert_eq!(of(&["127.0.0.2"], &clients[2..], 2), ["127.0.0.2"; 2]);
    assert_eq!(of(&[], &clients[2..], 2), ["0.0.0.0"; 2]);
}
