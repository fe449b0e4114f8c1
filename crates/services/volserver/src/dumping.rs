//! Dump, DumpV2 and GetSize.

use crate::codes;
use crate::reading::{Opened, Piece, STEP_VNODES, Source};
use crate::sending::Sending;
use crate::server::VolumeServer;
use crate::transfers::Transfer;
use afs_format::dump::{
    DumpHeader, DumpVolume, DumpedVnode, VnodeAttributes, put_dump_header, put_end, put_vnode, put_volume,
};
use afs_idl::{CallStream, vol};
use base::{AbortCode, CallContext, Fid, UnixTime, VnodeId, VolumeType};
use bytes::Bytes;
use std::sync::Arc;
use volume::{FileReader, VnodeStatus, Volume, VolumeError, VolumeHeader};

/// Bytes of headers and small files gathered before they are sent.
const PIECE_BYTES: usize = 256 << 10;

/// Length up to which a piece of data is copied to be gathered. Sending each small file by itself costs more than the
/// copy.
const GATHERED_BYTES_MAX: usize = 64 << 10;

/// The parts of a volume that are dumped.
#[derive(Clone, Copy)]
pub(crate) struct Extract {
    /// For vnodes unchanged since this time, only the numbers are dumped.
    pub(crate) since: UnixTime,
    /// Whether directories are dumped even if unchanged.
    pub(crate) all_directories: bool,
}

impl VolumeServer {
    /// Dump: sends the volume.
    pub(crate) fn dump(
        &self,
        caller: &CallContext<'_>,
        request: vol::DumpRequest,
        stream: &mut dyn CallStream,
    ) -> Result<vol::DumpReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "Dump")?;
        let extract = Extract { since: UnixTime(request.from_date), all_directories: true };
        dump(&volume, extract, Source::alone(&volume), stream, None)?;
        Ok(vol::DumpReply)
    }

    /// DumpV2: sends the volume; unchanged directories may be omitted.
    pub(crate) fn dump_v2(
        &self,
        caller: &CallContext<'_>,
        request: vol::DumpV2Request,
        stream: &mut dyn CallStream,
    ) -> Result<vol::DumpV2Reply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "Dump")?;
        let all_directories = request.flags & vol::dump_flags::OMIT_DIRECTORIES == 0;
        let extract = Extract { since: UnixTime(request.from_date), all_directories };
        dump(&volume, extract, Source::alone(&volume), stream, None)?;
        Ok(vol::DumpV2Reply)
    }

    /// GetSize: returns the length of a dump.
    pub(crate) fn get_size(
        &self,
        caller: &CallContext<'_>,
        request: vol::GetSizeRequest,
    ) -> Result<vol::GetSizeReply, AbortCode> {
        let (_used, volume) = self.change(caller, request.transaction, "GetSize")?;
        let extract = Extract { since: UnixTime(request.from_date), all_directories: true };
        let dump_size = put_all(&volume, extract, Source::alone(&volume), Output::new(Sink::Count, None))?;
        Ok(vol::GetSizeReply { size: vol::VolintSize { dump_size } })
    }
}

/// Destination of a dump.
enum Sink<'a, 's> {
    /// No destination: bytes are only counted.
    Count,
    /// A stream that receives the dump.
    Stream(&'a mut dyn CallStream),
    /// A Cellar server, which may have some of the chunks.
    Transfer(&'a mut Sending<'s>),
}

struct Output<'a, 's> {
    sink: Sink<'a, 's>,
    buffer: Vec<u8>,
    total: u64,
    progress: Option<&'a Transfer>,
}

impl<'a, 's> Output<'a, 's> {
    fn new(sink: Sink<'a, 's>, progress: Option<&'a Transfer>) -> Output<'a, 's> {
        Output { sink, buffer: Vec::new(), total: 0, progress }
    }
}

impl Output<'_, '_> {
    fn flush(&mut self) -> Result<(), AbortCode> {
        let bytes = std::mem::take(&mut self.buffer);
        self.total += bytes.len() as u64;
        if bytes.is_empty() {
            return Ok(());
        }
        match &mut self.sink {
            Sink::Count => Ok(()),
            Sink::Stream(stream) => send(&mut **stream, self.progress, bytes.into()),
            Sink::Transfer(sending) => sending.raw(&bytes),
        }
    }

