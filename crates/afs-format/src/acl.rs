//! Access control lists, in the text form of FetchACL and StoreACL.
//!
//! The text is `positives\nnegatives\n`, then one line `name<tab>rights` per entry, the positive
//! ones first; all numbers are decimal and the text may end in a NUL. On the wire entries carry
//! names; a name that the protection server does not know travels as the decimal id. This module
//! parses and prints whatever stands there; the file server translates.

use base::limits::{ACL_ENTRIES_MAX, ACL_TEXT_BYTES_MAX};
use base::{Rights, UserId};
use thiserror::Error;

/// One line of an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The user or group.
    pub id: UserId,
    /// What it gets, or with a negative entry what it does not get.
    pub rights: Rights,
}

/// An access control list: at most 20 entries in all, no id twice among the positive or twice
/// among the negative ones, both by ascending id. OpenAFS's file server relies on that order where it finds it, in a dump
/// or on disk: it goes through the list and through somebody's groups side by side (`acl_CheckRights`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    positive: Vec<AclEntry>,
    negative: Vec<AclEntry>,
}

/// An access control list as it travels: with names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclText {
    /// Entries that give rights.
    pub positive: Vec<AclLine>,
    /// Entries that take rights away.
    pub negative: Vec<AclLine>,
}

/// One line of an [`AclText`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclLine {
    /// Name of a user or group, or a decimal id; bytes, since names need not be UTF-8.
    pub name: Vec<u8>,
    /// The rights.
    pub rights: Rights,
}

/// Why an access control list was refused. It is the caller's fault: EINVAL, except `TooMany` which
/// is E2BIG.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AclError {
    /// The text is longer than AFSOPAQUEMAX.
    #[error("an ACL of {got} bytes; at most {ACL_TEXT_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length in bytes.
        got: usize,
    },
    /// More entries than ACL_MAXENTRIES.
    #[error("an ACL of {got} entries; at most {ACL_ENTRIES_MAX} are allowed")]
    TooMany {
        /// How many.
        got: usize,
    },
    /// A line that does not read as it should.
    #[error("line {line} of the ACL is not {expected}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What should stand there.
        expected: &'static str,
    },
}

impl Acl {
    /// The list that a new volume's root directory gets: system:administrators may do everything.
    pub fn administrators() -> Acl {
        Acl { positive: vec![AclEntry { id: UserId::ADMINISTRATORS, rights: Rights::ALL }], negative: vec![] }
    }

    /// A list of these entries. An id that comes twice keeps its last rights, one without rights is
    /// left out.
    pub fn new(positive: &[AclEntry], negative: &[AclEntry]) -> Result<Acl, AclError> {
        let acl = Acl { positive: unique(positive), negative: unique(negative) };
        match acl.positive.len() + acl.negative.len() {
            got if got > ACL_ENTRIES_MAX => Err(AclError::TooMany { got }),
            _ => Ok(acl),
        }
    }

    /// Entries that give rights.
    pub fn positive(&self) -> &[AclEntry] {
        &self.positive
    }

    /// Entries that take rights away.
    pub fn negative(&self) -> &[AclEntry] {
        &self.negative
    }

    /// What somebody has who is all of `ids` (the user, the groups, system:anyuser ...): everything
    /// that a positive entry gives to any of them, less what a negative entry takes from any.
    pub fn rights_of(&self, ids: &[UserId]) -> Rights {
        let any = |entries: &[AclEntry]| {
            let of_ids = entries.iter().filter(|entry| ids.contains(&entry.id));
            of_ids.fold(Rights::NONE, |sum, entry| sum | entry.rights)
        };
        any(&self.positive) & !any(&self.negative)
    }

    /// The list with names, as the wire wants it; `name` gives the name of an id.
    pub fn to_text(&self, mut name: impl FnMut(UserId) -> Vec<u8>) -> AclText {
        let mut lines = |entries: &[AclEntry]| -> Vec<AclLine> {
            entries.iter().map(|entry| AclLine { name: name(entry.id), rights: entry.rights }).collect()
        };
        let positive = lines(&self.positive);
        AclText { positive, negative: lines(&self.negative) }
    }
}

/// `entries` with the last rights of every id, without those that have none, in the order of ids.
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
    /// Reads the text form. A NUL ends it, a missing one does no harm; spaces and tabs both part a
    /// name from its rights.
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

    /// The text form, ending in a NUL as the wire has it.
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

    /// The list with ids; `id` translates a name, its error ends the translation.
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
