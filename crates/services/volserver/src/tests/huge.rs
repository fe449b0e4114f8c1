//! Transfers of a volume with a file that is longer than 4 GiB and nearly all hole, so that lengths and
//! offsets take more than 32 bits. A dump contains its zeros, which are counted here and discarded; a
//! transfer to a Cellar server does not.

use super::support::{Cell, Disks, LARGE, START, admin, fid, unchanged, write_at};
use super::transfers::{ID, Pair, TARGET};
use afs_idl::CallStream;
use afs_idl::vol::{self, attach_mode};
use base::{AbortCode, UnixTime, VolumeId};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use volume::Volume;

const LENGTH: u64 = 5 << 30;
/// Offsets and contents of the file's non-zero parts; the last one is at its end.
const MARKS: [(u64, &[u8]); 4] = [
    (0, b"at the beginning"),
    ((1 << 32) - 7, b"across 4 GiB"),
    ((1 << 32) + 123_456_789, b"behind it"),
    (LENGTH - 10, b"at the end"),
];
/// More than the rest of the volume takes.
const LITTLE_BYTES: u64 = 1 << 20;
/// More chunks than the marks and the other files take, and far fewer than the hole would.
const CHUNKS_MAX: usize = 32;
/// Pieces of the dump in flight.
const PIECES: usize = 64;

/// Creates the file, in a volume without a quota.
fn write_huge(cell: &Cell, id: u32) {
    let transaction = cell.open(id, LARGE, attach_mode::BUSY).unwrap();
    let info = vol::VolintInfo { max_quota: 0, ..unchanged() };
    cell.server.set_info(&admin(), vol::SetInfoRequest { transaction, info }).unwrap();
    cell.end(transaction).unwrap();
    let volume = cell.volumes.get(VolumeId(id)).unwrap();
    for (offset, mark) in MARKS {
        write_at(&volume, UnixTime(START), (volume.root(), "huge"), offset, mark, LENGTH);
    }
}

/// Checks that the volume has the file, and that `disks` has nothing stored for its hole.
fn check_huge(volume: &Arc<Volume>, disks: &Disks, stored_before: usize) {
    let file = fid(volume, volume.lookup(volume.root(), b"huge").unwrap());
    let (status, _) = volume.read(file, 0, 1).unwrap();
    assert_eq!(status.length, LENGTH);
    for (offset, mark) in MARKS {
        // Includes some bytes on either side.
        let (before, after) = (offset.min(100), 100.min(LENGTH - offset - mark.len() as u64));
        let wanted = [&vec![0; before as usize], mark, &vec![0; after as usize]].concat();
        let read = volume.read(file, offset - before, wanted.len() as u64).unwrap().1.concat();
        assert!(read == wanted, "at {offset}: {read:?}");
    }
    let stored = disks.appends.load(Ordering::Relaxed) - stored_before;
    assert!(stored <= CHUNKS_MAX, "{stored} chunks were stored for the volume");
}

/// The writing end of a dump: counts the bytes and passes them through a small channel.
struct Dumping {
    pieces: SyncSender<Bytes>,
    bytes: u64,
}

impl CallStream for Dumping {
    fn read(&mut self, _: &mut [u8]) -> Result<usize, AbortCode> {
        Ok(0)
    }

    fn read_chunk(&mut self, _: usize) -> Result<Bytes, AbortCode> {
        Ok(Bytes::new())
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.bytes += data.len() as u64;
        self.pieces.send(data).map_err(|_| AbortCode::RX_CALL_DEAD)
    }
}

/// The reading end of the dump.
struct Restoring {
    pieces: Receiver<Bytes>,
    ahead: Bytes,
}

impl CallStream for Restoring {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        let piece = self.read_chunk(buf.len())?;
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        if self.ahead.is_empty() {
            self.ahead = self.pieces.recv().unwrap_or_default();
        }
        Ok(self.ahead.split_to(max.min(self.ahead.len())))
    }

    fn write(&mut self, _: Bytes) -> Result<(), AbortCode> {
        Ok(())
    }
}

#[test]
fn a_dump_with_a_file_beyond_4_gib_is_restored() {
    let (cell, disks) = (Cell::new(), Disks::default());
    let other = Cell::on(&disks);
    cell.vos_create(LARGE, "home", ID);
    write_huge(&cell, ID);
    let from = cell.open(ID, LARGE, attach_mode::BUSY).unwrap();
    let to = other.create(LARGE, "there", TARGET, TARGET).unwrap();
    let (sender, receiver) = sync_channel(PIECES);
    let sent = std::thread::scope(|scope| {
        let dump = scope.spawn(|| {
            let mut stream = Dumping { pieces: sender, bytes: 0 };
            let request = vol::DumpRequest { transaction: from, from_date: 0 };
            cell.server.dump(&admin(), request, &mut stream).unwrap();
            stream.bytes
        });
        let cookie = vol::RestoreCookie { name: "there".into(), ..Default::default() };
        let mut stream = Restoring { pieces: receiver, ahead: Bytes::new() };
        let request = vol::RestoreRequest { transaction: to, flags: 0, cookie };
        other.server.restore(&admin(), request, &mut stream).unwrap();
        dump.join().unwrap()
    });
    let request = vol::GetSizeRequest { transaction: from, from_date: 0 };
    let size = cell.server.get_size(&admin(), request).unwrap().size.dump_size;
    assert_eq!(sent, size);
    assert!((LENGTH..LENGTH + LITTLE_BYTES).contains(&sent), "{sent}");
    other.set_flags(to, 0).unwrap();
    other.end(to).unwrap();
    check_huge(&other.volumes.get(VolumeId(TARGET)).unwrap(), &disks, 0);
    other.check();
}

#[test]
fn only_data_of_a_sparse_file_beyond_4_gib_is_sent() {
    let mut pair = Pair::new();
    pair.send(0);
    let [before] = pair.network.streams()[..] else { panic!() };
    write_huge(&pair.cell, ID);
    pair.now += 10;
    let stored_before = pair.disks.appends.load(Ordering::Relaxed);
    let to = pair.other.open(TARGET, LARGE, attach_mode::BUSY).unwrap();
    pair.forward(to, 0).unwrap();
    pair.other.set_flags(to, 0).unwrap();
    pair.other.end(to).unwrap();
    check_huge(&pair.target(), &pair.disks, stored_before);
    let [sent] = pair.network.streams()[..] else { panic!() };
    assert!((sent as u64) < before as u64 + LITTLE_BYTES, "{sent} bytes were sent");
    pair.other.check();
}
