//! Profiles of a running cell under a known load: they must show the busy functions and the disk accesses. A
//! separate test program, because profiles are taken per process.

mod support;

use bytes::Bytes;
use load::files::Files;
use load::station::{FILE_SERVICE, Station};
use rand::seq::IndexedRandom;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use support::cell::Cell;
use support::{noise, profiles};

/// Serialises the tests, because a process takes one profile at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns bytes that can be compressed with some effort.
fn words(length: usize) -> Bytes {
    let words =
        ["cell", "volume", "partition", "server", "client", "callback", "vnode", "token", "quota", "fid"];
    let mut text = String::new();
    while text.len() < length {
        text.extend([*words.choose(&mut rand::rng()).unwrap(), " "]);
        if rand::random_ratio(1, 4) {
            text += &rand::random::<u32>().to_string();
        }
    }
    text.into_bytes().into()
}

/// Threads that encode chunks: workers, and the threads that help them with the next chunk.
const ENCODING: [&str; 2] = ["fileserver-work", "append"];

/// In a server that compresses as hard as it can, the compressor is at the top by its own time, in such
/// threads and below the store.
#[test]
fn the_function_that_is_busy_is_on_top() {
    let _alone = ALONE.lock();
    let cell = Cell::start("");
    let root = cell.volume("packed");
    cell.run(&["volume", "set", "packed", "--compression", "zstd:19"]);
    let station = Station::start().unwrap();
    let files = Files::new(cell.connect(&station));
    let (fid, data) = (files.create(root, "f").unwrap(), words(500_000));
    let [svg, folded] = ["cpu.svg", "cpu.folded"].map(|name| cell.path(name));
    let paths = [&svg, &folded].map(|path| path.to_str().unwrap());
    let arguments = ["cpu", "--table", "--svg", paths[0], "--folded", paths[1]];
    let mut profile = profiles::begin(&cell, &arguments, "4");
    while profile.try_wait().unwrap().is_none() {
        files.store(fid, &data).unwrap();
    }
    let functions = profiles::rows(profile);
    let is_compressor = |name: &str| name.to_lowercase().contains("zstd");
    let top = functions[0]["function"].as_str().unwrap();
    assert!(is_compressor(top), "{functions:#?}");

    let stacks = std::fs::read_to_string(folded).unwrap();
    let parsed: Vec<(Vec<&str>, u64)> = stacks
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(stack, us)| (stack.split(';').collect(), us.parse().unwrap()))
        .collect();
    let time = |is_it: &dyn Fn(&[&str]) -> bool| -> u64 {
        parsed.iter().filter(|(frames, _)| is_it(frames)).map(|(_, us)| us).sum()
    };
    let own = |frames: &[&str]| is_compressor(frames.last().unwrap());
    let (all, compressing) = (time(&|_| true), time(&own));
    assert!(compressing * 2 > all, "{compressing} of {all} us: {stacks}");
    let known = time(&|frames| {
        own(frames) && ENCODING.contains(&frames[0]) && frames.iter().any(|name| name.contains("store::"))
    });
    assert!(known * 10 > compressing * 9, "{known} of {compressing} us are the store's: {stacks}");
    let of_rows = |key: &str| -> u64 {
        let rows = functions.iter().filter(|row| is_compressor(row["function"].as_str().unwrap()));
        rows.filter_map(|row| row[key].as_u64()).sum()
    };
    assert_eq!(of_rows("own_us"), compressing, "the table is made of the stacks");
    assert!(std::fs::read_to_string(svg).unwrap().contains(top), "{top} is not in the picture");
}

/// Sizes of chunks, and of what is written for each: docs/reference/formats/segment.md.
const CHUNK_BYTES: usize = 256 << 10;
const HEADER_BYTES: usize = 64;
const FILE_BYTES: usize = 300_000;
/// A chunk that fills blocks, and a short one.
const WRITTEN_BYTES: u64 =
    ((HEADER_BYTES + CHUNK_BYTES).next_multiple_of(4096) + HEADER_BYTES + FILE_BYTES - CHUNK_BYTES) as u64;

/// Only two clients write, to two volumes, so that the figures are exact.
#[test]
fn profiles_break_down_by_volume_and_client() {
    let _alone = ALONE.lock();
    let cell = Cell::start("");
    let station = Station::start().unwrap();
    let data = noise(FILE_BYTES);
    let users = [("anonymous", false, 8), ("afs", true, 3)].map(|(user, is_known, stores)| {
        let security = is_known.then(|| cell.security());
        let files = Files::new(station.connect(cell.files_port(), FILE_SERVICE, security));
        let root = cell.volume(&format!("of.{user}"));
        let fid = files.create(root, "f").unwrap();
        // The first file creates the segments.
        files.store(fid, &data).unwrap();
        (user, files, fid, stores)
    });
    let (rows, ()) = profiles::during(&cell, &["io"], || {
        for (_, files, fid, stores) in &users {
            (0..*stores).for_each(|_| files.store(*fid, &data).unwrap());
        }
    });
    let writes = |row: &&Value| row["access"] == "write" && row["client"] != "";
    // Sums by client and volume.
    let mut sums: BTreeMap<(String, u64), [u64; 2]> = BTreeMap::new();
    for row in rows.iter().filter(writes) {
        let stack = row["stack"].as_str().unwrap();
        assert!(stack.starts_with("AFS;StoreData64;") && stack.contains("store::"), "{row}");
        let client = row["client"].as_str().unwrap().to_owned();
        let sum = sums.entry((client, row["volume"].as_u64().unwrap())).or_default();
        sum[0] += row["accesses"].as_u64().unwrap();
        sum[1] += row["bytes"].as_u64().unwrap();
    }
    let expected = users.map(|(user, _, fid, stores)| {
        ((format!("{user} at 127.0.0.1"), u64::from(fid.volume)), [2 * stores, WRITTEN_BYTES * stores])
    });
    assert_eq!(sums, BTreeMap::from(expected), "{rows:#?}");
}
