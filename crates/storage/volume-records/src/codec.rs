//! Values of volume records, as specified in `docs/reference/formats/volume.md`. Every value starts with its
//! version; an empty value means that the record was deleted in its epoch.
//!
//! A `put_` function returns a record's value; the `get_` function of the same name decodes it, and returns
//! `None` for a value that no version of the program writes.

mod call_result;
mod extensions;
mod listed_host;
mod lock;
mod past;
mod received;
mod sharing;
mod totals;

use crate::policy::{Kept, Period, Policy};
use crate::rows::RowKey;
use crate::totals::Unfolded;
use crate::{FileKind, ReadView, Rollback, SnapshotOf, VnodeStatus, VolumeHeader};
use afs_format::acl::{Acl, AclEntry};
use afs_format::directory::EntryTarget;
use base::{Rights, SnapshotName, UnixTime, UserId, VnodeId, VolumeId, VolumeName, VolumeType};
use bytes::Bytes;
use std::sync::Arc;
use store::ChunkAddress;
use store::encryption::SEALED_VALUE_BYTES;

mod scrub;

pub use call_result::{get_deleted_results, get_recorded_call, put_deleted_results, put_recorded_call};
pub use listed_host::{get_listed_host, put_listed_host};
pub use lock::{get_lock, put_lock};
pub use past::{get_past, put_past};
pub use received::{get_receipt, get_splitting, put_receipt, put_splitting};
pub use sharing::{ROW_BYTES, get_row, get_sums, put_row, put_sums, shared_row};
pub use totals::{get_totals, put_totals};

pub use scrub::{ScrubState, StoredDamage, get_damage, get_scrub_state, put_damage, put_scrub_state};

const VERSION: u8 = 1;
/// Version of a header with sections after its texts.
const VERSION_WITH_SECTIONS: u8 = 2;

/// Parses values from the front of a record; `None` if it ends too early.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn open(value: &'a [u8]) -> Option<Fields<'a>> {
        let (version, fields) = Fields::versioned(value)?;
        (version == VERSION).then_some(fields)
    }

    fn versioned(value: &'a [u8]) -> Option<(u8, Fields<'a>)> {
        let mut fields = Fields(value);
        Some((fields.u8()?, fields))
    }

    /// Starts a header, with or without sections.
    fn header(value: &'a [u8]) -> Option<(bool, Fields<'a>)> {
        let (version, fields) = Fields::versioned(value)?;
        matches!(version, VERSION | VERSION_WITH_SECTIONS).then_some((version != VERSION, fields))
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(bytes)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn time(&mut self) -> Option<UnixTime> {
        self.u32().map(UnixTime)
    }

    fn volume(&mut self) -> Option<VolumeId> {
        self.u32().map(VolumeId)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.short_bytes()?).ok()
    }

    fn short_bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.u8()?.into();
        Some(self.take(length)?.to_vec())
    }
}

/// Builds a record by appending values.
struct Record(Vec<u8>);

/// Initial capacity, which suffices for most records.
const RECORD_BYTES: usize = 160;

impl Record {
    fn new() -> Record {
        Record::with_room(RECORD_BYTES)
    }

    fn with_room(bytes: usize) -> Record {
        let mut record = Vec::with_capacity(bytes);
        record.push(VERSION);
        Record(record)
    }

    fn u8(mut self, value: u8) -> Record {
        self.0.push(value);
        self
    }

    fn bytes(mut self, value: &[u8]) -> Record {
        self.0.extend_from_slice(value);
        self
    }

    fn u16(self, value: u16) -> Record {
        self.bytes(&value.to_be_bytes())
    }

    fn u32(self, value: u32) -> Record {
        self.bytes(&value.to_be_bytes())
    }

    fn i32(self, value: i32) -> Record {
        self.bytes(&value.to_be_bytes())
    }

    fn u64(self, value: u64) -> Record {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a section of a header; at most 65,535 bytes.
    fn section(self, number: u8, contents: &[u8]) -> Record {
        self.u8(number).u16(contents.len() as u16).bytes(contents)
    }

    /// Appends a text, truncated to at most 255 bytes at a character boundary.
    fn text(self, value: &str) -> Record {
        self.short_bytes(cut(value, 255).as_bytes())
    }

    /// Writes at most the first 255 bytes.
    fn short_bytes(self, value: &[u8]) -> Record {
        let value = &value[..value.len().min(255)];
        self.u8(value.len() as u8).bytes(value)
    }
}

/// Truncates `text` to at most `bytes_max` bytes at a character boundary.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let end = text.char_indices().map(|(at, character)| at + character.len_utf8());
    &text[..end.take_while(|&end| end <= bytes_max).last().unwrap_or(0)]
}

