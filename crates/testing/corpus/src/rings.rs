//! Data key rings of encrypted partitions.

use crate::segments::crc;
use disk::{Disk, FaultyDisk, Garbling};
use std::io::{self, IoSlice};
use std::path::Path;
use store::{KeyRing, MasterKey, StoreError};
use uuid::Uuid;

const FOLDER: &str = "/partition";
const FILE: &str = "/partition/KEYS";
/// UUID of the partition that the rings belong to.
pub const PARTITION: Uuid = Uuid::from_bytes([9; 16]);
/// Key that wraps the rings.
pub const MASTER: [u8; 32] = [7; 32];

/// Exercises a key ring's file. If the first byte is 0, the rest is the complete file; otherwise a correct
/// checksum is appended.
pub fn key_ring(data: &[u8]) {
    let Some((raw, rest)) = data.split_first() else { return };
    let contents = if *raw == 0 { rest.to_vec() } else { [rest, &crc(rest)].concat() };
    let disk = FaultyDisk::new(1, Garbling::default());
    write(&disk, &contents).expect("a disk without faults");
    let master = MasterKey::parse(&MASTER).expect("32 bytes");
    match KeyRing::open(&disk, Path::new(FOLDER), PARTITION, Some(&master)) {
        Ok(ring) => {
            let ring = ring.expect("the file exists");
            assert!(!ring.is_empty() && ring.newest() as usize >= ring.len(), "ids begin with 1");
        }
        Err(StoreError::Damaged { .. } | StoreError::Key { .. }) => {}
        Err(other) => panic!("unexpected error of an unusable ring: {other}"),
    }
    assert!(
        KeyRing::open(&disk, Path::new(FOLDER), PARTITION, None).is_err(),
        "an encrypted partition needs a key"
    );
    assert_eq!(read(&disk).expect("a disk without faults"), contents, "opening changed the file");
}

/// Returns a newly created ring in the form that the target expects.
///
/// # Errors
/// None, unless the disk in memory is broken.
pub fn new_ring() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let disk = FaultyDisk::new(1, Garbling::default());
    disk.create_dir(Path::new(FOLDER))?;
    KeyRing::open(&disk, Path::new(FOLDER), PARTITION, Some(&MasterKey::parse(&MASTER)?))?;
    Ok(read(&disk)?)
}

fn write(disk: &FaultyDisk, contents: &[u8]) -> io::Result<()> {
    disk.create_dir(Path::new(FOLDER))?;
    disk.create(Path::new(FILE))?.write_all_at(&mut [IoSlice::new(contents)], 0)
}

fn read(disk: &FaultyDisk) -> io::Result<Vec<u8>> {
    let file = disk.open(Path::new(FILE))?;
    let mut contents = vec![0; file.length()? as usize];
    file.read_exact_at(&mut contents, 0)?;
    Ok(contents)
}
