//! Names, ids and patterns in text, as callers and people write them.

use afs_format::userlist::parse_principal;
use base::{CellName, PartitionId, Rights, VolumeName};
use std::fmt::Display;
use std::str::FromStr;
use vldb::{NamePattern, VolumeQuery};

/// What is parsed reads the same after it was printed.
fn check<T: FromStr + Display>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let printed = value.to_string();
        let again = printed.parse::<T>().map(|value| value.to_string());
        assert_eq!(again.ok(), Some(printed));
    }
}

/// Names of volumes, cells and partitions, rights, principals, queries and patterns of names.
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
