//! What is recorded of the calls of a procedure.

use crate::argument::Argument;
use crate::class::Class;
use xdr::{Decode, SliceSource};

/// The most bytes of a request, its opcode included, or of a reply that are looked at.
const BYTES_MAX: usize = 4096;
/// Likewise of a request that is followed by the contents of a file.
const DATA_BYTES_MAX: usize = 128;
/// Likewise where names or numbers by the thousand are asked for.
const LOOKUP_BYTES_MAX: usize = 65_536;

/// Adds what is wanted of a request without its opcode, and of the reply, which is empty if there was none
/// or nothing is wanted of it. None if the request is none.
pub(crate) type Reader = fn(&[u8], &[u8], &mut Vec<Argument>) -> Option<()>;

/// A procedure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) opcode: u32,
    /// What OpenAFS calls it; empty if it has no name for it.
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// Bytes of the request that are kept.
    pub(crate) request_max: usize,
    /// Bytes of the reply that are kept.
    pub(crate) reply_max: usize,
    pub(crate) arguments: Reader,
    pub(crate) shape: Shape,
}

/// What is told of a procedure's calls, as far as it can be had without [`Event::arguments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Anything.
    Any,
    /// The request is a FID, which is told as `fid`.
    Fid,
}

/// A procedure of which only the name is told.
pub(crate) static UNKNOWN: Event = Event {
    opcode: 0,
    name: "",
    class: Class::Other,
    request_max: 4,
    reply_max: 0,
    arguments: |_, _, _| Some(()),
    shape: Shape::Any,
};

/// How much of the messages of a class is kept.
pub(crate) const fn bytes_max(class: Class) -> usize {
    match class {
        Class::Data => DATA_BYTES_MAX,
        Class::Lookups => LOOKUP_BYTES_MAX,
        _ => BYTES_MAX,
    }
}

/// The value at the beginning of these bytes.
pub(crate) fn decode<T: Decode>(bytes: &[u8]) -> Option<T> {
    T::decode(&mut SliceSource::new(bytes)).ok()
}

/// Declares what is recorded of the procedures of a service. Each line is opcode, class, OpenAFS's name, the
/// request and, if something of it is wanted, the reply, and arguments in OpenAFS's order. A reply that is not
/// there is one of zeros. `keeps` says how many bytes of the request may be looked at; a shape may follow OpenAFS's name.
macro_rules! procedures {
    ($($opcode:ident $class:ident $name:literal $(: $shape:ident)? $(keeps $bytes:literal)?
        ($request:ident: $request_type:ty $(, $reply:ident: $reply_type:ty)?) [$($argument:expr),* $(,)?];)*) => {
        /// What is recorded of each procedure.
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
