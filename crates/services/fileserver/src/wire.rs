//! Conversion between internal values and the structures of the interface.

use crate::access::Access;
use afs_idl::fs as rxafs;
use base::{UnixTime, UserId};
use volume::{FileKind, SetStatus, VnodeStatus};

const MODE_BITS: u32 = 0o7777;

/// Returns the AFSFetchStatus of a vnode.
pub(crate) fn fetch_status(status: &VnodeStatus, access: Access, locks: i32) -> rxafs::FetchStatus {
    let (parent, parent_unique) = match status.kind {
        FileKind::Directory => (status.vnode, status.unique),
        _ => (status.parent, status.parent_unique),
    };
    rxafs::FetchStatus {
        interface_version: 1,
        file_type: status.kind as u32,
        link_count: status.links,
        length: status.length as u32,
        data_version: status.data_version as u32,
        author: status.author.0 as u32,
        owner: status.owner.0 as u32,
        caller_access: access.caller.bits(),
        anonymous_access: access.anyone.bits(),
        unix_mode_bits: u32::from(status.mode),
        parent_vnode: parent.0,
        parent_unique,
        residency_mask: 1,
        client_mod_time: status.client_modified.0,
        server_mod_time: status.server_modified.0,
        group: status.group as u32,
        sync_counter: 0,
        data_version_high: (status.data_version >> 32) as u32,
        lock_count: locks as u32,
        length_high: (status.length >> 32) as u32,
        error_code: 0,
    }
}

/// Returns a bulk reply's entry for a vnode without status, with the error.
pub(crate) fn failed_status(code: base::AbortCode) -> rxafs::FetchStatus {
    rxafs::FetchStatus { interface_version: 1, error_code: code.0 as u32, ..rxafs::FetchStatus::default() }
}

/// Returns the changes that an AFSStoreStatus requests.
pub(crate) fn set_status(status: &rxafs::StoreStatus) -> SetStatus {
    let chosen = |bit: u32| status.mask & bit != 0;
    SetStatus {
        mode: chosen(rxafs::store_mask::MODE).then_some((status.unix_mode_bits & MODE_BITS) as u16),
        owner: chosen(rxafs::store_mask::OWNER).then_some(UserId(status.owner as i32)),
        group: chosen(rxafs::store_mask::GROUP).then_some(status.group as i32),
        client_modified: chosen(rxafs::store_mask::MOD_TIME).then_some(UnixTime(status.client_mod_time)),
    }
}

/// Whether a client requests that the data be durable before the reply.
pub(crate) fn wants_sync(status: &rxafs::StoreStatus) -> bool {
    status.mask & rxafs::store_mask::FSYNC != 0
}

/// Returns an AFSVolSync, of which only the volume's creation date is used.
pub(crate) fn vol_sync(created: UnixTime) -> rxafs::VolSync {
    rxafs::VolSync { spare1: created.0, ..rxafs::VolSync::default() }
}

/// Returns a promise for this number of seconds, or none if 0.
pub(crate) fn call_back(seconds: u32) -> rxafs::CallBack {
    rxafs::CallBack {
        version: rxafs::CALLBACK_VERSION,
        expiration_time: seconds,
        call_back_type: match seconds {
            0 => rxafs::call_back_type::DROPPED,
            _ => rxafs::call_back_type::SHARED,
        },
    }
}

/// Returns a number of blocks, clamped to 31 bits.
pub(crate) fn blocks(kib: u64) -> i32 {
    i32::try_from(kib).unwrap_or(i32::MAX)
}