    fn flush_if_full(&mut self) -> Result<(), AbortCode> {
        if self.buffer.len() < PIECE_BYTES { Ok(()) } else { self.flush() }
    }

    /// Writes the data of a vnode, the first of `upcoming`.
    fn data(
        &mut self,
        source: &mut Source,
        opened: &Opened,
        upcoming: Upcoming<'_>,
    ) -> Result<(), AbortCode> {
        let length = opened.length;
        if matches!(self.sink, Sink::Count) {
            self.total += length;
            return Ok(());
        }
        if Sending::is_compared(&opened.status) {
            self.flush()?;
            if let Sink::Transfer(sending) = &mut self.sink {
                self.total += length;
                return sending.file(source, opened, upcoming);
            }
        }
        let mut sent = 0;
        while sent < length {
            let read = source.data(opened, sent)?;
            let Piece::Data(data) = &*read else { return Err(out_of_step()) };
            data.pieces.iter().try_for_each(|piece| self.piece(piece.clone()))?;
            sent += data.length as u64;
            if let Some(progress) = self.progress {
                progress.add_done(data.length as u64);
            }
        }
        Ok(())
    }

    /// Writes a piece of data. Small pieces are gathered, large ones are sent unchanged.
    fn piece(&mut self, piece: Bytes) -> Result<(), AbortCode> {
        if piece.len() <= GATHERED_BYTES_MAX {
            self.buffer.extend_from_slice(&piece);
            return self.flush_if_full();
        }
        self.flush()?;
        self.total += piece.len() as u64;
        match &mut self.sink {
            Sink::Count => Ok(()),
            Sink::Stream(stream) => send(&mut **stream, self.progress, piece),
            Sink::Transfer(sending) => sending.raw(&piece),
        }
    }
}

fn send(stream: &mut dyn CallStream, progress: Option<&Transfer>, bytes: Bytes) -> Result<(), AbortCode> {
    let length = bytes.len() as u64;
    stream.write(bytes)?;
    if let Some(progress) = progress {
        progress.add_sent(length);
    }
    Ok(())
}

pub(crate) fn failed(error: &VolumeError) -> AbortCode {
    tracing::error!(%error, "a dump fails");
    AbortCode::VOLSERREAD_DUMPERROR
}

/// Returns the error for a step whose result belongs to another kind of step.
pub(crate) fn out_of_step() -> AbortCode {
    tracing::error!("the steps of a dump are not the same for all targets");
    AbortCode::VOLSERREAD_DUMPERROR
}

/// Sends a volume.
pub(crate) fn dump(
    volume: &Arc<Volume>,
    extract: Extract,
    source: Source,
    stream: &mut dyn CallStream,
    progress: Option<&Transfer>,
) -> Result<(), AbortCode> {
    put_all(volume, extract, source, Output::new(Sink::Stream(stream), progress)).map(drop)
}

/// Sends a volume to a Cellar server.
pub(crate) fn transfer(
    volume: &Arc<Volume>,
    extract: Extract,
    source: Source,
    sending: &mut Sending<'_>,
    progress: &Transfer,
) -> Result<(), AbortCode> {
    put_all(volume, extract, source, Output::new(Sink::Transfer(sending), Some(progress)))?;
    sending.end()
}

/// Writes a dump, and returns its length in bytes.
fn put_all(
    volume: &Arc<Volume>,
    extract: Extract,
    mut source: Source,
    mut output: Output<'_, '_>,
) -> Result<u64, AbortCode> {
    let header = volume.header();
    let dates = vec![(extract.since, dumped_until(&header))];
    let name = header.name.as_str().as_bytes().to_vec();
    put_dump_header(&mut output.buffer, &DumpHeader { volume: header.number().0, name, dates });
    put_volume(&mut output.buffer, &dump_volume(&header));
    put_class(&mut source, extract, true, &mut output)?;
    put_class(&mut source, extract, false, &mut output)?;
    put_end(&mut output.buffer);
    output.flush()?;
    Ok(output.total)
}

/// Returns the time up to which changes are in the dump.
fn dumped_until(header: &VolumeHeader) -> UnixTime {
    match header.kind {
        VolumeType::ReadWrite => header.updated,
        VolumeType::Backup if header.backed_up != UnixTime(0) => header.backed_up,
        VolumeType::Backup | VolumeType::ReadOnly => header.created,
    }
}

fn dump_volume(header: &VolumeHeader) -> DumpVolume {
    let narrow = |blocks: u64| u32::try_from(blocks).unwrap_or(u32::MAX);
    DumpVolume {
        id: header.number().0,
        version: 1,
        name: header.name.as_str().as_bytes().to_vec(),
        in_service: header.in_service.into(),
        blessed: header.blessed.into(),
        next_unique: header.next_unique,
        kind: header.kind as u8,
        parent: header.parent.0,
        clone: header.clone.0,
        quota_max_kib: narrow(header.quota_max_kib),
        quota_min_kib: narrow(header.quota_min_kib),
        used_kib: narrow(header.used_kib),
        file_count: narrow(header.file_count),
        account: header.account,
        owner: header.owner as u32,
        created: header.created,
        accessed: header.accessed,
        updated: header.updated,
        expires: header.expires,
        backed_up: header.backed_up,
        offline_message: header.offline_message.clone(),
        message_of_the_day: Vec::new(),
        week_use: header.week_use,
        day_use_date: header.day_use_date,
        day_use: header.day_use,
    }
}

/// Writes the directories, or all other vnodes, in the order of their numbers.
fn put_class(
    source: &mut Source,
    extract: Extract,
    directories: bool,
    output: &mut Output<'_, '_>,
) -> Result<(), AbortCode> {
    let mut from = VnodeId(0);
    loop {
        let read = source.vnodes(from, directories)?;
        let Piece::Vnodes(found) = &*read else { return Err(out_of_step()) };
        for first in 0..found.len() {
            put_one(source, Upcoming { vnodes: &found[first..], extract }, output)?;
        }
        match found.last().and_then(|last| last.vnode.0.checked_add(1)) {
            Some(next) if found.len() == STEP_VNODES => from = VnodeId(next),
            _ => return Ok(()),
        }
    }
}

/// Vnodes from a position on, and which of them are sent with contents.
#[derive(Clone, Copy)]
pub(crate) struct Upcoming<'a> {
    pub(crate) vnodes: &'a [VnodeStatus],
    pub(crate) extract: Extract,
}

