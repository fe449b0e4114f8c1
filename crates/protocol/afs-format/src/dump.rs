//! The volume dump that `vos dump` writes and `vos restore` reads.
//!
//! A dump is a stream of tagged values, all numbers big-endian: a dump header, a volume header, the vnodes
//! (directories first), and an end mark; see `docs/reference/formats/dump.md`. Sources: OpenAFS 1.8
//! `volser/dump.h` and `volser/dumpstuff.c`.
//!
//! [`Reader`] and the `put_` functions work on streams: neither ever holds more than one header and one piece
//! of a file. A malformed dump is rejected with a [`DumpError`] that contains the offset and what was
//! expected there.

mod read;
mod records;
mod write;

pub(crate) use read::parse_acl;
pub use read::{DumpError, Item, Reader};
pub use records::{DumpHeader, DumpVolume, DumpedVnode, VnodeAttributes};
pub use write::{put_dump_header, put_end, put_vnode, put_volume};

/// Largest tag that starts a section; larger tags are attributes of a section (D_MAX).
const SECTION_MAX: u8 = 20;
const TAG_DUMP: u8 = 1;
const TAG_VOLUME: u8 = 2;
const TAG_VNODE: u8 = 3;
const TAG_END: u8 = 4;
/// Marks the next tag as critical: a reader that does not know it must fail.
const TAG_CRITICAL: u8 = 0x7e;

const BEGIN_MAGIC: u32 = 0xB3A1_1322;
const END_MAGIC: u32 = 0x3A21_4B6E;
const VERSION: u32 = 1;

/// Size of an access list in a dump in bytes, whatever its contents.
pub const ACL_BYTES: usize = 192;
/// Version of the access list layout.
const ACL_VERSION: u32 = 1;
const ACL_HEADER_BYTES: usize = 20;

/// Maximum length of a volume name (VNAMESIZE less its NUL).
const NAME_BYTES_MAX: usize = 31;
/// Maximum length of offline message and message of the day (VMSGSIZE less its NUL).
const MESSAGE_BYTES_MAX: usize = 127;
/// Maximum number of pairs of dates in a dump header (MAXDUMPTIMES).
const DATES_MAX: usize = 50;

#[cfg(test)]
mod tests;
