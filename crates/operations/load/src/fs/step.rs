//! One call: its request, and the expected reply.

use super::mix::{Group, Operation};
use super::plan::Place;
use crate::files::Fid;
use afs_idl::{MemoryStream, StreamSource, fs};
use base::AbortCode;
use base::limits::BULK_FIDS_MAX;
use bytes::Bytes;
use xdr::{Decode, Encode};

/// The action of one call of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Reads a range of one of the group's files.
    Read { file: usize, position: u64, length: u64 },
    /// Writes the client's own file.
    Write,
    /// Fetches the status of one of the group's files.
    Status { file: usize },
    /// Fetches the statuses of `count` files from this one on.
    BulkStatus { file: usize, count: usize },
    /// Fetches the directory with the group's files.
    List,
    /// Creates a file.
    Create,
    /// Writes the created file.
    WriteSmall,
    /// Removes the file.
    Remove,
    /// Gives up all promises.
    GiveUp,
}

/// Kinds of calls distinguished in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// FetchData64 of a file.
    Read,
    /// FetchData64 of a directory.
    List,
    /// StoreData64.
    Write,
    /// FetchStatus.
    Status,
    /// InlineBulkStatus.
    BulkStatus,
    /// CreateFile.
    Create,
    /// RemoveFile.
    Remove,
    /// GiveUpAllCallBacks, with which clients end; not counted.
    GiveUp,
}

/// All counted kinds, in the order of reports.
pub(super) const KINDS: [CallKind; 7] = [
    CallKind::Read,
    CallKind::List,
    CallKind::Write,
    CallKind::Status,
    CallKind::BulkStatus,
    CallKind::Create,
    CallKind::Remove,
];

impl CallKind {
    /// Returns the call's name in the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            CallKind::Read => "FetchData64",
            CallKind::List => "FetchData64 (directory)",
            CallKind::Write => "StoreData64",
            CallKind::Status => "FetchStatus",
            CallKind::BulkStatus => "InlineBulkStatus",
            CallKind::Create => "CreateFile",
            CallKind::Remove => "RemoveFile",
            CallKind::GiveUp => "GiveUpAllCallBacks",
        }
    }
}

/// Length of the files that [`Operation::SmallFile`] makes.
pub(super) const SMALL_FILE_BYTES: u64 = 4096;

/// Modification time of all files; the value is arbitrary.
const TIME: u32 = 1_000_000_000;

/// Number of directory bytes requested, more than any directory has.
const DIRECTORY_BYTES: i64 = 1 << 30;

/// Returns the calls of an operation. `pick` returns a random number below its argument.
pub(super) fn steps(operation: Operation, group: &Group, mut pick: impl FnMut(usize) -> usize) -> Vec<Step> {
    let files = group.files;
    match operation {
        Operation::Read => reads(pick(files), group),
        Operation::Write => vec![Step::Write],
        Operation::Status => vec![Step::Status { file: pick(files) }],
        Operation::BulkStatus => {
            let count = files.min(BULK_FIDS_MAX);
            vec![Step::BulkStatus { file: pick(files - count + 1), count }]
        }
        Operation::List => vec![Step::List],
        Operation::Scan => {
            let bulks = (0..files).step_by(BULK_FIDS_MAX);
            let bulks = bulks.map(|file| Step::BulkStatus { file, count: BULK_FIDS_MAX.min(files - file) });
            std::iter::once(Step::List).chain(bulks).collect()
        }
        Operation::CreateRemove => vec![Step::Create, Step::Remove],
        Operation::SmallFile => vec![Step::Create, Step::WriteSmall, Step::Remove],
    }
}

fn reads(file: usize, group: &Group) -> Vec<Step> {
    let (size, call) = (group.file_size.0, group.call_size.0);
    let read = |number| {
        let position = number * call;
        Step::Read { file, position, length: call.min(size - position) }
    };
    (0..size.div_ceil(call)).map(read).collect()
}

/// The files that a step uses.
pub(super) struct Subject<'a> {
    /// The files of the client.
    pub(super) place: &'a Place,
    /// The file that the stream created last.
    pub(super) created: Fid,
    /// The name of that file, or of the next one.
    pub(super) name: &'a str,
    /// The file that the stream writes.
    pub(super) own_file: Fid,
}

impl Step {
    pub(super) fn kind(self) -> CallKind {
        match self {
            Step::Read { .. } => CallKind::Read,
            Step::Write | Step::WriteSmall => CallKind::Write,
            Step::Status { .. } => CallKind::Status,
            Step::BulkStatus { .. } => CallKind::BulkStatus,
            Step::List => CallKind::List,
            Step::Create => CallKind::Create,
            Step::Remove => CallKind::Remove,
            Step::GiveUp => CallKind::GiveUp,
        }
    }

