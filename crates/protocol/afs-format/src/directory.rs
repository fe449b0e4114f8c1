//! The directory blob: what clients fetch as the data of a directory.
//!
//! A blob is 1 to 1023 pages of 2 KiB; a page is 64 slots of 32 bytes. Slot 0 of every page is its header
//! with a bitmap of the slots in use. In page 0, slots 1 to 12 hold the free counts of the first 128 pages
//! and a hash table of 128 chains. An entry takes as many consecutive slots as its name needs and is linked
//! into the chain of its name's hash. `docs/reference/formats/directory.md` shows the layout byte by byte
//! (source: OpenAFS `src/dir`).
//!
//! [`DirectoryBlob`] is edited entry by entry: an edit touches two or three pages, whatever the size of the
//! directory. New entries take the first gap that is large enough and go to the head of their chain, as in
//! OpenAFS and in clients that edit their own copy.

use base::VnodeId;
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use thiserror::Error;

/// Size of a page in bytes.
pub const PAGE_BYTES: usize = 2048;

/// Maximum number of pages of a directory (BIGMAXPAGES).
pub const PAGES_MAX: usize = 1023;

const SLOT_BYTES: usize = 32;
const SLOTS_PER_PAGE: usize = PAGE_BYTES / SLOT_BYTES;
/// Number of pages that have a free count in page 0 (MAXPAGES).
const COUNTED_PAGES: usize = 128;
const CHAINS: usize = 128;
/// Number of slots in page 0 that are not available for entries: header, free counts and hash table.
const HEADER_SLOTS: usize = 13;
const TAG: u16 = 1234;
const FLAG_IN_USE: u8 = 1;

// Offsets in a page's header.
const PAGE_COUNT: usize = 0;
const TAG_AT: usize = 2;
const FREE_COUNT: usize = 4;
const BITMAP: usize = 5;
// Offsets in page 0.
const FREE_COUNTS: usize = 32;
const HASH_TABLE: usize = 160;
// Offsets in an entry.
const ENTRY_FLAG: usize = 0;
const ENTRY_NEXT: usize = 2;
const ENTRY_VNODE: usize = 4;
const ENTRY_UNIQUE: usize = 8;
const ENTRY_NAME: usize = 12;

/// The vnode that an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryTarget {
    /// Vnode number, in the same volume.
    pub vnode: VnodeId,
    /// Uniquifier.
    pub unique: u32,
}

/// An entry with its position in the blob; [`DirectoryBlob::rebuild`] makes an identical blob from all of
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedEntry {
    /// Name of the entry.
    pub name: Vec<u8>,
    /// Vnode that it names.
    pub target: EntryTarget,
    /// First slot, counted from the start of the blob.
    pub slot: u16,
    /// Order within the hash chain, which is descending.
    pub sequence: u64,
}

/// Why an edit or a blob was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DirectoryError {
    /// The name is empty, longer than 256 bytes, or contains a NUL or a `/`.
    #[error("not a valid entry name")]
    InvalidName,
    /// The name already exists.
    #[error("the name exists already")]
    Exists,
    /// No page has space and no more pages are allowed (EFBIG).
    #[error("the directory is full")]
    Full,
    /// An entry has an invalid name, or is in a wrong position.
    #[error("not a directory: the entry {} (page {page}) has {what}", shown(name))]
    Entry {
        /// Name of the entry, without the NUL.
        name: Vec<u8>,
        /// The check that failed.
        what: &'static str,
        /// Page in which it failed.
        page: usize,
    },
    /// The bytes are not a directory blob.
    #[error("not a directory: {what} (page {page})")]
    Damaged {
        /// The check that failed.
        what: &'static str,
        /// Page in which it failed.
        page: usize,
    },
}

/// Maximum number of bytes of a name shown in an error.
const SHOWN_BYTES: usize = 64;

/// Formats a name for an error: escaped, and a long one cut and followed by its length.
fn shown(name: &[u8]) -> String {
    if name.len() <= SHOWN_BYTES {
        return format!("`{}`", name.escape_ascii());
    }
    format!("`{}...` ({} bytes)", name[..SHOWN_BYTES].escape_ascii(), name.len())
}

