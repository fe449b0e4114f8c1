//! Names and numbers of nodes, partitions and owners.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;

/// Longest name of a node in bytes.
pub const NODE_NAME_MAX: usize = 64;

/// Longest name of a partition in bytes.
pub const PARTITION_NAME_MAX: usize = 512;

/// A name that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Not the name of a node.
    #[error(
        "`{0}` is not the name of a node; valid are 1 to 64 of a-z, 0-9, `.`, `-` and `_`, not only dots"
    )]
    Node(String),
    /// Not the name of a partition.
    #[error(
        "{0:?} is not a partition's place in a bucket; valid are names without control characters, separated by \
         single slashes, at most 512 bytes, none of them only dots"
    )]
    Partition(String),
}

/// The name of a node, unique in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<NodeName, NameError> {
        let is_valid =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        let is_name = text.len() <= NODE_NAME_MAX && text.bytes().all(is_valid) && !is_dots(text);
        is_name.then(|| NodeName(text.into())).ok_or_else(|| NameError::Node(shown(text, NODE_NAME_MAX)))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of a partition in the bucket: the part that precedes the names of its objects. It may be empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionName(Arc<str>);

impl PartitionName {
    /// Returns the place as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the partition's object with this name.
    pub fn object(&self, name: &str) -> String {
        join(&self.0, name)
    }
}

impl FromStr for PartitionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<PartitionName, NameError> {
        let is_part = |part: &str| !part.bytes().any(|byte| byte.is_ascii_control()) && !is_dots(part);
        let is_place = text.is_empty() || text.split('/').all(is_part);
        (is_place && text.len() <= PARTITION_NAME_MAX)
            .then(|| PartitionName(text.into()))
            .ok_or_else(|| NameError::Partition(shown(text, PARTITION_NAME_MAX)))
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a part of a name is empty or consists of dots only, so that it is no name of a file.
fn is_dots(part: &str) -> bool {
    part.bytes().all(|byte| byte == b'.')
}

/// Returns the beginning of a text, for messages.
fn shown(text: &str, bytes_max: usize) -> String {
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at > bytes_max).unwrap_or(text.len());
    text[..end].to_owned()
}

/// Joins a folder of the bucket, which may be empty, and a name.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// One membership of one process of a node. A process draws the nonce at its start, and counts its memberships:
/// it begins a new one after it was evicted. No two memberships are equal, whatever their nodes are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// Random number of the process.
    pub nonce: u128,
    /// Number of the membership within the process, from 1.
    pub count: u32,
}

impl Incarnation {
    /// Whether `earlier` is an earlier membership of the same process.
    pub fn succeeds(self, earlier: Incarnation) -> bool {
        self.nonce == earlier.nonce && self.count > earlier.count
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}.{}", self.nonce, self.count)
    }
}

impl FromStr for Incarnation {
    type Err = ();

    fn from_str(text: &str) -> Result<Incarnation, ()> {
        let (nonce, count) = text.split_once('.').ok_or(())?;
        let nonce = u128::from_str_radix(nonce, 16).map_err(|_| ())?;
        Ok(Incarnation { nonce, count: count.parse().map_err(|_| ())? })
    }
}

/// Number of an ownership of a partition. It grows with every owner, and with every time that an owner opens the
/// database; 0 precedes all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the epoch after this one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The version of an object as the bucket names it. It is compared, and returned to the bucket as a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The ETag of the contents.
    pub e_tag: Option<String>,
    /// The version's id, in buckets that have versions.
    pub version: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_shown() {
        for text in ["a", "node-1.example_x", &"n".repeat(NODE_NAME_MAX)] {
            assert_eq!(text.parse::<NodeName>().unwrap().to_string(), text);
        }
        for text in ["", ".", "..", "A", "a/b", "a b", "a\n", "ä", &"n".repeat(NODE_NAME_MAX + 1)] {
            assert!(text.parse::<NodeName>().is_err(), "{text}");
        }
        for text in ["", "p1", "cells/a.example/Größe 1", &"n".repeat(PARTITION_NAME_MAX)] {
            assert_eq!(text.parse::<PartitionName>().unwrap().to_string(), text);
        }
        for text in ["/", "a/", "/a", "a//b", "a/../b", ".", "a\nb", &"n".repeat(PARTITION_NAME_MAX + 1)] {
            assert!(text.parse::<PartitionName>().is_err(), "{text}");
        }
        assert_eq!("".parse::<PartitionName>().unwrap().object("owner"), "owner");
        assert_eq!("c/p1".parse::<PartitionName>().unwrap().object("owner"), "c/p1/owner");
    }

    #[test]
    fn a_message_repeats_no_endless_name() {
        let long = "ä".repeat(100_000);
        assert!(long.parse::<NodeName>().unwrap_err().to_string().len() < 300);
        assert!(long.parse::<PartitionName>().unwrap_err().to_string().len() < 1000);
    }

    #[test]
    fn incarnations_are_parsed_and_compared() {
        let first = Incarnation { nonce: 0xabc, count: 1 };
        assert_eq!(first.to_string().parse(), Ok(first));
        let second = Incarnation { count: 2, ..first };
        assert!(second.succeeds(first) && !first.succeeds(second) && !first.succeeds(first));
        assert!(!Incarnation { nonce: 1, count: 3 }.succeeds(first));
        for text in ["", "1", ".", "x.1", "1.x", "1.4294967296", "1.1.1"] {
            assert!(text.parse::<Incarnation>().is_err(), "{text}");
        }
    }
}
