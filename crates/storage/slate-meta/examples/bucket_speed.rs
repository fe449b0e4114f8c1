//! Measures a database in a bucket: durable commits, reads, takeover, an outage.
//!
//! `bucket_speed folder PATH`, or with the feature `s3`: `bucket_speed s3 http://127.0.0.1:8333 BUCKET` with the
//! credentials in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`. Options: `--records N` (1000000) before the takeover,
//! `--seconds N` (10) for each measurement, `--only commits|takeover|steady`. `steady` commits for that time and prints
//! each commit that took longer than 100 ms, to be run while the bucket is stopped and continued.

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use slate_meta::{SlateConfig, SlateEngine};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use store::{Batch, Family, KeyRange, MetaConfig, MetaDatabase, MetaEngine, MetaOptions};

const FILES: Family = Family::new(2, "files");
const OTHERS: Family = Family::new(3, "others");
const FAMILIES: [Family; 2] = [FILES, OTHERS];
const RECORDS_OF_A_CREATE: u8 = 6;
const VALUE_BYTES: usize = 74;
const BATCH_RECORDS: u64 = 1000;
/// Durable commits after the records, so that a takeover finds a log that is in no table.
const LATEST_COMMITS: u64 = 3000;

fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

#[cfg(feature = "s3")]
fn s3(endpoint: &str, bucket: &str) -> Arc<dyn ObjectStore> {
    let builder = object_store::aws::AmazonS3Builder::from_env()
        .with_endpoint(endpoint)
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_allow_http(endpoint.starts_with("http:"));
    Arc::new(builder.build().unwrap())
}

#[cfg(not(feature = "s3"))]
fn s3(_endpoint: &str, _bucket: &str) -> Arc<dyn ObjectStore> {
    panic!("build it with --features s3")
}

fn bucket() -> Arc<dyn ObjectStore> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1..).unwrap_or_default() {
        [kind, path, ..] if kind == "folder" => {
            std::fs::create_dir_all(path).unwrap();
            Arc::new(LocalFileSystem::new_with_prefix(path).unwrap().with_fsync(true))
        }
        [kind, endpoint, bucket, ..] if kind == "s3" => s3(endpoint, bucket),
        _ => panic!("usage: bucket_speed folder PATH | s3 ENDPOINT BUCKET"),
    }
}

fn engine(bucket: &Arc<dyn ObjectStore>, prefix: &str) -> SlateEngine {
    SlateEngine::new(Arc::clone(bucket), prefix, SlateConfig::default()).unwrap()
}

fn open(engine: &SlateEngine) -> Arc<dyn MetaDatabase> {
    let options =
        MetaOptions { families: &FAMILIES, config: MetaConfig::default(), ..MetaOptions::default() };
    engine.open(Path::new("/vicepa/cellar/meta"), &options).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    [&(number / 1000).to_be_bytes()[..], &number.to_be_bytes()].concat()
}

