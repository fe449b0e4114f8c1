//! Access control lists, in the text form of FetchACL and StoreACL.
//!
//! The text is `positives\nnegatives\n`, then one line `name<tab>rights` per entry, the positive ones first;
//! all numbers are decimal and the text may end in a NUL. On the wire entries have names; an id that the
//! protection server does not know is sent as a decimal number. This module parses and prints names
//! unchanged; the file server translates them.

use base::limits::{ACL_ENTRIES_MAX, ACL_TEXT_BYTES_MAX};
use base::{Rights, UserId};
use thiserror::Error;

/// One line of an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The user or group.
    pub id: UserId,
    /// Rights that are granted or, in a negative entry, denied.
    pub rights: Rights,
}

/// An access control list: at most 20 entries in total, no id twice among the positive or twice among the
/// negative ones, both in ascending order of id. OpenAFS's file server relies on that order in dumps and on
/// disk: it merges the list with a user's groups (`acl_CheckRights`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    positive: Vec<AclEntry>,
    negative: Vec<AclEntry>,
}

/// An access control list in its wire form, with names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclText {
    /// Entries that grant rights.
    pub positive: Vec<AclLine>,
    /// Entries that deny rights.
    pub negative: Vec<AclLine>,
}

/// One line of an [`AclText`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclLine {
    /// Name of a user or group, or a decimal id; bytes, since names need not be UTF-8.
    pub name: Vec<u8>,
    /// Rights of the entry.
    pub rights: Rights,
}

/// Why an access control list was rejected. The abort code is EINVAL, except for `TooMany`, which is E2BIG.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AclError {
    /// The text is longer than AFSOPAQUEMAX.
    #[error("an ACL of {got} bytes; at most {ACL_TEXT_BYTES_MAX} are allowed")]
    TooLong {
        /// Length in bytes.
        got: usize,
    },
    /// More entries than ACL_MAXENTRIES.
    #[error("an ACL of {got} entries; at most {ACL_ENTRIES_MAX} are allowed")]
    TooMany {
        /// Number of entries.
        got: usize,
    },
    /// A malformed line.
    #[error("line {line} of the ACL is not {expected}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// What the line should contain.
        expected: &'static str,
    },
}

impl Acl {
    /// Returns the list of a new volume's root directory: all rights for system:administrators.
    pub fn administrators() -> Acl {
        Acl { positive: vec![AclEntry { id: UserId::ADMINISTRATORS, rights: Rights::ALL }], negative: vec![] }
    }

    /// Creates a list of these entries. An id that occurs twice keeps its last rights; an entry without
    /// rights is dropped.
    pub fn new(positive: &[AclEntry], negative: &[AclEntry]) -> Result<Acl, AclError> {
        let acl = Acl { positive: unique(positive), negative: unique(negative) };
        match acl.positive.len() + acl.negative.len() {
            got if got > ACL_ENTRIES_MAX => Err(AclError::TooMany { got }),
            _ => Ok(acl),
        }
    }

    /// Returns the entries that grant rights.
    pub fn positive(&self) -> &[AclEntry] {
        &self.positive
    }

    /// Returns the entries that deny rights.
    pub fn negative(&self) -> &[AclEntry] {
        &self.negative
    }

    /// Returns the rights of a caller with these `ids` (the user, the groups, system:anyuser ...): everything
    /// that a positive entry grants to any of them, less what a negative entry denies to any.
    pub fn rights_of(&self, ids: &[UserId]) -> Rights {
        let any = |entries: &[AclEntry]| {
            let of_ids = entries.iter().filter(|entry| ids.contains(&entry.id));
            of_ids.fold(Rights::NONE, |sum, entry| sum | entry.rights)
        };
        any(&self.positive) & !any(&self.negative)
    }

