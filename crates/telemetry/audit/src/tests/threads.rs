//! Records of many threads: none is lost or duplicated, and causal order is preserved.

use super::*;
use crate::intake::Intake;
use crate::queue::Queue;
use crate::thread_writer;
use crossbeam::channel::bounded;

/// Puts a record of a FetchStatus into a queue, with a number to identify it and an end time.
fn push(queue: &Arc<Queue>, number: u32, ended_ns: u64, more: usize) {
    let event = tables::events("AFS").iter().find(|event| event.opcode == fs::FETCH_STATUS).unwrap();
    let outline = crate::Outline { event, service: "AFS", procedure: "FetchStatus", number: 0 };
    let (who, facts) = (caller(known("ann", "", "CELL")), CallFacts::default());
    let ended = Monotonic(ended_ns);
    let call = Call { caller: &who, result: Ok(()), facts: &facts, took_ns: number.into(), ended };
    let request = vec![0; 16 + more];
    thread_writer::push(
        queue,
        &RawRecord::new(&outline, &call, Messages { request: &request, reply: &[] }, false),
    );
}

/// Takes the records that ended by `until_ns` and returns their numbers.
fn taken(intake: &mut Intake, until_ns: u64) -> Vec<u64> {
    let event = &tables::events("AFS")[0];
    let outline = crate::Outline { event, service: "AFS", procedure: "", number: 0 };
    let mut numbers = Vec::new();
    intake.look(until_ns);
    while let Some((words, thread)) = intake.next() {
        numbers.push(Record::new(words, &outline, thread).took_ns());
    }
    intake.put_back();
    numbers
}

