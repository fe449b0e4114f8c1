//! Writing: StoreData, StoreStatus, StoreACL.

use crate::access::Writing;
use crate::call::FileCall;
use crate::counters::Operation;
use crate::pipeline::{Need, Session, View};
use crate::promises::Change;
use crate::wire;
use afs_format::acl::{Acl, AclError, AclText};
use afs_idl::cluster::{self, part_kind};
use afs_idl::{CallStream, StreamSource, fs as rxafs};
use base::{AbortCode, CallContext, RecvBuffer, UserId};
use bytes::Bytes;
use std::collections::VecDeque;
use volume::{ChunkAddress, ChunkPlace, DataSource, FileKind, SetStatus, StoreRequest};

/// Maximum file length without StoreData64.
const OLD_LENGTH_MAX: u32 = i32::MAX as u32;

/// Converts the old call's arguments to the new call's form, if they fit into 31 bits.
fn widen(request: rxafs::StoreDataRequest) -> Result<rxafs::StoreData64Request, AbortCode> {
    let rxafs::StoreDataRequest { fid, status, position, length, file_length } = request;
    let end = position.checked_add(length);
    if file_length > OLD_LENGTH_MAX || end.is_none_or(|end| end > OLD_LENGTH_MAX) {
        return Err(AbortCode::UAEFBIG);
    }
    Ok(rxafs::StoreData64Request {
        fid,
        status,
        position: position.into(),
        length: length.into(),
        file_length: file_length.into(),
    })
}

impl FileCall<'_> {
    /// StoreData (133).
    pub(crate) fn store_data(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::StoreDataRequest,
        stream: &mut dyn CallStream,
    ) -> Result<rxafs::StoreDataReply, AbortCode> {
        let reply = self.store(caller, widen(request), &mut Sent(stream))?;
        Ok(rxafs::StoreDataReply { new_status: reply.new_status, sync: reply.sync })
    }

    /// StoreData64 (65538).
    pub(crate) fn store_data64(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::StoreData64Request,
        stream: &mut dyn CallStream,
    ) -> Result<rxafs::StoreData64Reply, AbortCode> {
        self.store(caller, Ok(request), &mut Sent(stream))
    }

    /// Executes StoreData64 for another node, whose `stream` has the data in parts: some of them are chunks in `objects` that the node
    /// has created in the bucket. Each chunk has `chunk_bytes`.
    ///
    /// # Errors
    /// Those of StoreData64; VRESTARTING if the objects or the size are not what was offered.
    pub fn store_for_front(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::StoreData64Request,
        (objects, chunk_bytes): (Vec<u64>, u64),
        stream: &mut dyn CallStream,
    ) -> Result<rxafs::StoreData64Reply, AbortCode> {
        let stream = StreamSource::new(stream);
        let mut parts = Parts { stream, objects, begun: Vec::new(), chunk_bytes, bytes: 0, chunk: None };
        self.store(caller, Ok(request), &mut parts)
    }

    /// Answers another node how it may store data of a StoreData64 in the bucket itself, and reserves objects for it.
    ///
    /// # Errors
    /// Those of StoreData64 that are known before the data.
    pub fn offer_for_front(
        &self,
        caller: &CallContext<'_>,
        request: &rxafs::StoreData64Request,
    ) -> Result<cluster::OfferStoreReply, AbortCode> {
        let session = self.server.session(caller, self.commits)?;
        session.offer(request).map_err(|code| session.for_client(code))
    }

    fn store(
        &self,
        caller: &CallContext<'_>,
        request: Result<rxafs::StoreData64Request, AbortCode>,
        source: &mut dyn StoreSource,
    ) -> Result<rxafs::StoreData64Reply, AbortCode> {
        self.call(caller, Operation::StoreData, |session| {
            let request = request?;
            let (view, store) = session.storable(&request)?;
            let mut claimed = match source.objects() {
                [] => None,
                objects => {
                    let claimed = view.volume.access(|volume| Ok(volume.claim_objects(objects)))?;
                    Some(claimed.ok_or(AbortCode::VRESTARTING)?)
                }
            };
            let begun = self.server.clock().monotonic();
            let stored =
                view.volume.access(|volume| volume.store(&session.actor(), view.fid, &store, source));
            if let Some(claimed) = &mut claimed {
                claimed.begun = source.begun(stored.is_ok());
            }
            drop(claimed);
            let bytes = stored.is_ok().then_some(request.length);
            self.server.counters().stored(begun, self.server.clock().monotonic(), bytes);
            let status = stored?;
            if wire::wants_sync(&request.status) {
                view.volume.access(|volume| volume.sync())?;
            }
            session.announce(&Change::of(view.fid));
            let new_status = session.wire_status(view.fid, &status, view.access);
            Ok(rxafs::StoreData64Reply { new_status, sync: view.sync() })
        })
    }

    /// StoreStatus (135).
    pub(crate) fn store_status(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::StoreStatusRequest,
    ) -> Result<rxafs::StoreStatusReply, AbortCode> {
        self.call(caller, Operation::StoreStatus, |session| {
            let set = wire::set_status(&request.status);
            let view = session.view_to_write(request.fid, Need::Anything)?;
            session.may_write(&view, Writing::Status, &set)?;
            let changed = view.volume.access(|volume| volume.set_status(&session.actor(), view.fid, &set));
            let status = changed?;
            session.announce(&Change::of(view.fid));
            let new_status = session.wire_status(view.fid, &status, view.access);
            Ok(rxafs::StoreStatusReply { new_status, sync: view.sync() })
        })
    }

    /// OldStoreACL (134), of clients before 2018.
    pub(crate) fn old_store_acl(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::OldStoreACLRequest,
    ) -> Result<rxafs::OldStoreACLReply, AbortCode> {
        self.server.warn_of_old_store_acl(caller);
        let request = rxafs::StoreACLRequest { fid: request.fid, access_list: request.access_list };
        let reply = self.store_acl(caller, request)?;
        Ok(rxafs::OldStoreACLReply { status: reply.status, sync: reply.sync })
    }

    /// StoreACL (164).
    pub(crate) fn store_acl(
        &self,
        caller: &CallContext<'_>,
        request: rxafs::StoreACLRequest,
    ) -> Result<rxafs::StoreACLReply, AbortCode> {
        self.call(caller, Operation::StoreACL, |session| {
            let view = session.view_to_write(request.fid, Need::Directory)?;
            session.may_write(&view, Writing::Acl, &SetStatus::default())?;
            let acl = session.parse_acl(&request.access_list)?;
            view.volume.access(|volume| volume.set_acl(&session.actor(), view.fid, acl))?;
            session.announce(&Change::of(view.fid));
            let view = session.again(&view)?;
            let status = session.wire_status(view.fid, &view.status, view.access);
            Ok(rxafs::StoreACLReply { status, sync: view.sync() })
        })
    }
}

