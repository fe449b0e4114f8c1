//! Reading: FetchData, FetchStatus, FetchACL.

use crate::access::Reading;
use crate::call::FileCall;
use crate::counters::Operation;
use crate::pipeline::{Need, Session, View};
use afs_format::acl::{AclLine, AclText};
use afs_idl::cluster::{self, piece_kind};
use afs_idl::{CallStream, fs as rxafs};
use base::limits::ACL_TEXT_BYTES_MAX;
use base::{AbortCode, CallContext, UserId};
use bytes::Bytes;
use volume::{ChunkAddress, ChunkPlace, FileReader, InCall, Place};

/// Number of words for the length in the reply of FetchData: one (130) or two (65537).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LengthWords {
    One,
    Two,
}

/// Returns position and length of a range that cannot overflow.
fn range(position: i64, length: i64) -> Result<(u64, u64), AbortCode> {
    let position_max = i64::MAX - length.max(0);
    if position < 0 || length < 0 || position >= position_max {
        return Err(AbortCode::UAEFBIG);
    }
    Ok((position as u64, length as u64))
}

impl FileCall<'_> {
    /// FetchData (130).
    pub(crate) fn fetch_data(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::FetchDataRequest,
        stream: &mut dyn CallStream,
    ) -> Result<rxafs::FetchDataReply, AbortCode> {
        let rxafs::FetchDataRequest { fid, position, length } = request;
        let request = rxafs::FetchData64Request { fid, position: position.into(), length: length.into() };
        let reply = self.fetch(caller, request, LengthWords::One, stream)?;
        Ok(rxafs::FetchDataReply { status: reply.status, call_back: reply.call_back, sync: reply.sync })
    }

    /// FetchData64 (65537).
    pub(crate) fn fetch_data64(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::FetchData64Request,
        stream: &mut dyn CallStream,
    ) -> Result<rxafs::FetchData64Reply, AbortCode> {
        self.fetch(caller, request, LengthWords::Two, stream)
    }

    fn fetch(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::FetchData64Request,
        words: LengthWords,
        stream: &mut dyn CallStream,
    ) -> Result<rxafs::FetchData64Reply, AbortCode> {
        self.call(caller, Operation::FetchData, |session| {
            let mut opened = session.open(request)?;
            session.transfer(&opened.volume, &mut opened.reader, words, stream)?;
            Ok(session.results(&opened))
        })
    }

    /// Answers FetchData64 for another node, which reads the data that is in the bucket itself. The reply says where the first
    /// pieces of it are.
    ///
    /// # Errors
    /// Those of FetchData64.
    pub fn fetch_for_front(
        &self,
        caller: &CallContext<'_>,
        request: &cluster::FetchRequest,
    ) -> Result<cluster::FetchReply, AbortCode> {
        self.call(caller, Operation::FetchData, |session| {
            let number = |number: u64| i64::try_from(number).map_err(|_| AbortCode::UAEFBIG);
            let fid = rxafs::Fid { volume: request.volume, vnode: request.vnode, unique: request.unique };
            let (position, length) = (number(request.position)?, number(request.length)?);
            let mut opened = session.open(rxafs::FetchData64Request { fid, position, length })?;
            let begun = session.server.clock().monotonic();
            let placed = pieces(&mut opened, request.names != 0);
            let now = session.server.clock().monotonic();
            let sent = placed.as_ref().ok().map(|reply| reply.bytes.len() as u64);
            session.server.counters().fetched(begun, now, sent);
            Ok(cluster::FetchReply { results: xdr::to_vec(&session.results(&opened)), ..placed? })
        })
    }

    /// FetchStatus (132).
    pub(crate) fn fetch_status(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::FetchStatusRequest,
    ) -> Result<rxafs::FetchStatusReply, AbortCode> {
        self.call(caller, Operation::FetchStatus, |session| {
            let (view, call_back) = session.status_and_promise(request.fid)?;
            let status = session.wire_status(view.fid, &view.status, view.access);
            Ok(rxafs::FetchStatusReply { status, call_back, sync: view.sync() })
        })
    }

    /// FetchACL (131).
    pub(crate) fn fetch_acl(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::FetchACLRequest,
    ) -> Result<rxafs::FetchACLReply, AbortCode> {
        self.call(caller, Operation::FetchACL, |session| {
            let view = session.view(request.fid, Need::Anything)?;
            session.may_read(&view, Reading::Acl)?;
            let access_list = session.acl_text(&view)?;
            let status = session.wire_status(view.fid, &view.status, view.access);
            Ok(rxafs::FetchACLReply { access_list, status, sync: view.sync() })
        })
    }
}

/// A file that is read for the caller.
struct Opened<'a> {
    view: View<'a>,
    volume: InCall<'a>,
    call_back: rxafs::CallBack,
    reader: FileReader,
}