impl Extract {
    /// Returns whether a vnode is sent with its contents.
    pub(crate) fn has(self, vnode: &VnodeStatus) -> bool {
        vnode.server_modified >= self.since || vnode.is_directory() && self.all_directories
    }
}

/// Writes the first of the upcoming vnodes.
fn put_one(
    source: &mut Source,
    upcoming: Upcoming<'_>,
    output: &mut Output<'_, '_>,
) -> Result<(), AbortCode> {
    let listed = &upcoming.vnodes[0];
    if !upcoming.extract.has(listed) {
        if let Some(progress) = output.progress {
            progress.add_done(listed.length);
        }
        let vnode = DumpedVnode { vnode: listed.vnode.0, unique: listed.unique, attributes: None };
        put_vnode(&mut output.buffer, &vnode);
        return output.flush_if_full();
    }
    let read = source.vnode(upcoming)?;
    let Piece::Vnode(found) = &*read else { return Err(out_of_step()) };
    let Some(opened) = found else { return Ok(()) };
    put_vnode(&mut output.buffer, &opened.vnode);
    output.flush_if_full()?;
    output.data(source, opened, upcoming)
}

/// Returns a vnode in its dump form.
pub(crate) fn dumped(volume: &Arc<Volume>, fid: Fid, reader: &FileReader) -> Result<DumpedVnode, AbortCode> {
    let status = reader.status();
    let acl = if status.is_directory() {
        let (_, acl) = volume.status_and_acl(fid).map_err(|error| failed(&error))?;
        Some((*acl).clone())
    } else {
        None
    };
    let attributes = VnodeAttributes {
        kind: status.kind as u8,
        links: status.links as u16,
        data_version: status.data_version as u32,
        client_modified: status.client_modified,
        author: status.author.0 as u32,
        owner: status.owner.0 as u32,
        group: status.group as u32,
        mode: status.mode,
        parent: status.parent.0,
        server_modified: status.server_modified,
        acl,
        length: Some(reader.remaining()),
    };
    Ok(DumpedVnode { vnode: fid.vnode.0, unique: fid.unique, attributes: Some(attributes) })
}

/// Returns the code of a failed restore, see `restoring`.
pub(crate) fn refused(error: &VolumeError) -> AbortCode {
    match error {
        VolumeError::PartitionFull => codes::of(error),
        _ => AbortCode::VOLSERREAD_DUMPERROR,
    }
}
