//! Generates the audit's tables of events.

use super::MARK;
use super::facts::capital;
use super::names::screaming;
use super::types::Scope;
use crate::idl::syntax::{Audit, AuditArgument, AuditEvent, AuditValue, Interface, Path, Procedure};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;

/// Kinds of arguments whose value is passed by reference.
const BY_REFERENCE: [&str; 4] = ["text", "own_text", "acl", "fids"];

/// Kinds of arguments whose value is passed as `i64`.
const WIDE: &str = "own";

/// Returns the source of the table of one interface, not yet formatted; `None` if it has no facts for the
/// audit.
pub(crate) fn table(scope: &Scope<'_>, interface: &Interface) -> Result<Option<String>> {
    let procedures = &interface.procedures;
    if procedures.iter().all(|procedure| procedure.facts.audit.is_none()) {
        return Ok(None);
    }
    let name = &interface.name;
    let mut out = format!(
        "{MARK}\n\n//! What is recorded of calls. Generated from `idl/{name}.idl`.\n\n\
         #![allow(unused_imports, clippy::wildcard_imports, reason = \"not every table uses everything\")]\n\
         #![allow(clippy::all, clippy::pedantic, reason = \"generated code is judged by its generator\")]\n\n\
         use crate::argument;\nuse crate::class::Class;\n\
         use crate::event::{{Event, Shape, bytes_max, decode, procedures}};\n\
         use afs_idl::{name}::*;\n\nprocedures! {{\n"
    );
    for procedure in procedures {
        let facts = procedure.facts.audit.as_ref();
        let facts =
            facts.with_context(|| format!("{}: state what the audit records, or `none`", procedure.name))?;
        if let Audit::Event(event) = facts {
            line(&mut out, scope, procedure, event).with_context(|| procedure.name.clone())?;
        }
    }
    out.push_str("}\n");
    Ok(Some(out))
}

fn line(out: &mut String, scope: &Scope<'_>, procedure: &Procedure, event: &AuditEvent) -> Result<()> {
    let rust_name = &procedure.rust_name;
    let AuditEvent { class, name, keeps, arguments } = event;
    let _ = write!(out, "{} {} \"{name}\"", screaming(rust_name), capital(class));
    if is_fid_alone(procedure, event) {
        out.push_str(": Fid");
    }
    if let Some(bytes) = keeps {
        let first = procedure.request.first().context("`keeps` needs an argument")?;
        let field = &first.name;
        ensure!(scope.words(&first.kind)? * 4 + 4 == *bytes, "`keeps` must cover the opcode and `{field}`");
        let _ = write!(out, " keeps {bytes} ({field}: {})", scope.rust(&first.kind)?);
    } else {
        let _ = write!(out, " (q: {rust_name}Request");
        if arguments.iter().any(reads_reply) {
            let _ = write!(out, ", r: {rust_name}Reply");
        }
        out.push(')');
    }
    out.push_str(" [");
    for argument in arguments {
        let _ = write!(out, "{}, ", built(argument, keeps.is_some())?);
    }
    out.push_str("];\n");
    Ok(())
}

/// Whether the request is a FID, and is recorded as such.
fn is_fid_alone(procedure: &Procedure, event: &AuditEvent) -> bool {
    let [field] = &procedure.request[..] else { return false };
    let [AuditArgument { kind, value: Some((label, AuditValue::Field(path))) }] = &event.arguments[..] else {
        return false;
    };
    field.name == "fid" && kind == "fid" && label == "fid" && path.fields == "fid" && !path.is_reply
}

fn reads_reply(argument: &AuditArgument) -> bool {
    match &argument.value {
        None | Some((_, AuditValue::Either(..))) => true,
        Some((_, AuditValue::Field(path) | AuditValue::Count(path) | AuditValue::First(path))) => {
            path.is_reply
        }
        Some((_, AuditValue::Number(_))) => false,
    }
}

/// Returns the expression that builds an argument. `is_first` if only the request's first field is there.
fn built(argument: &AuditArgument, is_first: bool) -> Result<String> {
    let AuditArgument { kind, value } = argument;
    let Some((label, value)) = value else { return Ok(format!("argument::{kind}(&q, &r)")) };
    let place = |path: &Path| match path.is_reply {
        true => format!("r.{}", path.fields),
        false if is_first => path.fields.clone(),
        false => format!("q.{}", path.fields),
    };
    let value = match value {
        AuditValue::Number(number) => number.to_string(),
        AuditValue::Field(path) if BY_REFERENCE.contains(&kind.as_str()) => format!("&{}", place(path)),
        AuditValue::Field(path) => place(path),
        _ if BY_REFERENCE.contains(&kind.as_str()) => bail!("`{kind}` takes a field"),
        AuditValue::Either(first, second) => {
            let (first, second) = (place(first), place(second));
            format!("if {first} == 0 {{ {second} }} else {{ {first} }}")
        }
        AuditValue::Count(path) => format!("{}.len()", place(path)),
        AuditValue::First(path) => format!("{}.first().copied().unwrap_or_default()", place(path)),
    };
    let cast = if kind == WIDE { " as i64" } else { "" };
    Ok(format!("argument::{kind}(\"{label}\", {value}{cast})"))
}