/// A decoded vnode record.
#[derive(Clone, Debug, PartialEq)]
pub struct Vnode {
    /// The status; its vnode number is from the record's key.
    pub status: VnodeStatus,
    /// Chunk size of the file, as a power of 2.
    pub chunk_shift: u8,
    /// Access list of a directory.
    pub acl: Option<Arc<Acl>>,
}

/// Encodes a vnode.
pub fn put_vnode(vnode: &Vnode) -> Vec<u8> {
    let s = &vnode.status;
    let record = Record::new()
        .u8(s.kind as u8)
        .u8(vnode.chunk_shift)
        .u16(s.mode)
        .i32(s.owner.0)
        .i32(s.group)
        .u32(s.links)
        .u64(s.length)
        .u64(s.data_version)
        .u32(s.unique)
        .u32(s.client_modified.0)
        .u32(s.server_modified.0)
        .i32(s.author.0)
        .u32(s.parent.0)
        .u32(s.parent_unique);
    vnode.acl.iter().fold(record, |record, acl| put_acl(record, acl)).0
}

fn put_acl(record: Record, acl: &Acl) -> Record {
    let (positive, negative) = (acl.positive(), acl.negative());
    let record = record.u8(positive.len() as u8).u8(negative.len() as u8);
    let entries = positive.iter().chain(negative);
    entries.fold(record, |record, entry| record.i32(entry.id.0).u32(entry.rights.bits()))
}

/// Decodes the record of this vnode.
pub fn get_vnode(vnode: VnodeId, value: &[u8]) -> Option<Vnode> {
    let mut f = Fields::open(value)?;
    let kind = FileKind::from_wire(f.u8()?)?;
    let chunk_shift = f.u8().filter(|shift| (4..=20).contains(shift))?;
    let status = VnodeStatus {
        vnode,
        kind,
        mode: f.u16()?,
        owner: UserId(f.i32()?),
        group: f.i32()?,
        links: f.u32()?,
        length: f.u64()?,
        data_version: f.u64()?,
        unique: f.u32()?,
        client_modified: f.time()?,
        server_modified: f.time()?,
        author: UserId(f.i32()?),
        parent: VnodeId(f.u32()?),
        parent_unique: f.u32()?,
    };
    let acl = if kind == FileKind::Directory { Some(Arc::new(get_acl(&mut f)?)) } else { None };
    Some(Vnode { status, chunk_shift, acl })
}

fn get_acl(f: &mut Fields<'_>) -> Option<Acl> {
    let (positive, negative) = (f.u8()?, f.u8()?);
    let mut entries = |count: u8| -> Option<Vec<AclEntry>> {
        (0..count)
            .map(|_| Some(AclEntry { id: UserId(f.i32()?), rights: Rights::from_bits(f.u32()?) }))
            .collect()
    };
    let positive = entries(positive)?;
    Acl::new(&positive, &entries(negative)?).ok()
}

/// A decoded directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The vnode that the name refers to.
    pub target: EntryTarget,
    /// Slot in the blob.
    pub slot: u16,
    /// Data version of the directory when the entry was added, which orders its hash chain.
    pub sequence: u64,
}

/// Encodes a directory entry.
pub fn put_entry(entry: &Entry) -> Vec<u8> {
    Record::new().u32(entry.target.vnode.0).u32(entry.target.unique).u16(entry.slot).u64(entry.sequence).0
}

/// Decodes a directory entry.
pub fn get_entry(value: &[u8]) -> Option<Entry> {
    let mut f = Fields::open(value)?;
    let target = EntryTarget { vnode: VnodeId(f.u32()?), unique: f.u32()? };
    Some(Entry { target, slot: f.u16()?, sequence: f.u64()? })
}

/// The contents of one chunk of a file. Contents shorter than the chunk are followed by zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// In the chunk store.
    Chunk {
        /// Address of the chunk.
        address: ChunkAddress,
        /// Number of its bytes that are used.
        length: u32,
    },
    /// In the record itself.
    Inline(Bytes),
    /// In the record itself, encrypted ([`store::ChunkStore::seal`] with the record's key, without its
    /// epoch).
    Sealed(Bytes),
    /// In a chunk that several extents may share.
    Shared {
        /// Row that has the chunk's address.
        row: RowKey,
        /// Length in bytes.
        length: u32,
    },
}

