//! Code shared by the `dispatch` functions of all services.
//!
//! A service implements its trait `Server` by its own methods, with the macro `impl_server` of its module. This does
//! not compile while a procedure has no method, even where the trait is in scope, whose methods have the same names:
//!
//! ```compile_fail,E0599
//! use afs_idl::rxstats::{self, Server};
//!
//! struct WithoutMethods;
//! rxstats::impl_server!(WithoutMethods);
//! fn main() {}
//! ```

use crate::{CallStream, ReplyWriter, StreamSource, reply};
#[doc(hidden)]
pub use base::{AbortCode, CallContext};
use xdr::{Decode, Encode};

/// Serves a call that only consists of its messages.
pub fn serve<Request: Decode, Reply: Encode>(
    source: &mut StreamSource<'_>,
    procedure: impl FnOnce(Request) -> Result<Reply, AbortCode>,
) -> Result<(), AbortCode> {
    let reply = procedure(source.decode_request()?)?;
    answer(source, &reply)
}

/// Serves a call with data after the request or before the reply.
pub fn serve_split<Request: Decode, Reply: Encode>(
    source: &mut StreamSource<'_>,
    procedure: impl FnOnce(Request, &mut dyn CallStream) -> Result<Reply, AbortCode>,
) -> Result<(), AbortCode> {
    let request = source.decode_request()?;
    let reply = procedure(request, source)?;
    answer(source, &reply)
}

/// Serves a call whose reply is written in pieces.
pub fn serve_streamed<Request: Decode>(
    source: &mut StreamSource<'_>,
    procedure: impl FnOnce(Request, &mut ReplyWriter<'_>) -> Result<(), AbortCode>,
) -> Result<(), AbortCode> {
    let request = source.decode_request()?;
    let mut reply = ReplyWriter::new(source);
    procedure(request, &mut reply)?;
    reply.finish()
}

/// Maximum size of lists and encoded replies that are not accounted for while a call is served.
pub const SMALL_REPLY_BYTES: usize = 64 * 1024;

fn answer<Reply: Encode>(stream: &mut dyn CallStream, reply: &Reply) -> Result<(), AbortCode> {
    reply::send_whole(stream, xdr::to_vec(reply))
}
