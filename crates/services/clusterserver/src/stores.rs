//! Stores whose data the front writes to the bucket itself.
//!
//! The owner reserves the numbers of objects (`OfferStore` in `idl/cluster.idl`). The front encodes the whole chunks of the data as
//! the owner would, and creates objects of them. It sends the owner the rest of the data, and where the chunks are (`Store`). The
//! owner executes the store as if it had received the data: until its commit, nothing names the objects. What cannot be written to
//! the bucket is sent instead.

use crate::counters::{Tally, add, count};
use crate::environment::Data;
use crate::outgoing::{PIECE_BYTES, Trouble};
use crate::scope;
use afs_idl::cluster::{self, PLACED_BYTES_MIN, part_kind};
use afs_idl::{CallStream, ClientCall, StreamSource, fs};
use base::{AbortCode, Monotonic};
use bytes::Bytes;
use cluster_proto::PartitionName;
use std::collections::VecDeque;
use std::time::Duration;
use store::{CHUNK_BYTES_MAX, ChunkOwner, Codec, NewObject, ObjectBuilder, RawChunk};
use xdr::Encode;

/// Maximum size of an object that is created here. Two of a store are in memory at a time.
const OBJECT_BYTES_MAX: u64 = 16 << 20;

/// How long the owner may get nothing while the client sends data: servers end calls that are idle for minutes.
const QUIET_MAX: Duration = Duration::from_secs(10);

/// Maximum number of chunks in an object that is created here.
const OBJECT_CHUNKS_MAX: usize = 256;

/// The owner of the file has answered with nonsense.
const MALFORMED: AbortCode = AbortCode::RXGEN_CC_UNMARSHAL;

/// A client's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) request: fs::StoreData64Request,
    /// Bytes of the client's call before the data.
    pub(crate) head_bytes: usize,
}

impl Store {
    /// Returns the store that a call begins with; `None` for other calls, and for arguments that no owner accepts.
    pub(crate) fn of(head: &[u8]) -> Option<Store> {
        let opcode = scope::opcode(head);
        let head_bytes = Store::request_bytes(opcode)?;
        let arguments = head.get(4..head_bytes)?;
        let request = if opcode == fs::STORE_DATA64 {
            xdr::from_slice(arguments).ok()?
        } else {
            let fs::StoreDataRequest { fid, status, position, length, file_length } =
                xdr::from_slice(arguments).ok()?;
            // The owner refuses lengths that do not fit into 31 bits.
            let end = position.checked_add(length).filter(|end| i32::try_from(*end).is_ok());
            end.filter(|_| i32::try_from(file_length).is_ok())?;
            let (position, length) = (position.into(), length.into());
            fs::StoreData64Request { fid, status, position, length, file_length: file_length.into() }
        };
        let is_range = request.position.checked_add(request.length).is_some();
        is_range.then_some(Store { request, head_bytes })
    }

    /// Whether its data may be written to the bucket here.
    pub(crate) fn is_long(&self) -> bool {
        self.request.length >= PLACED_BYTES_MIN as u64
    }

    /// Returns the length of the call.
    pub(crate) fn call_bytes(&self) -> u64 {
        (self.head_bytes as u64).saturating_add(self.request.length)
    }

    /// Size of opcode and arguments of a call that may be a store.
    pub(crate) fn request_bytes(opcode: u32) -> Option<usize> {
        match opcode {
            fs::STORE_DATA => Some(52),
            fs::STORE_DATA64 => Some(64),
            _ => None,
        }
    }
}

/// What an owner has offered for a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    identity: [u8; 16],
    chunk_bytes: u64,
    codec: Codec,
    object_bytes_max: u64,
    owner: ChunkOwner,
    /// Numbers of the objects that were not created yet.
    objects: VecDeque<u64>,
}

impl Offer {
    /// Checks an offer. Returns `None` if all data has to be sent.
    ///
    /// # Errors
    /// The error of the client's call.
    pub(crate) fn parse(reply: cluster::OfferStoreReply) -> Result<Option<Offer>, Trouble> {
        if reply.objects.is_empty() {
            return Ok(None);
        }
        let chunk_bytes =
            1u64.checked_shl(reply.chunk_shift).filter(|bytes| *bytes <= CHUNK_BYTES_MAX as u64);
        let codec = reply.codec.as_str().and_then(|codec| codec.parse().ok());
        let Some((chunk_bytes, codec)) = chunk_bytes.zip(codec) else {
            tracing::warn!(?reply, "the owner of a file has answered a question about a store with nonsense");
            return Err(Trouble::Client(MALFORMED));
        };
        Ok(Some(Offer {
            identity: reply.identity,
            chunk_bytes,
            codec,
            object_bytes_max: u64::from(reply.object_bytes_max).min(OBJECT_BYTES_MAX),
            owner: ChunkOwner(reply.owner),
            objects: reply.objects.into(),
        }))
    }
}