/// Maximum number of objects that a node has begun to create and whose announcements the owner has not read.
const UNREAD_OBJECTS: usize = 2;

/// The data of a store.
trait StoreSource: DataSource {
    /// Returns the objects in which chunks may be.
    fn objects(&self) -> &[u64] {
        &[]
    }

    /// Returns those of them that may exist. If the data has not been read to its end, there may be more than it says.
    fn begun(&mut self, _is_complete: bool) -> Vec<u64> {
        Vec::new()
    }
}

/// The data of a store from another node.
struct Parts<'a> {
    stream: StreamSource<'a>,
    objects: Vec<u64>,
    /// Objects whose creation has begun.
    begun: Vec<u64>,
    /// Size of a chunk.
    chunk_bytes: u64,
    /// Number of bytes of the present part that were not read.
    bytes: usize,
    /// The present part, if it is a chunk in the bucket.
    chunk: Option<ChunkPlace>,
}

impl Parts<'_> {
    /// Begins the next part if the present one has been read.
    fn begin(&mut self) -> Result<(), AbortCode> {
        while self.bytes == 0 && self.chunk.is_none() {
            self.begin_next()?;
        }
        Ok(())
    }

    fn begin_next(&mut self) -> Result<(), AbortCode> {
        match self.stream.decode_request::<u32>()? {
            part_kind::BYTES => self.bytes = self.stream.decode_request::<u32>()? as usize,
            part_kind::CHUNK => {
                let (segment, offset) = (self.stream.decode_request()?, self.stream.decode_request()?);
                let stored_bytes = self.stream.decode_request()?;
                if !self.begun.contains(&segment) {
                    return Err(AbortCode::RXGEN_SS_UNMARSHAL);
                }
                let address = ChunkAddress { segment, offset, stored_bytes };
                self.chunk = Some(ChunkPlace { address, origin: segment });
            }
            part_kind::OBJECT => {
                let object = self.stream.decode_request()?;
                if !self.objects.contains(&object) || self.begun.contains(&object) {
                    return Err(AbortCode::RXGEN_SS_UNMARSHAL);
                }
                self.begun.push(object);
            }
            _ => return Err(AbortCode::RXGEN_SS_UNMARSHAL),
        }
        Ok(())
    }
}

impl DataSource for Parts<'_> {
    fn next(&mut self, bytes_max: usize) -> Result<Bytes, AbortCode> {
        self.begin()?;
        // A chunk cannot be a part of one that is sent.
        if self.chunk.is_some() {
            return Err(AbortCode::RXGEN_SS_UNMARSHAL);
        }
        let piece = self.stream.read_chunk(bytes_max.min(self.bytes))?;
        self.bytes -= piece.len();
        Ok(piece)
    }

    fn stored(&mut self, length: usize) -> Result<Option<ChunkPlace>, AbortCode> {
        self.begin()?;
        if self.chunk.is_some() && length as u64 != self.chunk_bytes {
            return Err(AbortCode::VRESTARTING);
        }
        Ok(self.chunk.take())
    }

    /// The node's call reads the rest of the stream itself.
    fn skip(&mut self, _left: u64) -> Result<(), AbortCode> {
        Ok(())
    }
}

