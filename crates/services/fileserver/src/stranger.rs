//! First contact with a client: identification and reset.
//!
//! A new client waits for both before its first call is executed, and in each round trip its packets queue
//! behind those of all other clients. For a client at an unknown address, both calls are therefore made
//! concurrently.

use afs_idl::{ClientCall, ClientConnection, StreamSource, cb};
use base::{AbortCode, HostUuid};
use xdr::{Decode, Encode, XdrError};

/// A client's answers.
pub(crate) struct Said {
    /// Identity of the client.
    pub(crate) who: Result<cb::TellMeAboutYourselfReply, AbortCode>,
    /// Whether the client was reset.
    pub(crate) was_reset: bool,
}

/// Identifies and resets a client concurrently.
pub(crate) fn ask_and_reset(connection: &dyn ClientConnection, server_uuid: HostUuid) -> Said {
    let reset = cb::InitCallBackState3Request { server_uuid };
    let asked = begin(connection, cb::TELL_ME_ABOUT_YOURSELF, &cb::TellMeAboutYourselfRequest);
    let reported = begin(connection, cb::INIT_CALL_BACK_STATE3, &reset);
    let who = asked.and_then(end);
    // A client that does not answer one call will not answer the other, which is abandoned immediately.
    let was_reset = who.is_ok() && reported.and_then(end::<cb::InitCallBackState3Reply>).is_ok();
    Said { who, was_reset }
}

/// Sends a request.
///
/// # Errors
/// The code with which the call has ended already.
pub(crate) fn begin(
    connection: &dyn ClientConnection,
    opcode: u32,
    request: &impl Encode,
) -> Result<Box<dyn ClientCall>, AbortCode> {
    let mut call = connection.begin()?;
    let mut message = xdr::to_vec(&opcode);
    request.encode(&mut message);
    call.write(message.into())?;
    call.end_request()?;
    Ok(call)
}

fn end<Reply: Decode>(mut call: Box<dyn ClientCall>) -> Result<Reply, AbortCode> {
    let reply = Reply::decode(&mut StreamSource::new(&mut *call));
    if let Err(XdrError::Source(code)) = reply {
        return Err(AbortCode(code));
    }
    call.finish()?;
    reply.map_err(|_| AbortCode::RXGEN_CC_UNMARSHAL)
}
