//! Buffers that are provided to a stream through a source that has read ahead.

use crate::{CallStream, MemoryStream, StreamSource};
use base::{AbortCode, RecvBuffer};
use bytes::Bytes;
use std::collections::VecDeque;
use xdr::Source;

/// Takes all buffers in one call, as a network stream does.
struct Taking {
    stream: MemoryStream,
    taken: VecDeque<RecvBuffer>,
}

impl CallStream for Taking {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.stream.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        assert!(self.taken.is_empty(), "rooms are filled first");
        self.stream.read_chunk(max)
    }

    fn fill(&mut self, rooms: &mut VecDeque<RecvBuffer>) -> Result<RecvBuffer, AbortCode> {
        self.taken.append(rooms);
        self.stream.fill(&mut self.taken)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.stream.write(data)
    }
}

#[test]
fn read_ahead_comes_first_and_each_buffer_returns_once() {
    let sent: Vec<u8> = (0..=255).collect();
    for (read, rooms, piece_bytes) in [
        (4, &[100, 50, 60][..], 77),
        (4, &[10, 20, 30], 90),
        (8, &[0, 248], 256),
        (4, &[252], 7),
        (1, &[3, 3, 3], 5),
    ] {
        let mut stream = Taking { stream: MemoryStream::new(&sent, piece_bytes), taken: VecDeque::new() };
        let mut source = StreamSource::new(&mut stream);
        source.read_exact(&mut vec![0; read]).unwrap();
        let mut lent: VecDeque<RecvBuffer> = VecDeque::new();
        let (mut next, mut open, mut at) = (rooms.iter(), 0, read);
        for length in rooms {
            while open < 2
                && let Some(&bytes) = next.next()
            {
                lent.push_back(RecvBuffer::new(vec![0; bytes], 0..bytes));
                open += 1;
            }
            let room = source.fill(&mut lent).unwrap();
            open -= 1;
            assert_eq!((room.left(), room.filled()), (0, &sent[at..at + length]), "{rooms:?}");
            at += length;
        }
        let mut rest = Vec::new();
        while let Some(piece) = source.read_chunk(1000).ok().filter(|piece| !piece.is_empty()) {
            rest.extend_from_slice(&piece);
        }
        assert_eq!(rest, sent[at..]);
    }
}
