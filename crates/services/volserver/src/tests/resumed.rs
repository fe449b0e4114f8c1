//! Tests of transfers whose target is killed: data already received is not sent again.

use super::support::{Disks, LARGE, START, histories};
use super::transfers::{ID, Pair, TARGET, contents, noise};
use afs_format::transfer::CHUNK_BYTES;
use afs_idl::vol::attach_mode;
use base::{AbortCode, Fid, PartitionId, VnodeId, VolumeId};
use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use volume::{KEPT_MAX, KEPT_SECONDS, Received, Volume};

const SEEDS: u64 = 150;
/// Files below this length are sent without a query.
const COMPARED_BYTES_MIN: u64 = 2048;
/// Upper bound of the frames, statuses, small files and directories in a stream.
const FRAMES_BYTES: usize = 20_000;

fn large() -> PartitionId {
    PartitionId::from_index(LARGE as u32).unwrap()
}

/// A chunk of a source file.
struct Chunk {
    vnode: VnodeId,
    unique: u32,
    index: u64,
    data: Bytes,
}

/// Returns the chunks of all files that are compared, except those of zeros.
fn chunks(volume: &Arc<Volume>) -> Vec<Chunk> {
    let mut files = Vec::new();
    volume
        .vnodes(VnodeId(0), &mut |status| {
            files.extend((!status.is_directory() && status.length >= COMPARED_BYTES_MIN).then_some(*status));
            true
        })
        .unwrap();
    let mut chunks = Vec::new();
    for status in files {
        let (vnode, unique) = (status.vnode, status.unique);
        for index in 0..status.length.div_ceil(CHUNK_BYTES as u64) {
            let data = chunk_of(volume, vnode, unique, index).unwrap();
            if data.iter().any(|byte| *byte != 0) {
                chunks.push(Chunk { vnode, unique, index, data });
            }
        }
    }
    chunks
}

fn chunk_of(volume: &Arc<Volume>, vnode: VnodeId, unique: u32, index: u64) -> Option<Bytes> {
    let fid = Fid { volume: volume.id(), vnode, unique };
    let mut reader = volume.reader(fid, index * CHUNK_BYTES as u64, CHUNK_BYTES as u64).ok()?;
    Some(reader.next(CHUNK_BYTES).ok()?.concat().into())
}

impl Pair {
    fn received(&self) -> Option<Received> {
        self.other.volumes.received(VolumeId(TARGET), large()).unwrap()
    }

    /// Returns how many of the chunks' bytes the other server has in either place, and their total.
    fn there(&self) -> (usize, usize) {
        let (received, target) = (self.received(), self.other.volumes.get_any_state(VolumeId(TARGET)).ok());
        let (mut there, mut all) = (0, 0);
        for Chunk { vnode, unique, index, data } in chunks(&self.volume()) {
            let came = received.as_ref().and_then(|received| received.chunk(vnode, unique, index).unwrap());
            let is_current = |old: &Bytes| old == &data;
            let is_there = came.as_ref().is_some_and(is_current)
                || target
                    .as_ref()
                    .and_then(|target| chunk_of(target, vnode, unique, index))
                    .is_some_and(|old| old == data);
            all += data.len();
            there += if is_there { data.len() } else { 0 };
        }
        (there, all)
    }

    /// Sends again without an interruption, and checks that only missing data goes over the network.
    fn send_rest(&self) {
        self.network.streams();
        let (there, all) = self.there();
        self.send(0);
        let [sent] = self.network.streams()[..] else { panic!("one stream") };
        assert!(sent + there < all + FRAMES_BYTES, "{sent} were sent of {all} although {there} were there");
    }

    /// Returns a slot that receives, at each cut, the disks as a kill at that moment would leave them; the
    /// last one stays.
    fn images(&self, seed: u64) -> Arc<Mutex<Option<Disks>>> {
        let image = Arc::new(Mutex::new(None));
        let disks =
            Disks { metas: self.disks.metas.clone(), chunks: self.disks.chunks.clone(), ..Disks::default() };
        let (taken, mut random) = (Arc::clone(&image), StdRng::seed_from_u64(seed));
        self.network.at_cut(move || *taken.lock() = Some(disks.after_crash(&mut random)));
        image
    }

