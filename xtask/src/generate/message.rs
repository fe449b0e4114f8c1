//! Generates Rust structures, and modules of constants for enumerations.

use super::names::{docs, snake};
use super::types::Scope;
use crate::idl::syntax::{Enum, Field};
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// Writes a module of constants.
pub(crate) fn enumeration(out: &mut String, enumeration: &Enum) {
    docs(out, &enumeration.docs);
    let _ = writeln!(out, "pub mod {} {{", snake(&enumeration.name));
    for value in &enumeration.values {
        docs(out, &value.docs);
        let number = constant_value(&value.number, value.value);
        let _ = writeln!(out, "pub const {}: {} = {number};", value.name, value.number);
    }
    out.push_str("}\n\n");
}

/// Converts a constant to its type: the top bit of an `i32` is its sign.
fn constant_value(number: &str, value: i64) -> i64 {
    if number == "i32" { i64::from(value as i32) } else { value }
}

/// Writes a structure with its codec; a unit structure if there are no fields.
pub(crate) fn structure(
    out: &mut String,
    scope: &Scope<'_>,
    lines: &[String],
    name: &str,
    fields: &[Field],
) -> Result<()> {
    declaration(out, scope, lines, name, fields).with_context(|| name.to_owned())?;
    encoding(out, scope, name, fields)?;
    decoding(out, scope, name, fields)
}

fn declaration(
    out: &mut String,
    scope: &Scope<'_>,
    lines: &[String],
    name: &str,
    fields: &[Field],
) -> Result<()> {
    let mut is_copy = true;
    let mut body = String::new();
    for field in fields {
        is_copy &= scope.is_copy(&field.kind)?;
        docs(&mut body, &field.docs);
        let _ = writeln!(body, "pub {}: {},", field.name, scope.rust(&field.kind)?);
    }
    docs(out, lines);
    let copy = if is_copy { "Copy, " } else { "" };
    let _ = writeln!(out, "#[derive(Clone, {copy}Debug, Default, PartialEq, Eq)]");
    let _ = match fields {
        [] => writeln!(out, "pub struct {name};\n"),
        _ => writeln!(out, "pub struct {name} {{\n{body}}}\n"),
    };
    Ok(())
}

fn encoding(out: &mut String, scope: &Scope<'_>, name: &str, fields: &[Field]) -> Result<()> {
    let out_name = if fields.is_empty() { "_" } else { "out" };
    let _ = writeln!(out, "impl Encode for {name} {{\nfn encode(&self, {out_name}: &mut Vec<u8>) {{");
    for field in fields {
        let value = format!("self.{}", field.name);
        let _ = writeln!(out, "{};", scope.encode(&value, &field.kind)?);
    }
    out.push_str("}\n}\n\n");
    Ok(())
}

fn decoding(out: &mut String, scope: &Scope<'_>, name: &str, fields: &[Field]) -> Result<()> {
    let source = if fields.is_empty() { "_" } else { "source" };
    let _ = writeln!(
        out,
        "impl Decode for {name} {{\n\
         fn decode<S: Source + ?Sized>({source}: &mut S) -> Result<{name}, XdrError> {{"
    );
    if fields.is_empty() {
        let _ = write!(out, "Ok({name})");
    } else {
        let _ = writeln!(out, "Ok({name} {{");
        for field in fields {
            let _ = writeln!(out, "{}: {}?,", field.name, scope.decode(&field.kind)?);
        }
        out.push_str("})");
    }
    out.push_str("}\n}\n\n");
    Ok(())
}
