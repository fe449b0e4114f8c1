//! Bytes that can be checked wherever they arrive.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The byte at a position of a stream.
pub fn byte(seed: u64, position: usize) -> u8 {
    let turned = seed.rotate_left((position % 61) as u32) as u8;
    turned ^ (position as u8) ^ ((position >> 8) as u8).wrapping_mul(37)
}

/// A stretch of a stream.
pub fn stretch(seed: u64, from: usize, length: usize) -> Bytes {
    (from..from + length).map(|position| byte(seed, position)).collect()
}

/// Whether bytes are those of a stream from a position on.
pub fn matches(seed: u64, from: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(place, got)| *got == byte(seed, from + place))
}

/// What a server does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Reads everything, then replies.
    Plain,
    /// Reads everything, and then refuses.
    Refuse,
    /// Refuses as soon as it knows what is asked.
    RefuseEarly,
    /// Replies as soon as it knows what is asked, and does not look at the rest.
    ReplyEarly,
    /// Reads with pauses, then replies.
    Slow,
    /// Lends rooms for what comes, and pauses now and then; then replies.
    Lend,
}

impl Manner {
    const ALL: [Manner; 6] =
        [Manner::Plain, Manner::Refuse, Manner::RefuseEarly, Manner::ReplyEarly, Manner::Slow, Manner::Lend];
}

/// The beginning of every request: what the rest is and what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Identifies the call; the streams of both directions derive from it.
    pub seed: u64,
    /// Bytes that follow.
    pub length: usize,
    /// Bytes wanted back.
    pub reply_length: usize,
    /// How the server behaves.
    pub manner: Manner,
    /// How long it thinks, in milliseconds.
    pub think_ms: u16,
}

/// The longest reply that a server makes. A damaged request could want gigabytes.
const REPLY_BYTES_MAX: usize = 1_000_000;

/// Length of an encoded [`Request`].
pub const REQUEST_BYTES: usize = 19;

impl Request {
    /// The request's bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(REQUEST_BYTES);
        out.put_u64(self.seed);
        out.put_u32(self.length as u32);
        out.put_u32(self.reply_length as u32);
        out.put_u8(self.manner as u8);
        out.put_u16(self.think_ms);
        out.freeze()
    }

    /// Decodes what [`Request::encode`] made; `None` if it was damaged.
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

    /// The seed of the reply's stream.
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
