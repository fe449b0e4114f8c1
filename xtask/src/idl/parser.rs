//! Parses tokens into an [`Interface`].

use super::facts;
use super::lexer::{self, Placed, Token};
use super::syntax::{Alias, Constant, Enum, Field, Interface, Procedure, Service, Size, Split, Struct, Type};
use anyhow::{Context, Result, bail, ensure};

/// Parses the text of the interface called `name`.
pub(crate) fn parse(name: String, text: &str) -> Result<Interface> {
    let mut parser = Parser { tokens: lexer::split(text)?, next: 0 };
    let mut interface = Interface { name, ..Interface::default() };
    while parser.next < parser.tokens.len() {
        parser.item(&mut interface).with_context(|| parser.place())?;
    }
    Ok(interface)
}

/// A position in the tokens of a file.
pub(super) struct Parser {
    tokens: Vec<Placed>,
    next: usize,
}

impl Parser {
    fn place(&self) -> String {
        let line = self.tokens.get(self.next.saturating_sub(1)).map_or(0, |placed| placed.line);
        format!("line {line}")
    }

    fn item(&mut self, interface: &mut Interface) -> Result<()> {
        let docs = self.docs();
        match self.word()?.as_str() {
            "service" => interface.service = Some(self.service()?),
            "import" => interface.imports.push(self.word()?),
            "const" => interface.constants.push(self.constant(docs, "usize".to_owned())?),
            "enum" => interface.enums.push(self.enumeration(docs)?),
            "type" => interface.aliases.push(self.alias()?),
            "struct" => interface.structs.push(self.structure(docs)?),
            "procedure" => interface.procedures.push(self.procedure(docs)?),
            other => bail!("`{other}` does not begin an item"),
        }
        Ok(())
    }

    fn service(&mut self) -> Result<Service> {
        self.word()?;
        self.keyword("id")?;
        let id = self.number()?;
        let port = if self.take_keyword("port") { Some(self.number()?) } else { None };
        Ok(Service { id, port })
    }

    fn constant(&mut self, docs: Vec<String>, default_number: String) -> Result<Constant> {
        let name = self.word()?;
        let number = if self.take_sign(':') { self.word()? } else { default_number };
        self.sign('=')?;
        Ok(Constant { docs, name, number, value: self.number()? })
    }

    fn enumeration(&mut self, docs: Vec<String>) -> Result<Enum> {
        let name = self.word()?;
        self.sign(':')?;
        let number = self.word()?;
        self.sign('{')?;
        let mut values = Vec::new();
        while !self.take_sign('}') {
            let docs = self.docs();
            values.push(self.constant(docs, number.clone())?);
        }
        Ok(Enum { docs, name, values })
    }

    fn alias(&mut self) -> Result<Alias> {
        let name = self.word()?;
        self.sign('=')?;
        Ok(Alias { name, target: self.kind()? })
    }

    fn structure(&mut self, docs: Vec<String>) -> Result<Struct> {
        let name = self.word()?;
        self.sign('{')?;
        let mut fields = Vec::new();
        while !self.take_sign('}') {
            let docs = self.docs();
            fields.push(self.field(docs)?);
        }
        ensure!(!fields.is_empty(), "the structure {name} is empty: lists of it would have no bound");
        Ok(Struct { docs, name, fields })
    }

    fn field(&mut self, docs: Vec<String>) -> Result<Field> {
        let name = self.word()?;
        self.sign(':')?;
        Ok(Field { docs, name, kind: self.kind()? })
    }

    fn procedure(&mut self, docs: Vec<String>) -> Result<Procedure> {
        let name = self.word()?;
        let rust_name = if self.take_keyword("as") { self.word()? } else { name.clone() };
        self.sign('=')?;
        let opcode = self.number()?;
        let split = if self.take_keyword("split") { Some(self.direction()?) } else { None };
        let is_streamed = self.take_keyword("streamed");
        ensure!(split.is_none() || !is_streamed, "{name} is `split`: it cannot be `streamed` as well");
        self.sign('{')?;
        let facts = facts::parse(self)?;
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        while !self.take_sign('}') {
            self.argument(&mut request, &mut reply)?;
        }
        Ok(Procedure { docs, name, rust_name, opcode, split, is_streamed, request, reply, facts })
    }

    fn direction(&mut self) -> Result<Split> {
        match self.word()?.as_str() {
            "to_server" => Ok(Split::ToServer),
            "from_server" => Ok(Split::FromServer),
            other => bail!("data can go `to_server` or `from_server`, not `{other}`"),
        }
    }

