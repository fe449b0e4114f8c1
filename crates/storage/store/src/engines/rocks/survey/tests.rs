use super::*;
use disk::{FaultyDisk, Garbling};
use std::io::IoSlice;
use std::sync::Arc;

pub(in super::super) fn key() -> Key {
    Key::from(b"a database")
}

/// Returns the bytes that RocksDB appends at `position` for the batch of this number, which has one change. Its claim
/// says that as many batches are durable. It has `length` other bytes.
pub(in super::super) fn record(position: usize, number: u64, durable: u64, length: usize) -> Vec<u8> {
    let head = [&(number + 1).to_le_bytes()[..], &1u32.to_le_bytes(), &claims::TAG, &key().claim(durable)];
    let payload = [head.concat(), vec![number as u8 | 1; length]].concat();
    let (mut bytes, mut rest, mut is_first) = (Vec::new(), &payload[..], true);
    loop {
        let room = BLOCK_BYTES - (position + bytes.len()) % BLOCK_BYTES;
        if room < HEADER_BYTES {
            bytes.resize(bytes.len() + room, 0);
            continue;
        }
        let (part, beyond) = rest.split_at(rest.len().min(room - HEADER_BYTES));
        let kind = match (is_first, beyond.is_empty()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
            (false, true) => 4,
        };
        let covered = [&[kind], part].concat();
        bytes.extend(masked(crc32c(&covered)).to_le_bytes());
        bytes.extend((part.len() as u16).to_le_bytes());
        bytes.extend(covered);
        (rest, is_first) = (beyond, false);
        if beyond.is_empty() {
            return bytes;
        }
    }
}

/// Returns the numbers of the records that RocksDB 7.8 replays from a log in point-in-time recovery.
pub(in super::super) fn replay(log: &[u8]) -> Vec<u64> {
    let (mut numbers, mut partial) = (Vec::new(), None::<Vec<u8>>);
    for block in log.chunks(BLOCK_BYTES) {
        let mut rest = block;
        while let Some((header, body)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let is_skipped = header[6] == 0 && length == 0;
            if is_skipped && partial.is_none() {
                break;
            }
            let Some((_, part)) = intact(rest).filter(|_| !is_skipped) else { return numbers };
            rest = &body[length..];
            partial = match (header[6], partial) {
                (1 | 2, None) => Some(part.to_vec()),
                (3 | 4, Some(before)) => Some([&before, part].concat()),
                _ => return numbers,
            };
            if let 1 | 4 = header[6] {
                let number = partial.take().and_then(|record| record.first_chunk().copied());
                numbers.extend(number.map(|number| u64::from_le_bytes(number) - 1));
            }
        }
    }
    numbers
}

/// Returns what is read of a log with these contents.
pub(in super::super) fn survey_of(log: &[u8]) -> Survey {
    let disk = FaultyDisk::new(1, Garbling::default());
    let file: Arc<dyn File> = disk.create(Path::new("/log")).unwrap();
    file.write_all_at(&mut [IoSlice::new(log)], 0).unwrap();
    read(&*file, Some(&key())).unwrap()
}

/// Returns a log of batches with these claims and lengths, and where each begins.
pub(in super::super) fn log_of(batches: &[(u64, usize)]) -> (Vec<u8>, Vec<usize>) {
    let (mut log, mut starts) = (Vec::new(), Vec::new());
    for (number, (durable, length)) in (0..).zip(batches) {
        starts.push(log.len());
        log.extend(record(log.len(), number, *durable, *length));
    }
    (log, starts)
}