impl Extent {
    /// Returns the chunk that only this extent names, if any.
    pub fn address(&self) -> Option<ChunkAddress> {
        match self {
            Extent::Chunk { address, .. } => Some(*address),
            Extent::Inline(_) | Extent::Sealed(_) | Extent::Shared { .. } => None,
        }
    }

    /// Returns the length of the contents.
    pub fn length(&self) -> u64 {
        match self {
            Extent::Chunk { length, .. } | Extent::Shared { length, .. } => u64::from(*length),
            Extent::Inline(bytes) => bytes.len() as u64,
            Extent::Sealed(bytes) => bytes.len().saturating_sub(SEALED_VALUE_BYTES) as u64,
        }
    }
}

const EXTENT_CHUNK: u8 = 0;
const EXTENT_INLINE: u8 = 1;
const EXTENT_SEALED: u8 = 2;
const EXTENT_SHARED: u8 = 3;
const EXTENT_ROW: u8 = 4;

/// Encodes an extent.
pub fn put_extent(extent: &Extent) -> Vec<u8> {
    match extent {
        Extent::Chunk { address, length } => {
            Record::new().u8(EXTENT_CHUNK).u32(*length).bytes(&address.to_bytes()).0
        }
        Extent::Inline(bytes) => Record::new().u8(EXTENT_INLINE).bytes(bytes).0,
        Extent::Sealed(bytes) => Record::new().u8(EXTENT_SEALED).bytes(bytes).0,
        Extent::Shared { row, length } => Record::new().u8(EXTENT_SHARED).u32(*length).bytes(&row.0).0,
    }
}

/// Decodes an extent; `None` also for the row of a shared chunk.
pub fn get_extent(value: &[u8]) -> Option<Extent> {
    let mut f = Fields::open(value)?;
    match f.u8()? {
        EXTENT_CHUNK => {
            let length = f.u32()?;
            Some(Extent::Chunk { length, address: ChunkAddress::from_bytes(f.0)? })
        }
        EXTENT_INLINE => Some(Extent::Inline(Bytes::copy_from_slice(f.0))),
        EXTENT_SEALED => Some(Extent::Sealed(Bytes::copy_from_slice(f.0))),
        EXTENT_SHARED => {
            let length = f.u32()?;
            Some(Extent::Shared { length, row: RowKey(f.0.try_into().ok()?) })
        }
        _ => None,
    }
}

/// Returns the chunk that a record of the family extents names, if any: the row of a shared chunk names one,
/// but an extent that refers to a row does not, and neither does an empty value. The outer `None` means that
/// the record cannot be read.
#[allow(clippy::option_option, reason = "like all readers here, the outer one reports damage")]
pub fn extent_address(value: &[u8]) -> Option<Option<ChunkAddress>> {
    if value.is_empty() {
        return Some(None);
    }
    let mut f = Fields::open(value)?;
    match f.u8()? {
        EXTENT_CHUNK => {
            f.u32()?;
            ChunkAddress::from_bytes(f.0).map(Some)
        }
        EXTENT_INLINE | EXTENT_SEALED => Some(None),
        EXTENT_SHARED => shared_row(value).map(|_| None),
        EXTENT_ROW => get_row(value).map(|row| Some(row.address)),
        _ => None,
    }
}

/// Fields of a volume that change with almost every operation, stored separately from its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Sum of the blocks of all vnodes, in KiB.
    pub used_kib: u64,
    /// Number of vnodes, excluding the root directory.
    pub file_count: u64,
    /// Number of these that are directories.
    pub directory_count: u64,
    /// Next uniquifier to allocate.
    pub next_unique: u32,
    /// Next vnode number of a file or link; even.
    pub next_file: u32,
    /// Next vnode number of a directory; odd.
    pub next_directory: u32,
    /// Time of the last change of anything in the volume.
    pub updated: UnixTime,
    /// Number of changes since creation (volUpdateCounter).
    pub update_counter: u32,
    /// Date of the last access, precise to the day.
    pub accessed: UnixTime,
    /// Accesses on the current day.
    pub day_use: u32,
    /// Start of the current day.
    pub day_use_date: UnixTime,
    /// Accesses on each of the previous seven days, yesterday first.
    pub week_use: [u32; 7],
    /// Number of changes of contents, including rollbacks and restores; never decreases.
    pub changes: u64,
    /// Highest data version that any of its vnodes has ever had.
    pub version_max: u64,
    /// Changes of directory totals that are not yet in the records; `None` if there are no totals.
    pub unfolded: Option<Unfolded>,
}

