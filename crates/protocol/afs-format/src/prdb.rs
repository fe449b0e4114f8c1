//! OpenAFS's protection database, prdb.DB0.
//!
//! The file has a header with two hash tables, followed by blocks of 192 bytes: entries, continuations of
//! their lists, and free ones. All blocks are read in file order; the hash tables are not needed. Sources:
//! OpenAFS 1.8 `ptserver/ptserver.h` and `ptserver/ptutils.c`, in the layout with supergroups (the other
//! layout has zeros there).

use crate::ubik::{DatabaseError, Fate, Image, Oddity, damaged};
use std::collections::{HashMap, HashSet};

const VERSION: u32 = 0;
const HEADER_BYTES: usize = 4 * (18 + 2 * 8191);
const BLOCK_BYTES: usize = 192;
const NAME_BYTES: usize = 64;

const FREE: u32 = 1;
const GROUP: u32 = 2;
const CONTINUATION: u32 = 4;
/// Flag bits that determine the kind of a block.
const KIND: u32 = 0x3f;
/// Marks an unused place in a list (PRBADID).
const NOBODY: i32 = i32::MIN;

/// One user or group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrdbEntry {
    /// Offset in the file, in bytes.
    pub offset: usize,
    /// Id; negative for groups.
    pub id: i32,
    /// Name, 1 to 63 bytes.
    pub name: Vec<u8>,
    /// PRGRP, PRACCESS, PRQUOTA and the access bits, unchanged.
    pub flags: u32,
    /// For a user of another cell, the group that represents that cell.
    pub cell: i32,
    /// Owner; 0 for an orphan.
    pub owner: i32,
    /// Creator.
    pub creator: i32,
    /// Number of groups that may still be created.
    pub group_quota: i32,
    /// Number of foreign users that may still be added.
    pub user_quota: i32,
    /// Members of a group, or groups of a user.
    pub elements: Vec<i32>,
    /// Groups that contain this group.
    pub supergroups: Vec<i32>,
    /// Creation time in seconds since 1970.
    pub created: u32,
    /// Time at which an element was last added.
    pub added: u32,
    /// Time at which an element was last removed.
    pub removed: u32,
    /// Time of the last change of name, owner or id.
    pub changed: u32,
}

impl PrdbEntry {
    /// Returns the name and id for messages.
    pub fn shown(&self) -> String {
        format!("`{}` ({})", base::text::escape(&self.name), self.id)
    }

    fn is_copy_of(&self, other: &PrdbEntry) -> bool {
        *self == PrdbEntry { offset: self.offset, ..other.clone() }
    }
}

/// Contents of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prdb {
    /// Most negative group id allocated.
    pub max_group: i32,
    /// Largest user id allocated.
    pub max_user: i32,
    /// Entries in file order.
    pub entries: Vec<PrdbEntry>,
    /// Oddities in file order. If any of them is [`Fate::Refused`], nothing may be imported.
    pub oddities: Vec<Oddity>,
}

impl Prdb {
    /// Parses a whole database file.
    ///
    /// # Errors
    /// The file does not start with the header of a protection database. Faults after the header are in
    /// `oddities`.
    pub fn parse(file: &[u8]) -> Result<Prdb, DatabaseError> {
        let image = Image::open(file)?;
        if image.word(0)? != VERSION || image.word(4)? as usize != HEADER_BYTES {
            return Err(damaged(0, format!("version 0 with a header of {HEADER_BYTES} bytes")));
        }
        let end = image.end(12)?;
        let mut reading = Reading { image, ..Reading::default() };
        (reading.prdb.max_group, reading.prdb.max_user) = (image.signed(16)?, image.signed(20)?);
        for address in (HEADER_BYTES..end).step_by(BLOCK_BYTES) {
            reading.block(address, end);
        }
        reading.check_continuations();
        let mut prdb = reading.prdb;
        prdb.oddities.extend(image.behind(end));
        prdb.oddities.sort_by_key(|oddity| oddity.offset);
        Ok(prdb)
    }
}

