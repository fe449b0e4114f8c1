//! Reads dumps.

use super::{
    ACL_BYTES, ACL_HEADER_BYTES, ACL_VERSION, BEGIN_MAGIC, DATES_MAX, DumpHeader, DumpVolume, DumpedVnode,
    END_MAGIC, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, SECTION_MAX, TAG_CRITICAL, TAG_DUMP, TAG_END, TAG_VNODE,
    TAG_VOLUME, VERSION, VnodeAttributes,
};
use crate::acl::{Acl, AclEntry};
use crate::contents::DIRECTORY_BYTES_MAX;
use crate::directory::{DirectoryBlob, DirectoryError};
use base::limits::ACL_ENTRIES_MAX;
use base::{Rights, UnixTime, UserId};
use bytes::Bytes;
use thiserror::Error;

/// Maximum number of bytes requested from the source at a time.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Why a dump was rejected; `E` is the source's error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DumpError<E> {
    /// The dump is damaged, or is not a dump.
    #[error("byte {offset} of the dump: expected {expected}")]
    Damaged {
        /// Offset in the dump, in bytes.
        offset: u64,
        /// What was expected there.
        expected: &'static str,
    },
    /// The dump ends too early.
    #[error("the dump ends at byte {offset}: expected {expected}")]
    Truncated {
        /// Length of the dump in bytes.
        offset: u64,
        /// What was expected to follow.
        expected: &'static str,
    },
    /// The data of a directory is not a directory blob.
    #[error("byte {offset} of the dump: directory vnode {vnode}: {error}")]
    Directory {
        /// Offset in the dump of the end of the directory's data.
        offset: u64,
        /// Vnode number of the directory.
        vnode: u32,
        /// What is wrong with it.
        error: DirectoryError,
    },
    /// The source failed.
    #[error("reading the dump: {0}")]
    Source(E),
}

/// A part of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The volume's header; always the first item, and repeated only in combined dumps.
    Volume(Box<DumpVolume>),
    /// A vnode. If it has a length, [`Reader::data`] returns its data.
    Vnode(DumpedVnode),
    /// The end mark; nothing follows.
    End,
}

/// Parses a dump. `source` is called with the maximum number of bytes and returns at least one, or none at
/// the end.
pub struct Reader<F> {
    source: F,
    ahead: Bytes,
    /// Bytes consumed from `ahead` so far.
    offset: u64,
    /// Unread bytes of the last vnode's data.
    data: u64,
    /// A tag that was read but belongs to the next item.
    tag: Option<u8>,
}

type Outcome<T, E> = Result<T, DumpError<E>>;

impl<E, F: FnMut(usize) -> Result<Bytes, E>> Reader<F> {
    /// Reads the dump header.
    ///
    /// # Errors
    /// The dump is malformed or the source failed; this applies to all methods here.
    pub fn open(source: F) -> Outcome<(Reader<F>, DumpHeader), E> {
        let mut reader = Reader { source, ahead: Bytes::new(), offset: 0, data: 0, tag: None };
        let header = reader.dump_header()?;
        Ok((reader, header))
    }

    /// Returns the number of bytes read from the dump.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the error for something wrong in the data read last.
    pub fn damaged(&self, expected: &'static str) -> DumpError<E> {
        DumpError::Damaged { offset: self.offset, expected }
    }

    /// Returns the next item. Unread data is skipped.
    pub fn next_item(&mut self) -> Outcome<Item, E> {
        while self.data > 0 {
            self.data(PIECE_BYTES_MAX)?;
        }
        let tag = match self.tag.take() {
            Some(tag) => tag,
            None => self.byte("a volume header, a vnode or the end mark")?,
        };
        match tag {
            TAG_VOLUME => Ok(Item::Volume(Box::new(self.volume()?))),
            TAG_VNODE => Ok(Item::Vnode(self.vnode()?)),
            TAG_END => self.end().map(|()| Item::End),
            _ => Err(self.before(1, "a volume header, a vnode or the end mark")),
        }
    }

