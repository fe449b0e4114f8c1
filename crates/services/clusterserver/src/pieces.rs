//! What an owner says about the data of a file: decoded, and checked against what was asked for.

use afs_idl::cluster::{self, piece_kind};
use afs_idl::fs;
use base::AbortCode;
use bytes::Bytes;
use store::{CHUNK_BYTES_MAX, ChunkAddress, ChunkPlace};

/// A part of a file's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The contents themselves.
    Bytes(Bytes),
    /// This many zeros.
    Hole(u64),
    /// In a chunk.
    Chunk {
        place: ChunkPlace,
        /// Bytes of the chunk before the piece.
        skipped: usize,
        length: usize,
    },
}

/// The answer to a question about the data from a position on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The partition that the chunks are in.
    pub(crate) identity: [u8; 16],
    /// Number of bytes that there are from the position on.
    pub(crate) length: u64,
    pub(crate) results: fs::FetchData64Reply,
    /// Not empty if there are bytes. They may end before all bytes.
    pub(crate) pieces: Vec<Piece>,
}

impl Answer {
    /// Checks an answer about at most `asked` bytes, of which chunks may be named only if `names` is set. Returns why it is none.
    pub(crate) fn parse(reply: cluster::FetchReply, asked: u64, names: bool) -> Result<Answer, &'static str> {
        let cluster::FetchReply { identity, length, results, pieces, bytes } = reply;
        if length > asked {
            return Err("there are more bytes than were asked for");
        }
        let results = xdr::from_slice(&results).map_err(|_| "the results are not those of FetchData64")?;
        let (mut found, mut bytes, mut left) = (Vec::with_capacity(pieces.len()), Bytes::from(bytes), length);
        for piece in &pieces {
            if piece.length == 0 || piece.length > left {
                return Err("the pieces are longer than the data, or empty");
            }
            left -= piece.length;
            if piece.kind == piece_kind::CHUNK && !names {
                return Err("a chunk is named instead of sent");
            }
            found.push(one(piece, &mut bytes)?);
        }
        match (found.is_empty(), bytes.is_empty()) {
            (true, _) if length > 0 => Err("the data has no pieces"),
            (_, false) => Err("there are bytes that belong to no piece"),
            _ => Ok(Answer { identity, length, results, pieces: found }),
        }
    }

    /// Returns the version of the data.
    pub(crate) fn version(&self) -> u64 {
        let status = &self.results.status;
        u64::from(status.data_version_high) << 32 | u64::from(status.data_version)
    }

    /// Encodes the results, as they follow the data of a fetch.
    pub(crate) fn results(&self) -> Bytes {
        xdr::to_vec(&self.results).into()
    }
}

/// Returns one piece; takes its contents from `bytes` if they are there.
fn one(piece: &cluster::Piece, bytes: &mut Bytes) -> Result<Piece, &'static str> {
    let &cluster::Piece { kind, length, object, offset, stored_bytes, origin, skipped } = piece;
    match kind {
        piece_kind::BYTES if length <= bytes.len() as u64 => {
            Ok(Piece::Bytes(bytes.split_to(length as usize)))
        }
        piece_kind::BYTES => Err("there are fewer bytes than the pieces have"),
        piece_kind::HOLE => Ok(Piece::Hole(length)),
        piece_kind::CHUNK if u64::from(skipped) + length.min(u64::MAX >> 1) <= CHUNK_BYTES_MAX as u64 => {
            let address = ChunkAddress { segment: object, offset, stored_bytes };
            let place = ChunkPlace { address, origin };
            Ok(Piece::Chunk { place, skipped: skipped as usize, length: length as usize })
        }
        piece_kind::CHUNK => Err("a piece is longer than any chunk"),
        _ => Err("a piece is of an unknown kind"),
    }
}

