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
         pub trait Server {\n",
    );
    for procedure in procedures {
        let Procedure { rust_name, split, is_streamed, .. } = procedure;
        procedure_docs(out, procedure);
        let (stream, result) = match split {
            Some(_) => (", stream: &mut dyn CallStream", format!("{rust_name}Reply")),
            None if *is_streamed => (", reply: &mut ReplyWriter<'_>", "()".to_owned()),
            None => ("", format!("{rust_name}Reply")),
        };
        let _ = writeln!(
            out,
            "fn {}(&self, caller: &Caller, request: {rust_name}Request{stream}) \
             -> Result<{result}, AbortCode> {{\nErr(AbortCode::RXGEN_OPCODE)\n}}\n",
            snake(rust_name)
        );
    }
    out.push_str("}\n\n");
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
         pub fn dispatch<T: Server + ?Sized>(server: &T, caller: &Caller, stream: &mut dyn CallStream) \
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