    /// Returns the next bytes of the last vnode's data, at most `most` (but at least 1); none at the end.
    pub fn data(&mut self, most: usize) -> Outcome<Bytes, E> {
        if self.data == 0 {
            return Ok(Bytes::new());
        }
        self.fill("a file's data")?;
        let most = (most.max(1) as u64).min(self.data).min(self.ahead.len() as u64);
        let piece = self.ahead.split_to(most as usize);
        self.offset += most;
        self.data -= most;
        Ok(piece)
    }

    /// Reads all data of the last vnode, which must be a directory.
    pub fn directory(&mut self, vnode: &DumpedVnode) -> Outcome<DirectoryBlob, E> {
        if self.data > DIRECTORY_BYTES_MAX {
            return Err(self.damaged("a directory of at most 1023 pages"));
        }
        let mut pages = Vec::new();
        while self.data > 0 {
            pages.extend_from_slice(&self.data(usize::MAX)?);
        }
        let (offset, vnode) = (self.offset, vnode.vnode);
        DirectoryBlob::parse(&pages.into()).map_err(|error| DumpError::Directory { offset, vnode, error })
    }

    fn before(&self, bytes: u64, expected: &'static str) -> DumpError<E> {
        DumpError::Damaged { offset: self.offset.saturating_sub(bytes), expected }
    }

