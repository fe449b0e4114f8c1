//! The volume dump: what `vos dump` writes and `vos restore` reads.
//!
//! A dump is a stream of tagged values, all numbers big-endian: a dump header, a volume header, the
//! vnodes (directories first), and an end mark. `docs/reference/formats/dump.md` draws it. Facts from OpenAFS
//! 1.8 `volser/dump.h` and `volser/dumpstuff.c`.
//!
//! [`Reader`] and the `put_` functions work on streams: neither ever holds more than one header and
//! one piece of a file. A dump that is not sound is refused with the [`DumpError`] that says at which
//! byte what was expected.

mod read;
mod records;
mod write;

pub(crate) use read::parse_acl;
pub use read::{DumpError, Item, Reader};
pub use records::{DumpHeader, DumpVolume, DumpedVnode, VnodeAttributes};
pub use write::{put_dump_header, put_end, put_vnode, put_volume};

/// Largest tag that begins a section; what follows are attributes of the section (D_MAX).
const SECTION_MAX: u8 = 20;
const TAG_DUMP: u8 = 1;
const TAG_VOLUME: u8 = 2;
const TAG_VNODE: u8 = 3;
const TAG_END: u8 = 4;
/// Says that whoever does not know the next tag must give up.
const TAG_CRITICAL: u8 = 0x7e;

const BEGIN_MAGIC: u32 = 0xB3A1_1322;
const END_MAGIC: u32 = 0x3A21_4B6E;
const VERSION: u32 = 1;

/// Bytes of an access list in a dump, whatever stands in it.
pub const ACL_BYTES: usize = 192;
/// Version of the access list's layout.
const ACL_VERSION: u32 = 1;
const ACL_HEADER_BYTES: usize = 20;

/// Longest name of a volume (VNAMESIZE less its NUL).
const NAME_BYTES_MAX: usize = 31;
/// Longest offline message and message of the day (VMSGSIZE less its NUL).
const MESSAGE_BYTES_MAX: usize = 127;
/// Most pairs of dates in a dump header (MAXDUMPTIMES).
const DATES_MAX: usize = 50;

#[cfg(test)]
mod tests;
