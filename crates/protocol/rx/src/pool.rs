//! Receive buffers that return to their pool when the last slice of them is dropped.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Size of a buffer: the longest datagram or merged run that UDP can carry.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

/// Maximum number of free buffers kept for reuse; more are returned to the allocator.
const FREE_BUFFERS_MAX: usize = 256;

/// Receives of up to this many bytes are copied out, so that a small unread datagram does not pin a large
/// buffer. Larger ones are passed on in the receive buffer.
const COPIED_BYTES_MAX: usize = 4096;

/// A pool of buffers of [`BUFFER_BYTES`] each.
pub(crate) struct BufferPool {
    /// Free buffers. The one returned last is used first because it is in a processor's caches.
    free: Arc<Mutex<Vec<Box<[u8]>>>>,
}

impl BufferPool {
    /// Creates an empty pool.
    pub(crate) fn new() -> BufferPool {
        BufferPool { free: Arc::default() }
    }

    /// Returns a reused or a new buffer.
    pub(crate) fn take(&self) -> Box<[u8]> {
        let used = self.free.lock().pop();
        used.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
    }

    /// Passes on the first `length` bytes of `buffer`, and leaves a free buffer in its place.
    pub(crate) fn pass_on(&self, buffer: &mut Box<[u8]>, length: usize) -> Bytes {
        let length = length.min(buffer.len());
        if length <= COPIED_BYTES_MAX {
            return Bytes::copy_from_slice(&buffer[..length]);
        }
        let data = std::mem::replace(buffer, self.take());
        let lent = Lent { data, length, free: Arc::clone(&self.free) };
        Bytes::from_owner(lent)
    }
}

/// A buffer in use, returned to the pool when its last slice is dropped.
struct Lent {
    data: Box<[u8]>,
    length: usize,
    free: Arc<Mutex<Vec<Box<[u8]>>>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.data[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        let mut free = self.free.lock();
        if free.len() < FREE_BUFFERS_MAX {
            free.push(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_with_its_last_slice() {
        let pool = BufferPool::new();
        let mut slot = pool.take();
        let home = slot.as_ptr();
        slot[..3].copy_from_slice(b"abc");
        let whole = pool.pass_on(&mut slot, COPIED_BYTES_MAX + 1);
        let part = whole.slice(..3);
        drop(whole);
        assert!(pool.free.lock().is_empty());
        assert_eq!(part, b"abc"[..]);
        drop(part);
        let again = pool.take();
        assert_eq!(again.as_ptr(), home);
    }

    #[test]
    fn small_receives_leave_the_buffer_where_it_is() {
        let pool = BufferPool::new();
        let mut slot = pool.take();
        let home = slot.as_ptr();
        assert_eq!(pool.pass_on(&mut slot, 28).len(), 28);
        assert_eq!(slot.as_ptr(), home);
    }
}
