//! Byte patterns that the receiver can verify.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Returns the byte at a position of a stream.
pub fn byte(seed: u64, position: usize) -> u8 {
    let turned = seed.rotate_left((position % 61) as u32) as u8;
    turned ^ (position as u8) ^ ((position >> 8) as u8).wrapping_mul(37)
}

/// Returns a section of a stream.
pub fn stretch(seed: u64, from: usize, length: usize) -> Bytes {
    (from..from + length).map(|position| byte(seed, position)).collect()
}

/// Whether bytes are those of a stream starting at a position.
pub fn matches(seed: u64, from: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(place, got)| *got == byte(seed, from + place))
}

/// A server's behaviour in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Reads everything, then replies.
    Plain,
    /// Reads everything, then refuses.
    Refuse,
    /// Refuses as soon as it has decoded the request's head.
    RefuseEarly,
    /// Replies as soon as it has decoded the request's head, and ignores the rest.
    ReplyEarly,
    /// Reads with pauses, then replies.
    Slow,
    /// Provides receive buffers, with occasional pauses; then replies.
    Lend,
}

impl Manner {
    const ALL: [Manner; 6] =
        [Manner::Plain, Manner::Refuse, Manner::RefuseEarly, Manner::ReplyEarly, Manner::Slow, Manner::Lend];
}

/// The head of every request, which describes the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Identifies the call; the streams of both directions are derived from it.
    pub seed: u64,
    /// Number of bytes that follow.
    pub length: usize,
    /// Number of bytes in the reply.
    pub reply_length: usize,
    /// The server's behaviour.
    pub manner: Manner,
    /// Processing time in milliseconds.
    pub think_ms: u16,
}

/// Maximum length of a reply. A damaged request could ask for gigabytes.
const REPLY_BYTES_MAX: usize = 1_000_000;

/// Length of an encoded [`Request`].
pub const REQUEST_BYTES: usize = 19;

impl Request {
    /// Encodes the request.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(REQUEST_BYTES);
        out.put_u64(self.seed);
        out.put_u32(self.length as u32);
        out.put_u32(self.reply_length as u32);
        out.put_u8(self.manner as u8);
        out.put_u16(self.think_ms);
        out.freeze()
    }

    /// Decodes an encoded [`Request`]. Returns `None` if it is damaged.
    pub fn decode(mut bytes: &[u8]) -> Option<Request> {
        if bytes.len() < REQUEST_BYTES {
            return None;
        }
        let request = Request {
            seed: bytes.get_u64(),
            length: bytes.get_u32() as usize,
            reply_length: bytes.get_u32() as usize,
            manner: *Manner::ALL.get(usize::from(bytes.get_u8()))?,
            think_ms: bytes.get_u16(),
        };
        (request.reply_length <= REPLY_BYTES_MAX).then_some(request)
    }

    /// Returns the seed of the reply's stream.
    pub fn reply_seed(&self) -> u64 {
        !self.seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_unless_they_want_too_much() {
        let request =
            Request { seed: 5, length: 7, reply_length: REPLY_BYTES_MAX, manner: Manner::Slow, think_ms: 9 };
        assert_eq!(Request::decode(&request.encode()), Some(request));
        let greedy = Request { reply_length: REPLY_BYTES_MAX + 1, ..request };
        assert_eq!(Request::decode(&greedy.encode()), None);
        assert_eq!(Request::decode(&request.encode()[1..]), None);
    }
}