    /// Returns the messages of the request.
    pub(super) fn request(self, subject: &Subject<'_>) -> Vec<u8> {
        let Subject { place, .. } = subject;
        let name = || subject.name.as_bytes().to_vec().into();
        match self {
            Step::Read { file, position, length } => fetch(place.files[file], position as i64, length as i64),
            Step::List => fetch(place.directory, 0, DIRECTORY_BYTES),
            Step::Write => store(subject.own_file, place.contents.len() as u64),
            Step::WriteSmall => store(subject.created, SMALL_FILE_BYTES),
            Step::Status { file } => {
                message(fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: place.files[file] })
            }
            Step::BulkStatus { file, count } => {
                let fids = place.files[file..file + count].to_vec();
                message(fs::INLINE_BULK_STATUS, &fs::InlineBulkStatusRequest { fids })
            }
            Step::Create => {
                let mask = fs::store_mask::MODE | fs::store_mask::MOD_TIME;
                let status = fs::StoreStatus {
                    mask,
                    client_mod_time: TIME,
                    unix_mode_bits: 0o644,
                    ..fs::StoreStatus::default()
                };
                let request = fs::CreateFileRequest { directory: place.own_directory, name: name(), status };
                message(fs::CREATE_FILE, &request)
            }
            Step::Remove => {
                let request = fs::RemoveFileRequest { directory: place.own_directory, name: name() };
                message(fs::REMOVE_FILE, &request)
            }
            Step::GiveUp => message(fs::GIVE_UP_ALL_CALL_BACKS, &fs::GiveUpAllCallBacksRequest),
        }
    }

    /// Returns the data after the request's messages.
    pub(super) fn data(self, place: &Place) -> Bytes {
        match self {
            Step::Write => place.contents.clone(),
            Step::WriteSmall => place.small.clone(),
            _ => Bytes::new(),
        }
    }

    /// Returns the expected data of the reply; `None` if it has none, or may have any.
    pub(super) fn expected(self, place: &Place) -> Option<Bytes> {
        let Step::Read { position, length, .. } = self else { return None };
        Some(place.contents.slice(position as usize..(position + length) as usize))
    }

    /// Whether data precedes the reply's messages.
    pub(super) fn has_reply_data(self) -> bool {
        matches!(self, Step::Read { .. } | Step::List)
    }

    /// Returns the payload, except for directories, whose length depends on the server.
    pub(super) fn payload(self, place: &Place) -> u64 {
        match self {
            Step::Read { length, .. } => length,
            step => step.data(place).len() as u64,
        }
    }

    /// Checks a reply's messages. Returns the created file, if any.
    pub(super) fn check(self, reply: &[u8], place: &Place) -> Result<Option<Fid>, Wrong> {
        let file_bytes = place.contents.len() as u64;
        match self {
            Step::Read { .. } => length(&decode::<fs::FetchData64Reply>(reply)?.status, file_bytes)?,
            Step::List => drop(decode::<fs::FetchData64Reply>(reply)?),
            Step::Write => length(&decode::<fs::StoreData64Reply>(reply)?.new_status, file_bytes)?,
            Step::WriteSmall => {
                length(&decode::<fs::StoreData64Reply>(reply)?.new_status, SMALL_FILE_BYTES)?;
            }
            Step::Status { .. } => length(&decode::<fs::FetchStatusReply>(reply)?.status, file_bytes)?,
            Step::BulkStatus { count, .. } => {
                let statuses = decode::<fs::InlineBulkStatusReply>(reply)?.statuses;
                if statuses.len() != count {
                    return Err(Wrong("the number of statuses"));
                }
                statuses.iter().try_for_each(|status| length(status, file_bytes))?;
            }
            Step::Create => return Ok(Some(decode::<fs::CreateFileReply>(reply)?.fid)),
            Step::Remove => drop(decode::<fs::RemoveFileReply>(reply)?),
            Step::GiveUp => {}
        }
        Ok(None)
    }
}

/// The incorrect part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong(pub(super) &'static str);

fn message(opcode: u32, request: &impl Encode) -> Vec<u8> {
    let mut message = xdr::to_vec(&opcode);
    request.encode(&mut message);
    message
}

fn fetch(fid: Fid, position: i64, length: i64) -> Vec<u8> {
    message(fs::FETCH_DATA64, &fs::FetchData64Request { fid, position, length })
}

fn store(fid: Fid, length: u64) -> Vec<u8> {
    let mask = fs::store_mask::MOD_TIME;
    let status = fs::StoreStatus { mask, client_mod_time: TIME, ..fs::StoreStatus::default() };
    let request = fs::StoreData64Request { fid, status, position: 0, length, file_length: length };
    message(fs::STORE_DATA64, &request)
}

fn decode<T: Decode>(reply: &[u8]) -> Result<T, Wrong> {
    let mut stream = MemoryStream { incoming: [Bytes::copy_from_slice(reply)].into(), outgoing: Vec::new() };
    T::decode(&mut StreamSource::new(&mut stream)).map_err(|_| Wrong("the reply's form"))
}

fn length(status: &fs::FetchStatus, expected: u64) -> Result<(), Wrong> {
    let got = u64::from(status.length_high) << 32 | u64::from(status.length);
    if got == expected { Ok(()) } else { Err(Wrong("the file's length")) }
}

/// Whether a code asks the client to retry.
pub(super) fn is_busy(code: AbortCode) -> bool {
    [AbortCode::VBUSY, AbortCode::RX_RESTARTING].contains(&code)
}
