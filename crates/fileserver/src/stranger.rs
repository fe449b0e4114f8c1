//! First contact with a client: asking who it is and telling it to forget everything.
//!
//! A new client waits for both before its first call is answered, and each way of a packet stands behind those of
//! everybody else. So, of a client at an address that nobody knows, both calls are under way at the same time.

use afs_idl::{ClientCall, ClientConnection, StreamSource, cb};
use base::{AbortCode, HostUuid};
use xdr::{Decode, Encode, XdrError};

/// What a client said.
pub(crate) struct Said {
    /// Who it is.
    pub(crate) who: Result<cb::TellMeAboutYourselfReply, AbortCode>,
    /// It has forgotten everything that it was promised before.
    pub(crate) was_reset: bool,
}

/// Asks, and tells at the same time.
pub(crate) fn ask_and_reset(connection: &dyn ClientConnection, server_uuid: HostUuid) -> Said {
    let reset = cb::InitCallBackState3Request { server_uuid };
    let asked = begin(connection, cb::TELL_ME_ABOUT_YOURSELF, &cb::TellMeAboutYourselfRequest);
    let told = begin(connection, cb::INIT_CALL_BACK_STATE3, &reset);
    let who = asked.and_then(end);
    // Who does not answer one call does not answer the other: it is given up at once.
    let was_reset = who.is_ok() && told.and_then(end::<cb::InitCallBackState3Reply>).is_ok();
    Said { who, was_reset }
}

fn begin(
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
