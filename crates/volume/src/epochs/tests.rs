use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use store::MemoryMeta;

const KEY: &[u8] = b"record";

/// A group's history of one record: what each epoch should see.
struct Group {
    meta: MemoryMeta,
    epochs: Epochs,
    seen: BTreeMap<u64, Option<Vec<u8>>>,
    now: Option<Vec<u8>>,
}

impl Group {
    fn new() -> Group {
        let epochs = Epochs { is_read_write_gone: false, ..Epochs::without_volumes() };
        Group { meta: MemoryMeta::new(), epochs, seen: BTreeMap::new(), now: None }
    }

    fn write(&mut self, value: Option<Vec<u8>>) {
        let mut batch = Batch::new();
        self.epochs.write(&self.meta, &mut batch, Family::Vnodes, KEY, value.clone()).unwrap();
        self.meta.commit(batch).unwrap();
        self.now = value;
    }

    fn clone_now(&mut self) {
        self.seen.insert(self.epochs.current, self.now.clone());
        self.epochs.others.push(self.epochs.current);
        self.epochs.current += 1;
    }

    fn drop_clone(&mut self, index: usize) {
        let epoch = self.epochs.others.remove(index);
        self.seen.remove(&epoch);
        let readers = self.epochs.readers();
        let versions = self.epochs.versions(&self.meta, Family::Vnodes, KEY).unwrap();
        let mut batch = Batch::new();
        for born in unneeded(&versions, &readers) {
            batch.delete(Family::Vnodes, keys::versioned(KEY, born));
        }
        self.meta.commit(batch).unwrap();
    }

    fn check(&self) {
        let read = |epoch| get(&self.meta, Family::Vnodes, KEY, epoch).unwrap().map(|bytes| bytes.to_vec());
        assert_eq!(read(self.epochs.current), self.now);
        for (&epoch, expected) in &self.seen {
            assert_eq!(&read(epoch), expected, "epoch {epoch}");
        }
    }
}

#[test]
fn every_epoch_sees_what_it_saw_when_it_was_made() {
    for seed in 0..2000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut group = Group::new();
        for step in 0..random.random_range(1..30) {
            match random.random_range(0..6) {
                0..=2 => group.write(Some(vec![step + 1])),
                3 => group.write(None),
                4 => group.clone_now(),
                _ if !group.epochs.others.is_empty() => {
                    let index = random.random_range(0..group.epochs.others.len());
                    group.drop_clone(index);
                }
                _ => {}
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| group.check()));
            assert!(result.is_ok(), "seed {seed} step {step}");
        }
        // Without clones nothing but the current state is left.
        while !group.epochs.others.is_empty() {
            group.drop_clone(0);
        }
        let left = group.epochs.versions(&group.meta, Family::Vnodes, KEY).unwrap();
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
        batch.put(Family::Entries, keys::versioned(prefix, epoch), value);
    }
    meta.commit(batch).unwrap();
    let at = |epoch| {
        let mut found = Vec::new();
        scan(&meta, Family::Entries, (b"a", b"z"), epoch, &mut |_, value| {
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
