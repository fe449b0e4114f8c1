//! Names of functions.

use crate::modules::Loaded;
use crate::naming;
use crate::unwinding::CUT_OFF;
use addr2line::Loader;
use object::{Object, ObjectSymbol, ReadCache};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};

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
        let loader = self.loaders[index].get_or_init(|| {
            let file = one.file.as_ref()?;
            let separate = separate_symbols(file, Path::new(DEBUG_FOLDER));
            Loader::new(separate.as_deref().unwrap_or(Path::new(file))).ok()
        });
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

/// Folder of symbols that packages separate from their programs and libraries.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Returns the file below `folder` with the symbols of a stripped program or library, if it is installed. Its
/// name is the build id, which the linker computes from the contents, so that it cannot belong to another
/// build.
fn separate_symbols(file: &str, folder: &Path) -> Option<PathBuf> {
    let cache = ReadCache::new(File::open(file).ok()?);
    let object = object::File::parse(&cache).ok()?;
    if object.has_debug_symbols() {
        return None;
    }
    Some(debug_path(folder, object.build_id().ok()??)?).filter(|path| path.exists())
}

/// Returns where debuggers look for the symbols of a build.
fn debug_path(folder: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest = rest.iter().fold(String::new(), |mut digits, byte| {
        _ = write!(digits, "{byte:02x}");
        digits
    });
    Some(folder.join(format!(".build-id/{first:02x}/{rest}.debug")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use object::BinaryFormat;
    use std::process::Command;

    #[test]
    fn separate_symbols_of_a_stripped_program_are_found() {
        let program = std::env::current_exe().unwrap();
        let program = program.to_str().unwrap();
        let cache = ReadCache::new(File::open(program).unwrap());
        let object = object::File::parse(&cache).unwrap();
        assert_eq!(object.format(), BinaryFormat::Elf);
        let Some(id) = object.build_id().unwrap() else { panic!("the linker gives programs no build id") };
        let function =
            object.symbols().find(|symbol| symbol.name().is_ok_and(|name| name.contains("debug_path")));
        let Some(function) = function else { return eprintln!("skipped: the test program is stripped") };
        let folder = tempfile::tempdir().unwrap();
        let stripped = folder.path().join("stripped").to_str().unwrap().to_owned();
        let symbols = debug_path(folder.path(), id).unwrap();
        let run = |program: &str, arguments: &[&str]| {
            assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program}");
        };
        run("strip", &["--strip-all", "-o", &stripped, program]);
        assert_eq!(separate_symbols(&stripped, folder.path()), None);
        std::fs::create_dir_all(symbols.parent().unwrap()).unwrap();
        run("objcopy", &["--only-keep-debug", program, symbols.to_str().unwrap()]);
        assert_eq!(separate_symbols(&stripped, folder.path()), Some(symbols.clone()));
        assert_eq!(separate_symbols(program, folder.path()), None);
        let found = functions_in(&Loader::new(symbols).unwrap(), function.address());
        assert!(found.iter().any(|found| found.name.contains("debug_path")), "{found:?}");
    }

    #[test]
    fn symbols_are_named_by_their_build() {
        let path = debug_path(Path::new("/d"), &[0xab, 0x01, 0xff]).unwrap();
        assert_eq!(path, Path::new("/d/.build-id/ab/01ff.debug"));
        assert_eq!(debug_path(Path::new("/d"), &[]), None);
    }
}
