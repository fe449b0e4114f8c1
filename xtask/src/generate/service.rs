//! Generates opcodes, the server trait, dispatch and client stubs.

use super::facts;
use super::message::structure;
use super::names::{docs, screaming, snake};
use super::types::Scope;
use crate::idl::syntax::{Interface, Procedure, Split};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Writes everything that belongs to the procedures, if the interface has any.
pub(crate) fn service(out: &mut String, scope: &Scope<'_>, interface: &Interface) -> Result<()> {
    let Some(service) = &interface.service else { return Ok(()) };
    check(&interface.procedures)?;
    let _ = writeln!(out, "/// Rx service id.\npub const SERVICE_ID: u16 = {};\n", service.id);
    if let Some(port) = service.port {
        let _ = writeln!(out, "/// Usual port.\npub const PORT: u16 = {port};\n");
    }
    for procedure in &interface.procedures {
        messages(out, scope, procedure)?;
    }
    naming(out, &interface.procedures);
    facts::facts(out, scope, interface)?;
    server(out, &interface.procedures);
    implementation(out, interface);
    dispatch(out, &interface.procedures);
    for procedure in &interface.procedures {
        stub(out, procedure);
    }
    checks(out, interface);
    Ok(())
}

fn check(procedures: &[Procedure]) -> Result<()> {
    let mut opcodes = BTreeSet::new();
    for procedure in procedures {
        ensure!(opcodes.insert(procedure.opcode), "opcode {} is used twice", procedure.opcode);
    }
    Ok(())
}

fn messages(out: &mut String, scope: &Scope<'_>, procedure: &Procedure) -> Result<()> {
    let Procedure { name, rust_name, opcode, .. } = procedure;
    let _ = writeln!(out, "/// Opcode of {name}.\npub const {}: u32 = {opcode};\n", screaming(rust_name));
    let request = [format!("Request of {name}.")];
    structure(out, scope, &request, &format!("{rust_name}Request"), &procedure.request)?;
    let reply = [format!("Reply of {name}.")];
    structure(out, scope, &reply, &format!("{rust_name}Reply"), &procedure.reply)
}

fn naming(out: &mut String, procedures: &[Procedure]) {
    out.push_str(
        "/// Returns the protocol's name of the procedure with this opcode.\n\
         pub fn procedure_name(opcode: u32) -> Option<&'static str> {\nSome(match opcode {\n",
    );
    for Procedure { name, rust_name, .. } in procedures {
        let _ = writeln!(out, "{} => \"{name}\",", screaming(rust_name));
    }
    out.push_str("_ => return None,\n})\n}\n\n");
    listing(out, procedures);
}

fn listing(out: &mut String, procedures: &[Procedure]) {
    out.push_str("/// All procedures in the order of their opcodes, with the protocol's names.\n");
    out.push_str("pub const PROCEDURES: &[(u32, &str)] = &[\n");
    let mut sorted: Vec<&Procedure> = procedures.iter().collect();
    sorted.sort_by_key(|procedure| procedure.opcode);
    for Procedure { name, rust_name, .. } in sorted {
        let _ = writeln!(out, "({}, \"{name}\"),", screaming(rust_name));
    }
    out.push_str("];\n\n");
}

fn server(out: &mut String, procedures: &[Procedure]) {
    out.push_str(
        "/// A server, with one method per procedure. Procedures that it does not implement fail with RXGEN_OPCODE.\n\
         ///\n\
         /// A service that handles all procedures implements it with [`impl_server`].\n\
         pub trait Server {\n",
    );
    for procedure in procedures {
        procedure_docs(out, procedure);
        let _ = writeln!(out, "{} {{\nErr(AbortCode::RXGEN_OPCODE)\n}}\n", signature(procedure, ""));
    }
    out.push_str("}\n\n");
}

/// Returns the signature of a procedure's method; `module` is that of its messages, if it is another one.
fn signature(procedure: &Procedure, module: &str) -> String {
    let Procedure { rust_name, split, is_streamed, .. } = procedure;
    let path = if module.is_empty() { String::new() } else { format!("{module}::") };
    let (stream, result) = match split {
        Some(_) => (", stream: &mut dyn CallStream", format!("{path}{rust_name}Reply")),
        None if *is_streamed => (", reply: &mut ReplyWriter<'_>", "()".to_owned()),
        None => ("", format!("{path}{rust_name}Reply")),
    };
    format!(
        "fn {}(&self, caller: &CallContext<'_>, request: {path}{rust_name}Request{stream}) -> Result<{result}, AbortCode>",
        snake(rust_name)
    )
}

/// Writes the macro that implements the server trait by the methods of a type.
///
/// Functions outside of the implementation, in a module in which the trait is not in scope, call the methods: there,
/// a call of a method that the type does not have cannot mean the trait's method of the same name.
pub(crate) fn implementation(out: &mut String, interface: &Interface) {
    let Interface { name, procedures, .. } = interface;
    let parts: BTreeSet<&str> = procedures.iter().filter_map(|it| it.facts.part.as_deref()).collect();
    out.push_str(
        "/// Implements [`Server`] for a type by the type's own methods, which have the signatures of the trait\n\
         /// and may be in any module of its crate. It does not compile while one of them is missing.\n",
    );
    for part in &parts {
        let _ = writeln!(
            out,
            "///\n/// With `: {part}` after the type, it implements only this part of the procedures; they are not\n\
             /// needed otherwise."
        );
    }
    let _ = writeln!(out, "#[doc(inline)]\npub use crate::impl_{name}_server as impl_server;\n");
    let _ = writeln!(out, "#[doc(hidden)]\n#[macro_export]\nmacro_rules! impl_{name}_server {{");
    for part in parts.into_iter().map(Some).chain([None]) {
        let own: Vec<&Procedure> = procedures.iter().filter(|it| it.facts.part.as_deref() == part).collect();
        arm(out, name, part, &own);
    }
    out.push_str("}\n\n");
}

