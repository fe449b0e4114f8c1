//! Limits of the protocol and of this server that more than one crate must agree on.

/// Longest name of a directory entry in bytes, without its NUL (AFSNAMEMAX - 1).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest path in a symbolic link in bytes (AFSPATHMAX).
pub const PATH_BYTES_MAX: usize = 1024;

/// Most FIDs in one bulk status or callback call (AFSCBMAX).
pub const BULK_FIDS_MAX: usize = 50;

/// Longest ACL text in bytes (AFSOPAQUEMAX).
pub const ACL_TEXT_BYTES_MAX: usize = 1024;

/// Most entries in an ACL (ACL_MAXENTRIES).
pub const ACL_ENTRIES_MAX: usize = 20;

/// Most addresses of one server in the location database (VL_MAXIPADDRS_PERMH).
pub const SERVER_ADDRESSES_MAX: usize = 15;

/// Most sites of one volume (NMAXNSERVERS).
pub const VOLUME_SITES_MAX: usize = 13;

/// Longest user or group name in bytes, without its NUL (PR_MAXNAMELEN - 1).
pub const PROTECTION_NAME_BYTES_MAX: usize = 63;