/// The error of a call whose owner does not answer as it should.
pub(crate) const MALFORMED: AbortCode = AbortCode::RXGEN_CC_UNMARSHAL;

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn results() -> Vec<u8> {
        let status = fs::FetchStatus { data_version: 7, data_version_high: 1, ..Default::default() };
        xdr::to_vec(&fs::FetchData64Reply { status, ..Default::default() })
    }

    fn piece(kind: u32, length: u64) -> cluster::Piece {
        cluster::Piece { kind, length, ..cluster::Piece::default() }
    }

    /// One piece of each kind.
    fn good() -> cluster::FetchReply {
        let chunk = cluster::Piece {
            object: 1 << 36,
            offset: 32,
            stored_bytes: 900,
            origin: 5 << 36,
            skipped: 3,
            ..piece(piece_kind::CHUNK, 100 * KIB)
        };
        cluster::FetchReply {
            identity: [7; 16],
            length: 200 * KIB,
            results: results(),
            pieces: vec![piece(piece_kind::BYTES, 5), piece(piece_kind::HOLE, KIB), chunk],
            bytes: b"bytes".to_vec(),
        }
    }

    fn parse(change: impl FnOnce(&mut cluster::FetchReply)) -> Result<Answer, &'static str> {
        let mut reply = good();
        change(&mut reply);
        Answer::parse(reply, 200 * KIB, true)
    }

    #[test]
    fn answers_arrive_as_they_were_sent() {
        let answer = parse(|_| ()).unwrap();
        let address = ChunkAddress { segment: 1 << 36, offset: 32, stored_bytes: 900 };
        let place = ChunkPlace { address, origin: 5 << 36 };
        let chunk = Piece::Chunk { place, skipped: 3, length: 102_400 };
        assert_eq!(answer.pieces, [Piece::Bytes("bytes".into()), Piece::Hole(KIB), chunk]);
        assert_eq!((answer.version(), answer.length, answer.identity), (1 << 32 | 7, 200 * KIB, [7; 16]));
        assert_eq!(answer.results(), results());
        let none = |reply: &mut cluster::FetchReply| {
            (reply.length, reply.pieces, reply.bytes) = Default::default();
        };
        assert_eq!(parse(none).unwrap().pieces, []);
        assert_eq!(Answer::parse(good(), 200 * KIB, false), Err("a chunk is named instead of sent"));
    }

    #[test]
    fn answers_without_meaning_are_refused() {
        type Change = fn(&mut cluster::FetchReply);
        let changes: [(&str, Change); 15] = [
            ("more than asked for", |reply| reply.length += 1),
            ("no results", |reply| reply.results.clear()),
            ("cut results", |reply| _ = reply.results.pop()),
            ("long results", |reply| reply.results.push(0)),
            ("no pieces", |reply| (reply.pieces, reply.bytes) = Default::default()),
            ("an empty piece", |reply| reply.pieces[1].length = 0),
            ("more pieces than bytes", |reply| reply.pieces[1].length = 200 * KIB),
            ("a sum that wraps", |reply| reply.pieces[1].length = u64::MAX - 2),
            ("too few bytes", |reply| _ = reply.bytes.pop()),
            ("too many bytes", |reply| reply.bytes.push(0)),
            ("an unknown kind", |reply| reply.pieces[2].kind = 3),
            ("a piece behind a chunk", |reply| reply.pieces[2].skipped = 1 << 20),
            ("a piece far behind a chunk", |reply| reply.pieces[2].skipped = u32::MAX),
            ("a chunk that is long", |reply| {
                (reply.length, reply.pieces) = (200 * KIB, vec![piece(piece_kind::CHUNK, u64::MAX)]);
            }),
            ("bytes for a hole", |reply| reply.pieces[0].kind = piece_kind::HOLE),
        ];
        for (what, change) in changes {
            assert!(parse(change).is_err(), "{what}");
        }
        let long = |reply: &mut cluster::FetchReply| {
            reply.pieces = vec![piece(piece_kind::CHUNK, CHUNK_BYTES_MAX as u64 + 1)];
            (reply.length, reply.bytes) = (CHUNK_BYTES_MAX as u64 + 1, Vec::new());
        };
        let mut reply = good();
        long(&mut reply);
        assert_eq!(Answer::parse(reply, u64::MAX, true), Err("a piece is longer than any chunk"));
    }

    /// Every message that the decoder accepts is an answer, or is refused; no part of one is taken for a whole.
    #[test]
    fn any_bytes_are_an_answer_or_refused() {
        let whole = xdr::to_vec(&good());
        for length in 0..whole.len() {
            assert!(xdr::from_slice::<cluster::FetchReply>(&whole[..length]).is_err(), "{length}");
        }
        for at in 0..whole.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                let Ok(reply) = xdr::from_slice::<cluster::FetchReply>(&bytes) else { continue };
                if let Ok(answer) = Answer::parse(reply, 200 * KIB, true) {
                    let of = |piece: &Piece| match piece {
                        Piece::Bytes(bytes) => bytes.len() as u64,
                        Piece::Hole(length) => *length,
                        Piece::Chunk { length, .. } => *length as u64,
                    };
                    assert!(answer.pieces.iter().map(of).sum::<u64>() <= answer.length, "{at}");
                }
            }
        }
        let endless = vec![0xff; 64];
        assert!(xdr::from_slice::<cluster::FetchReply>(&endless).is_err());
    }
}
