//! Names of functions.

use crate::modules::Loaded;
use crate::naming;
use crate::unwinding::CUT_OFF;
use addr2line::Loader;
use object::{Object, ObjectSymbol, ReadCache};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;

/// Maximum length of a name in characters: generic names can be pages long.
const NAME_CHARS_MAX: usize = 160;

/// Files of the code that takes stacks, which is not part of a wait.
const TAKERS: [&str; 3] =
    ["/backtrace-", "crates/foundation/waits/src/", "crates/telemetry/profile/src/waiting.rs"];

/// A function of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Whether the function belongs to the code that takes stacks of waiting threads. Determined by its file,
    /// since in programs with only line tables inlined functions have no module in their name.
    takes_stacks: bool,
    /// Whether the function only calls another one.
    is_caller: bool,
}

impl Function {
    fn named(name: &str) -> Function {
        Function { name: printable(name), takes_stacks: false, is_caller: false }
    }
}

/// Start, end and name of each exported function.
type Exported = Vec<(u64, u64, String)>;

/// Finds the names of functions, and caches them.
pub(crate) struct Symbols<'a> {
    loaded: &'a [Loaded],
    /// Debug information of each module, loaded on first use.
    loaders: Vec<OnceCell<Option<Loader>>>,
    exported: Vec<OnceCell<Option<Exported>>>,
    known: HashMap<u64, Vec<Function>>,
}

impl<'a> Symbols<'a> {
    /// Creates a lookup for addresses in these modules.
    pub(crate) fn new(loaded: &'a [Loaded]) -> Symbols<'a> {
        Symbols {
            loaded,
            loaders: loaded.iter().map(|_| OnceCell::new()).collect(),
            exported: loaded.iter().map(|_| OnceCell::new()).collect(),
            known: HashMap::new(),
        }
    }

    /// Returns the functions of a stack, the outermost first, given addresses from the innermost outwards.
    /// Omits functions that start threads or call closures and, if `has_waited`, those that took the stack.
    pub(crate) fn stack(&mut self, addresses: &[u64], has_waited: bool) -> Vec<String> {
        let mut functions = Vec::new();
        for address in addresses.iter().rev() {
            functions.extend(self.functions(*address).iter().rev().cloned());
        }
        let end = functions.iter().position(|function| has_waited && function.takes_stacks);
        functions.truncate(end.unwrap_or(functions.len()));
        let Some(last) = functions.pop() else { return Vec::new() };
        let named = functions.into_iter().skip_while(|function| naming::is_beginning(&function.name));
        let named = named.filter(|function| !function.is_caller);
        named.chain([last]).map(|function| function.name).collect()
    }

    /// Returns the functions at an address, the innermost first: several if some were inlined.
    fn functions(&mut self, address: u64) -> &[Function] {
        if !self.known.contains_key(&address) {
            let functions = self.find(address);
            self.known.insert(address, functions);
        }
        self.known.get(&address).map_or(&[], Vec::as_slice)
    }

    fn find(&mut self, address: u64) -> Vec<Function> {
        if address == CUT_OFF {
            return vec![Function::named("[cut off]")];
        }
        let Some(index) = self.loaded.iter().position(|one| one.range.contains(&address)) else {
            return vec![Function::named("[unknown]")];
        };
        let one = &self.loaded[index];
        let loader = self.loaders[index].get_or_init(|| Loader::new(one.file.as_ref()?).ok());
        let address = address.wrapping_sub(one.bias);
        let found = loader.as_ref().map(|loader| functions_in(loader, address));
        let found = found.filter(|found| !found.is_empty()).unwrap_or_else(|| {
            let exported = self.exported[index].get_or_init(|| exported(one.file.as_ref()?));
            let name = exported.as_ref().and_then(|all| name_among(all, address));
            name.map(|name| Function::named(&name)).into_iter().collect()
        });
        if found.is_empty() { vec![Function::named(&format!("[{}]", one.name))] } else { found }
    }
}

/// Returns the exports of a library, sorted by address: the only names left in a stripped one.
fn exported(file: &str) -> Option<Exported> {
    let cache = ReadCache::new(File::open(file).ok()?);
    let object = object::File::parse(&cache).ok()?;
    let mut all = Vec::new();
    for symbol in object.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.size() > 0) {
        let (Some(end), Ok(name)) = (symbol.address().checked_add(symbol.size()), symbol.name()) else {
            continue;
        };
        all.push((symbol.address(), end, name.to_owned()));
    }
    all.sort_unstable();
    Some(all)
}

/// Returns the exported function that contains this address.
fn name_among(exported: &[(u64, u64, String)], address: u64) -> Option<String> {
    let (_, end, name) = exported[..exported.partition_point(|(begin, ..)| *begin <= address)].last()?;
    (address < *end).then(|| addr2line::demangle_auto(name.as_str().into(), None).into_owned())
}

/// Looks up functions in the debug information, or else in the symbol table.
fn functions_in(loader: &Loader, address: u64) -> Vec<Function> {
    let mut functions = Vec::new();
    if let Ok(mut frames) = loader.find_frames(address) {
        while let Ok(Some(frame)) = frames.next() {
            let file = frame.location.as_ref().and_then(|location| location.file);
            let takes_stacks = file.is_some_and(|file| TAKERS.iter().any(|taker| file.contains(taker)));
            let name = frame.function.as_ref().and_then(|function| function.demangle().ok());
            functions.extend(name.map(|name| Function {
                name: printable(&naming::with_module(&name, file)),
                takes_stacks,
                is_caller: naming::is_caller(&name, file),
            }));
        }
    }
    if functions.is_empty() {
        let symbol = loader.find_symbol(address);
        functions.extend(symbol.map(|name| Function::named(&addr2line::demangle_auto(name.into(), None))));
    }
    functions
}

/// Removes characters with a meaning in folded stacks and tables, and truncates the name.
pub(crate) fn printable(name: &str) -> String {
    plain(name).chars().map(|c| if c == ';' { ',' } else { c }).take(NAME_CHARS_MAX).collect()
}

/// Removes characters with a meaning in tables.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
