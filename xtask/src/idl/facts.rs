//! Parses the facts at the start of a procedure: `part`, `class`, `index`, `cost` and `audit`.

use super::parser::Parser;
use super::syntax::{Audit, AuditArgument, AuditEvent, AuditValue, Cost, Facts, Path};
use anyhow::{Result, ensure};

/// Parses the facts, each at most once, in this order.
pub(super) fn parse(parser: &mut Parser) -> Result<Facts> {
    Ok(Facts {
        part: if parser.take_keyword("part") { Some(parser.word()?) } else { None },
        class: if parser.take_keyword("class") { Some(parser.word()?) } else { None },
        index: if parser.take_keyword("index") { Some(parser.number()?) } else { None },
        cost: if parser.take_keyword("cost") { Some(cost(parser)?) } else { None },
        audit: if parser.take_keyword("audit") { Some(audit(parser)?) } else { None },
    })
}

fn cost(parser: &mut Parser) -> Result<Cost> {
    let is_list = parser.take_keyword("count");
    let field = parser.word()?;
    Ok(if is_list { Cost::Elements(field) } else { Cost::Bytes(field) })
}

fn audit(parser: &mut Parser) -> Result<Audit> {
    if parser.take_keyword("none") {
        return Ok(Audit::None);
    }
    let class = parser.word()?;
    let name = parser.take_text().unwrap_or_default();
    let keeps = if parser.take_keyword("keeps") { Some(parser.number()?) } else { None };
    let mut arguments = Vec::new();
    if parser.take_sign('[') {
        loop {
            arguments.push(argument(parser)?);
            if parser.take_sign(']') {
                break;
            }
            parser.sign(',')?;
        }
    }
    Ok(Audit::Event(AuditEvent { class, name, keeps, arguments }))
}

/// Parses `KIND LABEL = VALUE`, `KIND FIELD`, whose label is the field's name, or only `KIND`.
fn argument(parser: &mut Parser) -> Result<AuditArgument> {
    let kind = parser.word()?;
    if parser.is_at([',', ']']) {
        return Ok(AuditArgument { kind, value: None });
    }
    let path = path(parser)?;
    let value = if parser.take_sign('=') {
        ensure!(!path.is_reply && !path.fields.contains('.'), "`{}` is not a label", path.fields);
        (path.fields, value(parser)?)
    } else {
        let name = path.fields.rsplit('.').next().and_then(|last| last.split('[').next());
        (name.unwrap_or_default().to_owned(), AuditValue::Field(path))
    };
    Ok(AuditArgument { kind, value: Some(value) })
}

fn value(parser: &mut Parser) -> Result<AuditValue> {
    if parser.is_at(['-']) {
        return Ok(AuditValue::Number(parser.number()?));
    }
    if parser.take_keyword("count") {
        return Ok(AuditValue::Count(path(parser)?));
    }
    if parser.take_keyword("first") {
        return Ok(AuditValue::First(path(parser)?));
    }
    let first = path(parser)?;
    if !parser.take_keyword("or") {
        return Ok(AuditValue::Field(first));
    }
    ensure!(first.is_reply, "`{} or` needs a field of the reply", first.fields);
    Ok(AuditValue::Either(first, path(parser)?))
}

fn path(parser: &mut Parser) -> Result<Path> {
    let mut fields = parser.word()?;
    let is_reply = fields == "out";
    if is_reply {
        parser.sign('.')?;
        fields = parser.word()?;
    }
    loop {
        if parser.take_sign('.') {
            fields = format!("{fields}.{}", parser.word()?);
        } else if parser.take_sign('[') {
            fields = format!("{fields}[{}]", parser.number()?);
            parser.sign(']')?;
        } else {
            return Ok(Path { is_reply, fields });
        }
    }
}