/// The data of a store on its way: to objects in the bucket, and to the owner.
pub(crate) struct Placing<'p> {
    partition: &'p PartitionName,
    offer: Offer,
    means: (&'p dyn Data, &'p Tally, fn() -> Monotonic),
    call: &'p mut dyn ClientCall,
    /// When the owner got something.
    written: Monotonic,
    /// The next object. Its chunks follow the data which was sent, and those of the object that is being created.
    next: Option<ObjectBuilder>,
    creating: Option<NewObject>,
    has_written: bool,
    /// Whether the rest is sent.
    is_broken: bool,
}

impl<'p> Placing<'p> {
    pub(crate) fn new(
        partition: &'p PartitionName,
        offer: Offer,
        means: (&'p dyn Data, &'p Tally, fn() -> Monotonic),
        call: &'p mut dyn ClientCall,
    ) -> Placing<'p> {
        let (next, creating, has_written, is_broken) = (None, None, false, false);
        let written = (means.2)();
        Placing { partition, offer, means, call, written, next, creating, has_written, is_broken }
    }

    /// Passes all data of a store on.
    pub(crate) fn pass(
        &mut self,
        request: &fs::StoreData64Request,
        data: &mut StreamSource<'_>,
    ) -> Result<(), Trouble> {
        let chunk = self.offer.chunk_bytes;
        let (mut at, end) = (request.position, request.position + request.length);
        while at < end {
            let length = (chunk - at % chunk).min(end - at);
            let bytes = receive(length as usize, data)?;
            if (self.means.2)().since(self.written) >= QUIET_MAX {
                self.send(&[])?;
            }
            if length < chunk {
                self.drain()?;
                self.send(bytes.as_ref())?;
            } else {
                self.place(at / chunk, bytes)?;
            }
            at += length;
        }
        self.drain()
    }

    /// Adds a whole chunk.
    fn place(&mut self, number: u64, chunk: RawChunk) -> Result<(), Trouble> {
        if self.is_broken {
            return self.send(chunk.as_ref());
        }
        let encoded = chunk.encode(self.offer.owner.at(number), self.offer.codec);
        // It is not longer than a chunk may be.
        let encoded = encoded.map_err(|_| Trouble::Client(MALFORMED))?;
        let bytes_max = self.offer.object_bytes_max;
        let is_full = |object: &ObjectBuilder| {
            object.count() >= OBJECT_CHUNKS_MAX || object.bytes() + encoded.disk_bytes() > bytes_max
        };
        if self.next.as_ref().is_some_and(is_full) {
            self.create()?;
        }
        if self.next.is_none() && !self.is_broken {
            self.next = self.offer.objects.pop_front().map(ObjectBuilder::new);
        }
        if let Some(object) = &mut self.next {
            object.add(&encoded);
            return Ok(());
        }
        self.finish()?;
        self.is_broken = true;
        self.send(&encoded.decode().map_err(|what| unreadable(&what))?)
    }

    /// Begins to create the next object, once the one before exists.
    fn create(&mut self) -> Result<(), Trouble> {
        self.finish()?;
        let Some(object) = self.next.take().map(ObjectBuilder::build) else { return Ok(()) };
        if self.is_broken {
            return self.send_all(&object);
        }
        let mut message = xdr::to_vec(&part_kind::OBJECT);
        object.id.encode(&mut message);
        self.write(message)?;
        match self.means.0.begin(self.partition, self.offer.identity, &object) {
            Ok(()) => {
                self.creating = Some(object);
                Ok(())
            }
            Err(error) => self.fail(&object, &error.to_string()),
        }
    }

    /// Waits for the object that is being created, and sends the owner the places of its chunks.
    fn finish(&mut self) -> Result<(), Trouble> {
        let Some(object) = self.creating.take() else { return Ok(()) };
        let (data, tally, _) = self.means;
        if let Err(error) = data.finish(self.partition, &object) {
            return self.fail(&object, &error.to_string());
        }
        if !self.has_written {
            self.has_written = true;
            count(&tally.writes);
        }
        let mut message = Vec::new();
        for chunk in &object.chunks {
            part_kind::CHUNK.encode(&mut message);
            chunk.segment.encode(&mut message);
            chunk.offset.encode(&mut message);
            chunk.stored_bytes.encode(&mut message);
            add(&tally.written_bytes, self.offer.chunk_bytes as usize);
        }
        self.write(message)
    }

    /// Creates and names what was added.
    fn drain(&mut self) -> Result<(), Trouble> {
        self.create()?;
        self.finish()
    }

    /// Sends the chunks of an object that was not created, and all data after it.
    fn fail(&mut self, object: &NewObject, why: &str) -> Result<(), Trouble> {
        tracing::info!(partition = %self.partition, object = object.name, why,
            "the owner writes the rest of a store: an object of it was not created");
        count(&self.means.1.writes_failed);
        self.is_broken = true;
        self.send_all(object)
    }

    fn send_all(&mut self, object: &NewObject) -> Result<(), Trouble> {
        (0..object.chunks.len())
            .try_for_each(|number| self.send(&object.chunk(number).map_err(|what| unreadable(&what))?))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let mut message = xdr::to_vec(&part_kind::BYTES);
        (bytes.len() as u32).encode(&mut message);
        self.call.write(message.into()).map_err(Trouble::Owner)?;
        for piece in bytes.chunks(PIECE_BYTES) {
            self.call.write(Bytes::copy_from_slice(piece)).map_err(Trouble::Owner)?;
        }
        self.flush()
    }

    fn write(&mut self, message: Vec<u8>) -> Result<(), Trouble> {
        self.call.write(message.into()).map_err(Trouble::Owner)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Trouble> {
        self.written = (self.means.2)();
        self.call.flush().map_err(Trouble::Owner)
    }
}

