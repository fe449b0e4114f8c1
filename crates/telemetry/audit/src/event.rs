//! What is recorded for calls of a procedure.

use crate::argument::Argument;
use crate::class::Class;
use xdr::{Decode, SliceSource};

/// Maximum number of bytes kept of a request, opcode included, or of a reply.
const BYTES_MAX: usize = 4096;
/// Limit for a request that is followed by the contents of a file.
const DATA_BYTES_MAX: usize = 128;
/// Limit for requests that look up thousands of names or numbers.
const LOOKUP_BYTES_MAX: usize = 65_536;

/// Decodes the arguments to record from the request, without its opcode, and the reply, which is empty if
/// there was none or nothing of it is recorded. `None` if the request is malformed.
pub(crate) type Reader = fn(&[u8], &[u8], &mut Vec<Argument>) -> Option<()>;

/// Description of one procedure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) opcode: u32,
    /// OpenAFS's name of the event; empty if it has none.
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// Number of bytes of the request that are kept.
    pub(crate) request_max: usize,
    /// Number of bytes of the reply that are kept.
    pub(crate) reply_max: usize,
    pub(crate) arguments: Reader,
    pub(crate) shape: Shape,
}

/// Shape of the arguments, which may allow recording them without [`Event::arguments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// No particular shape.
    Any,
    /// The request is a FID, recorded as `fid`.
    Fid,
}

/// A procedure that is recorded by its name only.
pub(crate) static UNKNOWN: Event = Event {
    opcode: 0,
    name: "",
    class: Class::Other,
    request_max: 4,
    reply_max: 0,
    arguments: |_, _, _| Some(()),
    shape: Shape::Any,
};

/// Returns the maximum number of bytes kept of a message of this class.
pub(crate) const fn bytes_max(class: Class) -> usize {
    match class {
        Class::Data => DATA_BYTES_MAX,
        Class::Lookups => LOOKUP_BYTES_MAX,
        _ => BYTES_MAX,
    }
}

/// Decodes the value at the start of these bytes.
pub(crate) fn decode<T: Decode>(bytes: &[u8]) -> Option<T> {
    T::decode(&mut SliceSource::new(bytes)).ok()
}

/// Declares what is recorded for the procedures of a service. Each line has the opcode, the class, OpenAFS's
/// name, the request and, if any of it is recorded, the reply, and the arguments in OpenAFS's order. A
/// missing reply counts as one of zeros. `keeps` is the number of bytes of the request that may be read; a
/// shape may follow OpenAFS's name.
macro_rules! procedures {
    ($($opcode:ident $class:ident $name:literal $(: $shape:ident)? $(keeps $bytes:literal)?
        ($request:ident: $request_type:ty $(, $reply:ident: $reply_type:ty)?) [$($argument:expr),* $(,)?];)*) => {
        /// What is recorded for each procedure.
        pub(crate) const EVENTS: &[Event] = &[$(Event {
            opcode: $opcode,
            name: $name,
            class: Class::$class,
            request_max: [$($bytes,)? bytes_max(Class::$class)][0],
            reply_max: 0 $(+ {
                let _: fn($reply_type) = |_| {};
                bytes_max(Class::$class)
            })?,
            arguments: |request, reply, found| {
                let _ = (reply, &found);
                #[allow(unused_variables, reason = "some have no arguments")]
                let $request: $request_type = decode(request)?;
                $(let $reply: $reply_type = decode(reply).unwrap_or_default();)?
                $(found.push($argument);)*
                Some(())
            },
            shape: [$(Shape::$shape,)? Shape::Any][0],
        },)*];
    };
}

pub(crate) use procedures;
