//! Rust types of an interface's types, and the code that encodes and decodes them.

use crate::idl::syntax::{Interface, Size, Type};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// Largest length that becomes a Rust array; longer ones become `Vec`s, since such arrays have no `Default`.
const ARRAY_MAX: i64 = 32;

/// The names that an interface can use.
pub(crate) struct Scope<'a> {
    aliases: BTreeMap<&'a str, &'a Type>,
    constants: BTreeMap<&'a str, i64>,
    structs: BTreeMap<&'a str, Vec<&'a Type>>,
}

impl<'a> Scope<'a> {
    /// Collects the names of `interface` and of its imports.
    pub(crate) fn new(interface: &'a Interface, all: &'a [Interface]) -> Result<Scope<'a>> {
        let mut scope =
            Scope { aliases: BTreeMap::new(), constants: BTreeMap::new(), structs: BTreeMap::new() };
        for import in &interface.imports {
            let imported = all.iter().find(|other| other.name == *import);
            scope.add(imported.with_context(|| format!("there is no interface `{import}`"))?);
        }
        scope.add(interface);
        Ok(scope)
    }

    fn add(&mut self, interface: &'a Interface) {
        self.aliases.extend(interface.aliases.iter().map(|alias| (alias.name.as_str(), &alias.target)));
        self.constants.extend(interface.constants.iter().map(|it| (it.name.as_str(), it.value)));
        let structs = interface.structs.iter();
        self.structs.extend(
            structs.map(|it| (it.name.as_str(), it.fields.iter().map(|field| &field.kind).collect())),
        );
    }

    /// Returns the type with an alias at its top replaced by its target.
    fn resolve<'t>(&self, kind: &'t Type) -> &'t Type
    where
        'a: 't,
    {
        match kind {
            Type::Named(name) => self.aliases.get(name.as_str()).map_or(kind, |&target| self.resolve(target)),
            _ => kind,
        }
    }

    fn number(&self, size: &Size) -> Result<i64> {
        match size {
            Size::Number(number) => Ok(*number),
            Size::Constant(name) => self
                .constants
                .get(name.as_str())
                .copied()
                .with_context(|| format!("`{name}` is not a constant")),
        }
    }

    fn is_long(&self, size: &Size) -> Result<bool> {
        Ok(self.number(size)? > ARRAY_MAX)
    }

    /// Returns the number of words of a value, if that is the same for all values.
    pub(crate) fn words(&self, kind: &Type) -> Result<i64> {
        Ok(match self.resolve(kind) {
            Type::U32 | Type::I32 => 1,
            Type::U64 | Type::I64 => 2,
            Type::Array(element, size) => self.words(element)? * self.number(size)?,
            Type::Named(name) => {
                let fields = self.structs.get(name.as_str());
                let fields = fields.with_context(|| format!("`{name}` is not a type"))?;
                fields.iter().map(|field| self.words(field)).sum::<Result<i64>>()?
            }
            other => bail!("the length of {other:?} varies"),
        })
    }

    /// Returns the Rust type.
    pub(crate) fn rust(&self, kind: &Type) -> Result<String> {
        Ok(match self.resolve(kind) {
            Type::U32 => "u32".to_owned(),
            Type::I32 => "i32".to_owned(),
            Type::U64 => "u64".to_owned(),
            Type::I64 => "i64".to_owned(),
            Type::Uuid => "HostUuid".to_owned(),
            Type::String(_) | Type::Chars(_) => "XdrString".to_owned(),
            Type::Opaque(_) => "Vec<u8>".to_owned(),
            Type::Fixed(size) | Type::Octets(size) => format!("[u8; {}]", written(size)),
            Type::Named(name) => {
                self.structs.get(name.as_str()).with_context(|| format!("`{name}` is not a type"))?;
                name.clone()
            }
            Type::Array(element, size) if !self.is_long(size)? => {
                format!("[{}; {}]", self.rust(element)?, written(size))
            }
            Type::Array(element, _) | Type::List(element, _) | Type::Chain(element, _) => {
                format!("Vec<{}>", self.rust(element)?)
            }
        })
    }

    /// Whether the Rust type is small and plain enough to be `Copy`.
    pub(crate) fn is_copy(&self, kind: &Type) -> Result<bool> {
        Ok(match self.resolve(kind) {
            Type::U32 | Type::I32 | Type::U64 | Type::I64 => true,
            Type::Array(element, size) => !self.is_long(size)? && self.is_copy(element)?,
            Type::Named(name) => {
                let fields = self.structs.get(name.as_str());
                let fields = fields.with_context(|| format!("`{name}` is not a type"))?;
                fields
                    .iter()
                    .map(|field| self.is_copy(field))
                    .collect::<Result<Vec<_>>>()?
                    .iter()
                    .all(|&it| it)
            }
            other => matches!(other, Type::Uuid | Type::Fixed(_) | Type::Octets(_)),
        })
    }

    /// Returns a function, path or closure that decodes a value from a source.
    pub(crate) fn decoder(&self, kind: &Type) -> Result<String> {
        Ok(match self.resolve(kind) {
            Type::Uuid => "uuid::decode".to_owned(),
            Type::Fixed(_) => "fixed::decode".to_owned(),
            Type::Octets(_) => "octets::decode".to_owned(),
            Type::U32 | Type::I32 | Type::U64 | Type::I64 | Type::Named(_) => {
                format!("{}::decode", self.rust(kind)?)
            }
            _ => format!("|source| {}", self.decode(kind)?),
        })
    }

    /// Returns an expression that decodes a value from `source`.
    pub(crate) fn decode(&self, kind: &Type) -> Result<String> {
        Ok(match self.resolve(kind) {
            Type::String(size) => format!("opaque::decode(source, {}).map(XdrString)", written(size)),
            Type::Opaque(size) => format!("opaque::decode(source, {})", written(size)),
            Type::Chars(size) => format!("chars::decode(source, {})", written(size)),
            Type::Array(element, size) if !self.is_long(size)? => {
                format!("array::decode(source, {})", self.decoder(element)?)
            }
            Type::Array(element, size) => {
                format!("long_array::decode(source, {}, {})", written(size), self.decoder(element)?)
            }
            Type::List(element, size) => {
                format!("list::decode(source, {}, {})", written(size), self.decoder(element)?)
            }
            Type::Chain(element, size) => {
                format!("chain::decode(source, {}, {})", written(size), self.decoder(element)?)
            }
            simple => format!("{}(source)", self.decoder(simple)?),
        })
    }

    /// Returns a function, path or closure that takes a reference to a value and appends it to the output.
    fn encoder(&self, kind: &Type) -> Result<String> {
        Ok(match self.resolve(kind) {
            Type::Uuid => "uuid::encode".to_owned(),
            Type::U32 | Type::I32 | Type::U64 | Type::I64 | Type::Named(_) => {
                format!("{}::encode", self.rust(kind)?)
            }
            _ => format!("|item, out| {}", self.encode("item", kind)?),
        })
    }

    /// Returns an expression that appends `value`, a reference or place, to `out`.
    pub(crate) fn encode(&self, value: &str, kind: &Type) -> Result<String> {
        Ok(match self.resolve(kind) {
            Type::Uuid => format!("uuid::encode(&{value}, out)"),
            Type::String(_) => format!("opaque::encode(&{value}.0, out)"),
            Type::Opaque(_) => format!("opaque::encode(&{value}, out)"),
            Type::Fixed(_) => format!("fixed::encode(&{value}, out)"),
            Type::Octets(_) => format!("octets::encode(&{value}, out)"),
            Type::Chars(size) => format!("chars::encode(&{value}, out, {})", written(size)),
            Type::Array(element, size) if !self.is_long(size)? => {
                format!("array::encode(&{value}, out, {})", self.encoder(element)?)
            }
            Type::Array(element, size) => {
                format!("long_array::encode(&{value}, out, {}, {})", written(size), self.encoder(element)?)
            }
            Type::List(element, _) => format!("list::encode(&{value}, out, {})", self.encoder(element)?),
            Type::Chain(element, _) => format!("chain::encode(&{value}, out, {})", self.encoder(element)?),
            _ => format!("{value}.encode(out)"),
        })
    }
}

fn written(size: &Size) -> String {
    match size {
        Size::Number(number) => number.to_string(),
        Size::Constant(name) => name.clone(),
    }
}
