//! Names, ids and patterns in text form, as written by callers and users.

use afs_format::userlist::parse_principal;
use base::{CellName, PartitionId, Rights, VolumeName};
use std::fmt::Display;
use std::str::FromStr;
use vldb::{NamePattern, VolumeQuery};

/// Checks that a parsed value parses the same after formatting it.
fn check<T: FromStr + Display>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let printed = value.to_string();
        let again = printed.parse::<T>().map(|value| value.to_string());
        assert_eq!(again.ok(), Some(printed));
    }
}

/// Exercises names of volumes, cells and partitions, rights, principals, queries and name patterns.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check::<VolumeName>(&text);
    check::<CellName>(&text);
    check::<PartitionId>(&text);
    check::<Rights>(&text);
    let _ = parse_principal(&text);
    let _ = VolumeQuery::parse(data);
    let (pattern, name) = data.split_at(data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len()));
    if let Ok(Some(pattern)) = NamePattern::parse(pattern) {
        let _ = pattern.matches(&String::from_utf8_lossy(name));
    }
}