impl Drop for Placing<'_> {
    fn drop(&mut self) {
        if let Some(object) = &self.creating {
            self.means.0.cancel(self.partition, object);
        }
    }
}

/// Receives exactly this many bytes.
fn receive(length: usize, data: &mut StreamSource<'_>) -> Result<RawChunk, Trouble> {
    let room = data.fill(&mut VecDeque::from([RawChunk::room(length)])).map_err(Trouble::Client)?;
    match room.left() {
        0 => Ok(RawChunk::from_filled(room)),
        _ => Err(Trouble::Client(AbortCode::RXGEN_SS_UNMARSHAL)),
    }
}

/// Returns the error of a chunk that was encoded here and cannot be decoded.
fn unreadable(what: &str) -> Trouble {
    tracing::error!(
        what,
        "a chunk that was just encoded cannot be decoded: this machine's memory may be failing"
    );
    Trouble::Client(AbortCode::UAEIO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_idl::MemoryStream;
    use std::cell::Cell;
    use store::{ChunkPlace, StoreError};

    const FID: fs::Fid = fs::Fid { volume: 1, vnode: 2, unique: 3 };
    const LEAST: u64 = PLACED_BYTES_MIN as u64;

    fn head(opcode: u32, message: &impl Encode) -> Vec<u8> {
        [xdr::to_vec(&opcode), xdr::to_vec(message), vec![7; 100]].concat()
    }

    fn long(position: u64, length: u64) -> Vec<u8> {
        let (fid, status, file_length) = (FID, fs::StoreStatus::default(), 5);
        head(fs::STORE_DATA64, &fs::StoreData64Request { fid, status, position, length, file_length })
    }

    fn short(position: u32, length: u32, file_length: u32) -> Vec<u8> {
        let (fid, status) = (FID, fs::StoreStatus::default());
        head(fs::STORE_DATA, &fs::StoreDataRequest { fid, status, position, length, file_length })
    }

    #[test]
    fn only_long_stores_are_written_here() {
        for (position, length, is_written) in [
            (0, LEAST, true),
            (u64::MAX - LEAST, LEAST, true),
            (0, LEAST - 1, false),
            (0, 0, false),
            (u64::MAX - LEAST + 1, LEAST, false),
            (1, u64::MAX, false),
        ] {
            let found = Store::of(&long(position, length)).is_some_and(|store| store.is_long());
            assert_eq!(found, is_written, "{position} {length}");
        }
        let least = LEAST as u32;
        let found = Store::of(&short(3, least, least + 3)).unwrap();
        assert_eq!((found.request.position, found.request.length, found.head_bytes), (3, LEAST, 52));
        assert_eq!(found.request.file_length, LEAST + 3);
        for (position, length, file_length) in
            [(0, least - 1, 0), (u32::MAX, least, 0), (1 << 31, least, 0), (0, least, 1 << 31)]
        {
            let found = Store::of(&short(position, length, file_length)).filter(Store::is_long);
            assert_eq!(found, None, "{position} {length}");
        }
        let whole = long(0, LEAST);
        for length in 0..64 {
            assert_eq!(Store::of(&whole[..length]), None, "{length}");
        }
        assert_eq!(Store::of(&whole[..64]), Store::of(&whole));
        let fetch = fs::FetchData64Request { fid: FID, position: 0, length: 1 << 30 };
        assert_eq!(Store::of(&head(fs::FETCH_DATA64, &fetch)), None);
    }

    fn good() -> cluster::OfferStoreReply {
        cluster::OfferStoreReply {
            identity: [4; 16],
            chunk_shift: 18,
            codec: "zstd:3".into(),
            object_bytes_max: 8 << 20,
            owner: [5; 24],
            objects: vec![7, 8],
        }
    }

    #[test]
    fn offers_without_meaning_are_refused() {
        let parse = Offer::parse;
        let offer = parse(good()).unwrap().unwrap();
        assert_eq!((offer.chunk_bytes, offer.codec), (1 << 18, Codec::Zstd(3)));
        assert_eq!(
            parse(cluster::OfferStoreReply { objects: Vec::new(), chunk_shift: 99, ..good() }),
            Ok(None)
        );
        for bad in [
            cluster::OfferStoreReply { chunk_shift: 21, ..good() },
            cluster::OfferStoreReply { chunk_shift: 64, ..good() },
            cluster::OfferStoreReply { chunk_shift: u32::MAX, ..good() },
            cluster::OfferStoreReply { codec: "gzip".into(), ..good() },
            cluster::OfferStoreReply { codec: xdr::XdrString(vec![0xff]), ..good() },
        ] {
            assert_eq!(parse(bad), Err(Trouble::Client(MALFORMED)));
        }
    }

    thread_local! {
        static SECONDS: Cell<u64> = const { Cell::new(0) };
    }

    /// A clock that goes on by 6 s each time it is read.
    fn slow() -> Monotonic {
        SECONDS.with(|seconds| seconds.set(seconds.get() + 6));
        Monotonic(SECONDS.with(Cell::get) * 1_000_000_000)
    }

    /// A bucket that takes everything.
    struct Willing;

    impl Data for Willing {
        fn read(&self, _: &PartitionName, _: [u8; 16], _: ChunkPlace) -> Result<Bytes, StoreError> {
            unreachable!()
        }

        fn expect(&self, _: &PartitionName, _: [u8; 16], _: &[ChunkPlace]) {
            unreachable!()
        }

        fn begin(&self, _: &PartitionName, _: [u8; 16], _: &NewObject) -> Result<(), StoreError> {
            Ok(())
        }

        fn finish(&self, _: &PartitionName, _: &NewObject) -> Result<(), StoreError> {
            Ok(())
        }

        fn cancel(&self, _: &PartitionName, _: &NewObject) {
            unreachable!()
        }
    }

    /// What the owner gets.
    #[derive(Default)]
    struct Got {
        bytes: Vec<u8>,
        flushed: usize,
    }

    impl CallStream for Got {
        fn read(&mut self, _: &mut [u8]) -> Result<usize, AbortCode> {
            unreachable!()
        }

        fn read_chunk(&mut self, _: usize) -> Result<Bytes, AbortCode> {
            unreachable!()
        }

        fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
            self.bytes.extend_from_slice(&data);
            Ok(())
        }
    }

    impl ClientCall for Got {
        fn flush(&mut self) -> Result<(), AbortCode> {
            self.flushed = self.bytes.len();
            Ok(())
        }

        fn end_request(&mut self) -> Result<(), AbortCode> {
            unreachable!()
        }

        fn finish(self: Box<Self>) -> Result<(), AbortCode> {
            unreachable!()
        }
    }

    /// Three chunks in an object, a partial one, and a client so slow that the owner would get nothing for too long.
    #[test]
    fn parts_are_in_the_order_of_the_data() {
        let offer = cluster::OfferStoreReply { chunk_shift: 12, codec: "raw".into(), ..good() };
        let offer = Offer::parse(offer).unwrap().unwrap();
        let data: Vec<u8> = (0..3 * 4096 + 10_u32).map(|n| (n / 7) as u8).collect();
        let (fid, status) = (FID, fs::StoreStatus::default());
        let (position, length, file_length) = (4096, data.len() as u64, 0);
        let request = fs::StoreData64Request { fid, status, position, length, file_length };
        let mut got = Got::default();
        let (tally, partition): (_, PartitionName) = (Tally::default(), "cell/p".parse().unwrap());
        let mut client = MemoryStream::new(&data, 1000);
        let mut source = StreamSource::new(&mut client);
        Placing::new(&partition, offer, (&Willing, &tally, slow), &mut got)
            .pass(&request, &mut source)
            .unwrap();
        let part = |kind: u32, words: &[u32]| {
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            [&kind.to_be_bytes()[..], &words].concat()
        };
        let nothing = part(part_kind::BYTES, &[0]);
        let chunk = |offset| part(part_kind::CHUNK, &[0, 7, 0, offset, 4160]);
        let expected = [
            nothing.clone(),
            nothing,
            part(part_kind::OBJECT, &[0, 7]),
            chunk(32),
            chunk(32 + 4160),
            chunk(32 + 2 * 4160),
            part(part_kind::BYTES, &[10]),
            data[3 * 4096..].to_vec(),
        ];
        assert_eq!(got.bytes, expected.concat());
        assert_eq!(got.flushed, got.bytes.len());
        let counters = tally.counters();
        assert_eq!((counters.writes, counters.written_bytes, counters.writes_failed), (1, 3 * 4096, 0));
    }
}
