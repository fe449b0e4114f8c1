//! What every service's `dispatch` has in common.

use crate::{CallStream, StreamSource};
use base::AbortCode;
use xdr::{Decode, Encode, XdrError};

/// Takes a request's opcode or arguments.
pub fn take<T: Decode>(source: &mut StreamSource<'_>) -> Result<T, AbortCode> {
    T::decode(source).map_err(|error| match error {
        XdrError::Source(code) => AbortCode(code),
        _ => AbortCode::RXGEN_SS_UNMARSHAL,
    })
}

/// Sends a reply.
pub fn answer<T: Encode>(stream: &mut dyn CallStream, reply: &T) -> Result<(), AbortCode> {
    let reply = xdr::to_vec(reply);
    if reply.is_empty() { Ok(()) } else { stream.write(reply.into()) }
}
