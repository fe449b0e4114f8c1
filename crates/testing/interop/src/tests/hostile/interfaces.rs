//! Lengths of requests, from the interfaces in idl/ (idl/README.md describes the language).

use anyhow::{Context, Result, bail};
use std::collections::HashMap;

/// The definitions that other files may import.
const COMMON: &str = include_str!("../../../../../../idl/common.idl");

/// Calls between database servers, which have no interface in idl/.
const UBIK: &str = "procedure Beacon = 10000 {
    in state: u32
    in start: u32
    in version: u64
    in transaction: u64
procedure Debug = 10001 {
procedure GetSyncSite = 10003 {
procedure XDebug = 10004 {
procedure InterfaceAddr = 10005 {
    in addresses: u32[256]
procedure Begin = 20000 {
    in transaction: u64
procedure GetVersion = 20006 {
procedure GetFile = 20007 {
    in file: u32
procedure Probe = 20010 {
";
const FS: &str = include_str!("../../../../../../idl/fs.idl");
const OWN: &str = include_str!("../../../../../../idl/cellar.idl");
const PR: &str = include_str!("../../../../../../idl/pr.idl");
const VL: &str = include_str!("../../../../../../idl/vl.idl");
const VOL: &str = include_str!("../../../../../../idl/vol.idl");
const BOZO: &str = include_str!("../../../../../../idl/bozo.idl");
const CLUSTER: &str = include_str!("../../../../../../idl/cluster.idl");
const STATISTICS: &str = include_str!("../../../../../../idl/rxstats.idl");
/// All services that answer anonymous callers, on the ports of one server.
pub(super) const SERVICES: [Served; 16] = [
    (7000, 1, FS),
    (7000, 20_011, OWN),
    (7000, 409, STATISTICS),
    (7002, 73, PR),
    (7002, 50, UBIK),
    (7002, 51, UBIK),
    (7002, 409, STATISTICS),
    (7003, 52, VL),
    (7003, 50, UBIK),
    (7003, 51, UBIK),
    (7003, 409, STATISTICS),
    (7005, 4, VOL),
    (7005, 20_011, OWN),
    (7005, 409, STATISTICS),
    (7007, 1, BOZO),
    (7007, 409, STATISTICS),
];
/// The services of a node of a cluster without databases.
pub(super) const SERVICES_OF_NODE: [Served; 9] = [
    (7000, 1, FS),
    (7000, 20_011, OWN),
    (7000, 409, STATISTICS),
    (7005, 4, VOL),
    (7005, 20_011, OWN),
    (7005, 409, STATISTICS),
    (7007, 1, BOZO),
    (7007, 409, STATISTICS),
    (7010, 20_012, CLUSTER),
];
/// Port, service id, and text of the interface.
pub(super) type Served = (u16, u16, &'static str);

/// A procedure of an interface.
pub(super) struct Procedure {
    pub(super) name: String,
    pub(super) opcode: u32,
    /// Length of a request's shortest valid arguments, in words that are all zero.
    pub(super) words: usize,
}

/// Returns the procedures of an interface.
///
/// # Errors
/// If the text refers to an undefined name.
pub(super) fn procedures(text: &str) -> Result<Vec<Procedure>> {
    let mut types = Types::default();
    types.read(COMMON);
    types.read(text);
    let mut procedures: Vec<Procedure> = Vec::new();
    for line in lines(text) {
        if let Some(rest) = line.strip_prefix("procedure ") {
            let (name, rest) = rest.split_once(" = ").with_context(|| line.to_owned())?;
            let opcode = rest.split_whitespace().next().unwrap_or_default();
            let opcode = opcode.parse().with_context(|| line.to_owned())?;
            procedures.push(Procedure { name: name.to_owned(), opcode, words: 0 });
        } else if let Some(argument) = line.strip_prefix("in ").or_else(|| line.strip_prefix("inout ")) {
            let (_, kind) = argument.split_once(": ").with_context(|| line.to_owned())?;
            procedures.last_mut().context("an argument of nothing")?.words += types.words(kind)?;
        }
    }
    Ok(procedures)
}

/// Returns the lines without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.split("//").next().unwrap_or_default().trim())
}

/// Definitions: constants, and the parts of types.
#[derive(Default)]
struct Types<'a> {
    numbers: HashMap<&'a str, usize>,
    parts: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Types<'a> {
    fn read(&mut self, text: &'a str) {
        let mut structure = None;
        for line in lines(text) {
            if let Some((name, value)) = line.strip_prefix("const ").and_then(|rest| rest.split_once(" = ")) {
                let name = name.split(':').next().unwrap_or_default();
                self.numbers.insert(name, value.parse().unwrap_or(0));
            } else if let Some((name, kind)) =
                line.strip_prefix("type ").and_then(|rest| rest.split_once(" = "))
            {
                self.parts.insert(name, vec![kind]);
            } else if let Some(name) = line.strip_prefix("struct ") {
                let name = name.trim_end_matches(" {");
                self.parts.insert(name, Vec::new());
                structure = Some(name);
            } else if line.starts_with('}') {
                structure = None;
            } else if let (Some(name), Some((_, kind))) = (structure, line.split_once(": ")) {
                self.parts.entry(name).or_default().push(kind);
            }
        }
    }

    /// Returns the number of zero words that a value consists of; lists, strings and chains are empty.
    fn words(&self, kind: &str) -> Result<usize> {
        if kind.ends_with('>') {
            return Ok(1);
        }
        if let Some((element, count)) = kind.strip_suffix(']').and_then(|kind| kind.rsplit_once('[')) {
            let known = self.numbers.get(count).copied();
            let count = known.map_or_else(|| count.parse().with_context(|| kind.to_owned()), Ok)?;
            return Ok(match element {
                "opaque" => count.div_ceil(4),
                "chars" | "octets" => count,
                element => count * self.words(element)?,
            });
        }
        match kind {
            "u32" | "i32" => Ok(1),
            "u64" | "i64" => Ok(2),
            "uuid" => Ok(11),
            name => match self.parts.get(name) {
                Some(parts) => parts.iter().map(|part| self.words(part)).sum(),
                None => bail!("the type {name} is not defined"),
            },
        }
    }
}
