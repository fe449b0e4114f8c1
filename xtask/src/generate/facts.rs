//! Generates the tables of facts about procedures: their classes, the work they announce, and the operations
//! under which they are counted.

use super::names::{docs, screaming};
use super::types::Scope;
use crate::idl::syntax::{Cost, Interface, Procedure, Type};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes the tables of an interface that has any of these facts.
pub(crate) fn facts(out: &mut String, scope: &Scope<'_>, interface: &Interface) -> Result<()> {
    let procedures = &interface.procedures;
    if procedures.iter().all(|procedure| procedure.facts.class.is_none()) {
        return Ok(());
    }
    classes(out, procedures)?;
    works(out, scope, procedures)?;
    operations(out, procedures)
}

fn classes(out: &mut String, procedures: &[Procedure]) -> Result<()> {
    out.push_str(
        "/// Returns the class under which calls with this opcode are counted.\n\
         pub fn class(opcode: u32) -> Class {\nmatch opcode {\n",
    );
    for Procedure { name, rust_name, facts, .. } in procedures {
        let class = facts.class.as_ref().with_context(|| format!("{name} has no class"))?;
        let _ = writeln!(out, "{} => Class::{},", screaming(rust_name), capital(class));
    }
    out.push_str("_ => Class::Other,\n}\n}\n\n");
    Ok(())
}

/// Converts `change` to `Change`.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}", first.to_ascii_uppercase(), letters.as_str()))
}

fn works(out: &mut String, scope: &Scope<'_>, procedures: &[Procedure]) -> Result<()> {
    out.push_str(
        "/// Returns the work that a request with this opcode announces.\n\
         pub fn work(opcode: u32) -> Work {\nmatch opcode {\n",
    );
    for procedure in procedures {
        let work = work(scope, procedure).with_context(|| procedure.name.clone())?;
        if let Some(work) = work {
            let _ = writeln!(out, "{} => Work::{work},", screaming(&procedure.rust_name));
        }
    }
    out.push_str("_ => Work::Small,\n}\n}\n\n");
    Ok(())
}

/// Returns the work of a procedure; `None` if it is small and its volume is not known from its first argument.
fn work(scope: &Scope<'_>, procedure: &Procedure) -> Result<Option<String>> {
    let first = procedure.request.first();
    let is_fid = |kind: &Type| matches!(kind, Type::Named(name) if name == "Fid");
    Ok(match &procedure.facts.cost {
        None if first.is_some_and(|it| is_fid(&it.kind) || it.name == "volume_id") => {
            Some("OnVolume".to_owned())
        }
        None => None,
        Some(Cost::Elements(field)) => {
            ensure!(first.is_some_and(|first| first.name == *field), "`{field}` is not the first argument");
            Some("PerFid".to_owned())
        }
        Some(Cost::Bytes(field)) => {
            let direction = match procedure.facts.class.as_deref() {
                Some("fetch") => "Read",
                Some("store") => "Write",
                _ => bail!("only calls of class `fetch` or `store` move bytes"),
            };
            // The opcode is the first word.
            let mut word = 1;
            for argument in &procedure.request {
                if argument.name == *field {
                    let is_long = scope.words(&argument.kind)? == 2;
                    return Ok(Some(format!("{direction}(Length {{ word: {word}, is_long: {is_long} }})")));
                }
                word += scope.words(&argument.kind)?;
            }
            bail!("`{field}` is not an argument")
        }
    })
}

fn operations(out: &mut String, procedures: &[Procedure]) -> Result<()> {
    let mut operations: BTreeMap<i64, &Procedure> = BTreeMap::new();
    for procedure in procedures {
        if let Some(index) = procedure.facts.index {
            // Older and newer forms of a call are counted together, under the plainest name.
            let entry = operations.entry(index).or_insert(procedure);
            if procedure.rust_name.len() < entry.rust_name.len() {
                *entry = procedure;
            }
        }
    }
    ensure!(
        operations.keys().copied().eq(0..operations.len() as i64),
        "an index of the operations is missing"
    );
    out.push_str(
        "/// Kinds of calls that are counted separately, in the order of extended statistics.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq)]\npub enum Operation {\n",
    );
    for Procedure { docs: text, rust_name, .. } in operations.values() {
        docs(out, text);
        let _ = writeln!(out, "{rust_name},");
    }
    out.push_str(
        "}\n\nimpl Operation {\n/// All operations, in order.\npub const ALL: &'static [Operation] = &[\n",
    );
    for Procedure { rust_name, .. } in operations.values() {
        let _ = writeln!(out, "Operation::{rust_name},");
    }
    out.push_str(
        "];\n\n/// Returns the protocol's name of the call.\npub fn name(self) -> &'static str {\nmatch self {\n",
    );
    for Procedure { name, rust_name, .. } in operations.values() {
        let _ = writeln!(out, "Operation::{rust_name} => \"{name}\",");
    }
    out.push_str(
        "}\n}\n\n/// Returns the operation under which calls with this opcode are counted.\n\
         pub fn of(opcode: u32) -> Option<Operation> {\nSome(match opcode {\n",
    );
    for Procedure { rust_name, facts, .. } in procedures {
        if let Some(operation) = facts.index.and_then(|index| operations.get(&index)) {
            let _ = writeln!(out, "{} => Operation::{},", screaming(rust_name), operation.rust_name);
        }
    }
    out.push_str("_ => return None,\n})\n}\n}\n\n");
    Ok(())
}