#[derive(Default)]
struct Reading<'a> {
    image: Image<'a>,
    prdb: Prdb,
    /// Entries by name and by id.
    names: HashMap<Vec<u8>, usize>,
    ids: HashMap<i32, usize>,
    /// Continuations in the file, each with the id of the entry that it claims to belong to.
    continuations: Vec<(usize, i32)>,
    /// Continuations that are linked from an entry's list.
    used: HashSet<usize>,
}

impl Reading<'_> {
    fn note(&mut self, address: usize, fate: Fate, what: String) {
        self.prdb.oddities.push(Oddity::at(address, fate, what));
    }

    fn block(&mut self, at: usize, end: usize) {
        if at + BLOCK_BYTES > end {
            return self.note(at, Fate::Refused, "a block that ends behind the end of the database".into());
        }
        let (Ok(flags), Ok(id)) = (self.image.word(at), self.image.signed(at + 4)) else { return };
        match flags & KIND {
            0 | GROUP => match entry(self.image, at, &mut self.used) {
                Ok(entry) => self.add(at, entry),
                Err(error) => self.prdb.oddities.push(self.with_name(at, &error)),
            },
            CONTINUATION => self.continuations.push((at, id)),
            FREE => {}
            kind => {
                self.note(at, Fate::LeftOut, format!("a block of the unused kind {kind:#x} with id {id}"));
            }
        }
    }

    /// Returns the oddity for an error in an entry, with the entry's name and id as far as they can be read.
    fn with_name(&self, at: usize, error: &DatabaseError) -> Oddity {
        let name = self.image.text::<NAME_BYTES>(at + 128).unwrap_or_default();
        let id = self.image.signed(at + 4).unwrap_or_default();
        let oddity = Oddity::refused(error);
        let name = base::text::escape(&name);
        Oddity { what: format!("`{name}` ({id}): {}", oddity.what), ..oddity }
    }

    fn add(&mut self, at: usize, entry: PrdbEntry) {
        let shown = entry.shown();
        let earlier = self.ids.get(&entry.id).or_else(|| self.names.get(&entry.name));
        if let Some(earlier) = earlier.map(|index| &self.prdb.entries[*index]) {
            let (other, offset) = (earlier.shown(), earlier.offset);
            return if entry.is_copy_of(earlier) {
                self.note(at, Fate::LeftOut, format!("{shown} is a copy of the entry at byte {offset}"));
            } else {
                self.note(
                    at,
                    Fate::Refused,
                    format!("{shown} has the name or id of {other} at byte {offset}"),
                );
            };
        }
        let (counted, stored) = (entry.elements.len(), self.image.word(at + 100).unwrap_or_default());
        if counted != stored as usize {
            let what = format!("{shown}: the count of its list is {stored}, there are {counted}");
            self.note(at, Fate::Repaired, what);
        }
        for list in [&entry.elements, &entry.supergroups] {
            let mut seen = HashSet::new();
            for twice in list.iter().filter(|element| !seen.insert(**element)) {
                self.note(at, Fate::LeftOut, format!("{shown}: {twice} is in its list a second time"));
            }
        }
        let index = self.prdb.entries.len();
        self.ids.insert(entry.id, index);
        self.names.insert(entry.name.clone(), index);
        self.prdb.entries.push(entry);
    }

    /// Reports continuations that are not linked from any entry's list.
    fn check_continuations(&mut self) {
        let all = std::mem::take(&mut self.continuations);
        for (at, id) in all.into_iter().filter(|(at, _)| !self.used.contains(at)).collect::<Vec<_>>() {
            self.note(
                at,
                Fate::LeftOut,
                format!("a part of the list of {id} that the list does not lead to"),
            );
        }
    }
}

