//! Syntax tree of an interface.

/// One interface file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) service: Option<Service>,
    pub(crate) imports: Vec<String>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) enums: Vec<Enum>,
    pub(crate) aliases: Vec<Alias>,
    pub(crate) structs: Vec<Struct>,
    pub(crate) procedures: Vec<Procedure>,
}

/// The Rx service that the file describes.
#[derive(Debug, PartialEq)]
pub(crate) struct Service {
    pub(crate) id: i64,
    /// Usual port; `None` if every server offers the service next to its own.
    pub(crate) port: Option<i64>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Constant {
    pub(crate) docs: Vec<String>,
    pub(crate) name: String,
    /// Rust type of the value.
    pub(crate) number: String,
    pub(crate) value: i64,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Enum {
    pub(crate) docs: Vec<String>,
    pub(crate) name: String,
    pub(crate) values: Vec<Constant>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Alias {
    pub(crate) name: String,
    pub(crate) target: Type,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Struct {
    pub(crate) docs: Vec<String>,
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) docs: Vec<String>,
    pub(crate) name: String,
    pub(crate) kind: Type,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Procedure {
    pub(crate) docs: Vec<String>,
    /// Name in the protocol.
    pub(crate) name: String,
    /// Name in Rust, in camel case.
    pub(crate) rust_name: String,
    pub(crate) opcode: i64,
    pub(crate) split: Option<Split>,
    /// Whether the server writes the reply in pieces.
    pub(crate) is_streamed: bool,
    pub(crate) request: Vec<Field>,
    pub(crate) reply: Vec<Field>,
    pub(crate) facts: Facts,
}

/// What programs know about a procedure besides its messages.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Facts {
    /// Part of the interface that another server serves than the rest.
    pub(crate) part: Option<String>,
    /// Class under which its calls are counted.
    pub(crate) class: Option<String>,
    /// Index in extended statistics.
    pub(crate) index: Option<i64>,
    /// Field that determines what a call costs.
    pub(crate) cost: Option<Cost>,
    pub(crate) audit: Option<Audit>,
}

/// The field of the request that determines the cost of a call.
#[derive(Debug, PartialEq)]
pub(crate) enum Cost {
    /// The number of bytes in this field.
    Bytes(String),
    /// The number of elements of this list.
    Elements(String),
}

/// What the audit records of a call.
#[derive(Debug, PartialEq)]
pub(crate) enum Audit {
    /// Only its name.
    None,
    Event(AuditEvent),
}

/// An audit event.
#[derive(Debug, PartialEq)]
pub(crate) struct AuditEvent {
    pub(crate) class: String,
    /// OpenAFS's name of the event; empty if it has none.
    pub(crate) name: String,
    /// Number of bytes of the request that may be kept: those of its first field and the opcode. The others
    /// are secret.
    pub(crate) keeps: Option<i64>,
    pub(crate) arguments: Vec<AuditArgument>,
}

/// An argument of an audit event.
#[derive(Debug, PartialEq)]
pub(crate) struct AuditArgument {
    /// Name of the function of the audit that builds it.
    pub(crate) kind: String,
    /// Label and value; `None` if the function takes request and reply.
    pub(crate) value: Option<(String, AuditValue)>,
}

/// The value of an argument.
#[derive(Debug, PartialEq)]
pub(crate) enum AuditValue {
    Number(i64),
    Field(Path),
    /// A field of the reply, or, if that is 0, a field of the request.
    Either(Path, Path),
    /// Number of elements of a list.
    Count(Path),
    /// First element of a list, or zero.
    First(Path),
}

/// A field of a message, or of a structure in it.
#[derive(Debug, PartialEq)]
pub(crate) struct Path {
    pub(crate) is_reply: bool,
    /// The Rust expression below the message.
    pub(crate) fields: String,
}

/// Direction of a split procedure's data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Split {
    ToServer,
    FromServer,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    U32,
    I32,
    U64,
    I64,
    Uuid,
    /// Counted text of at most this length.
    String(Size),
    /// Counted bytes, at most this many.
    Opaque(Size),
    /// Exactly this many bytes.
    Fixed(Size),
    /// This many characters, one word each.
    Chars(Size),
    /// This many bytes, one word each.
    Octets(Size),
    Named(String),
    Array(Box<Type>, Size),
    List(Box<Type>, Size),
    Chain(Box<Type>, Size),
}

/// A size: a number, or the name of a constant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Size {
    Number(i64),
    Constant(String),
}
