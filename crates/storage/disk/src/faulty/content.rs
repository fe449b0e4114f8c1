//! One file: its visible and its durable contents, and the changes in between.

use super::{Garbling, Torn};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore};

/// Unit that a drive writes atomically, in bytes.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLength(usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    /// Contents that a running program reads.
    current: Vec<u8>,
    /// Contents that certainly survive a power failure, without `pending`.
    durable: Vec<u8>,
    /// Changes not covered by a sync, oldest first.
    pending: Vec<Change>,
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        bytes.resize(self.length_after(bytes.len()), 0);
        self.apply_to(0, bytes);
    }

    fn length_after(&self, length: usize) -> usize {
        match self {
            Change::Write { offset, bytes } => length.max(offset + bytes.len()),
            Change::SetLength(length) => *length,
        }
    }

    /// Applies the part of the change within `window`, which starts at `start`.
    fn apply_to(&self, start: usize, window: &mut [u8]) {
        let end = start + window.len();
        match self {
            Change::Write { offset, bytes } => {
                let (from, to) = (start.max(*offset), end.min(offset + bytes.len()));
                if from < to {
                    window[from - start..to - start].copy_from_slice(&bytes[from - offset..to - offset]);
                }
            }
            Change::SetLength(length) if *length < end => window[length.saturating_sub(start)..].fill(0),
            Change::SetLength(_) => {}
        }
    }

    /// Writes noise in place of the change; neighbouring bytes stay intact.
    fn garble(&self, start: usize, window: &mut [u8], rng: &mut SmallRng) {
        if let Change::Write { offset, bytes } = self {
            let (from, to) = (start.max(*offset), (start + window.len()).min(offset + bytes.len()));
            if from < to {
                rng.fill_bytes(&mut window[from - start..to - start]);
            }
        }
    }

    fn touches(&self, start: usize, end: usize) -> bool {
        match self {
            Change::Write { offset, bytes } => *offset < end && start < offset + bytes.len(),
            Change::SetLength(length) => *length < end,
        }
    }
}

impl Content {
    pub(super) fn length(&self) -> usize {
        self.current.len()
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.current.len());
        let count = buffer.len().min(self.current.len() - start);
        buffer[..count].copy_from_slice(&self.current[start..start + count]);
        count
    }

    pub(super) fn write(&mut self, offset: usize, bytes: Vec<u8>) {
        self.change(Change::Write { offset, bytes });
    }

    pub(super) fn set_length(&mut self, length: usize) {
        self.change(Change::SetLength(length));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Simulates a failed sync: some changes arrived, and the system drops the others.
    pub(super) fn fail_sync(&mut self, rng: &mut SmallRng, garbling: Garbling) {
        self.durable = self.after_crash(rng, garbling);
        self.pending.clear();
    }

    pub(super) fn flip_bit(&mut self, offset: usize, bit: u8) -> bool {
        let mask = 1 << (bit % 8);
        for bytes in [&mut self.current, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= mask;
            }
        }
        offset < self.current.len()
    }

    pub(super) fn crash(&self, rng: &mut SmallRng, garbling: Garbling) -> Content {
        let found = self.after_crash(rng, garbling);
        Content { current: found.clone(), durable: found, pending: Vec::new() }
    }

    fn after_crash(&self, rng: &mut SmallRng, garbling: Garbling) -> Vec<u8> {
        let arrived = arrived(rng, self.pending.len());
        let length = self.pending[..arrived]
            .iter()
            .fold(self.durable.len(), |length, change| change.length_after(length));
        let mut found = self.durable.clone();
        found.resize(length, 0);
        for (number, sector) in found.chunks_mut(SECTOR_BYTES).enumerate() {
            self.settle_sector(number * SECTOR_BYTES, sector, rng, garbling);
        }
        found
    }

    fn settle_sector(&self, start: usize, sector: &mut [u8], rng: &mut SmallRng, garbling: Garbling) {
        let end = start + sector.len();
        if !self.pending.iter().any(|change| change.touches(start, end)) {
            return;
        }
        if garbling.noise && rng.random_ratio(1, 16) {
            self.pending.iter().for_each(|change| change.garble(start, sector, rng));
            return;
        }
        let cut = if garbling.torn == Torn::Byte { rng.random_range(0..=sector.len()) } else { 0 };
        let (head, tail) = sector.split_at_mut(cut);
        self.apply_some(start, head, rng);
        self.apply_some(start + cut, tail, rng);
    }

    fn apply_some(&self, start: usize, window: &mut [u8], rng: &mut SmallRng) {
        for change in &self.pending[..arrived(rng, self.pending.len())] {
            change.apply_to(start, window);
        }
    }
}

/// Picks how many of `count` changes arrived: often none or all.
fn arrived(rng: &mut SmallRng, count: usize) -> usize {
    match rng.random_range(0..4) {
        0 => 0,
        1 => count,
        _ => rng.random_range(0..=count),
    }
}
