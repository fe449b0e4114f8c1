//! Names of functions in a stack.

/// Functions of the standard library that call closures and start threads, omitted from stacks.
const CALLERS: [&str; 9] = [
    "call",
    "call_mut",
    "call_once",
    "catch_unwind",
    "do_call",
    "r#try",
    "__rust_begin_short_backtrace",
    "__rust_try",
    "thread_start",
];

/// Directories of Rust's own libraries; the library's name follows.
const STANDARD: [&str; 3] = ["/library/std/src/", "/library/core/src/", "/library/alloc/src/"];

/// Returns the name of a function with its module. In a program that has only line tables, debug information
/// gives most functions a bare name with its type parameters, and the file, from which the module is derived.
pub(crate) fn with_module(name: &str, file: Option<&str>) -> String {
    let bare = name.split('<').next().unwrap_or_default();
    match file.and_then(module) {
        Some(module) if !bare.is_empty() && !bare.contains("::") => format!("{module}::{bare}"),
        _ => name.to_owned(),
    }
}

/// Whether the function only calls another function.
pub(crate) fn is_caller(name: &str, file: Option<&str>) -> bool {
    let is_standard = file.is_some_and(|file| STANDARD.iter().any(|library| file.contains(library)));
    let bare = if name.starts_with('<') { name } else { name.split('<').next().unwrap_or_default() };
    let last = bare.rsplit("::").next().unwrap_or_default();
    is_standard && (CALLERS.contains(&last) || last.starts_with("{closure"))
}

/// Whether the function is where the C library starts threads.
pub(crate) fn is_beginning(name: &str) -> bool {
    name.starts_with("[libc.so")
}

/// Returns `rx::lane` for `.../rx/src/lane.rs`, whatever precedes it.
fn module(file: &str) -> Option<String> {
    let (before, within) = file.strip_suffix(".rs")?.rsplit_once("/src/")?;
    let package = before.rsplit('/').next()?;
    let is_version = |version: &str| version.starts_with(|c: char| c.is_ascii_digit());
    let package =
        package.rsplit_once('-').filter(|(_, last)| is_version(last)).map_or(package, |(name, _)| name);
    let within = within.strip_suffix("/mod").unwrap_or(within).replace('/', "::");
    let package = package.replace('-', "_");
    Some(if ["lib", "main"].contains(&&*within) { package } else { format!("{package}::{within}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_have_the_module_of_their_file() {
        for (name, file, wanted) in [
            ("run", "/a/crates/protocol/rx/src/lane.rs", "rx::lane::run"),
            ("fold<u8, {closure#1}>", "/rustc/0/library/core/src/iter/mod.rs", "core::iter::fold"),
            ("{closure#0}", "crates/storage/store/src/lib.rs", "store::{closure#0}"),
            ("get", "/r/index/quick_cache-0.6.9/src/sync/x.rs", "quick_cache::sync::x::get"),
            ("get", "/r/index/crc-fast-1.2.0/src/main.rs", "crc_fast::get"),
            ("<rx::Lane>::run", "/a/crates/protocol/rx/src/lane.rs", "<rx::Lane>::run"),
            ("rx::lane::run", "/a/crates/protocol/rx/src/lane.rs", "rx::lane::run"),
            ("mi_malloc", "/m/src/alloc.c", "mi_malloc"),
            ("rocksdb::DB::Get(int)", "/r/src/db.cc", "rocksdb::DB::Get(int)"),
            ("a_test", "/a/crates/programs/cellar/tests/commands/web.rs", "a_test"),
        ] {
            assert_eq!(with_module(name, Some(file)), wanted);
        }
        assert_eq!(with_module("run<u8>", None), "run<u8>");
    }

    #[test]
    fn stubs_are_named_by_library() {
        let core = Some("/rustc/0/library/core/src/ops/function.rs");
        let boxed = "<alloc::boxed::Box<dyn core::ops::function::FnOnce<(), Output = ()>> as core::ops::function::FnOnce<()>>::call_once";
        for name in [
            "call_once<a::b::{closure#1}, ()>",
            "{closure#0}<x>",
            boxed,
            "<std::sys::Thread>::new::thread_start",
        ] {
            assert!(is_caller(name, core), "{name}");
            assert!(
                !is_caller(name, Some("/a/crates/protocol/rx/src/lane.rs")) && !is_caller(name, None),
                "{name}"
            );
        }
        assert!(!is_caller("sort_by<u8, {closure#0}>", core));
        assert!(is_beginning("[libc.so.6]") && !is_beginning("[librocksdb.so.7]"));
    }
}