/// Returns a call of a procedure's method or function.
fn call(procedure: &Procedure, first: &str) -> String {
    let more = match procedure.split {
        Some(_) => ", stream",
        None if procedure.is_streamed => ", reply",
        None => "",
    };
    format!("{}({first}, request{more})", snake(&procedure.rust_name))
}

/// Writes a function with this indentation. Rustfmt does not format macros with repetitions.
fn function(out: &mut String, indent: usize, signature: &str, body: &str) {
    let space = " ".repeat(indent);
    let _ = writeln!(out, "{space}{signature} {{\n{space}    {body}\n{space}}}");
}

/// Writes the rule of the macro for the procedures of one part of the interface.
fn arm(out: &mut String, interface: &str, part: Option<&str>, procedures: &[&Procedure]) {
    let after = part.map_or_else(String::new, |part| format!(": {part}"));
    let _ = writeln!(
        out,
        "    ($handler:ident $(<$lifetime:lifetime>)?{after}) => {{\n        mod {interface}_server {{\n            \
         use $crate::server::{{AbortCode, CallContext}};\n            use $crate::{interface};"
    );
    for (name, is_used) in [
        ("CallStream", procedures.iter().any(|it| it.split.is_some())),
        ("ReplyWriter", procedures.iter().any(|it| it.is_streamed)),
    ] {
        if is_used {
            let _ = writeln!(out, "            use $crate::{name};");
        }
    }
    out.push('\n');
    for procedure in procedures {
        let handler = "handler: &super::$handler $(<$lifetime>)?";
        let signature = signature(procedure, interface).replacen("&self", handler, 1);
        function(out, 12, &signature, &format!("handler.{}", call(procedure, "caller")));
    }
    let _ = writeln!(out, "\n            impl {interface}::Server for super::$handler $(<$lifetime>)? {{");
    for procedure in procedures {
        function(out, 16, &signature(procedure, interface), &call(procedure, "self, caller"));
    }
    out.push_str("            }\n        }\n    };\n");
}

fn procedure_docs(out: &mut String, procedure: &Procedure) {
    docs(out, &procedure.docs);
    let data = match procedure.split {
        None if procedure.is_streamed => " Writes the fields of the reply in order.",
        None => "",
        Some(Split::ToServer) => " The data after the request is read from the stream.",
        Some(Split::FromServer) => " The data before the reply is written to the stream.",
    };
    let _ = writeln!(out, "/// ({}, opcode {}.){data}", procedure.name, procedure.opcode);
}

fn dispatch(out: &mut String, procedures: &[Procedure]) {
    out.push_str(
        "/// Serves one call: decodes the opcode and the arguments, calls `server`, and sends the reply.\n\
         ///\n\
         /// Fails with RXGEN_OPCODE for an unknown opcode, and with RXGEN_SS_UNMARSHAL for malformed\n\
         /// arguments.\n\
         pub fn dispatch<T: Server + ?Sized>(server: &T, caller: &CallContext<'_>, stream: &mut dyn CallStream) \
         -> Result<(), AbortCode> {\n\
         let mut source = StreamSource::new(stream);\n\
         match source.decode_request()? {\n",
    );
    for Procedure { rust_name, split, is_streamed, .. } in procedures {
        let (kind, more) = match split {
            Some(_) => ("serve_split", ", stream"),
            None if *is_streamed => ("serve_streamed", ", reply"),
            None => ("serve", ""),
        };
        let _ = writeln!(
            out,
            "{} => server::{kind}(&mut source, |request{more}| server.{}(caller, request{more})),",
            screaming(rust_name),
            snake(rust_name)
        );
    }
    out.push_str("_ => Err(AbortCode::RXGEN_OPCODE),\n}\n}\n\n");
}

/// Writes a list of all messages, for the codec's tests.
fn checks(out: &mut String, interface: &Interface) {
    out.push_str("#[cfg(test)]\npub(crate) fn check_all(check: &mut dyn crate::tests::Check) {\n");
    for structure in &interface.structs {
        let _ = writeln!(out, "crate::tests::check::<{}>(check);", structure.name);
    }
    for Procedure { rust_name, .. } in &interface.procedures {
        let _ = writeln!(out, "crate::tests::check::<{rust_name}Request>(check);");
        let _ = writeln!(out, "crate::tests::check::<{rust_name}Reply>(check);");
    }
    out.push_str("}\n\n");
}

fn stub(out: &mut String, procedure: &Procedure) {
    let Procedure { rust_name, split, .. } = procedure;
    docs(out, &procedure.docs);
    let (transfer, call) = match split {
        None => ("", "client::call(connection, OPCODE, request)"),
        Some(Split::ToServer) => (
            "transfer: impl FnOnce(&mut dyn CallStream) -> Result<(), AbortCode>,",
            "client::call_split(connection, OPCODE, request, Direction::ToServer, transfer)",
        ),
        Some(Split::FromServer) => (
            "transfer: impl FnOnce(&mut dyn CallStream) -> Result<(), AbortCode>,",
            "client::call_split(connection, OPCODE, request, Direction::FromServer, transfer)",
        ),
    };
    let _ = writeln!(
        out,
        "pub fn {}(connection: &dyn ClientConnection, request: &{rust_name}Request,{transfer}) \
         -> Result<{rust_name}Reply, AbortCode> {{\n{}\n}}\n",
        snake(rust_name),
        call.replace("OPCODE", &screaming(rust_name))
    );
}
