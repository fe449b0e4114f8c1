//! Tests for damage to shared chunks and their rows.

use super::*;
use volume_records::families;
use volume_records::rows::{Row, RowKey, Sums};

/// Chunk size in bytes; each file has two equal chunks.
const CHUNK: u32 = 4096;

/// Creates two files of equal contents in the other volume: two rows, named four times and twice.
fn world() -> World {
    let world = World::new();
    let (_chunks, volumes) = serve(&world.disk, &world.meta);
    let other = volumes.get(OTHER).unwrap();
    other.update_header(|header| header.deduplicates = true).unwrap();
    for name in [b"one", b"two"] {
        let made = other.create_file(&actor(1), other.root(), name, &nothing()).unwrap();
        write(&other, made.status.fid(OTHER), 5);
    }
    drop((other, volumes));
    world
}

/// Returns the row that is named four times.
fn row(world: &World) -> (Vec<u8>, Row) {
    let (from, to) = keys::rows();
    let mut found = None;
    let mut visit = |key: &[u8], value: &[u8]| {
        let row = codec::get_row(value).unwrap();
        found = found.take().or_else(|| (row.length == CHUNK).then(|| (key.to_vec(), row)));
        ControlFlow::Continue(())
    };
    world.meta.scan(families::EXTENTS, KeyRange::ascending(&from, &to), &mut visit).unwrap();
    found.unwrap()
}

fn change_row(world: &World, change: impl FnOnce(&mut Row)) {
    let (key, mut row) = row(world);
    change(&mut row);
    world.put(families::EXTENTS, key, codec::put_row(&row));
}

fn orphan_row(world: &World) {
    let digest = [9; 32];
    let row = Row { digest, count: 1, ..row(world).1 };
    world.put(families::EXTENTS, keys::row(RowKey::of(&digest)), codec::put_row(&row));
}

fn damage_chunk(world: &World) {
    let Row { address, .. } = row(world).1;
    let path = Path::new(FOLDER).join(format!("{:016x}.seg", address.segment));
    world.disk.flip_bit(&path, address.offset + 70, 3).unwrap();
}

const SHARING: &[Case] = &[
    (
        "a lost row",
        |w| w.delete(families::EXTENTS, row(w).0),
        "its row is missing, and 4 extents refer to it",
    ),
    (
        "files without their row",
        |w| w.delete(families::EXTENTS, row(w).0),
        "chunk 1, epoch 1: the row of the shared chunk that it refers to is missing",
    ),
    ("a count too high", |w| change_row(w, |row| row.count = 5), "counts 5 extents, but 4 refer to it"),
    ("a count too low", |w| change_row(w, |row| row.count = 3), "counts 3 extents, but 4 refer to it"),
    ("a count of nothing", |w| change_row(w, |row| row.count = 0), "counts 0 extents, but 4 refer to it"),
    ("a row that nobody names", orphan_row, "counts 1 extents, but 0 refer to it"),
    ("a wrong length", |w| change_row(w, |row| row.length = 9), "has 9 bytes, but extents 4096 to 4096"),
    ("another digest", |w| change_row(w, |row| row.digest = [9; 32]), "its key differs from its digest"),
    (
        "a torn row",
        |w| w.put(families::EXTENTS, row(w).0, [1, 4]),
        "the row of a shared chunk cannot be read",
    ),
    (
        "a row of a second epoch",
        |w| w.put(families::EXTENTS, keys::versioned(&row(w).0[..24], 2), codec::put_row(&row(w).1)),
        "the row of a shared chunk cannot be read",
    ),
    (
        "an extent that names another row",
        |w| {
            let shared = Extent::Shared { row: RowKey([3; 16]), length: CHUNK };
            w.put_extent(0, &shared);
        },
        "its row is missing, and 1 extents refer to it",
    ),
    ("a damaged chunk", damage_chunk, "chunk 0, epoch 1: damaged data"),
    ("a row without its chunk", |w| change_row(w, |row| row.address.segment = 99), "no such segment"),
    (
        "wrong sums",
        |w| w.put(Family::SYSTEM, keys::SHARED_SUMS.to_vec(), codec::put_sums(&Sums::default())),
        "the totals of shared chunks: counted",
    ),
    (
        "torn sums",
        |w| w.put(Family::SYSTEM, keys::SHARED_SUMS.to_vec(), [1]),
        "totals of shared chunks: cannot be read",
    ),
    (
        "lost sums",
        |w| w.delete(Family::SYSTEM, keys::SHARED_SUMS.to_vec()),
        "totals of shared chunks: counted",
    ),
];

fn lines(report: &CheckReport) -> Vec<String> {
    assert_eq!(report.damage_count, report.damages.len() as u64);
    report.damages.iter().map(ToString::to_string).collect()
}

#[test]
fn every_kind_of_planted_damage_of_shared_chunks_is_found() {
    for (name, plant, expected) in SHARING {
        let world = world();
        assert_eq!(world.check().damages, [], "{name}");
        plant(&world);
        let found = lines(&world.check());
        assert!(found.iter().any(|line| line.contains(expected)), "{name}: {found:#?}");
        let (_chunks, volumes) = serve(&world.disk, &world.meta);
        let found = lines(&check_online(&volumes));
        assert!(found.iter().any(|line| line.contains(expected)), "{name}: {found:#?}");
    }
}

#[test]
fn shared_damage_is_reported_for_each_file() {
    let world = world();
    damage_chunk(&world);
    let found = lines(&world.check());
    for place in ["vnode 2.2, chunk 0", "vnode 2.2, chunk 1", "vnode 4.3, chunk 0", "vnode 4.3, chunk 1"] {
        assert_eq!(found.iter().filter(|line| line.contains(place)).count(), 1, "{place}: {found:#?}");
    }
    assert_eq!(found.len(), 4, "{found:#?}");
}
