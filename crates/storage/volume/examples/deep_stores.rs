//! Measures the cost of maintaining directory totals. Durability is in intervals, so that the processor is
//! the bottleneck; small stores go to several depths, either all into one directory or each into another of
//! 64.
//!
//!     cargo run --release -p volume --example deep_stores -- FOLDER [apart|through]
//!
//! `parked` (the default) buffers the changes of up to 16 directories, as the server does; `through` writes
//! the totals of all ancestor directories with every store. Prints stores per second for each round.

mod support;

use base::{Fid, UnixTime, VolumeId, VolumeType};
use bytes::Bytes;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{NOTHING, Outcome, actor, create, open_partition, relaxed};
use volume::{CloneVolume, StoreRequest, Volume, Volumes};

const DEPTHS: [usize; 4] = [1, 10, 50, 10_000];
const WIDTH: usize = 64;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;

fn directory(volume: &Volume, above: Fid, name: &str) -> Fid {
    let made = volume.make_directory(&actor(), above, name.as_bytes(), &NOTHING).unwrap();
    made.status.fid(volume.id())
}

/// Creates files, each in its own directory `depth` levels below the root.
fn files(volume: &Volume, depth: usize) -> Vec<Fid> {
    let way = (1..depth).fold(volume.root(), |above, level| directory(volume, above, &format!("{level}")));
    let file = |number| {
        let leaf = directory(volume, way, &format!("leaf{number}"));
        volume.create_file(&actor(), leaf, b"file", &NOTHING).unwrap().status.fid(volume.id())
    };
    (0..WIDTH).map(file).collect()
}

/// Stores for the duration of a round, each time with another length, and returns stores per second.
fn round(volume: &Volume, files: &[Fid]) -> f64 {
    let (begin, mut stores) = (Instant::now(), 0u32);
    while begin.elapsed() < ROUND {
        for _ in 0..16 {
            let length = 100 + u64::from(stores % 7);
            let mut data = Bytes::from(vec![1; length as usize]);
            let request = StoreRequest { offset: 0, length, file_length: 0, set: NOTHING };
            let fid = files[stores as usize % files.len()];
            volume
                .store(&actor(), fid, &request, &mut |most: usize| Ok(data.split_to(most.min(data.len()))))
                .unwrap();
            stores += 1;
        }
    }
    f64::from(stores) / begin.elapsed().as_secs_f64()
}

fn measure(volumes: &Volumes, volume: &Volume, what: &str, depth: usize) {
    let files = files(volume, depth);
    for (spread, files) in [("one directory", &files[..1]), ("64 directories", &files[..])] {
        let rounds = (0..ROUNDS).map(|_| {
            let rate = round(volume, files);
            volumes.sync().unwrap();
            format!("{rate:8.0}")
        });
        println!("{what} depth {depth:5}, {spread:14}:{}", rounds.collect::<String>());
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(arguments.first().expect("a folder"));
    let through = arguments.get(1).is_some_and(|mode| mode == "through");
    let partition = open_partition(folder)?;
    let mut options = relaxed();
    if through {
        options.unfolded_directories = 0;
    }
    let volumes = support::volumes(&partition, options)?;
    // Creating ten thousand nested directories would take hours.
    let depths = DEPTHS.into_iter().filter(|depth| !through || *depth < 1000);
    for (number, depth) in (1..).zip(depths) {
        measure(&volumes, &*create(&volumes, number)?, "alone ", depth);
        let cloned = create(&volumes, 100 + number)?;
        let new = CloneVolume {
            id: VolumeId(200 + number),
            name: format!("c{number}").parse()?,
            kind: VolumeType::ReadOnly,
            now: UnixTime(1),
        };
        volumes.clone_volume(cloned.id(), &new)?;
        measure(&volumes, &cloned, "cloned", depth);
    }
    Ok(())
}
