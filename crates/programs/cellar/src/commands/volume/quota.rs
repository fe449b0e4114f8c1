//! Quotas: maximum sizes of volumes.

use super::Transaction;
use afs_idl::fs::{self, GetVolumeStatusRequest};
use afs_idl::vol;
use base::{AbortCode, PartitionId};
use cell_client::{CellClient, Interface};
use std::net::Ipv4Addr;

/// Unit suffixes and their KiB, as in `fs setquota`.
const UNITS: [(char, i32); 4] = [('K', 1), ('M', 1 << 10), ('G', 1 << 20), ('T', 1 << 30)];

/// Parses a quota into KiB: `5000`, `500M`, `2G`, `2GiB`; 0 is unlimited.
///
/// # Errors
/// If it is not such a number, or exceeds AFS's maximum (2 TiB less one KiB).
pub(in crate::commands) fn parse(text: &str) -> Result<i32, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let wrong = || format!("`{text}` is not a quota; expected KiB, or a number with K, M, G or T, like 500M");
    let kib = match unit.strip_suffix("iB").unwrap_or(unit) {
        "" if unit.is_empty() => 1,
        letter => {
            let of = UNITS
                .iter()
                .find(|(of, _)| letter.len() == 1 && letter.eq_ignore_ascii_case(&of.to_string()));
            of.ok_or_else(wrong)?.1
        }
    };
    if digits.is_empty() {
        return Err(wrong());
    }
    let number: Option<i32> = digits.parse().ok();
    let number = number.and_then(|number| number.checked_mul(kib));
    number.ok_or_else(|| format!("`{text}` exceeds the largest possible quota, {} KiB", i32::MAX))
}

/// Formats a quota.
pub(in crate::commands) fn in_words(kib: i32) -> String {
    match u64::try_from(kib) {
        Ok(kib @ 1..) => format!("a quota of {}", indicatif::HumanBytes(kib << 10)),
        _ => "no quota".into(),
    }
}

/// Returns the quota of a volume in KiB; its file server reports it to any caller with access to the volume.
pub(super) fn get(cell: &CellClient, server: Ipv4Addr, volume: u32) -> Result<i32, AbortCode> {
    let server = cell.connection(server, Interface::Files);
    let request = GetVolumeStatusRequest { volume_id: volume };
    fs::get_volume_status(&*server, &request).map(|reply| reply.status.max_quota)
}

/// Sets the quota like `vos setfields -maxquota`. (OpenAFS's file servers allow this only to users, not to
/// holders of the cell's key.) Calls on the volume wait meanwhile.
pub(super) fn set(
    cell: &CellClient,
    (server, partition): (Ipv4Addr, PartitionId),
    volume: u32,
    kib: i32,
) -> Result<(), AbortCode> {
    let server = cell.connection(server, Interface::Volumes);
    let transaction = Transaction::begin(vol::attach_mode::OFFLINE, &*server, partition, volume)?;
    transaction.set_quota(kib)?;
    transaction.end()
}

/// Checks whether the quota may be set, without affecting use of the volume.
pub(super) fn check(
    cell: &CellClient,
    (server, partition): (Ipv4Addr, PartitionId),
    volume: u32,
) -> Result<(), AbortCode> {
    let server = cell.connection(server, Interface::Volumes);
    Transaction::begin(vol::attach_mode::READ_ONLY, &*server, partition, volume)?.end()
}

impl Transaction<'_> {
    /// Sets the quota of the transaction's volume, and nothing else.
    pub(super) fn set_quota(&self, kib: i32) -> Result<(), AbortCode> {
        let info = vol::VolintInfo {
            max_quota: kib,
            creation_date: u32::MAX,
            access_date: u32::MAX,
            update_date: u32::MAX,
            day_use: -1,
            spare0: -1,
            spare1: -1,
            spare2: -1,
            spare3: -1,
            flags: -1,
            ..vol::VolintInfo::default()
        };
        vol::set_info(self.server, &vol::SetInfoRequest { transaction: self.id, info }).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_have_units() {
        let quotas =
            ["0", "5000", "7K", "500M", "2g", "2GiB", "1T", "2147483647"].map(|text| parse(text).unwrap());
        assert_eq!(quotas, [0, 5000, 7, 500 << 10, 2 << 20, 2 << 20, 1 << 30, i32::MAX]);
        for (text, expected) in [
            ("", "`` is not a quota; expected KiB, or a number with K, M, G or T, like 500M"),
            ("G", "`G` is not a quota"),
            ("-1", "`-1` is not a quota"),
            ("2GB", "`2GB` is not a quota"),
            ("2 G", "`2 G` is not a quota"),
            ("1iB", "`1iB` is not a quota"),
            ("2T", "`2T` exceeds the largest possible quota, 2147483647 KiB"),
            ("99999999999", "exceeds the largest possible quota"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn quotas_in_words() {
        assert_eq!([0, 5000].map(in_words), ["no quota", "a quota of 4.88 MiB"]);
    }
}