    fn argument(&mut self, request: &mut Vec<Field>, reply: &mut Vec<Field>) -> Result<()> {
        let docs = self.docs();
        let way = self.word()?;
        let field = self.field(docs)?;
        match way.as_str() {
            "in" => request.push(field),
            "out" => reply.push(field),
            "inout" => {
                request.push(field.clone());
                reply.push(field);
            }
            other => bail!("an argument is `in`, `out` or `inout`, not `{other}`"),
        }
        Ok(())
    }

    fn kind(&mut self) -> Result<Type> {
        if self.take_keyword("chain") {
            return match self.kind()? {
                Type::List(element, most) => Ok(Type::Chain(element, most)),
                other => bail!("a chain needs a bound: {other:?}"),
            };
        }
        let word = self.word()?;
        let mut kind = self.simple(word)?;
        loop {
            if self.take_sign('[') {
                kind = Type::Array(Box::new(kind), self.size(']')?);
            } else if self.take_sign('<') {
                kind = Type::List(Box::new(kind), self.size('>')?);
            } else {
                return Ok(kind);
            }
        }
    }

    fn simple(&mut self, word: String) -> Result<Type> {
        Ok(match word.as_str() {
            "u32" => Type::U32,
            "i32" => Type::I32,
            "u64" => Type::U64,
            "i64" => Type::I64,
            "uuid" => Type::Uuid,
            "string" => Type::String(self.bracketed('<', '>')?),
            "chars" => Type::Chars(self.bracketed('[', ']')?),
            "octets" => Type::Octets(self.bracketed('[', ']')?),
            "opaque" if self.take_sign('[') => Type::Fixed(self.size(']')?),
            "opaque" => Type::Opaque(self.bracketed('<', '>')?),
            _ => Type::Named(word),
        })
    }

    fn bracketed(&mut self, open: char, close: char) -> Result<Size> {
        self.sign(open)?;
        self.size(close)
    }

    fn size(&mut self, close: char) -> Result<Size> {
        let size = match self.token()? {
            Token::Number(number) => Size::Number(number),
            Token::Word(name) => Size::Constant(name),
            other => bail!("a size is a number or a constant, not {other:?}"),
        };
        self.sign(close)?;
        Ok(size)
    }

    fn docs(&mut self) -> Vec<String> {
        let mut docs = Vec::new();
        while let Some(Placed { token: Token::Doc(text), .. }) = self.tokens.get(self.next) {
            docs.push(text.clone());
            self.next += 1;
        }
        docs
    }

    fn token(&mut self) -> Result<Token> {
        let placed = self.tokens.get(self.next).context("the file ends too early")?;
        self.next += 1;
        Ok(placed.token.clone())
    }

    pub(super) fn word(&mut self) -> Result<String> {
        match self.token()? {
            Token::Word(word) => Ok(word),
            other => bail!("a word was expected, not {other:?}"),
        }
    }

    pub(super) fn number(&mut self) -> Result<i64> {
        let sign = if self.take_sign('-') { -1 } else { 1 };
        match self.token()? {
            Token::Number(number) => Ok(sign * number),
            other => bail!("a number was expected, not {other:?}"),
        }
    }

    pub(super) fn sign(&mut self, wanted: char) -> Result<()> {
        match self.token()? {
            Token::Sign(got) if got == wanted => Ok(()),
            other => bail!("`{wanted}` was expected, not {other:?}"),
        }
    }

    fn keyword(&mut self, wanted: &str) -> Result<()> {
        match self.word()? {
            word if word == wanted => Ok(()),
            other => bail!("`{wanted}` was expected, not `{other}`"),
        }
    }

    pub(super) fn take_sign(&mut self, wanted: char) -> bool {
        self.take(&Token::Sign(wanted))
    }

    pub(super) fn take_keyword(&mut self, wanted: &str) -> bool {
        self.take(&Token::Word(wanted.to_owned()))
    }

    /// Whether one of these signs is next.
    pub(super) fn is_at<const N: usize>(&self, signs: [char; N]) -> bool {
        let next = self.tokens.get(self.next);
        next.is_some_and(|placed| signs.iter().any(|sign| placed.token == Token::Sign(*sign)))
    }

    /// Takes a text in quotes, if one is next.
    pub(super) fn take_text(&mut self) -> Option<String> {
        let Some(Placed { token: Token::Text(text), .. }) = self.tokens.get(self.next) else { return None };
        let text = text.clone();
        self.next += 1;
        Some(text)
    }

    fn take(&mut self, wanted: &Token) -> bool {
        let is_next = self.tokens.get(self.next).is_some_and(|placed| placed.token == *wanted);
        self.next += usize::from(is_next);
        is_next
    }
}
