//! OpenAFS's protection database, prdb.DB0.
//!
//! Behind a header with two hash tables lie blocks of 192 bytes: entries, continuations of their lists,
//! and free ones. All blocks are read in the order of the file; the hash tables are not needed. Facts
//! from OpenAFS 1.8 `ptserver/ptserver.h` and `ptserver/ptutils.c`, in the layout with supergroups (the
//! other one has zeros in their place).

use crate::ubik::{DatabaseError, Image, damaged};
use std::collections::HashSet;

const VERSION: u32 = 0;
const HEADER_BYTES: usize = 4 * (18 + 2 * 8191);
const BLOCK_BYTES: usize = 192;
const NAME_BYTES: usize = 64;

const GROUP: u32 = 2;
const CONTINUATION: u32 = 4;
/// Bits of the flags that tell what a block is.
const KIND: u32 = 0x3f;
/// A place in a list that was given up (PRBADID).
const NOBODY: i32 = i32::MIN;

/// One user or group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrdbEntry {
    /// Number; negative for groups.
    pub id: i32,
    /// Name, 1 to 63 bytes.
    pub name: Vec<u8>,
    /// PRGRP, PRACCESS, PRQUOTA and the access bits, as they stand.
    pub flags: u32,
    /// Of a user of another cell, the group that stands for that cell.
    pub cell: i32,
    /// Owner; 0 of an orphan.
    pub owner: i32,
    /// Creator.
    pub creator: i32,
    /// Groups that may still be created.
    pub group_quota: i32,
    /// Foreign users that may still be added.
    pub user_quota: i32,
    /// Members of a group, or groups of a user.
    pub elements: Vec<i32>,
    /// Groups that a group is in.
    pub supergroups: Vec<i32>,
    /// Seconds since 1970.
    pub created: u32,
    /// When an element was last added.
    pub added: u32,
    /// When an element was last removed.
    pub removed: u32,
    /// When name, owner or id last changed.
    pub changed: u32,
}

/// The database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prdb {
    /// Most negative group id given out.
    pub max_group: i32,
    /// Largest user id given out.
    pub max_user: i32,
    /// The entries in the order of the file.
    pub entries: Vec<PrdbEntry>,
}

impl Prdb {
    /// Reads a whole database file.
    ///
    /// # Errors
    /// Where the file is not what it should be.
    pub fn parse(file: &[u8]) -> Result<Prdb, DatabaseError> {
        let image = Image::open(file)?;
        if image.word(0)? != VERSION || image.word(4)? as usize != HEADER_BYTES {
            return Err(damaged(0, format!("version 0 with a header of {HEADER_BYTES} bytes")));
        }
        let end = image.end(12)?;
        let mut prdb =
            Prdb { max_group: image.signed(16)?, max_user: image.signed(20)?, entries: Vec::new() };
        let mut ids = HashSet::new();
        for address in (HEADER_BYTES..end).step_by(BLOCK_BYTES) {
            if let Some(entry) = entry(image, address)? {
                if !ids.insert(entry.id) {
                    return Err(damaged(address, format!("no second entry with id {}", entry.id)));
                }
                prdb.entries.push(entry);
            }
        }
        Ok(prdb)
    }
}

/// The entry that begins in a block, if one does.
fn entry(image: Image<'_>, at: usize) -> Result<Option<PrdbEntry>, DatabaseError> {
    let word = |index: usize| image.word(at + 4 * index);
    let signed = |index: usize| image.signed(at + 4 * index);
    let flags = word(0)?;
    if !matches!(flags & KIND, 0 | GROUP) {
        return Ok(None);
    }
    let (id, is_group) = (signed(1)?, flags & KIND == GROUP);
    if (id < 0) != is_group || id == 0 {
        return Err(damaged(at + 4, "a negative id of a group or a positive one of a user"));
    }
    let name = image.text::<NAME_BYTES>(at + 128)?;
    if name.is_empty() {
        return Err(damaged(at + 128, "a name"));
    }
    let mut elements = ids(image, at + 36, 10)?;
    continuations(image, word(3)?, id, &mut elements)?;
    let mut supergroups = Vec::new();
    if is_group {
        supergroups = ids(image, at + 120, 2)?;
        continuations(image, word(29)?, id, &mut supergroups)?;
    }
    Ok(Some(PrdbEntry {
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
    }))
}

/// The ids in `count` places of a list.
fn ids(image: Image<'_>, at: usize, count: usize) -> Result<Vec<i32>, DatabaseError> {
    let places = (0..count).map(|index| image.signed(at + 4 * index));
    places.filter(|place| !matches!(place, Ok(0 | NOBODY))).collect()
}

/// Adds what stands in the continuations of an entry's list.
fn continuations(image: Image<'_>, first: u32, id: i32, list: &mut Vec<i32>) -> Result<(), DatabaseError> {
    let mut seen = HashSet::new();
    let mut next = first as usize;
    while next != 0 {
        let belongs = image.word(next)? & KIND == CONTINUATION && image.signed(next + 4)? == id;
        if !belongs || !seen.insert(next) {
            return Err(damaged(next, format!("a continuation of the entry with id {id}")));
        }
        list.extend(ids(image, next + 36, 39)?);
        next = image.word(next + 12)? as usize;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FREE: u32 = 1;

    fn put(file: &mut [u8], address: usize, words: &[u32]) {
        for (index, word) in words.iter().enumerate() {
            let at = crate::ubik::HEADER_BYTES + address + 4 * index;
            file[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
    }

    /// A user in 12 groups, of which two stand in a continuation, a free block, and a group in a group.
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
        let error = Prdb::parse(&file).unwrap_err();
        assert!(error.to_string().contains("a continuation of the entry with id 1001"), "{error}");
    }

    proptest! {
        #[test]
        fn damage_never_panics(at in 0usize..1000, byte: u8, cut in 0usize..1000) {
            let mut file = sample();
            let length = file.len();
            // Near both headers, or in the blocks at the end.
            for place in [at.min(length - 1), length - 1 - at.min(length - 1)] {
                file[place] = byte;
            }
            let _ = Prdb::parse(&file);
            let _ = Prdb::parse(&file[..length - cut]);
        }
    }
}
