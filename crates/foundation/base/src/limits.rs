//! Limits of the protocol and of this server on which several crates must agree.

/// Maximum length of a directory entry's name in bytes, without its NUL (AFSNAMEMAX). Linux clients make names of at
/// most 255 bytes. OpenAFS's servers make, dump and restore 256.
pub const NAME_BYTES_MAX: usize = 256;

/// Maximum length of a symbolic link's target in bytes (AFSPATHMAX).
pub const PATH_BYTES_MAX: usize = 1024;

/// Maximum number of FIDs in one bulk status or callback call (AFSCBMAX).
pub const BULK_FIDS_MAX: usize = 50;

/// Maximum length of an ACL's text in bytes (AFSOPAQUEMAX).
pub const ACL_TEXT_BYTES_MAX: usize = 1024;

/// Maximum number of entries in an ACL (ACL_MAXENTRIES).
pub const ACL_ENTRIES_MAX: usize = 20;

/// Maximum number of addresses per server in the location database (VL_MAXIPADDRS_PERMH).
pub const SERVER_ADDRESSES_MAX: usize = 15;

/// Maximum number of sites per volume (NMAXNSERVERS).
pub const VOLUME_SITES_MAX: usize = 13;

/// Maximum length of a user or group name in bytes, without its NUL (PR_MAXNAMELEN - 1).
pub const PROTECTION_NAME_BYTES_MAX: usize = 63;
