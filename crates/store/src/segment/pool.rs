//! Things that cost more to make than to keep.

use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};

/// So many wait for their next use; more are thrown away. A context of a high level of compression has
/// megabytes, a buffer up to one.
const WAITING_MAX: usize = 8;

/// Things that wait for their next use. The one that was used last goes first: it is in a processor's caches.
pub(super) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    pub(super) const fn new() -> Pool<T> {
        Pool(Mutex::new(Vec::new()))
    }

    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().pop()
    }

    pub(super) fn give_back(&self, thing: T) {
        let mut waiting = self.0.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push(thing);
        }
    }
}

/// Buffers of all lengths. A fresh one would be filled with zeros first, and the kernel would give its pages one by
/// one: together that costs as much as reading a chunk into it.
static BUFFERS: Pool<Vec<u8>> = Pool::new();

/// So many bytes, whatever is in them at first. It waits for its next use when it is dropped, or with the last of the
/// [`Bytes`] that it became.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    pub(super) fn of(length: usize) -> Buffer {
        let mut bytes = BUFFERS.take().unwrap_or_default();
        if bytes.len() < length {
            bytes.resize(length, 0);
        }
        Buffer { bytes, length }
    }

    /// Its first bytes.
    pub(super) fn cut(self, length: usize) -> Bytes {
        Bytes::from_owner(self).slice(..length)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        BUFFERS.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_its_length_whatever_waited() {
        for length in [10, 0, 300, 20] {
            let mut buffer = Buffer::of(length);
            assert_eq!(buffer.len(), length);
            buffer.fill(7);
            let first = buffer.cut(length / 2);
            assert_eq!(first, vec![7; length / 2]);
        }
    }

    #[test]
    fn the_last_one_goes_first_and_a_few_wait() {
        let pool = Pool::new();
        assert_eq!(pool.take(), None);
        (0..20).for_each(|thing| pool.give_back(thing));
        let waiting: Vec<i32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(waiting, (0..8).rev().collect::<Vec<_>>());
    }
}