/// A directory blob that can be searched and edited.
#[derive(Clone, Debug)]
pub struct DirectoryBlob {
    pages: Vec<Bytes>,
    /// Number of free slots of every page.
    free: Vec<u8>,
    /// First slot of every entry, by name.
    index: HashMap<Box<[u8]>, u16>,
}

/// Returns the number of slots that an entry of this name takes.
fn slots_of(name: &[u8]) -> usize {
    1 + ((name.len() + 1 + 15) >> 5)
}

/// Returns the hash chain of a name. For names whose 32-bit hash has the top bit set, the chain counts
/// backwards, like C's remainder of a negative number, which every client reproduces.
fn chain_of(name: &[u8]) -> usize {
    let hash = name.iter().fold(0u32, |hash, &byte| hash.wrapping_mul(173).wrapping_add(u32::from(byte)));
    let chain = hash as usize & (CHAINS - 1);
    if chain != 0 && hash >= 1 << 31 { CHAINS - chain } else { chain }
}

fn page_of(slot: u16) -> (usize, usize) {
    (usize::from(slot) / SLOTS_PER_PAGE, usize::from(slot) % SLOTS_PER_PAGE * SLOT_BYTES)
}

fn get_u16(page: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([page[at], page[at + 1]])
}

fn get_u32(page: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

fn put_u16(page: &mut [u8], at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn bitmap(page: &[u8]) -> u64 {
    let mut bits = [0; 8];
    bits.copy_from_slice(&page[BITMAP..BITMAP + 8]);
    u64::from_le_bytes(bits)
}

fn set_bitmap(page: &mut [u8], bits: u64) {
    page[BITMAP..BITMAP + 8].copy_from_slice(&bits.to_le_bytes());
}

/// Returns a mask of `slots` bits from bit `first` on.
fn mask(first: usize, slots: usize) -> u64 {
    ((1 << slots) - 1) << first
}

fn new_page(count: u16, used: u64) -> BytesMut {
    let mut page = BytesMut::zeroed(PAGE_BYTES);
    put_u16(&mut page, PAGE_COUNT, count);
    put_u16(&mut page, TAG_AT, TAG);
    page[FREE_COUNT] = (SLOTS_PER_PAGE - used.count_ones() as usize) as u8;
    set_bitmap(&mut page, used);
    page
}

/// Returns whether `name` is valid for an entry.
pub fn is_valid_name(name: &[u8]) -> bool {
    name_fault(name).is_none()
}

/// Returns why `name` is not valid for an entry; `None` if it is valid.
fn name_fault(name: &[u8]) -> Option<&'static str> {
    match name.len() {
        0 => Some("an empty name"),
        1..=base::limits::NAME_BYTES_MAX => {
            let is_path = name.iter().any(|byte| matches!(byte, 0 | b'/'));
            is_path.then_some("a name with a `/` or a NUL")
        }
        _ => Some("a name longer than 256 bytes"),
    }
}

impl DirectoryBlob {
    /// Creates an empty directory, with only `.` and `..`.
    pub fn new(itself: EntryTarget, parent: EntryTarget) -> DirectoryBlob {
        let mut blob = DirectoryBlob::without_entries();
        for (name, target) in [(&b"."[..], itself), (b"..", parent)] {
            blob.insert(name, target).unwrap_or_else(|_| unreachable!("an empty directory has room"));
        }
        blob
    }

    /// Creates one page without entries.
    fn without_entries() -> DirectoryBlob {
        let used = mask(0, HEADER_SLOTS);
        let mut page = new_page(1, used);
        page[FREE_COUNTS] = page[FREE_COUNT];
        page[FREE_COUNTS + 1..FREE_COUNTS + COUNTED_PAGES].fill(SLOTS_PER_PAGE as u8);
        let free = vec![page[FREE_COUNT]];
        DirectoryBlob { pages: vec![page.freeze()], free, index: HashMap::new() }
    }

    /// Creates the blob of `pages` pages with these entries at their positions.
    ///
    /// # Errors
    /// `Damaged` if entries overlap or do not fit.
    pub fn rebuild(pages: usize, mut entries: Vec<PlacedEntry>) -> Result<DirectoryBlob, DirectoryError> {
        let mut blob = DirectoryBlob::without_entries();
        if pages == 0 || pages > PAGES_MAX {
            return Err(DirectoryError::Damaged { what: "the number of pages", page: pages });
        }
        (1..pages).for_each(|_| blob.add_page());
        entries.sort_unstable_by_key(|entry| (entry.sequence, entry.slot));
        for entry in entries {
            blob.place(&entry)?;
        }
        Ok(blob)
    }

    fn place(&mut self, entry: &PlacedEntry) -> Result<(), DirectoryError> {
        let (page, at) = page_of(entry.slot);
        let slots = slots_of(&entry.name);
        let first = at / SLOT_BYTES;
        let damaged = |what| DirectoryError::Damaged { what, page };
        if let Some(what) = name_fault(&entry.name) {
            return Err(DirectoryError::Entry { name: entry.name.clone(), what, page });
        }
        if page >= self.pages.len() || first + slots > SLOTS_PER_PAGE {
            return Err(damaged("an entry lies outside"));
        }
        if bitmap(&self.pages[page]) & mask(first, slots) != 0 {
            return Err(damaged("entries overlap"));
        }
        if self.index.insert(entry.name.clone().into(), entry.slot).is_some() {
            return Err(damaged("a name comes twice"));
        }
        self.write_entry(entry.slot, &entry.name, entry.target);
        Ok(())
    }

    /// Parses a blob. Checks everything that a client would follow; unused bytes are preserved.
    pub fn parse(bytes: &Bytes) -> Result<DirectoryBlob, DirectoryError> {
        let pages = bytes.len() / PAGE_BYTES;
        if !(1..=PAGES_MAX).contains(&pages) || !bytes.len().is_multiple_of(PAGE_BYTES) {
            return Err(DirectoryError::Damaged { what: "the length", page: pages });
        }
        let pages: Vec<Bytes> =
            (0..pages).map(|page| bytes.slice(page * PAGE_BYTES..(page + 1) * PAGE_BYTES)).collect();
        for (page, bytes) in pages.iter().enumerate() {
            let header = if page == 0 { HEADER_SLOTS } else { 1 };
            if get_u16(bytes, TAG_AT) != TAG || bitmap(bytes) & mask(0, header) != mask(0, header) {
                return Err(DirectoryError::Damaged { what: "a page header", page });
            }
        }
        let free = pages.iter().map(|page| bitmap(page).count_zeros() as u8).collect();
        let mut blob = DirectoryBlob { pages, free, index: HashMap::new() };
        let mut claimed = vec![0u64; blob.pages.len()];
        for chain in 0..CHAINS {
            blob.parse_chain(chain, &mut claimed)?;
        }
        Ok(blob)
    }

    fn parse_chain(&mut self, chain: usize, claimed: &mut [u64]) -> Result<(), DirectoryError> {
        let mut slot = self.chain_head(chain);
        while slot != 0 {
            let (page, at) = page_of(slot);
            let damaged = |what| DirectoryError::Damaged { what, page };
            let bytes = self.pages.get(page).ok_or(damaged("a chain leads outside"))?;
            let tail = bytes.get(at + ENTRY_NAME..).unwrap_or_default();
            let length = tail.iter().position(|&byte| byte == 0).ok_or(damaged("a name does not end"))?;
            let name = &tail[..length];
            let (first, slots) = (at / SLOT_BYTES, slots_of(name));
            let refused = |what| DirectoryError::Entry { name: name.to_vec(), what, page };
            if let Some(what) = name_fault(name) {
                return Err(refused(what));
            }
            if first + slots > SLOTS_PER_PAGE {
                return Err(refused("a name that extends beyond its page"));
            }
            if chain_of(name) != chain {
                return Err(refused("a position in another name's chain"));
            }
            let wanted = mask(first, slots);
            if bitmap(bytes) & wanted != wanted || claimed[page] & wanted != 0 {
                return Err(refused("slots that are free or belong to another entry"));
            }
            claimed[page] |= wanted;
            let next = get_u16(bytes, at + ENTRY_NEXT);
            if self.index.contains_key(name) {
                return Err(refused("the name of another entry"));
            }
            self.index.insert(name.into(), slot);
            slot = next;
        }
        Ok(())
    }

    /// Returns the vnode that `name` refers to.
    pub fn lookup(&self, name: &[u8]) -> Option<EntryTarget> {
        self.index.get(name).map(|&slot| self.target(slot))
    }

    /// Returns the first slot of the entry with this name.
    pub fn slot(&self, name: &[u8]) -> Option<u16> {
        self.index.get(name).copied()
    }

    /// Adds an entry and returns its first slot.
    ///
    /// # Errors
    /// `InvalidName`, `Exists`, `Full`; nothing is changed then.
    pub fn insert(&mut self, name: &[u8], target: EntryTarget) -> Result<u16, DirectoryError> {
        if !is_valid_name(name) {
            return Err(DirectoryError::InvalidName);
        }
        if self.index.contains_key(name) {
            return Err(DirectoryError::Exists);
        }
        let slot = self.find_gap(slots_of(name)).ok_or(DirectoryError::Full)?;
        self.index.insert(name.into(), slot);
        self.write_entry(slot, name, target);
        Ok(slot)
    }

    /// Removes an entry and returns the vnode that it named; `None` if there is no such entry.
    pub fn remove(&mut self, name: &[u8]) -> Option<EntryTarget> {
        let slot = self.index.remove(name)?;
        let target = self.target(slot);
        self.unlink(name, slot);
        let (page, at) = page_of(slot);
        let (first, slots) = (at / SLOT_BYTES, slots_of(name));
        self.edit(page, |bytes| {
            bytes[at..at + slots * SLOT_BYTES].fill(0);
            set_bitmap(bytes, bitmap(bytes) & !mask(first, slots));
        });
        self.set_free(page, self.free[page] + slots as u8);
        Some(target)
    }

    /// Returns the number of entries, including `.` and `..`.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether there are no entries except `.` and `..`.
    pub fn is_empty(&self) -> bool {
        self.index.keys().all(|name| matches!(&name[..], b"." | b".."))
    }

    /// Returns the length in bytes.
    pub fn length_bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }

    /// Returns the pages.
    pub fn pages(&self) -> &[Bytes] {
        &self.pages
    }

    /// Returns the blob's bytes from `offset`, at most `length` of them, without copying.
    pub fn slice(&self, offset: u64, length: u64) -> Vec<Bytes> {
        let end = offset.saturating_add(length).min(self.length_bytes());
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let (page, from) = ((at / PAGE_BYTES as u64) as usize, (at % PAGE_BYTES as u64) as usize);
            let to = PAGE_BYTES.min(from + (end - at) as usize);
            out.push(self.pages[page].slice(from..to));
            at += (to - from) as u64;
        }
        out
    }

    /// Returns all entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], EntryTarget)> {
        self.index.iter().map(|(name, &slot)| (&name[..], self.target(slot)))
    }

    /// Returns all entries with their positions; `sequence` gives the order in each chain.
    pub fn placed_entries(&self) -> Vec<PlacedEntry> {
        let mut out = Vec::with_capacity(self.index.len());
        for chain in 0..CHAINS {
            let begin = out.len();
            let mut slot = self.chain_head(chain);
            while slot != 0 {
                let (page, at) = page_of(slot);
                let tail = &self.pages[page][at + ENTRY_NAME..];
                let name = tail.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
                out.push(PlacedEntry { name, target: self.target(slot), slot, sequence: 0 });
                slot = get_u16(&self.pages[page], at + ENTRY_NEXT);
            }
            out[begin..]
                .iter_mut()
                .rev()
                .enumerate()
                .for_each(|(order, entry)| entry.sequence = order as u64);
        }
        out
    }

    fn target(&self, slot: u16) -> EntryTarget {
        let (page, at) = page_of(slot);
        let bytes = &self.pages[page];
        EntryTarget {
            vnode: VnodeId(get_u32(bytes, at + ENTRY_VNODE)),
            unique: get_u32(bytes, at + ENTRY_UNIQUE),
        }
    }

    fn chain_head(&self, chain: usize) -> u16 {
        get_u16(&self.pages[0], HASH_TABLE + 2 * chain)
    }

    /// Returns the first gap of `slots` free slots; adds a page if there is none.
    fn find_gap(&mut self, slots: usize) -> Option<u16> {
        let in_page = |page: usize| {
            let free = !bitmap(&self.pages[page]);
            let starts = (1..slots).fold(free, |starts, distance| starts & (free >> distance));
            (starts != 0).then(|| (page * SLOTS_PER_PAGE) as u16 + starts.trailing_zeros() as u16)
        };
        let candidates = (0..self.pages.len()).filter(|&page| usize::from(self.free[page]) >= slots);
        if let Some(slot) = candidates.into_iter().find_map(in_page) {
            return Some(slot);
        }
        if self.pages.len() == PAGES_MAX {
            return None;
        }
        self.add_page();
        Some(((self.pages.len() - 1) * SLOTS_PER_PAGE) as u16 + 1)
    }

    fn add_page(&mut self) {
        let page = self.pages.len();
        self.pages.push(new_page(0, 1).freeze());
        self.free.push(0);
        self.set_free(page, SLOTS_PER_PAGE as u8 - 1);
        let pages = self.pages.len() as u16;
        self.edit(0, |bytes| put_u16(bytes, PAGE_COUNT, pages));
    }

    fn set_free(&mut self, page: usize, free: u8) {
        self.free[page] = free;
        if page < COUNTED_PAGES {
            self.edit(0, |bytes| bytes[FREE_COUNTS + page] = free);
        }
    }

    /// Writes an entry into free slots and links it at the head of its chain.
    fn write_entry(&mut self, slot: u16, name: &[u8], target: EntryTarget) {
        let chain = chain_of(name);
        let next = self.chain_head(chain);
        let (page, at) = page_of(slot);
        let (first, slots) = (at / SLOT_BYTES, slots_of(name));
        self.edit(page, |bytes| {
            set_bitmap(bytes, bitmap(bytes) | mask(first, slots));
            let entry = &mut bytes[at..at + slots * SLOT_BYTES];
            entry.fill(0);
            entry[ENTRY_FLAG] = FLAG_IN_USE;
            put_u16(entry, ENTRY_NEXT, next);
            entry[ENTRY_VNODE..ENTRY_UNIQUE].copy_from_slice(&target.vnode.0.to_be_bytes());
            entry[ENTRY_UNIQUE..ENTRY_NAME].copy_from_slice(&target.unique.to_be_bytes());
            entry[ENTRY_NAME..ENTRY_NAME + name.len()].copy_from_slice(name);
        });
        self.edit(0, |bytes| put_u16(bytes, HASH_TABLE + 2 * chain, slot));
        self.set_free(page, self.free[page] - slots as u8);
    }

    /// Removes an entry from its chain.
    fn unlink(&mut self, name: &[u8], slot: u16) {
        let next_of = |blob: &DirectoryBlob, slot: u16| {
            let (page, at) = page_of(slot);
            get_u16(&blob.pages[page], at + ENTRY_NEXT)
        };
        let next = next_of(self, slot);
        let chain = chain_of(name);
        let (mut page, mut at) = (0, HASH_TABLE + 2 * chain);
        let mut here = self.chain_head(chain);
        while here != slot {
            let (entry_page, entry_at) = page_of(here);
            (page, at) = (entry_page, entry_at + ENTRY_NEXT);
            here = next_of(self, here);
        }
        self.edit(page, |bytes| put_u16(bytes, at, next));
    }

    /// Edits a page in place, or a copy of it if the old one is still being sent.
    fn edit(&mut self, page: usize, change: impl FnOnce(&mut [u8])) {
        let page = &mut self.pages[page];
        let shared = std::mem::take(page);
        let mut bytes = shared.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        change(&mut bytes);
        *page = bytes.freeze();
    }
}

#[cfg(test)]
mod tests;