/// Exceeds any data version of a volume whose record lacks the maximum.
const UNKNOWN_VERSION_MAX: u64 = 1 << 31;

/// Encodes counters.
pub fn put_counters(c: &Counters) -> Vec<u8> {
    let unfolded = c.unfolded.as_ref().map_or(0, |unfolded| totals::PART_BYTES * unfolded.len());
    let record = Record::with_room(RECORD_BYTES + unfolded)
        .u64(c.used_kib)
        .u64(c.file_count)
        .u64(c.directory_count)
        .u32(c.next_unique)
        .u32(c.next_file)
        .u32(c.next_directory)
        .u32(c.updated.0)
        .u32(c.update_counter)
        .u32(c.accessed.0)
        .u32(c.day_use)
        .u32(c.day_use_date.0);
    let record = c.week_use.iter().fold(record, |record, &uses| record.u32(uses));
    let record = record.u64(c.changes).u64(c.version_max);
    c.unfolded.iter().fold(record, totals::put_unfolded).0
}

/// Decodes counters. Records that lack the latest fields, of older versions of the program, have defaults
/// for them.
pub fn get_counters(value: &[u8]) -> Option<Counters> {
    let mut f = Fields::open(value)?;
    let mut counters = Counters {
        used_kib: f.u64()?,
        file_count: f.u64()?,
        directory_count: f.u64()?,
        next_unique: f.u32()?,
        next_file: f.u32()?,
        next_directory: f.u32()?,
        updated: f.time()?,
        update_counter: f.u32()?,
        accessed: f.time()?,
        day_use: f.u32()?,
        day_use_date: f.time()?,
        week_use: [0; 7],
        changes: 0,
        version_max: UNKNOWN_VERSION_MAX,
        unfolded: None,
    };
    for uses in &mut counters.week_use {
        *uses = f.u32()?;
    }
    // Records written before snapshots existed end here.
    counters.changes = if f.0.is_empty() { counters.update_counter.into() } else { f.u64()? };
    counters.version_max = if f.0.is_empty() { UNKNOWN_VERSION_MAX } else { f.u64()? };
    // Records written before totals existed end here.
    if !f.0.is_empty() {
        counters.unfolded = Some(totals::get_unfolded(&mut f)?);
    }
    // File numbers are even, directory numbers odd, and the root exists.
    let Counters { next_file, next_directory, .. } = counters;
    let sound = next_file >= 2 && next_file % 2 == 0 && next_directory >= 3 && next_directory % 2 == 1;
    sound.then_some(counters)
}

/// A volume's header record: the fields that [`Counters`] does not have, and the location of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHeader {
    /// Group of volumes that share records.
    pub group: u64,
    /// Versions of the group's records that the volume sees.
    pub read_view: ReadView,
    /// The header, including the fields that are stored in the counters.
    pub header: VolumeHeader,
}

const IN_SERVICE: u8 = 1;
const BLESSED: u8 = 2;
/// Group and epoch, kind, flags and mark, seven words of ids and numbers, two quotas, four dates.
const HEADER_BYTES_BEFORE_NAME: usize = 2 * 8 + 3 + 7 * 4 + 2 * 8 + 4 * 4;

/// Encodes a header; the fields that [`Counters`] has are left out.
pub fn put_header(stored: &StoredHeader) -> Vec<u8> {
    let h = &stored.header;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let sections = put_sections(stored);
    let version = if sections.is_empty() { VERSION } else { VERSION_WITH_SECTIONS };
    let record = Record(vec![version])
        .u64(stored.group)
        .u64(stored.read_view.epoch)
        .u8(h.kind as u8)
        .u8(flag(h.in_service, IN_SERVICE) | flag(h.blessed, BLESSED))
        .u8(h.destroy_me)
        .u32(h.id.0)
        .u32(h.parent.0)
        .u32(h.clone.0)
        .u32(h.backup.0)
        .u32(h.restored_from.0)
        .i32(h.owner)
        .u32(h.account)
        .u64(h.quota_max_kib)
        .u64(h.quota_min_kib)
        .u32(h.created.0)
        .u32(h.expires.0)
        .u32(h.backed_up.0)
        .u32(h.copied.0)
        .text(h.name.as_str())
        .short_bytes(&h.offline_message)
        .short_bytes(&h.message_of_the_day);
    let length = (sections.len() as u16).to_be_bytes();
    let record = if sections.is_empty() { record } else { record.bytes(&length).bytes(&sections) };
    extensions::put(record, h).0
}

