//! Code shared by all client stubs.

use crate::{CallStream, ClientCall, ClientConnection, StreamSource};
use base::{AbortCode, Monotonic};
use xdr::{Decode, Encode, XdrError};

/// Direction of a split procedure's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// After the request's arguments.
    ToServer,
    /// Before the reply's values.
    FromServer,
}

/// Makes a call that only consists of its messages.
pub fn call<Request: Encode, Reply: Decode>(
    connection: &dyn ClientConnection,
    opcode: u32,
    request: &Request,
) -> Result<Reply, AbortCode> {
    call_split(connection, opcode, request, Direction::FromServer, |_| Ok(()))
}

/// Makes a call in which `transfer` sends or receives data between the messages. It must receive exactly the
/// data: bytes left over, or read beyond it, would corrupt the reply.
pub fn call_split<Request: Encode, Reply: Decode>(
    connection: &dyn ClientConnection,
    opcode: u32,
    request: &Request,
    direction: Direction,
    transfer: impl FnOnce(&mut dyn CallStream) -> Result<(), AbortCode>,
) -> Result<Reply, AbortCode> {
    let mut call = connection.begin()?;
    let mut message = xdr::to_vec(&opcode);
    request.encode(&mut message);
    call.write(message.into())?;
    if direction == Direction::FromServer {
        call.end_request()?;
        transfer(&mut *call)?;
    } else {
        transfer(&mut *call)?;
        call.end_request()?;
    }
    finish(call)
}

/// Makes a call whose reply does not matter. Returns when something has come from the server last ([`ClientCall::heard_at`]); `None` if
/// nothing has.
pub fn heard<Request: Encode>(
    connection: &dyn ClientConnection,
    opcode: u32,
    request: &Request,
) -> Option<Monotonic> {
    let mut call = connection.begin().ok()?;
    let mut message = xdr::to_vec(&opcode);
    request.encode(&mut message);
    let asked = call.write(message.into()).and_then(|()| call.end_request());
    // It is over with the first data, with the end of the reply, or with an error.
    _ = asked.and_then(|()| call.read_chunk(usize::MAX));
    call.heard_at()
}

/// Receives the reply and ends the call. A reply may be truncated because the server aborted the call, so the
/// abort code takes precedence over a decoding error.
fn finish<Reply: Decode>(mut call: Box<dyn ClientCall>) -> Result<Reply, AbortCode> {
    let reply = Reply::decode(&mut StreamSource::new(&mut *call));
    if let Err(XdrError::Source(code)) = reply {
        return Err(AbortCode(code));
    }
    call.finish()?;
    reply.map_err(|_| AbortCode::RXGEN_CC_UNMARSHAL)
}