impl<'a> Session<'a> {
    /// Opens a file for reading, and promises the caller to notify it of changes.
    fn open(&self, request: rxafs::FetchData64Request) -> Result<Opened<'a>, AbortCode> {
        let (position, length) = range(request.position, request.length)?;
        let view = self.view(request.fid, Need::Anything)?;
        self.may_read(&view, Reading::Data)?;
        let call_back = self.promise(&view, view.fid);
        let volume = self.online(view.fid.volume)?;
        let call_back = Session::kept(&view.volume, &volume, call_back);
        let reader = volume.read(view.fid, |volume| volume.reader(view.fid, position, length))?;
        Ok(Opened { view, volume, call_back, reader })
    }

    /// Returns the results of FetchData64.
    fn results(&self, opened: &Opened<'_>) -> rxafs::FetchData64Reply {
        let Opened { view, call_back, reader, .. } = opened;
        let status = self.wire_status(view.fid, reader.status(), view.access);
        rxafs::FetchData64Reply { status, call_back: *call_back, sync: view.sync() }
    }
}

impl Session<'_> {
    fn status_and_promise(&self, fid: rxafs::Fid) -> Result<(View<'_>, rxafs::CallBack), AbortCode> {
        let view = self.view(fid, Need::Anything)?;
        if !view.status.is_directory() {
            self.may_read(&view, Reading::Status)?;
        }
        let call_back = self.promise(&view, view.fid);
        let again = self.again(&view)?;
        let call_back = Session::kept(&view.volume, &again.volume, call_back);
        Ok((again, call_back))
    }

    fn transfer(
        &self,
        volume: &InCall<'_>,
        reader: &mut FileReader,
        words: LengthWords,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode> {
        let begun = self.server.clock().monotonic();
        let sent = send(volume, reader, words, self.server.config().piece_bytes, stream);
        let now = self.server.clock().monotonic();
        self.server.counters().fetched(begun, now, sent.as_ref().ok().copied());
        sent.map(drop)
    }

    /// Returns a directory's access list with names instead of ids.
    fn acl_text(&self, view: &View<'_>) -> Result<Vec<u8>, AbortCode> {
        let (_, acl) = view.volume.read(view.fid, |volume| volume.status_and_acl(view.fid))?;
        let ids: Vec<UserId> = acl.positive().iter().chain(acl.negative()).map(|entry| entry.id).collect();
        let mut names = self.server.subjects().membership().names(&ids)?.into_iter();
        let mut text = AclText::default();
        for (entries, lines) in [(acl.positive(), &mut text.positive), (acl.negative(), &mut text.negative)] {
            for (entry, name) in entries.iter().zip(&mut names) {
                lines.push(AclLine { name, rights: entry.rights });
            }
        }
        let text = text.to_bytes();
        if text.len() > ACL_TEXT_BYTES_MAX { Err(AbortCode::UAE2BIG) } else { Ok(text) }
    }
}

/// Returns where the data is, without the results.
fn pieces(opened: &mut Opened<'_>, is_named: bool) -> Result<cluster::FetchReply, AbortCode> {
    let Opened { volume, reader, .. } = opened;
    let length = reader.remaining();
    let is_named = is_named && length >= cluster::NAMED_BYTES_MIN as u64;
    let limits = (cluster::PIECES_MAX, cluster::PIECE_BYTES_MAX);
    let mut reply = cluster::FetchReply { length, ..cluster::FetchReply::default() };
    for place in volume.report(reader.next_places(limits, is_named))? {
        let piece = cluster::Piece { length: place.length(), ..cluster::Piece::default() };
        reply.pieces.push(match place {
            Place::Here(bytes) => {
                reply.bytes.extend_from_slice(&bytes);
                cluster::Piece { kind: piece_kind::BYTES, ..piece }
            }
            Place::Hole(_) => cluster::Piece { kind: piece_kind::HOLE, ..piece },
            Place::Shared { partition, chunk: ChunkPlace { address, origin }, skipped, .. } => {
                reply.identity = partition;
                let ChunkAddress { segment: object, offset, stored_bytes } = address;
                let kind = piece_kind::CHUNK;
                cluster::Piece { kind, object, offset, stored_bytes, origin, skipped, ..piece }
            }
        });
    }
    Ok(reply)
}

/// Sends the length and the data. Returns the number of bytes.
fn send(
    volume: &InCall<'_>,
    reader: &mut FileReader,
    words: LengthWords,
    piece_bytes: usize,
    stream: &mut dyn CallStream,
) -> Result<u64, AbortCode> {
    let length = reader.remaining();
    let encoded = length.to_be_bytes();
    stream.write(match words {
        LengthWords::One => Bytes::copy_from_slice(&encoded[4..]),
        LengthWords::Two => Bytes::copy_from_slice(&encoded),
    })?;
    let mut sent: u64 = 0;
    while sent < length {
        let pieces = volume.report(reader.next(piece_bytes))?;
        if pieces.is_empty() {
            return Err(AbortCode::UAEIO);
        }
        for piece in pieces {
            sent += piece.len() as u64;
            stream.write(piece)?;
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_wrap_are_refused() {
        assert_eq!(range(0, 0), Ok((0, 0)));
        assert_eq!(range(5, i64::from(i32::MAX)), Ok((5, 2_147_483_647)));
        for (position, length) in [(-1, 0), (0, -1), (i64::MAX, 0), (1, i64::MAX), (i64::MAX - 5, 5)] {
            assert_eq!(range(position, length), Err(AbortCode::UAEFBIG), "{position} {length}");
        }
    }
}
