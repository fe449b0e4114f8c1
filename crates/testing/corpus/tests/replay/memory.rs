//! An allocator that counts the memory held by each thread.
#![allow(unsafe_code, reason = "implementing an allocator is unsafe; this one counts and calls the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(change: isize) {
    // An ending thread has no counters any more.
    let _ = LIVE_BYTES.try_with(|live| {
        live.set(live.get() + change);
        PEAK_BYTES.with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Returns the peak of the memory that this thread held while `work` ran, beyond what it held before, in
/// bytes.
pub(crate) fn peak(work: impl FnOnce()) -> usize {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    work();
    (PEAK_BYTES.get() - before).max(0) as usize
}

#[test]
fn the_peak_is_seen() {
    let peak = peak(|| {
        for _ in 0..10 {
            drop(std::hint::black_box(vec![1u8; 1 << 20]));
        }
    });
    assert!((1 << 20..2 << 20).contains(&peak), "{peak}");
}