/// Returns the entry that starts in a block; adds the continuations of its lists to `used`.
fn entry(image: Image<'_>, at: usize, used: &mut HashSet<usize>) -> Result<PrdbEntry, DatabaseError> {
    let word = |index: usize| image.word(at + 4 * index);
    let signed = |index: usize| image.signed(at + 4 * index);
    let flags = word(0)?;
    let (id, is_group) = (signed(1)?, flags & KIND == GROUP);
    if (id < 0) != is_group || id == 0 {
        return Err(damaged(at + 4, "a negative id of a group or a positive one of a user"));
    }
    let name = image.text::<NAME_BYTES>(at + 128)?;
    if name.is_empty() {
        return Err(damaged(at + 128, "a name"));
    }
    let mut elements = ids(image, at + 36, 10)?;
    continuations(image, word(3)?, id, &mut elements, used)?;
    let mut supergroups = Vec::new();
    if is_group {
        supergroups = ids(image, at + 120, 2)?;
        continuations(image, word(29)?, id, &mut supergroups, used)?;
    }
    Ok(PrdbEntry {
        offset: at + crate::ubik::HEADER_BYTES,
        id,
        name,
        flags,
        cell: signed(2)?,
        owner: signed(21)?,
        creator: signed(22)?,
        group_quota: signed(23)?,
        user_quota: signed(24)?,
        elements,
        supergroups,
        created: word(4)?,
        added: word(5)?,
        removed: word(6)?,
        changed: word(7)?,
    })
}

/// Returns the ids in `count` places of a list.
fn ids(image: Image<'_>, at: usize, count: usize) -> Result<Vec<i32>, DatabaseError> {
    let places = (0..count).map(|index| image.signed(at + 4 * index));
    places.filter(|place| !matches!(place, Ok(0 | NOBODY))).collect()
}

