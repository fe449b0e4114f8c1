use super::*;
use crate::families;
use base::UnixTime;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use store::MemoryMeta;

const KEY: &[u8] = b"record";

/// The history of one record in a group: the value that each epoch should see.
struct Group {
    meta: MemoryMeta,
    epochs: Epochs,
    seen: BTreeMap<u64, (ReadView, Option<Vec<u8>>)>,
    now: Option<Vec<u8>>,
}

impl Group {
    fn new() -> Group {
        let epochs = Epochs { is_read_write_gone: false, ..Epochs::without_volumes() };
        Group { meta: MemoryMeta::new(), epochs, seen: BTreeMap::new(), now: None }
    }

    fn write(&mut self, value: Option<Vec<u8>>) {
        let mut batch = Batch::new();
        self.epochs.write(&self.meta, &mut batch, families::VNODES, KEY, value.clone()).unwrap();
        self.meta.commit(batch).unwrap();
        self.now = value;
    }

    fn clone_now(&mut self) {
        self.seen.insert(self.epochs.current, (self.epochs.writer(), self.now.clone()));
        self.epochs.others.push(self.epochs.writer());
        self.epochs.current += 1;
    }

    fn roll_back(&mut self, index: usize) {
        let epoch = self.epochs.others[index].epoch;
        let read_view = self.epochs.others[index].back_to_this(self.epochs.current, 1, UnixTime(1)).unwrap();
        (self.epochs.current, self.epochs.rollbacks) = (read_view.epoch, read_view.rollbacks);
        self.now.clone_from(&self.seen[&epoch].1);
        self.purge();
    }

    fn drop_clone(&mut self, index: usize) {
        let read_view = self.epochs.others.remove(index);
        self.seen.remove(&read_view.epoch);
        self.purge();
    }

    fn purge(&mut self) {
        let mut batch = Batch::new();
        for born in self.unneeded() {
            batch.delete(families::VNODES, keys::versioned(KEY, born));
        }
        self.meta.commit(batch).unwrap();
    }

    fn unneeded(&self) -> Vec<u64> {
        unneeded(&self.epochs.versions(&self.meta, families::VNODES, KEY).unwrap(), &self.epochs.readers())
    }

    fn check(&self) {
        let read = |read_view: &ReadView| {
            let one =
                get(&self.meta, families::VNODES, KEY, read_view).unwrap().map(|(_, bytes)| bytes.to_vec());
            let mut scanned = None;
            let to = [KEY, &[0xff; 9]].concat();
            scan(&self.meta, families::VNODES, (KEY, &to), read_view, &mut |_, value| {
                assert!(scanned.replace(value.to_vec()).is_none());
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(one, scanned);
            one
        };
        assert_eq!(read(&self.epochs.writer()), self.now);
        for (epoch, (read_view, expected)) in &self.seen {
            assert_eq!(&read(read_view), expected, "epoch {epoch}");
        }
        assert_eq!(self.unneeded(), [0; 0]);
    }
}

#[test]
fn each_epoch_keeps_its_view() {
    for seed in 0..5000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut group = Group::new();
        for step in 0..random.random_range(1..30) {
            let clones = group.epochs.others.len();
            match random.random_range(0..7) {
                0..=2 => group.write(Some(vec![step + 1])),
                3 => group.write(None),
                4 => group.clone_now(),
                5 if clones > 0 => group.drop_clone(random.random_range(0..clones)),
                6 if clones > 0 => group.roll_back(random.random_range(0..clones)),
                _ => {}
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| group.check()));
            assert!(result.is_ok(), "seed {seed} step {step}");
        }
        // Without clones only the current state is left.
        while !group.epochs.others.is_empty() {
            group.drop_clone(0);
        }
        let left = group.epochs.versions(&group.meta, families::VNODES, KEY).unwrap();
        assert_eq!(left.len(), usize::from(group.now.is_some()), "seed {seed}: {left:?}");
    }
}

#[test]
fn a_scan_shows_each_record_once() {
    let meta = MemoryMeta::new();
    let mut batch = Batch::new();
    let versions: [(&[u8], u64, &[u8]); 5] =
        [(b"a", 1, b"a1"), (b"a", 3, b"a3"), (b"b", 2, b""), (b"b", 1, b"b1"), (b"c", 4, b"c4")];
    for (prefix, epoch, value) in versions {
        batch.put(families::ENTRIES, keys::versioned(prefix, epoch), value);
    }
    meta.commit(batch).unwrap();
    let at = |epoch| {
        let mut found = Vec::new();
        scan(&meta, families::ENTRIES, (b"a", b"z"), &ReadView::up_to(epoch), &mut |_, value| {
            found.push(String::from_utf8(value.to_vec()).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    };
    assert_eq!(at(1), ["a1", "b1"]);
    assert_eq!(at(2), ["a1"]);
    assert_eq!(at(4), ["a3", "c4"]);
}