#[test]
fn records_come_in_the_order_in_which_calls_ended() {
    let queue = Arc::new(Queue::new(10_000, Policy::Drop));
    let mut intake = Intake::new(queue.clone());
    // Three threads, in runs of 7 numbers, so that each thread has several blocks.
    let threads = [0, 1, 2].map(|thread| {
        let queue = queue.clone();
        let mine = move |number: &u32| number / 7 % 3 == thread;
        std::thread::spawn(move || {
            (0..6000).filter(mine).for_each(|number| push(&queue, number, number.into(), 0));
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(queue.figures().queued, 6000);
    assert_eq!(taken(&mut intake, 2500), (0..=2500).collect::<Vec<u64>>());
    assert_eq!(queue.figures().queued, 3499);
    assert_eq!(taken(&mut intake, u64::MAX), (2501..6000).collect::<Vec<u64>>());
    assert!(intake.is_empty());
    // The threads have ended, and their blocks are free again.
    assert!(taken(&mut intake, u64::MAX).is_empty());
    assert_eq!((queue.figures().queued, queue.held_bytes(), queue.is_free()), (0, 0, true));
}

#[test]
fn the_queue_is_bounded_in_number_and_memory() {
    // A block holds only one of the longer records.
    for (records_max, more, expected) in [(16, 0, 16), (1 << 20, 4060, (64 << 20) / 8192)] {
        let queue = Arc::new(Queue::new(records_max, Policy::Drop));
        (0..2 * expected).for_each(|number| push(&queue, number, 1, more));
        let figures = queue.figures();
        assert_eq!((figures.queued, figures.dropped), (expected.into(), expected.into()));
        assert!(queue.held_bytes() <= 64 << 20);
        let mut intake = Intake::new(queue.clone());
        assert_eq!(taken(&mut intake, 1).len() as u64, figures.queued);
        push(&queue, 7, 2, more);
        assert_eq!(taken(&mut intake, 2), [7]);
    }
}

/// A client calls again after a reply from one thread, and another thread replies.
#[test]
fn a_call_that_follows_on_another_comes_after_it() {
    const CALLS: u32 = 20_000;
    let (_folder, path) = place();
    let mut sink = settings(Target::File(path.clone()), Form::OpenAfs, Policy::Block);
    sink.queue_records = 4096;
    let trail = start(&[sink]);
    let files = trail.service("AFS", fs::PROCEDURES);
    let (to_other, from_first) = bounded::<u32>(1);
    let (to_first, from_other) = bounded::<u32>(1);
    let serve = |files: &ServiceTrail, number| {
        let request = fs::FetchStatusRequest { fid: fid(number) };
        call(files, &caller(known("ann", "", "CELL")), fs::FETCH_STATUS, &request, Ok(vec![]));
    };
    std::thread::scope(|scope| {
        let other = files.clone();
        scope.spawn(move || {
            for number in from_first {
                serve(&other, number);
                to_first.send(number + 1).unwrap();
            }
        });
        let mut number = 0;
        while number < CALLS {
            serve(&files, number);
            to_other.send(number + 1).unwrap();
            number = from_other.recv().unwrap();
        }
        drop(to_other);
    });
    trail.stop();
    let reported = sinks::numbers(&read(&path));
    assert_eq!(reported, (0..CALLS).collect::<Vec<u32>>());
}

#[test]
fn many_threads_lose_nothing() {
    let (_folder, path) = place();
    let mut sink = settings(Target::File(path.clone()), Form::OpenAfs, Policy::Block);
    sink.queue_records = 64;
    let trail = start(&[sink]);
    let files = trail.service("AFS", fs::PROCEDURES);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let files = &files;
            scope.spawn(move || {
                (0..2000).for_each(|number| sinks::record(files, thread * 10_000 + number));
            });
        }
    });
    trail.stop();
    let reported = sinks::numbers(&read(&path));
    for thread in 0..8 {
        let of: Vec<u32> = reported.iter().copied().filter(|number| number / 10_000 == thread).collect();
        assert_eq!(of, (thread * 10_000..thread * 10_000 + 2000).collect::<Vec<u32>>());
    }
    assert_eq!((reported.len(), figures(&trail).records, figures(&trail).queued), (16_000, 16_000, 0));
}

/// A record longer than a block, and then a short one.
#[test]
fn a_record_may_be_long() {
    let (_folder, path) = place();
    let trail = start(&[settings(Target::File(path.clone()), Form::Json, Policy::Block)]);
    let protection = trail.service("PR", pr::PROCEDURES);
    let names: Vec<xdr::XdrString> = (0..200).map(|number| format!("user{number}").as_str().into()).collect();
    let reply = xdr::to_vec(&pr::NameToIDReply { ids: (0..200).collect() });
    let request = pr::NameToIDRequest { names };
    let who = caller(Identity::Anonymous);
    call(&protection, &who, pr::NAME_TO_ID, &request, Ok(reply));
    let request = pr::DeleteRequest { id: 7 };
    call(&protection, &who, pr::DELETE, &request, Ok(vec![]));
    trail.stop();
    let text = read(&path);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["arguments"]["found"][199], serde_json::json!({ "name": "user199", "id": 199 }));
    assert_eq!(lines[2]["arguments"], serde_json::json!({ "id": 7 }));
}

/// Covers both address families and every kind of name.
#[test]
fn a_caller_keeps_its_identity() {
    let (_folder, path) = place();
    let trail = start(&[settings(Target::File(path.clone()), Form::Json, Policy::Block)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    let mut expected = Vec::new();
    for (place, name) in ["a", "bo", "cyd", "dora", "eleven chars", "eight-by", "größe"].iter().enumerate()
    {
        for peer in ["192.0.2.7:7001", "[2001:db8::7]:65535", "[::1]:1"] {
            let mut who = caller(known(name, &name[..1], "CELL"));
            who.peer = peer.parse().unwrap();
            who.level = [SecurityLevel::Clear, SecurityLevel::Authenticated][place % 2];
            // All have the same hint, so that the rest of the key is compared, too.
            call(&files, &who, fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: fid(1) }, Ok(vec![]));
            let level = ["clear", "authenticated"][place % 2];
            let user = format!("{name}.{}@CELL", &name[..1]);
            expected.push((user, who.peer.ip().to_string(), u64::from(who.peer.port()), level.to_owned()));
        }
    }
    trail.stop();
    let text = read(&path);
    let reported = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let reported = reported.filter(|line| !line["user"].is_null()).map(|line| {
        let word = |key: &str| line[key].as_str().unwrap().to_owned();
        (word("user"), word("host"), line["port"].as_u64().unwrap(), word("level"))
    });
    assert_eq!(reported.collect::<Vec<_>>(), expected);
}