/// Adds the ids in the continuations of an entry's list.
fn continuations(
    image: Image<'_>,
    first: u32,
    id: i32,
    list: &mut Vec<i32>,
    used: &mut HashSet<usize>,
) -> Result<(), DatabaseError> {
    let mut seen = HashSet::new();
    let mut next = first as usize;
    while next != 0 {
        let belongs = image.word(next)? & KIND == CONTINUATION && image.signed(next + 4)? == id;
        if !belongs || !seen.insert(next) {
            return Err(damaged(next, format!("a continuation of the entry with id {id}")));
        }
        used.insert(next);
        list.extend(ids(image, next + 36, 39)?);
        next = image.word(next + 12)? as usize;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(file: &mut [u8], address: usize, words: &[u32]) {
        for (index, word) in words.iter().enumerate() {
            let at = crate::ubik::HEADER_BYTES + address + 4 * index;
            file[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
    }

    /// Creates a database with a user in 12 groups, two of them in a continuation, a free block, and a group
    /// in a group.
    fn sample() -> Vec<u8> {
        let blocks = 4;
        let end = HEADER_BYTES + blocks * BLOCK_BYTES;
        let mut file = vec![0; crate::ubik::HEADER_BYTES + end];
        file[..8].copy_from_slice(&[0, 0x35, 0x45, 0x45, 0, 0, 0, 64]);
        put(&mut file, 0, &[0, HEADER_BYTES as u32, 0, end as u32, -210i32 as u32, 1001]);
        let block = |index: usize| HEADER_BYTES + index * BLOCK_BYTES;
        let groups = |range: std::ops::Range<i32>| range.map(|id| -id as u32).collect::<Vec<_>>();
        put(&mut file, block(0), &[0x80, 1001, 0, block(2) as u32, 5, 6, 7, 8]);
        put(&mut file, block(0) + 36, &groups(300..310));
        put(&mut file, block(0) + 84, &[-204i32 as u32, -204i32 as u32, 19, 20]);
        put(&mut file, block(0) + 100, &[12]);
        put(&mut file, block(3) + 100, &[1]);
        put(&mut file, block(1), &[FREE, 77]);
        put(&mut file, block(2), &[CONTINUATION, 1001]);
        put(&mut file, block(2) + 36, &[-310i32 as u32, NOBODY as u32, -311i32 as u32]);
        put(&mut file, block(3), &[GROUP, -300i32 as u32]);
        put(&mut file, block(3) + 36, &[1001]);
        put(&mut file, block(3) + 120, &[-400i32 as u32]);
        for (index, name) in [(0, &b"ann"[..]), (3, b"ann:friends")] {
            let at = crate::ubik::HEADER_BYTES + block(index) + 128;
            file[at..at + name.len()].copy_from_slice(name);
        }
        file
    }

    #[test]
    fn entries_are_read_with_their_continuations() {
        let prdb = Prdb::parse(&sample()).unwrap();
        assert_eq!((prdb.max_group, prdb.max_user, prdb.entries.len()), (-210, 1001, 2));
        let ann = &prdb.entries[0];
        assert_eq!((ann.id, &ann.name[..], ann.owner, ann.group_quota), (1001, &b"ann"[..], -204, 19));
        assert_eq!((ann.created, ann.added, ann.removed, ann.changed), (5, 6, 7, 8));
        let mut expected: Vec<i32> = (300..312).map(|id: i32| -id).collect();
        expected.retain(|id| *id != -312);
        assert_eq!(ann.elements, expected);
        let friends = &prdb.entries[1];
        assert_eq!((&friends.elements[..], &friends.supergroups[..]), (&[1001][..], &[-400][..]));
    }

    #[test]
    fn a_circle_of_continuations_is_refused() {
        let mut file = sample();
        let second = HEADER_BYTES + 2 * BLOCK_BYTES;
        put(&mut file, second + 12, &[second as u32]);
        let wanted = format!(
            "byte {}: `ann` (1001): expected a continuation of the entry with id 1001: refused",
            crate::ubik::HEADER_BYTES + second
        );
        assert_eq!(oddities(&file), [wanted]);
    }

    fn oddities(file: &[u8]) -> Vec<String> {
        Prdb::parse(file).unwrap().oddities.iter().map(Oddity::to_string).collect()
    }

    fn block(index: usize) -> usize {
        HEADER_BYTES + index * BLOCK_BYTES
    }

    fn copy(file: &mut [u8], from: usize, to: usize) {
        let at = crate::ubik::HEADER_BYTES;
        file.copy_within(at + block(from)..at + block(from + 1), at + block(to));
    }

    #[test]
    fn a_sound_file_has_no_oddities() {
        assert_eq!(oddities(&sample()), Vec::<String>::new());
    }

    #[test]
    fn second_entries_are_named_with_the_first() {
        let mut file = sample();
        copy(&mut file, 3, 1);
        let first = crate::ubik::HEADER_BYTES + block(1);
        let second = crate::ubik::HEADER_BYTES + block(3);
        let what = "`ann:friends` (-300)";
        let wanted = format!("byte {second}: {what} is a copy of the entry at byte {first}: left out");
        assert_eq!(oddities(&file), [wanted]);
        put(&mut file, block(1) + 4, &[-301i32 as u32]);
        let wanted = format!(
            "byte {second}: {what} has the name or id of `ann:friends` (-301) at byte {first}: refused"
        );
        assert_eq!(oddities(&file), [wanted]);
    }

    #[test]
    fn every_odd_block_is_named() {
        let mut file = sample();
        put(&mut file, block(0) + 12, &[0]);
        put(&mut file, block(1), &[16, 77]);
        put(&mut file, block(3) + 36, &[1001, 1001]);
        file.extend_from_slice(b"more");
        let byte = |index: usize| crate::ubik::HEADER_BYTES + block(index);
        let wanted = [
            format!("byte {}: `ann` (1001): the count of its list is 12, there are 10: repaired", byte(0)),
            format!("byte {}: a block of the unused kind 0x10 with id 77: left out", byte(1)),
            format!("byte {}: a part of the list of 1001 that the list does not lead to: left out", byte(2)),
            format!(
                "byte {}: `ann:friends` (-300): the count of its list is 1, there are 2: repaired",
                byte(3)
            ),
            format!("byte {}: `ann:friends` (-300): 1001 is in its list a second time: left out", byte(3)),
            format!("byte {}: 4 bytes behind the end of the database: left out", byte(4)),
        ];
        assert_eq!(oddities(&file), wanted);
    }

    proptest! {
        #[test]
        fn damage_never_panics(at in 0usize..1000, byte: u8, cut in 0usize..1000) {
            let mut file = sample();
            let length = file.len();
            // Positions near both headers, or in the blocks at the end.
            for place in [at.min(length - 1), length - 1 - at.min(length - 1)] {
                file[place] = byte;
            }
            let _ = Prdb::parse(&file);
            let _ = Prdb::parse(&file[..length - cut]);
        }
    }
}