    fn fill(&mut self, expected: &'static str) -> Outcome<(), E> {
        if self.ahead.is_empty() {
            self.ahead = (self.source)(PIECE_BYTES_MAX).map_err(DumpError::Source)?;
        }
        if self.ahead.is_empty() {
            return Err(DumpError::Truncated { offset: self.offset, expected });
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self, expected: &'static str) -> Outcome<[u8; N], E> {
        let mut out = [0; N];
        let mut at = 0;
        while at < N {
            self.fill(expected)?;
            let piece = self.ahead.split_to(self.ahead.len().min(N - at));
            out[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
            self.offset += piece.len() as u64;
        }
        Ok(out)
    }

    fn byte(&mut self, expected: &'static str) -> Outcome<u8, E> {
        self.array::<1>(expected).map(|[byte]| byte)
    }

    fn short(&mut self, expected: &'static str) -> Outcome<u16, E> {
        self.array(expected).map(u16::from_be_bytes)
    }

    fn word(&mut self, expected: &'static str) -> Outcome<u32, E> {
        self.array(expected).map(u32::from_be_bytes)
    }

    fn time(&mut self) -> Outcome<UnixTime, E> {
        self.word("a time of four bytes").map(UnixTime)
    }

    /// Reads bytes up to a NUL. A text longer than `most` bytes is cut to that length, as in OpenAFS
    /// (ReadString of `dumpstuff.c`).
    fn text(&mut self, most: usize, expected: &'static str) -> Outcome<Vec<u8>, E> {
        let mut out = Vec::new();
        loop {
            match self.byte(expected)? {
                0 => return Ok(out),
                byte if out.len() < most => out.push(byte),
                _ => {}
            }
        }
    }

    fn words(&mut self, most: usize, expected: &'static str) -> Outcome<Vec<u32>, E> {
        let count = usize::from(self.short(expected)?);
        if count > most {
            return Err(self.before(2, expected));
        }
        (0..count).map(|_| self.word(expected)).collect()
    }

    /// Reads the next tag of a section; `None` at its end.
    fn attribute(&mut self, expected: &'static str) -> Outcome<Option<u8>, E> {
        let tag = self.byte(expected)?;
        if tag > SECTION_MAX {
            return Ok(Some(tag));
        }
        self.tag = Some(tag);
        Ok(None)
    }

    fn dump_header(&mut self) -> Outcome<DumpHeader, E> {
        const WHAT: &str = "the beginning of a volume dump";
        if self.byte(WHAT)? != TAG_DUMP || self.word(WHAT)? != BEGIN_MAGIC {
            return Err(DumpError::Damaged { offset: 0, expected: WHAT });
        }
        if self.word("version 1 of the dump format")? != VERSION {
            return Err(self.before(4, "version 1 of the dump format"));
        }
        let mut header = DumpHeader::default();
        let mut is_critical = false;
        while let Some(tag) = self.attribute("the dump header or what follows it")? {
            match tag {
                b'v' => header.volume = self.word("the volume's id")?,
                b'n' => header.name = self.text(NAME_BYTES_MAX, "a volume name")?,
                b't' => header.dates = self.dates()?,
                _ => self.skip(tag, &mut is_critical)?,
            }
        }
        Ok(header)
    }

    fn dates(&mut self) -> Outcome<Vec<(UnixTime, UnixTime)>, E> {
        const WHAT: &str = "at most 50 pairs of dates";
        let dates = self.words(2 * DATES_MAX, WHAT)?;
        if dates.len() % 2 != 0 {
            return Err(self.before(4 * dates.len() as u64, WHAT));
        }
        Ok(dates.chunks_exact(2).map(|pair| (UnixTime(pair[0]), UnixTime(pair[1]))).collect())
    }

    fn volume(&mut self) -> Outcome<DumpVolume, E> {
        let mut volume = DumpVolume::default();
        let mut is_critical = false;
        while let Some(tag) = self.attribute("the volume header or what follows it")? {
            if !self.volume_identity(&mut volume, tag)? && !self.volume_usage(&mut volume, tag)? {
                self.skip(tag, &mut is_critical)?;
            } else {
                is_critical = false;
            }
        }
        Ok(volume)
    }

    fn volume_identity(&mut self, volume: &mut DumpVolume, tag: u8) -> Outcome<bool, E> {
        const NUMBER: &str = "a number of the volume header";
        match tag {
            b'i' => volume.id = self.word(NUMBER)?,
            b'v' => volume.version = self.word(NUMBER)?,
            b'n' => volume.name = self.text(NAME_BYTES_MAX, "a volume name")?,
            b's' => volume.in_service = self.byte(NUMBER)?,
            b'b' => volume.blessed = self.byte(NUMBER)?,
            b'u' => volume.next_unique = self.word(NUMBER)?,
            b't' => volume.kind = self.byte(NUMBER)?,
            b'p' => volume.parent = self.word(NUMBER)?,
            b'c' => volume.clone = self.word(NUMBER)?,
            b'q' => volume.quota_max_kib = self.word(NUMBER)?,
            b'm' => volume.quota_min_kib = self.word(NUMBER)?,
            b'a' => volume.account = self.word(NUMBER)?,
            b'o' => volume.owner = self.word(NUMBER)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn volume_usage(&mut self, volume: &mut DumpVolume, tag: u8) -> Outcome<bool, E> {
        const NUMBER: &str = "a number of the volume header";
        const MESSAGE: &str = "a message and a NUL";
        match tag {
            b'd' => volume.used_kib = self.word(NUMBER)?,
            b'f' => volume.file_count = self.word(NUMBER)?,
            b'C' => volume.created = self.time()?,
            b'A' => volume.accessed = self.time()?,
            b'U' => volume.updated = self.time()?,
            b'E' => volume.expires = self.time()?,
            b'B' => volume.backed_up = self.time()?,
            b'O' => volume.offline_message = self.text(MESSAGE_BYTES_MAX, MESSAGE)?,
            b'M' => volume.message_of_the_day = self.text(MESSAGE_BYTES_MAX, MESSAGE)?,
            b'W' => {
                let uses = self.words(usize::from(u16::MAX), "counts of uses")?;
                volume.week_use.iter_mut().zip(uses).for_each(|(day, count)| *day = count);
            }
            b'D' => volume.day_use_date = self.time()?,
            b'Z' => volume.day_use = self.word(NUMBER)?,
            // Update counter; not used.
            b'V' => drop(self.word(NUMBER)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn vnode(&mut self) -> Outcome<DumpedVnode, E> {
        let vnode = self.word("a vnode number")?;
        if vnode == 0 {
            return Err(self.before(4, "a vnode number that is not 0"));
        }
        let unique = self.word("a uniquifier")?;
        let mut attributes = VnodeAttributes::default();
        let (mut is_critical, mut is_empty) = (false, true);
        while let Some(tag) = self.attribute("a vnode's status or what follows it")? {
            is_empty = false;
            match tag {
                b'f' | b'h' => {
                    self.data = self.length(tag)?;
                    attributes.length = Some(self.data);
                    // The data ends a vnode; what follows is read by `next_item`.
                    break;
                }
                b'A' => attributes.acl = Some(self.acl()?),
                _ if self.status(&mut attributes, tag)? => is_critical = false,
                _ => self.skip(tag, &mut is_critical)?,
            }
        }
        Ok(DumpedVnode { vnode, unique, attributes: (!is_empty).then_some(attributes) })
    }

    fn status(&mut self, a: &mut VnodeAttributes, tag: u8) -> Outcome<bool, E> {
        const NUMBER: &str = "a number of a vnode's status";
        match tag {
            b't' => a.kind = self.byte(NUMBER)?,
            b'l' => a.links = self.short(NUMBER)?,
            b'v' => a.data_version = self.word(NUMBER)?,
            b'm' => a.client_modified = self.time()?,
            b's' => a.server_modified = self.time()?,
            b'a' => a.author = self.word(NUMBER)?,
            b'o' => a.owner = self.word(NUMBER)?,
            b'g' => a.group = self.word(NUMBER)?,
            b'b' => a.mode = self.short(NUMBER)?,
            b'p' => a.parent = self.word(NUMBER)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn length(&mut self, tag: u8) -> Outcome<u64, E> {
        const WHAT: &str = "a file length below 2^63 bytes";
        let high = if tag == b'h' { self.word(WHAT)? } else { 0 };
        let length = u64::from(high) << 32 | u64::from(self.word(WHAT)?);
        if i64::try_from(length).is_err() {
            return Err(self.before(8, WHAT));
        }
        Ok(length)
    }

    fn acl(&mut self) -> Outcome<Acl, E> {
        let bytes: [u8; ACL_BYTES] = self.array("an access list of 192 bytes")?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        parse_acl(word).ok_or_else(|| self.before(ACL_BYTES as u64, "a sound access list"))
    }

    /// Skips the value of an unknown tag, if that is allowed.
    fn skip(&mut self, tag: u8, is_critical: &mut bool) -> Outcome<(), E> {
        if tag == TAG_CRITICAL {
            *is_critical = true;
            return Ok(());
        }
        if *is_critical {
            return Err(self.before(1, "a tag that is known, since it is marked as critical"));
        }
        let length = match tag {
            0x15..=0x60 => self.skipped_length()?,
            0x61..=0x7a => 4,
            0x7b..=0x7f => 0,
            _ => return Err(self.before(1, "a tag below 128")),
        };
        self.data = length;
        while self.data > 0 {
            self.data(PIECE_BYTES_MAX)?;
        }
        Ok(())
    }

    fn skipped_length(&mut self) -> Outcome<u64, E> {
        const WHAT: &str = "the length of an unknown value";
        let first = self.byte(WHAT)?;
        match first {
            0..=0x7f => Ok(u64::from(first)),
            0x81..=0x88 => (0x80..first).try_fold(0, |sum, _| Ok(sum << 8 | u64::from(self.byte(WHAT)?))),
            _ => Err(self.before(1, WHAT)),
        }
    }

    fn end(&mut self) -> Outcome<(), E> {
        if self.word("the end mark")? != END_MAGIC {
            return Err(self.before(4, "the end mark"));
        }
        if self.ahead.is_empty() {
            self.ahead = (self.source)(PIECE_BYTES_MAX).map_err(DumpError::Source)?;
        }
        if self.ahead.is_empty() { Ok(()) } else { Err(self.damaged("nothing behind the end mark")) }
    }
}

/// Parses an access list of [`ACL_BYTES`] bytes; `word` returns the number at an offset.
pub(crate) fn parse_acl(word: impl Fn(usize) -> u32) -> Option<Acl> {
    let [version, total, positive, negative] = [4, 8, 12, 16].map(&word);
    let sum = positive.checked_add(negative)?;
    if version != ACL_VERSION || sum != total || total as usize > ACL_ENTRIES_MAX {
        return None;
    }
    let entry = |index: u32| {
        let at = ACL_HEADER_BYTES + 8 * index as usize;
        AclEntry { id: UserId(word(at) as i32), rights: Rights::from_bits(word(at + 4)) }
    };
    let positive_entries: Vec<AclEntry> = (0..positive).map(entry).collect();
    let negative_entries: Vec<AclEntry> = (positive..total).rev().map(entry).collect();
    Acl::new(&positive_entries, &negative_entries).ok()
}