/// The records of a create.
fn create(number: u64) -> Batch {
    let mut batch = Batch::new();
    for record in 0..RECORDS_OF_A_CREATE {
        let family = FAMILIES[usize::from(record % 2)];
        batch.put(family, [&key(number)[..], &[record]].concat(), vec![record; VALUE_BYTES]);
    }
    batch
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn line(what: &str, mut times: Vec<Duration>, over: Duration) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    let rate = times.len() as f64 / over.as_secs_f64();
    println!(
        "{what}: {} in {:.1} s, {rate:.0}/s, p50 {:.2} ms, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, longest {:.1}",
        times.len(),
        over.as_secs_f64(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn commits(meta: &Arc<dyn MetaDatabase>, writers: u64, time: Duration) {
    let (begun, before) = (Instant::now(), meta.statistics());
    let write = |writer: u64| {
        let (meta, mut times) = (Arc::clone(meta), Vec::new());
        move || {
            for number in 0.. {
                let start = Instant::now();
                if start - begun > time {
                    break;
                }
                meta.sync(meta.commit(create(writer << 40 | number)).unwrap()).unwrap();
                times.push(start.elapsed());
            }
            times
        }
    };
    let threads: Vec<_> = (0..writers).map(|writer| thread::spawn(write(writer))).collect();
    let times: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let syncs = meta.statistics().syncs - before.syncs;
    line(&format!("durable commits, {writers} writers, {syncs} log objects"), times, begun.elapsed());
}

fn reads(meta: &Arc<dyn MetaDatabase>, records: u64) {
    let mut times = Vec::new();
    let begun = Instant::now();
    for number in 0..20_000u64 {
        let start = Instant::now();
        assert!(meta.get(FILES, &key(number * 7919 % records)).unwrap().is_some());
        times.push(start.elapsed());
    }
    line("get", times, begun.elapsed());
    for _ in 0..2 {
        let (begun, mut rows) = (Instant::now(), 0);
        let mut count = |_: &[u8], _: &[u8]| {
            rows += 1;
            if rows == 100_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        meta.scan(FILES, KeyRange::ascending(&[], &[0xff; 32]), &mut count).unwrap();
        println!("scan: {rows} records in {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    }
}

fn load(meta: &Arc<dyn MetaDatabase>, records: u64) {
    let begun = Instant::now();
    for first in (0..records).step_by(BATCH_RECORDS as usize) {
        let mut batch = Batch::new();
        for number in first..(first + BATCH_RECORDS).min(records) {
            batch.put(FILES, key(number), vec![number as u8; 120]);
        }
        let number = meta.commit(batch).unwrap();
        if first % (50 * BATCH_RECORDS) == 0 {
            meta.sync(number).unwrap();
        }
    }
    let mut batch = Batch::new();
    batch.put(FILES, key(records), "end");
    meta.sync(meta.commit(batch).unwrap()).unwrap();
    let tables = meta.statistics().table_bytes >> 20;
    println!("load: {records} records in {:.1} s, {tables} MiB in tables", begun.elapsed().as_secs_f64());
}

/// Opens the database in a second engine, as a survivor does, and uses it.
fn take_over(bucket: &Arc<dyn ObjectStore>, prefix: &str, what: &str, records: u64) -> Arc<dyn MetaDatabase> {
    let begun = Instant::now();
    let meta = open(&engine(bucket, prefix));
    let opened = begun.elapsed();
    assert!(meta.get(FILES, &key(records / 2)).unwrap().is_some());
    let read = begun.elapsed();
    meta.sync(meta.commit(create(u64::MAX)).unwrap()).unwrap();
    println!(
        "takeover, {what}: opened after {:.2} s, first read {:.2} s, first durable commit {:.2} s",
        opened.as_secs_f64(),
        read.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    );
    meta
}

fn takeovers(bucket: &Arc<dyn ObjectStore>, prefix: &str, records: u64) {
    let first_engine = engine(bucket, prefix);
    let first = open(&first_engine);
    load(&first, records);
    reads(&first, records);
    for number in 0..LATEST_COMMITS {
        first.sync(first.commit(create(1 << 50 | number)).unwrap()).unwrap();
    }
    let second =
        take_over(bucket, prefix, &format!("the first still alive, {LATEST_COMMITS} log objects"), records);
    let begun = Instant::now();
    let late = first.commit(create(1 << 51)).and_then(|number| first.sync(number));
    println!(
        "the first: {:?} after {:.2} s",
        late.map_err(|error| error.to_string()),
        begun.elapsed().as_secs_f64()
    );
    assert!(second.get(FILES, &[&key(1 << 51)[..], &[0]].concat()).unwrap().is_none());
    drop(first);
    for number in 0..LATEST_COMMITS / 3 {
        second.sync(second.commit(create(1 << 52 | number)).unwrap()).unwrap();
    }
    // As after kill -9: nothing is closed.
    std::mem::forget(second);
    let third =
        take_over(bucket, prefix, &format!("the second dead, {} log objects", LATEST_COMMITS / 3), records);
    drop(third);
    drop(take_over(bucket, prefix, "closed in order", records));
}

fn steady(meta: &Arc<dyn MetaDatabase>, time: Duration) {
    let (begun, mut times) = (Instant::now(), Vec::new());
    for number in 0.. {
        let start = Instant::now();
        if start - begun > time {
            break;
        }
        let done = meta.commit(create(number)).and_then(|number| meta.sync(number));
        let took = start.elapsed();
        if took > Duration::from_millis(100) || done.is_err() {
            let done = done.map_err(|error| error.to_string());
            println!("at {:.1} s: {done:?} after {:.2} s", (start - begun).as_secs_f64(), took.as_secs_f64());
        }
        times.push(took);
    }
    line("steady", times, begun.elapsed());
}

/// Scans all records in the order of their keys, `step` at a time, in a database that has nothing in memory.
fn listing(bucket: &Arc<dyn ObjectStore>, prefix: &str, records: u64) {
    {
        let meta = open(&engine(bucket, prefix));
        load(&meta, records);
    }
    for step in [50, 200, 1000, 10_000] {
        let meta = open(&engine(bucket, prefix));
        let (begun, mut rows) = (Instant::now(), 0);
        for first in (0..records).step_by(step) {
            let (from, to) = (key(first), key(first + step as u64));
            let mut count = |_: &[u8], _: &[u8]| {
                rows += 1;
                ControlFlow::Continue(())
            };
            meta.scan(FILES, KeyRange::ascending(&from, &to), &mut count).unwrap();
        }
        println!(
            "listing, {step} at a time: {rows} records, {:.2} us each",
            begun.elapsed().as_secs_f64() * 1e6 / rows as f64
        );
    }
}

fn main() {
    let number = |name, otherwise| option(name).map_or(otherwise, |text| text.parse::<u64>().expect(name));
    let (records, seconds) = (number("--records", 1_000_000), Duration::from_secs(number("--seconds", 10)));
    let only = option("--only");
    let runs = |what: &str| only.as_deref().is_none_or(|only| only == what);
    let bucket = bucket();
    let run = format!("run-{}", std::process::id());
    if runs("commits") {
        let meta = open(&engine(&bucket, &format!("{run}/commits")));
        for writers in [1, 16, 1, 16] {
            commits(&meta, writers, seconds);
        }
    }
    if runs("takeover") {
        takeovers(&bucket, &format!("{run}/takeover"), records);
    }
    if runs("listing") {
        listing(&bucket, &format!("{run}/listing"), records);
    }
    if only.as_deref() == Some("steady") {
        steady(&open(&engine(&bucket, &format!("{run}/steady"))), seconds);
    }
}