impl StoreSource for Parts<'_> {
    fn objects(&self) -> &[u64] {
        &self.objects
    }

    fn begun(&mut self, is_complete: bool) -> Vec<u64> {
        let mut begun = std::mem::take(&mut self.begun);
        if !is_complete {
            // They are used in their order.
            let next = begun.last().map_or(0, |last| self.objects.partition_point(|object| object <= last));
            begun.extend(self.objects.iter().skip(next).take(UNREAD_OBJECTS));
        }
        begun
    }
}

/// The data stream from a client.
struct Sent<'a>(&'a mut dyn CallStream);

impl DataSource for Sent<'_> {
    fn next(&mut self, bytes_max: usize) -> Result<Bytes, AbortCode> {
        self.0.read_chunk(bytes_max)
    }

    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        self.0.fill(rooms)
    }
}

impl StoreSource for Sent<'_> {}

/// The reason why an access list was rejected.
enum AclRefusal {
    Text(AclError),
    Code(AbortCode),
}

impl From<AclError> for AclRefusal {
    fn from(error: AclError) -> AclRefusal {
        AclRefusal::Text(error)
    }
}

impl From<AclRefusal> for AbortCode {
    fn from(refusal: AclRefusal) -> AbortCode {
        match refusal {
            AclRefusal::Text(AclError::TooMany { .. }) => AbortCode::UAE2BIG,
            AclRefusal::Text(_) => AbortCode::UAEINVAL,
            AclRefusal::Code(code) => code,
        }
    }
}

impl<'a> Session<'a> {
    /// Returns the file of a store that the caller may make.
    fn storable(&self, request: &rxafs::StoreData64Request) -> Result<(View<'a>, StoreRequest), AbortCode> {
        let set = wire::set_status(&request.status);
        let view = self.view_to_write(request.fid, Need::NotDirectory)?;
        if view.status.kind != FileKind::File {
            return Err(AbortCode::UAEISDIR);
        }
        self.may_write(&view, Writing::Data, &set)?;
        let &rxafs::StoreData64Request { position: offset, length, file_length, .. } = request;
        Ok((view, StoreRequest { offset, length, file_length, set }))
    }

    fn offer(&self, request: &rxafs::StoreData64Request) -> Result<cluster::OfferStoreReply, AbortCode> {
        let (view, store) = self.storable(request)?;
        let terms = view.volume.read(view.fid, |volume| volume.store_terms(view.fid, &store))?;
        let Some(terms) = terms else { return Ok(cluster::OfferStoreReply::default()) };
        let count = usize::try_from(terms.objects_for(store.length)).unwrap_or(usize::MAX);
        let count = count.min(cluster::OBJECTS_MAX);
        let objects = view.volume.access(|volume| volume.reserve_objects(count))?;
        Ok(cluster::OfferStoreReply {
            identity: terms.objects.partition,
            chunk_shift: terms.chunk_shift.into(),
            codec: terms.codec.to_string().as_str().into(),
            object_bytes_max: terms.objects.object_bytes_max,
            owner: terms.owner.0,
            objects,
        })
    }
}

impl Session<'_> {
    fn parse_acl(&self, text: &[u8]) -> Result<Acl, AbortCode> {
        let text = AclText::parse(text).map_err(AclRefusal::from)?;
        let lines = text.positive.iter().chain(&text.negative);
        let names: Vec<&[u8]> = lines.map(|line| line.name.as_slice()).collect();
        // The ids are in the order of the lines, in which the conversion requests them.
        let mut ids = self.server.subjects().membership().ids(&names)?.into_iter();
        let id = |name: &[u8]| -> Result<UserId, AclRefusal> {
            let id = ids.next().flatten();
            id.or_else(|| number(name)).ok_or(AclRefusal::Code(AbortCode::UAEINVAL))
        };
        Ok(text.to_acl(id)?)
    }
}

/// Parses an id in place of a name: entries of deleted users and groups are shown as numbers, and may be
/// stored back in this form.
fn number(name: &[u8]) -> Option<UserId> {
    std::str::from_utf8(name).ok()?.parse().ok().map(UserId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_call_cannot_make_files_of_two_gigabytes() {
        let request = |position, length, file_length| rxafs::StoreDataRequest {
            position,
            length,
            file_length,
            ..rxafs::StoreDataRequest::default()
        };
        assert!(widen(request(0, 0x7fff_ffff, 0x7fff_ffff)).is_ok());
        assert!(widen(request(0x7fff_fff0, 15, 0)).is_ok());
        for (position, length, file_length) in
            [(0, 0, 0x8000_0000), (0x8000_0000, 0, 0), (0x7fff_fff0, 16, 0), (u32::MAX, u32::MAX, 0)]
        {
            let refused = widen(request(position, length, file_length));
            assert_eq!(refused, Err(AbortCode::UAEFBIG), "{position} {length} {file_length}");
        }
    }
}
