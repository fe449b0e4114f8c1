//! The only module of the crate with `unsafe` code: what neither the language nor a library can do safely.
#![allow(unsafe_code, reason = "see the module's text and each block's")]

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A source location that threads may set and read at any time.
#[derive(Debug)]
pub(crate) struct SiteCell(AtomicPtr<Location<'static>>);

impl SiteCell {
    /// Creates a cell without a location.
    pub(crate) const fn new() -> SiteCell {
        SiteCell(AtomicPtr::new(ptr::null_mut()))
    }

    /// Sets the location. An equal one is not written again, since other threads may be reading it.
    pub(crate) fn set(&self, site: &'static Location<'static>) {
        let site = ptr::from_ref(site).cast_mut();
        if self.0.load(Relaxed) != site {
            self.0.store(site, Relaxed);
        }
    }

    /// Returns the location that was set last.
    pub(crate) fn get(&self) -> Option<&'static Location<'static>> {
        // SAFETY: the pointer is null or came from a shared reference with static lifetime, in `set`, the
        // only place that writes it; nothing is written through it.
        unsafe { self.0.load(Relaxed).as_ref() }
    }
}

/// Places a probe of the provider `cellar` where it is expanded: an instruction that does nothing, and a note
/// in the program with its address and the registers that hold the arguments. There are at most six
/// arguments, which is what bpftrace reads on x86_64.
macro_rules! fire {
    ($name:ident, $($argument:expr),+) => {{
        // The macro of the crate `probe` contains its own `unsafe` block. SAFETY of that block: the assembly
        // is one `nop` with inputs only; apart from it, it adds only notes in sections that are not executed.
        probe::probe!(cellar, $name, $($argument),+);
    }};
}

/// Returns a text's address for a tracer, which copies at most as many bytes as the next argument specifies.
///
/// A tracer cannot wait for a page that is not in memory, and copies nothing then. The program itself may never read the
/// text, so it is read here, at both ends, as it may cross a page boundary.
fn address(text: &str) -> *const u8 {
    let bytes = text.as_bytes();
    if let [first, ..] = bytes
        && let [.., last] = bytes
    {
        // SAFETY: both pointers come from references. Only a volatile read remains although its result is unused.
        unsafe {
            ptr::read_volatile(first);
            ptr::read_volatile(last);
        }
    }
    text.as_ptr()
}

pub(crate) fn call_start(service: &str, opcode: u32, host: u64, waited_ns: u64) {
    fire!(call__start, address(service), service.len(), opcode, host, waited_ns);
}

pub(crate) fn call_end(procedure: &str, volume: u32, code: i32, total_ns: u64, bytes: u64) {
    fire!(call__end, address(procedure), procedure.len(), volume, code, total_ns, bytes);
}

pub(crate) fn disk_access(kind: &str, bytes: u64, ns: u64, failed: bool) {
    fire!(disk__access, address(kind), kind.len(), bytes, ns, u64::from(failed));
}

pub(crate) fn lock_wait(name: &str, ns: u64, holder: Option<&'static Location<'static>>) {
    let (file, line) = holder.map_or(("", 0), |site| (site.file(), site.line()));
    fire!(lock__wait, address(name), name.len(), ns, address(file), file.len(), line);
}

pub(crate) fn callback_break(clients: u64, ns: u64) {
    fire!(callback__break, clients, ns);
}

pub(crate) fn callback_send(host: u64, port: u16) {
    fire!(callback__send, host, port);
}

pub(crate) fn callback_end(host: u64, port: u16, outcome: &str) {
    fire!(callback__end, host, port, address(outcome), outcome.len());
}

pub(crate) fn cache_miss(cache: &str) {
    fire!(cache__miss, address(cache), cache.len());
}

pub(crate) fn cache_evict(cache: &str, bytes: u64, age_ns: u64) {
    fire!(cache__evict, address(cache), cache.len(), bytes, age_ns);
}

pub(crate) fn cache_purge(cache: &str, entries: u64, bytes: u64) {
    fire!(cache__purge, address(cache), cache.len(), entries, bytes);
}

pub(crate) fn packet_resend(connection: u32, call: u32, sequence: u32, bytes: u64) {
    fire!(packet__resend, connection, call, sequence, bytes);
}

pub(crate) fn queue_enter(waiting: u64) {
    fire!(queue__enter, waiting);
}

pub(crate) fn queue_leave(waited_ns: u64) {
    fire!(queue__leave, waited_ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    /// x86-64's page size; others are multiples of it.
    const PAGE: usize = 4096;
    /// A page that is in memory, in the entries of `/proc/self/pagemap`.
    const PRESENT: u64 = 1 << 63;

    /// Returns whether a page is in memory and mapped, without reading it.
    fn is_mapped(address: *const u8) -> bool {
        let mut entry = [0; 8];
        let pagemap = File::open("/proc/self/pagemap").expect("Linux");
        pagemap
            .read_exact_at(&mut entry, (address.addr() / PAGE * 8) as u64)
            .expect("an entry for each page");
        u64::from_ne_bytes(entry) & PRESENT != 0
    }

    #[test]
    fn a_text_is_in_memory_when_a_tracer_reads_it() {
        // Large enough to come from the system, which fills pages when they are first read.
        let memory = vec![0; 64 << 20];
        let border = (32 << 20) + memory.as_ptr().align_offset(PAGE);
        // SAFETY: zeros are UTF-8.
        let name = unsafe { std::str::from_utf8_unchecked(&memory[border - 2..border + 2]) };
        let ends = [name.as_ptr(), name.as_ptr().wrapping_add(name.len() - 1)];
        assert!(!ends.into_iter().any(is_mapped), "the test reads the text");
        cache_miss(name);
        assert!(ends.into_iter().all(is_mapped), "a tracer cannot read the text");
        cache_miss("");
    }
}
