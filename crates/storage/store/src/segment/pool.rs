//! A pool of objects that cost more to create than to keep.

use disk::DIRECT_ALIGNMENT;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};

/// A pool of reusable objects. The most recently used one is taken first: it is in a processor's caches.
pub(super) struct Pool<T> {
    waiting: Mutex<Waiting<T>>,
    /// Maximum total weight of idle objects; the excess is dropped.
    most: usize,
    weigh: fn(&T) -> usize,
}

struct Waiting<T> {
    things: Vec<T>,
    weight: usize,
}

impl<T> Pool<T> {
    /// Creates a pool of objects that weigh at most `most` in total. The weight of an object must not change
    /// while it is idle.
    pub(super) const fn of(most: usize, weigh: fn(&T) -> usize) -> Pool<T> {
        Pool { waiting: Mutex::new(Waiting { things: Vec::new(), weight: 0 }), most, weigh }
    }

    pub(super) fn take(&self) -> Option<T> {
        let mut waiting = self.waiting.lock();
        let thing = waiting.things.pop()?;
        waiting.weight -= (self.weigh)(&thing);
        Some(thing)
    }

    pub(super) fn give_back(&self, thing: T) {
        let weight = (self.weigh)(&thing);
        let mut waiting = self.waiting.lock();
        if waiting.weight + weight <= self.most {
            waiting.weight += weight;
            waiting.things.push(thing);
        }
    }
}

/// Buffers of all lengths. A new buffer would have to be zeroed, and the kernel would map its pages one by
/// one: together that costs as much as reading a chunk into it. The number in use is that of chunks encoded
/// and not yet written, four per writing client.
static BUFFERS: Pool<Vec<u8>> = Pool::of(32 << 20, Vec::len);

/// A buffer that starts at a multiple of [`DIRECT_ALIGNMENT`], with arbitrary initial contents. Dropping it
/// returns its memory to the pool.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Offset of the first aligned byte.
    start: usize,
    length: usize,
}

impl Buffer {
    pub(super) fn of(length: usize) -> Buffer {
        let mut bytes = BUFFERS.take().unwrap_or_default();
        if bytes.len() < length + DIRECT_ALIGNMENT {
            bytes.resize(length + DIRECT_ALIGNMENT, 0);
        }
        Buffer::whole(bytes).shortened(length)
    }

    /// Creates a buffer of all aligned bytes of this memory.
    pub(super) fn whole(bytes: Vec<u8>) -> Buffer {
        let start = bytes.as_ptr().align_offset(DIRECT_ALIGNMENT).min(bytes.len());
        Buffer { length: bytes.len() - start, start, bytes }
    }

    fn shortened(mut self, length: usize) -> Buffer {
        self.length = self.length.min(length);
        self
    }

    /// Returns the buffer's offset in its memory.
    pub(super) fn place_in_memory(&self) -> usize {
        self.start
    }

    /// Returns the memory and the buffer's offset in it.
    pub(super) fn into_memory(mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.bytes), self.start)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            BUFFERS.give_back(std::mem::take(&mut self.bytes));
        }
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
            assert!((buffer.as_ptr().addr()).is_multiple_of(DIRECT_ALIGNMENT));
            buffer.fill(7);
            assert_eq!(*buffer, vec![7; length]);
        }
    }

    #[test]
    fn the_last_one_goes_first_and_a_few_wait() {
        let pool = Pool::of(30, |thing: &usize| *thing);
        assert_eq!(pool.take(), None);
        for _ in 0..3 {
            (0..20).for_each(|thing| pool.give_back(thing));
            let waiting: Vec<usize> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!(waiting, (0..8).rev().collect::<Vec<_>>(), "28, and no 8 or more");
        }
    }
}