/// Numbers of the sections after a header's texts; a section has a number, a length and contents.
const SECTION_ROLLBACKS: u8 = 1;
const SECTION_SNAPSHOT: u8 = 2;
const SECTION_STANDS_FOR: u8 = 3;

fn put_sections(stored: &StoredHeader) -> Vec<u8> {
    let mut sections = Record(vec![]);
    let rollbacks = &stored.read_view.rollbacks;
    if !rollbacks.is_empty() {
        let put = |record: Record, rollback: &Rollback| {
            record.u64(rollback.after).u64(rollback.until).u64(rollback.version).u32(rollback.at.0)
        };
        sections = sections.section(SECTION_ROLLBACKS, &rollbacks.iter().fold(Record(vec![]), put).0);
    }
    if let Some(snapshot) = &stored.header.snapshot {
        let contents = Record(vec![]).u32(snapshot.volume.0).text(snapshot.name.as_str());
        sections = sections.section(SECTION_SNAPSHOT, &contents.0);
    }
    if let Some(VolumeId(number)) = stored.header.stands_for {
        sections = sections.section(SECTION_STANDS_FOR, &number.to_be_bytes());
    }
    sections.0
}

/// Reads the sections. An unknown section is an error, since it may change the meaning of the others.
fn get_sections(mut f: Fields<'_>, header: &mut VolumeHeader) -> Option<Vec<Rollback>> {
    let mut rollbacks = Vec::new();
    while !f.0.is_empty() {
        let (number, length) = (f.u8()?, f.u16()?);
        let mut section = Fields(f.take(length.into())?);
        match number {
            SECTION_ROLLBACKS => {
                while !section.0.is_empty() {
                    let (after, until) = (section.u64()?, section.u64()?);
                    rollbacks.push(Rollback { after, until, version: section.u64()?, at: section.time()? });
                }
            }
            SECTION_SNAPSHOT => {
                let volume = section.volume()?;
                header.snapshot = Some(SnapshotOf { volume, name: section.text()?.parse().ok()? });
            }
            SECTION_STANDS_FOR => header.stands_for = Some(section.volume()?),
            _ => return None,
        }
    }
    Some(rollbacks)
}

/// Decodes the header of a header and counters record.
pub fn get_header(value: &[u8], counters: &Counters) -> Option<StoredHeader> {
    let (has_sections, mut f) = Fields::header(value)?;
    let (group, epoch) = (f.u64()?, f.u64()?);
    let kind = VolumeType::from_wire(f.u8()?.into())?;
    let flags = f.u8()?;
    let mut header = VolumeHeader {
        kind,
        in_service: flags & IN_SERVICE != 0,
        blessed: flags & BLESSED != 0,
        destroy_me: f.u8()?,
        id: f.volume()?,
        parent: f.volume()?,
        clone: f.volume()?,
        backup: f.volume()?,
        restored_from: f.volume()?,
        owner: f.i32()?,
        account: f.u32()?,
        quota_max_kib: f.u64()?,
        quota_min_kib: f.u64()?,
        created: f.time()?,
        expires: f.time()?,
        backed_up: f.time()?,
        copied: f.time()?,
        name: f.text()?.parse().ok()?,
        offline_message: f.short_bytes()?,
        message_of_the_day: f.short_bytes()?,
        accessed: counters.accessed,
        updated: counters.updated,
        file_count: counters.file_count,
        directory_count: counters.directory_count,
        used_kib: counters.used_kib,
        next_unique: counters.next_unique,
        update_counter: counters.update_counter,
        day_use: counters.day_use,
        day_use_date: counters.day_use_date,
        week_use: counters.week_use,
        compression: None,
        deduplicates: false,
        snapshot: None,
        stands_for: None,
        unseen: None,
        dated: UnixTime(0),
        restored_at: None,
    };
    let mut rollbacks = Vec::new();
    if has_sections {
        let length = f.u16()?.into();
        rollbacks = get_sections(Fields(f.take(length)?), &mut header)?;
    }
    extensions::get(&mut f, &mut header)?;
    Some(StoredHeader { group, read_view: ReadView::new(epoch, rollbacks)?, header })
}