    /// Returns the wire form of the list; `name` returns the name of an id.
    pub fn to_text(&self, mut name: impl FnMut(UserId) -> Vec<u8>) -> AclText {
        let mut lines = |entries: &[AclEntry]| -> Vec<AclLine> {
            entries.iter().map(|entry| AclLine { name: name(entry.id), rights: entry.rights }).collect()
        };
        let positive = lines(&self.positive);
        AclText { positive, negative: lines(&self.negative) }
    }
}

/// Returns `entries` with the last rights of every id, without empty ones, sorted by id.
fn unique(entries: &[AclEntry]) -> Vec<AclEntry> {
    let mut out: Vec<AclEntry> = Vec::with_capacity(entries.len().min(ACL_ENTRIES_MAX));
    for entry in entries {
        match out.iter_mut().find(|known| known.id == entry.id) {
            Some(known) => known.rights = entry.rights,
            None => out.push(*entry),
        }
    }
    out.retain(|entry| entry.rights != Rights::NONE);
    out.sort_unstable_by_key(|entry| entry.id);
    out
}

impl AclText {
    /// Parses the text form. The text ends at a NUL, if there is one. Spaces or tabs separate a name from its
    /// rights.
    pub fn parse(text: &[u8]) -> Result<AclText, AclError> {
        if text.len() > ACL_TEXT_BYTES_MAX {
            return Err(AclError::TooLong { got: text.len() });
        }
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut lines = text.split(|&byte| byte == b'\n').enumerate().map(|(index, line)| (index + 1, line));
        let positive = count(lines.next(), 1)?;
        let negative = count(lines.next(), 2)?;
        let got = positive.saturating_add(negative);
        if got > ACL_ENTRIES_MAX {
            return Err(AclError::TooMany { got });
        }
        let mut take = |entries: usize| -> Result<Vec<AclLine>, AclError> {
            (0..entries).map(|_| acl_line(lines.next())).collect()
        };
        let positive = take(positive)?;
        Ok(AclText { positive, negative: take(negative)? })
    }

    /// Returns the text form with a final NUL, as on the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = format!("{}\n{}\n", self.positive.len(), self.negative.len()).into_bytes();
        for line in self.positive.iter().chain(&self.negative) {
            out.extend_from_slice(&line.name);
            // Clients parse the rights with "%d".
            out.extend_from_slice(format!("\t{}\n", line.rights.bits().cast_signed()).as_bytes());
        }
        out.push(0);
        out
    }

    /// Returns the list with ids; `id` translates a name, and its error is returned.
    pub fn to_acl<E: From<AclError>>(
        &self,
        mut id: impl FnMut(&[u8]) -> Result<UserId, E>,
    ) -> Result<Acl, E> {
        let mut entries = |lines: &[AclLine]| -> Result<Vec<AclEntry>, E> {
            lines.iter().map(|line| Ok(AclEntry { id: id(&line.name)?, rights: line.rights })).collect()
        };
        let positive = entries(&self.positive)?;
        Ok(Acl::new(&positive, &entries(&self.negative)?)?)
    }
}

fn count(line: Option<(usize, &[u8])>, number: usize) -> Result<usize, AclError> {
    let wrong = AclError::Line { line: number, expected: "a number of entries" };
    let text = line.and_then(|(_, line)| std::str::from_utf8(line).ok()).ok_or(wrong.clone())?;
    text.trim().parse().map_err(|_| wrong)
}

fn acl_line(line: Option<(usize, &[u8])>) -> Result<AclLine, AclError> {
    let (number, line) = line.unwrap_or((0, b""));
    let wrong = AclError::Line { line: number, expected: "a name, a tab and a number" };
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let parts: Vec<&[u8]> = line.split(blank).filter(|part| !part.is_empty()).collect();
    let [name, rights] = parts[..] else { return Err(wrong) };
    let rights: i64 = std::str::from_utf8(rights).ok().and_then(|text| text.parse().ok()).ok_or(wrong)?;
    Ok(AclLine { name: name.to_vec(), rights: Rights::from_bits(rights as u32) })
}

#[cfg(test)]
mod tests;
