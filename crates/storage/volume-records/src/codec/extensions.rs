//! Fields that later versions append to the header of a volume, each with a tag and a length, so that every
//! version can skip unknown ones.

use super::{Fields, Record};
use crate::{Unseen, VolumeHeader};
use base::UnixTime;
use store::{Codec, ZSTD_LEVELS};

/// Tag of two bytes: the codec and its level.
const COMPRESSION: u8 = 1;

/// Tag without contents: equal chunks are stored once.
const DEDUPLICATION: u8 = 2;

/// One byte: clients cannot have seen the volume, see [`Unseen`].
const UNSEEN: u8 = 3;

/// Four bytes: date of the latest clone.
const DATED: u8 = 4;

/// Eight bytes: number of changes of the contents at the last restore.
const RESTORED_AT: u8 = 5;

const ARRIVING: u8 = 0;
const RESTORED: u8 = 1;

const RAW: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// Appends the fields that differ from their defaults.
pub(super) fn put(record: Record, header: &VolumeHeader) -> Record {
    let record = match header.compression {
        None => record,
        Some(codec) => {
            let (codec, level) = match codec {
                Codec::Raw => (RAW, 0),
                Codec::Lz4 => (LZ4, 0),
                Codec::Zstd(level) => (ZSTD, level),
            };
            field(record, COMPRESSION, &[codec, level as u8])
        }
    };
    let record = if header.deduplicates { field(record, DEDUPLICATION, &[]) } else { record };
    let record = match header.dated {
        UnixTime(0) => record,
        UnixTime(date) => field(record, DATED, &date.to_be_bytes()),
    };
    let record = match header.restored_at {
        None => record,
        Some(changes) => field(record, RESTORED_AT, &changes.to_be_bytes()),
    };
    match header.unseen {
        None => record,
        Some(Unseen::Arriving) => field(record, UNSEEN, &[ARRIVING]),
        Some(Unseen::Restored) => field(record, UNSEEN, &[RESTORED]),
    }
}

fn field(record: Record, tag: u8, value: &[u8]) -> Record {
    record.u8(tag).u8(value.len() as u8).bytes(value)
}

/// Reads the fields up to the end of the record. A value that only a later version knows is treated as the
/// default.
pub(super) fn get(fields: &mut Fields<'_>, header: &mut VolumeHeader) -> Option<()> {
    while !fields.0.is_empty() {
        let (tag, length) = (fields.u8()?, fields.u8()?);
        let value = fields.take(length.into())?;
        match tag {
            COMPRESSION => header.compression = codec(value),
            DATED => header.dated = UnixTime(value.try_into().map_or(0, u32::from_be_bytes)),
            RESTORED_AT => header.restored_at = value.try_into().ok().map(u64::from_be_bytes),
            UNSEEN => header.unseen = unseen(value),
            DEDUPLICATION => header.deduplicates = value.is_empty(),
            _ => {}
        }
    }
    Some(())
}

fn unseen(value: &[u8]) -> Option<Unseen> {
    match *value {
        [ARRIVING] => Some(Unseen::Arriving),
        [RESTORED] => Some(Unseen::Restored),
        _ => None,
    }
}

fn codec(value: &[u8]) -> Option<Codec> {
    match *value {
        [RAW, 0] => Some(Codec::Raw),
        [LZ4, 0] => Some(Codec::Lz4),
        [ZSTD, level] => Some(level as i8).filter(|level| ZSTD_LEVELS.contains(level)).map(Codec::Zstd),
        _ => None,
    }
}
