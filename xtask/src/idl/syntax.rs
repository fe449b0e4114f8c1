//! What an interface consists of.

/// One file.
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

/// Which Rx service the file describes.
#[derive(Debug, PartialEq)]
pub(crate) struct Service {
    pub(crate) id: i64,
    /// None if every server has it beside its own.
    pub(crate) port: Option<i64>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Constant {
    pub(crate) docs: Vec<String>,
    pub(crate) name: String,
    /// Rust's name of the number's type.
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
    /// The server writes the reply in pieces.
    pub(crate) is_streamed: bool,
    pub(crate) request: Vec<Field>,
    pub(crate) reply: Vec<Field>,
}

/// Which way the data of a split procedure goes.
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
    /// Counted text, at most so long.
    String(Size),
    /// Counted bytes, at most so many.
    Opaque(Size),
    /// So many bytes.
    Fixed(Size),
    /// So many characters, a word each.
    Chars(Size),
    /// So many bytes, a word each.
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
