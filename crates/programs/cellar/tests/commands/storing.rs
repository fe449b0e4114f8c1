//! Clients read what they stored, also after a restart: all lengths around chunk boundaries, unencrypted and
//! encrypted, whole files and parts of them.

use crate::support::cell::Cell;
use crate::support::noise;
use afs_idl::{CallStream, ClientConnection, fs};
use bytes::Bytes;
use cell_client::Network;
use load::files::{Fid, Files};
use load::station::{FILE_SERVICE, Station};
use std::sync::Arc;

const CHUNK_BYTES: usize = 256 << 10;

/// Returns file lengths: empty, partial chunks, and up to nine chunks, which exceed the buffers provided to
/// the network at a time.
fn lengths() -> Vec<usize> {
    let near =
        (1..6).flat_map(|chunks| [chunks * CHUNK_BYTES - 1, chunks * CHUNK_BYTES, chunks * CHUNK_BYTES + 1]);
    [0, 1, 5000].into_iter().chain(near).chain([9 * CHUNK_BYTES, 9 * CHUNK_BYTES + 100_000]).collect()
}

/// Stores a part of a file.
fn store_part(
    connection: &dyn ClientConnection,
    fid: Fid,
    position: usize,
    data: &Bytes,
    file_length: usize,
) {
    let request = fs::StoreData64Request {
        fid,
        position: position as u64,
        length: data.len() as u64,
        file_length: file_length as u64,
        ..fs::StoreData64Request::default()
    };
    fs::store_data64(connection, &request, |stream: &mut dyn CallStream| stream.write(data.clone())).unwrap();
}

/// Creates files in `root`; returns them with their expected contents.
fn store(connection: &Arc<dyn ClientConnection>, root: Fid, prefix: &str) -> Vec<(Fid, Bytes)> {
    let files = Files::new(Arc::clone(connection));
    let mut stored = Vec::new();
    for length in lengths() {
        let (fid, data) = (files.create(root, &format!("{prefix}{length}")).unwrap(), noise(length));
        files.store(fid, &data).unwrap();
        stored.push((fid, data));
    }
    // From the middle of one chunk to the middle of another, over existing data and beyond it.
    for (number, (position, length)) in [
        (100, 3 * CHUNK_BYTES),
        (CHUNK_BYTES - 1, 2 * CHUNK_BYTES + 2),
        (CHUNK_BYTES, 2 * CHUNK_BYTES),
        (900_000, 900_000),
    ]
    .into_iter()
    .enumerate()
    {
        let fid = files.create(root, &format!("{prefix}part{number}")).unwrap();
        let mut expected = noise(4 * CHUNK_BYTES + 17).to_vec();
        files.store(fid, &Bytes::from(expected.clone())).unwrap();
        let part = Bytes::from(vec![number as u8 + 1; length]);
        let end = expected.len().max(position + length);
        expected.resize(end, 0);
        expected[position..position + length].copy_from_slice(&part);
        store_part(&**connection, fid, position, &part, end);
        stored.push((fid, expected.into()));
    }
    stored
}

fn compare(connection: &Arc<dyn ClientConnection>, stored: &[(Fid, Bytes)]) {
    let files = Files::new(Arc::clone(connection));
    for (fid, data) in stored {
        files.check_status(*fid, data.len() as u64).unwrap();
        files.fetch_and_compare(*fid, data, 1 << 20).unwrap();
    }
}

#[test]
fn stored_data_is_read_back() {
    let cell = Cell::start("");
    let root = cell.volume("home");
    let (station, network) = (Station::start().unwrap(), cell.network());
    let clear = cell.connect(&station);
    let encrypted = network.connect(cell.files_port(), FILE_SERVICE);
    let mut stored = store(&clear, root, "clear");
    stored.extend(store(&encrypted, root, "encrypted"));
    compare(&clear, &stored);
    drop((clear, encrypted, network, station));
    let cell = cell.restart();
    let station = Station::start().unwrap();
    compare(&cell.connect(&station), &stored);
}