/// Returns the group in a header record, and whether the volume is to be destroyed.
pub fn header_place(value: &[u8]) -> Option<(u64, bool)> {
    let (_, mut f) = Fields::header(value)?;
    let (group, _epoch) = (f.u64()?, f.u64()?);
    let (_kind, _flags) = (f.u8()?, f.u8()?);
    Some((group, f.u8()? != 0))
}

/// Returns the volume's name in a header record.
pub fn header_name(value: &[u8]) -> Option<VolumeName> {
    let (_, mut f) = Fields::header(value)?;
    f.take(HEADER_BYTES_BEFORE_NAME)?;
    f.text()?.parse().ok()
}

/// A snapshot in the list of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Id of the snapshot's volume.
    pub id: VolumeId,
    /// Creation time.
    pub made: UnixTime,
    /// Expiry time; 0 for never.
    pub expires: UnixTime,
    /// Periods for which it is kept.
    pub kept: Kept,
    /// The volume's change count at that time.
    pub changes: u64,
}

/// Encodes a snapshot.
pub fn put_snapshot(s: &SnapshotRecord) -> Vec<u8> {
    Record::new().u32(s.id.0).u32(s.made.0).u32(s.expires.0).u8(s.kept.bits()).u64(s.changes).0
}

/// Decodes the record of the snapshot with this name.
pub fn get_snapshot(name: &[u8], value: &[u8]) -> Option<SnapshotRecord> {
    std::str::from_utf8(name).ok()?.parse::<SnapshotName>().ok()?;
    let mut f = Fields::open(value)?;
    let (id, made, expires) = (f.volume()?, f.time()?, f.time()?);
    Some(SnapshotRecord { id, made, expires, kept: Kept::from_bits(f.u8()?)?, changes: f.u64()? })
}

/// Encodes a snapshot policy.
pub fn put_policy(policy: Policy) -> Vec<u8> {
    Period::ALL.iter().fold(Record::new(), |record, &period| record.u16(policy.count(period))).0
}

/// Decodes a snapshot policy.
pub fn get_policy(value: &[u8]) -> Option<Policy> {
    let mut f = Fields::open(value)?;
    Some(Policy { hourly: f.u16()?, daily: f.u16()?, weekly: f.u16()?, monthly: f.u16()? })
}

/// Work for the purger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Everything in a group that has no volumes left.
    Group {
        /// Id of the group.
        group: u64,
    },
    /// Versions in a group that no volume reads any more.
    Versions {
        /// Id of the group.
        group: u64,
        /// Epoch of the deleted volume; distinguishes jobs that are added while one is in progress.
        epoch: u64,
    },
    /// Data of a file that was deleted in `epoch`; 0 if unknown, in jobs of older versions.
    File {
        /// Id of the group.
        group: u64,
        /// Vnode number of the file.
        vnode: VnodeId,
        /// Uniquifier of the file.
        unique: u32,
        /// Epoch of the deletion.
        epoch: u64,
    },
}

impl Job {
    /// Returns the group whose records are to be purged.
    pub fn group(&self) -> u64 {
        match *self {
            Job::Group { group } | Job::Versions { group, .. } | Job::File { group, .. } => group,
        }
    }
}

/// Encodes a purge job.
pub fn put_job(job: &Job) -> Vec<u8> {
    match *job {
        Job::Group { group } => Record::new().u8(1).u64(group).0,
        Job::Versions { group, epoch } => Record::new().u8(2).u64(group).u64(epoch).0,
        Job::File { group, vnode, unique, epoch: 0 } => {
            Record::new().u8(3).u64(group).u32(vnode.0).u32(unique).0
        }
        Job::File { group, vnode, unique, epoch } => {
            Record::new().u8(4).u64(group).u32(vnode.0).u32(unique).u64(epoch).0
        }
    }
}

/// Decodes a purge job.
pub fn get_job(value: &[u8]) -> Option<Job> {
    let mut f = Fields::open(value)?;
    let (kind, group) = (f.u8()?, f.u64()?);
    match kind {
        1 => Some(Job::Group { group }),
        2 => Some(Job::Versions { group, epoch: f.u64()? }),
        3 | 4 => {
            let (vnode, unique) = (VnodeId(f.u32()?), f.u32()?);
            let epoch = if kind == 4 { f.u64()? } else { 0 };
            Some(Job::File { group, vnode, unique, epoch })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