    fn expire(&self, seconds: u32) {
        self.other.pass(seconds);
        self.other.server.expire_transactions();
    }
}

#[test]
fn data_sent_before_a_kill_is_not_repeated() {
    let mut pair = Pair::new();
    let image = pair.images(1);
    pair.network.cut(&[4 * CHUNK_BYTES, 0, 0, 0, 0, 0]);
    let to = pair.create();
    assert_eq!(pair.forward(to, 0), Err(AbortCode::RX_CALL_DEAD));
    let image = image.lock().take().unwrap();
    pair.restart(image);
    assert!(pair.other.volumes.get_any_state(VolumeId(TARGET)).is_err(), "the volume itself is gone");
    let (there, all) = pair.there();
    assert!(there >= 2 * CHUNK_BYTES && there < all, "{there} of {all}");
    pair.send_rest();
    assert!(pair.received().is_none(), "nothing is kept of what is whole");
}

/// Returns the number of chunks that a site stores for the current volume. The site is new, or has the
/// contents of 100 seconds before. With `is_cut`, half of the data arrives before an interruption that ends
/// the site's transaction.
fn stored(has_site: bool, is_cut: bool) -> usize {
    let mut pair = Pair::new();
    if has_site {
        pair.send(0);
        pair.target().update_header(|header| header.in_service = false).unwrap();
        pair.now += 100;
        pair.write_at("large", 3, &noise(20, 3 * CHUNK_BYTES), 5 * CHUNK_BYTES as u64 + 77);
        pair.write("other", &noise(21, 2 * CHUNK_BYTES));
    }
    let appends = Arc::clone(&pair.disks.appends);
    let before = appends.load(Ordering::Relaxed);
    if is_cut {
        pair.network.cut(&[3 * CHUNK_BYTES, 0, 0, 0, 0, 0]);
        let to =
            if has_site { pair.other.open(TARGET, LARGE, attach_mode::BUSY).unwrap() } else { pair.create() };
        assert_eq!(pair.forward(to, 0), Err(AbortCode::RX_CALL_DEAD));
        if !has_site {
            pair.other.delete(to).unwrap();
        }
        pair.other.end(to).unwrap();
        assert!(pair.there().0 >= 2 * CHUNK_BYTES);
    }
    pair.send_rest();
    assert!(pair.received().is_none());
    while pair.other.volumes.purge_step().unwrap() {}
    pair.other.check_all(&pair.disks);
    appends.load(Ordering::Relaxed) - before
}

#[test]
fn received_data_is_not_stored_twice() {
    for has_site in [false, true] {
        assert_eq!(stored(has_site, true), stored(has_site, false), "{has_site}");
    }
    assert!(stored(true, true) < stored(false, false), "what the site has is not stored again either");
}

#[test]
fn received_data_outlives_its_transaction_for_a_while() {
    let mut pair = Pair::new();
    pair.network.cut(&[CHUNK_BYTES + 20_000; 6]);
    let to = pair.create();
    assert_eq!(pair.forward(to, 0), Err(AbortCode::RX_CALL_DEAD));
    pair.other.delete(to).unwrap();
    pair.other.end(to).unwrap();
    let (there, _) = pair.there();
    assert!(there > 0);
    pair.expire(KEPT_SECONDS);
    while pair.other.volumes.purge_step().unwrap() {}
    assert_eq!(pair.there().0, there);
    pair.restart(pair.disks.after_crash(&mut StdRng::seed_from_u64(2)));
    assert_eq!(pair.there().0, there, "it was on the medium");
    let held = pair.received().unwrap();
    pair.expire(2);
    assert_eq!(pair.there().0, there, "somebody holds it");
    drop(held);
    pair.expire(0);
    assert!(pair.received().is_none());
    pair.other.check();
    assert_eq!(pair.disks.chunks[1].live_chunks(), 0);
}

