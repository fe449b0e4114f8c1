//! Requests on the wire: 32-bit words in big-endian order.

use super::PIECE_BYTES_MAX;
use anyhow::{Context, Result, bail, ensure};
use base::AbortCode;
use xdr::{Decode, Encode, Source, XdrError};

/// Protocol version (RX_PERF_VERSION).
const VERSION: u32 = 3;

/// Commands (RX_PERF_*).
const SEND: u32 = 0;
const RECEIVE: u32 = 1;
const RPC: u32 = 3;
const FILE: u32 = 4;

/// Maximum number of entries in a list that the server accepts.
pub(super) const LIST_ENTRIES_MAX: u32 = 65_536;

/// A request: version, command, sizes of the server's reads and writes, and the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of bytes that the server reads at a time, at most [`PIECE_BYTES_MAX`].
    pub read_bytes: u32,
    /// Number of bytes that the server writes at a time, at most [`PIECE_BYTES_MAX`].
    pub write_bytes: u32,
    /// The transfers to make.
    pub work: Work,
}

/// The transfers of a call. The original's sizes are signed: at most 2^31 - 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// This number of bytes to the server.
    Send(u32),
    /// This number of bytes from the server.
    Receive(u32),
    /// The first number of bytes to the server, then the second from it.
    Rpc(u32, u32),
    /// Each entry is a number of four-byte words; 0 reverses the direction, which is initially to the server.
    File(Vec<u32>),
}

/// One transfer of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes from the client to the server.
    ToServer(u64),
    /// Bytes from the server to the client.
    FromServer(u64),
}

impl Step {
    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        let (Step::ToServer(bytes) | Step::FromServer(bytes)) = self;
        bytes
    }
}

impl Work {
    /// Returns the transfers in order.
    pub fn steps(&self) -> Vec<Step> {
        match self {
            Work::Send(bytes) => vec![Step::ToServer(size(*bytes))],
            Work::Receive(bytes) => vec![Step::FromServer(size(*bytes))],
            Work::Rpc(there, back) => vec![Step::ToServer(size(*there)), Step::FromServer(size(*back))],
            Work::File(list) => list_steps(list),
        }
    }

    /// Whether the server ends its reply with a word that indicates success.
    pub fn has_cookie(&self) -> bool {
        !matches!(self, Work::File(_))
    }

    /// Returns the payload in both directions, in bytes.
    pub fn bytes(&self) -> u64 {
        self.steps().into_iter().map(Step::bytes).sum()
    }

    /// Returns the number of the command.
    fn command(&self) -> u32 {
        match self {
            Work::Send(_) => SEND,
            Work::Receive(_) => RECEIVE,
            Work::Rpc(..) => RPC,
            Work::File(_) => FILE,
        }
    }
}

/// Converts a size; negative ones count as 0.
fn size(bytes: u32) -> u64 {
    u64::try_from(bytes.cast_signed()).unwrap_or(0)
}

fn list_steps(list: &[u32]) -> Vec<Step> {
    let mut is_reading = true;
    let mut steps = Vec::new();
    for &words in list {
        is_reading ^= words == 0;
        let bytes = u64::from(words) * 4;
        steps.push(if is_reading { Step::ToServer(bytes) } else { Step::FromServer(bytes) });
    }
    steps
}

impl Encode for Request {
    fn encode(&self, out: &mut Vec<u8>) {
        for word in [VERSION, self.work.command(), self.read_bytes, self.write_bytes] {
            word.encode(out);
        }
        match &self.work {
            Work::Send(bytes) | Work::Receive(bytes) => bytes.encode(out),
            Work::Rpc(there, back) => {
                there.encode(out);
                back.encode(out);
            }
            Work::File(list) => {
                (list.len() as u32).encode(out);
                for words in list {
                    words.encode(out);
                }
            }
        }
    }
}

impl Request {
    /// Decodes a request. Unsupported versions and excessive sizes end the call with -1, as in OpenAFS's
    /// server.
    pub fn read(source: &mut impl Source) -> Result<Request, AbortCode> {
        let mut word = || u32::decode(source).map_err(refused);
        let (version, command, read_bytes, write_bytes) = (word()?, word()?, word()?, word()?);
        if version != VERSION || read_bytes > PIECE_BYTES_MAX || write_bytes > PIECE_BYTES_MAX {
            return Err(REFUSED);
        }
        let work = match command {
            SEND => Work::Send(word()?),
            RECEIVE => Work::Receive(word()?),
            RPC => Work::Rpc(word()?, word()?),
            FILE => match word()? {
                entries @ ..=LIST_ENTRIES_MAX => {
                    Work::File((0..entries).map(|_| word()).collect::<Result<_, _>>()?)
                }
                _ => return Err(REFUSED),
            },
            _ => return Err(REFUSED),
        };
        Ok(Request { read_bytes, write_bytes, work })
    }
}

/// The code with which OpenAFS's server ends calls that it does not understand.
pub(super) const REFUSED: AbortCode = AbortCode(-1);

fn refused(error: XdrError) -> AbortCode {
    if let XdrError::Source(code) = error { AbortCode(code) } else { REFUSED }
}

/// Parses a list for OpenAFS's option `-f`: a number of words per line, in decimal or with C's prefixes 0x
/// and 0; an empty line reverses the direction.
pub fn parse_list(text: &str) -> Result<Vec<u32>> {
    let lines = text.lines().enumerate();
    let list: Vec<u32> = lines
        .map(|(index, line)| {
            let words = number(line.trim()).with_context(|| format!("line {}: {line:?}", index + 1))?;
            ensure!(i32::try_from(u64::from(words) * 4).is_ok(), "line {}: more than 2 GB", index + 1);
            Ok(words)
        })
        .collect::<Result<_>>()?;
    ensure!(list.len() <= LIST_ENTRIES_MAX as usize, "more than {LIST_ENTRIES_MAX} lines");
    let turns = list_steps(&list);
    let is_back_and_forth =
        turns.windows(2).any(|pair| matches!(pair, [Step::FromServer(_), Step::ToServer(_)]));
    if is_back_and_forth {
        bail!("the list switches back to sending: an Rx call sends, then receives, once");
    }
    Ok(list)
}

fn number(text: &str) -> Result<u32> {
    let parsed = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        _ if text.is_empty() => return Ok(0),
        (Some(digits), _) => u32::from_str_radix(digits, 16),
        (_, Some(digits)) if !digits.is_empty() => u32::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    parsed.context("is not a number of words")
}