#[test]
fn not_too_much_is_kept() {
    let pair = Pair::new();
    for number in 0..=KEPT_MAX as u32 {
        pair.network.cut(&[CHUNK_BYTES + 20_000; 6]);
        let to = pair.other.create(LARGE, &format!("there{number}"), 2000 + number, 2000 + number).unwrap();
        assert_eq!(pair.forward(to, 0), Err(AbortCode::RX_CALL_DEAD));
        pair.other.end(to).unwrap();
    }
    let is_kept = |number| pair.other.volumes.received(VolumeId(number), large()).unwrap().is_some();
    assert!(!is_kept(2000), "the oldest one");
    assert!((2001..=2000 + KEPT_MAX as u32).all(is_kept));
}

#[test]
fn a_damaged_stream_leaves_nothing() {
    let pair = Pair::new();
    let to = pair.create();
    pair.network.damage(5 * CHUNK_BYTES);
    assert!(pair.forward(to, 0).is_err());
    assert!(pair.received().is_none());
    pair.other.delete(to).unwrap();
    pair.other.end(to).unwrap();
    pair.other.check();
    assert_eq!(pair.disks.chunks[1].live_chunks(), 0);
}

#[test]
fn transfers_finish_though_the_target_is_killed_repeatedly() {
    histories(SEEDS, killed);
}

fn killed(seed: u64, random: &mut StdRng) {
    let mut pair = Pair::new();
    if random.random() {
        // The site has the volume's earlier contents, over which new contents are laid.
        pair.send(0);
        let is_written = random.random();
        pair.target().update_header(|header| header.in_service = is_written).unwrap();
        pair.now += 100;
        pair.write("large", &noise(seed + 10, 4 * CHUNK_BYTES));
        pair.write("other", &noise(seed + 11, 2 * CHUNK_BYTES + 5));
    }
    let before = pair.other.volumes.get_any_state(VolumeId(TARGET)).ok().map(|volume| contents(&volume));
    for _ in 0..random.random_range(1..4) {
        // Data unchanged since the first transfer may be left out.
        let from_date = if before.is_some() && random.random() { START + 50 } else { 0 };
        let image = pair.images(random.random());
        let cuts: Vec<usize> = (0..6).map(|_| random.random_range(1..7 * CHUNK_BYTES)).collect();
        pair.network.cut(&cuts);
        let open = pair.other.open(TARGET, LARGE, attach_mode::BUSY);
        let to = open.unwrap_or_else(|_| pair.create());
        let sent = pair.forward(to, from_date);
        // Either at the last cut, or some time after it.
        let image = image.lock().take().filter(|_| random.random());
        let disks = image.unwrap_or_else(|| pair.disks.after_crash(random));
        pair.restart(disks);
        if sent.is_err() {
            let now = pair.other.volumes.get_any_state(VolumeId(TARGET)).ok().map(|volume| contents(&volume));
            assert_eq!(now, before, "the volume is as it was");
        }
        if random.random_range(0..4) == 0 {
            pair.expire(KEPT_SECONDS + 1);
            assert!(pair.received().is_none());
        }
        if random.random() {
            while pair.other.volumes.purge_step().unwrap() {}
        }
        if random.random_range(0..4) == 0 {
            pair.now += 10;
            pair.write_at("exact", 5, &noise(random.random(), 100), 2 * CHUNK_BYTES as u64);
            let (volume, actor) = (pair.volume(), pair.actor());
            let name = ["small", "large", "hole", "other"][random.random_range(0..4)];
            let _ = volume.remove_file(&actor, volume.root(), name.as_bytes());
        }
    }
    pair.send_rest();
    pair.restart(pair.disks.after_crash(random));
    assert_eq!(contents(&pair.target()), contents(&pair.cell.volumes.get_any_state(VolumeId(ID)).unwrap()));
    assert!(
        pair.received().is_none() || {
            pair.expire(KEPT_SECONDS + 1);
            pair.received().is_none()
        }
    );
    pair.other.check_all(&pair.disks);
}
