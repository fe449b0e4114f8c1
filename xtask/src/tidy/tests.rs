use super::arrows::{Manifest, Place, judge, table};
use super::sizes::{self, Function, Lengths};
use super::unused::{self, Declared};
use super::{SourceFile, folders, ignorance, links, msrv, purity, wording};
use std::collections::BTreeMap;

const TABLE: &str = "
| floor | crate | role | must not |
|---|---|---|---|
| `ground` | `base` | ids | |
| `first` | `low`, `other` | x | |
| `testing` | `sim`, `bench` | y | |

| floor | not this |
";

/// Returns the complaints about one crate in this folder that uses another.
fn complaints(name: &str, floor: &str, used: &str) -> Vec<String> {
    let manifest = Manifest { folder: format!("crates/{floor}/{name}"), uses: vec![used.to_owned()] };
    judge(&table(TABLE), &BTreeMap::from([(name.to_owned(), manifest)]))
}

#[test]
fn arrows_point_up_the_table() {
    assert_eq!(table(TABLE)["other"], Place { row: 1, floor: "first".into() });
    assert_eq!(table(TABLE).len(), 5);
    assert!(complaints("low", "first", "base").is_empty());
    assert!(complaints("sim", "testing", "low").is_empty());
    assert_eq!(complaints("base", "ground", "low").len(), 1);
    assert_eq!(complaints("low", "first", "other").len(), 1, "crates of one row do not know each other");
    assert_eq!(complaints("low", "first", "sim").len(), 1, "no program depends on tests");
    assert!(complaints("bench", "testing", "sim").is_empty(), "tests may share what they start cells with");
    assert_eq!(complaints("new", "first", "base").len(), 1, "every crate is in the table");
}

#[test]
fn a_crate_is_in_the_folder_of_its_floor() {
    let wrong = complaints("low", "ground", "base");
    assert_eq!(wrong, ["low is in crates/ground/low; ARCHITECTURE.md places it in crates/first/low"]);
}

#[test]
fn the_store_does_not_know_volumes() {
    let text = "/// A vnode in a comment.\nconst VNODES: u8 = 1;\nfn f(meta: &RocksMeta) {}\n";
    let complaints = |path: &str| ignorance::check(&SourceFile::new(path.into(), text));
    let found = complaints("crates/storage/store/src/partition.rs");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("crates/storage/store/src/partition.rs:2 names `vnode`"));
    assert_eq!(complaints("crates/storage/store/src/engines/rocks.rs").len(), 1, "only `vnode`");
    assert!(complaints("crates/storage/volume/src/x.rs").is_empty());
}

#[test]
fn folders_use_only_earlier_ones() {
    let text = "\n| folders of | order | exceptions |\n|---|---|---|\n\
                | `a` | `low`, `mid`, `high` | `low/x.rs -> mid`, `low/gone.rs -> high` |\n";
    let order = folders::table(text).pop().unwrap();
    let file = |path: &str, text: &str| SourceFile::new(format!("crates/floor/a/src/{path}"), text);
    let files = [
        file("lib.rs", "pub use crate::high::top::{Tower,\n Roof};\n"),
        file("low/x.rs", "use crate::mid::y;\n// crate::high in a comment\n"),
        file("mid/y.rs", "use crate::low::x;\nuse crate::{Error, Roof};\n"),
        file("high/top.rs", "fn f() { crate::mid::y::g() }\n"),
        file("high/top/tests.rs", ""),
        file("other/z.rs", ""),
    ];
    let complaints = folders::judge(&order, &files);
    assert_eq!(complaints.len(), 3, "{complaints:?}");
    assert!(complaints[0].contains("the folder other of a"));
    assert!(complaints[1].starts_with("a/src/mid/y.rs -> high"));
    assert!(complaints[2].contains("low/gone.rs -> high, which no longer exists"));
}

const SAMPLE: &str = "\
// std::fs in a comment
pub fn one() -> u32 {
    std::fs::read();
    1
}

trait T {
    fn declared(
        &self,
    ) -> u32;
    fn short() {}
}

#[cfg(test)]
use std::thread;

#[cfg(test)]
mod tests {
    fn long() {
        Instant::now();
    }
}

impl X {
    const fn many(
        a: u32,
    ) -> u32
    where
        u32: Copy,
    {
        if a > 1 {
            2
        }
    }
}
";

#[test]
fn impure_names_are_found_outside_tests_and_comments() {
    let file = SourceFile::new("crates/foundation/base/src/x.rs".into(), SAMPLE);
    assert_eq!(
        purity::check(&file),
        ["crates/foundation/base/src/x.rs:3 names `std::fs`, but base is a pure crate"]
    );
    let elsewhere = SourceFile::new("crates/storage/store/src/x.rs".into(), SAMPLE);
    assert_eq!(purity::check(&elsewhere), Vec::<String>::new());
    let tests = SourceFile::new("crates/foundation/base/src/x/tests.rs".into(), SAMPLE);
    assert_eq!(purity::check(&tests), Vec::<String>::new());
}

#[test]
fn half_done_merges_are_found() {
    let marked = |mark: char| format!("a\n{} HEAD\nb\n", String::from(mark).repeat(7));
    assert_eq!(super::merges::conflict(marked('<').as_bytes()), Some(2));
    assert_eq!(super::merges::conflict(marked('>').as_bytes()), Some(2));
    assert_eq!(super::merges::conflict(b"a << 7\n=======\n"), None);
}

#[test]
fn functions_are_measured_outside_tests() {
    let file = SourceFile::new("a.rs".into(), SAMPLE);
    let lines: Vec<usize> = sizes::functions(&file).iter().map(|function| function.lines).collect();
    assert_eq!(lines, [4, 1, 10]);
}

#[test]
fn an_empty_file_and_one_that_is_too_long_are_wrong() {
    let wrong =
        |text: &str| sizes::wrong_size(&SourceFile::new("crates/floor/a/src/a/tests.rs".into(), text));
    assert!(wrong("\n\n").unwrap().contains("empty"));
    assert!(wrong(&"// line\n".repeat(1001)).unwrap().contains("1001 lines"));
    assert_eq!(wrong("mod tests;\n"), None);
}

#[test]
fn limits_only_fall() {
    let functions: Vec<Function> =
        (1..=100).rev().map(|lines| Function { place: String::new(), lines }).collect();
    let lengths = sizes::measure(&functions);
    assert_eq!(lengths, Lengths { median: 50, p99: 99, longest: 100 });
    let limits = sizes::read("median 49\np99 99\nlongest 100\n").unwrap();
    assert_eq!(
        sizes::judge(lengths, limits),
        ["the median of functions has 50 lines; 49 were reached before"]
    );
    assert!(sizes::read("median 9\np99 8\nlongest 10").is_err());
}

#[test]
fn dependencies_must_be_used() {
    let text = "//! serde::X\nuse md5::Md5;\nuse std::bytes::X;\nfn f(rand: u8) {}\n\n#[cfg(test)]\nmod tests {\n    use zstd::X;\n}\n";
    let files = [SourceFile::new("crates/floor/a/src/x.rs".into(), text)];
    let complains = |name: &str, is_dev| {
        let declared = Declared { folder: "crates/floor/a".into(), name: name.into(), is_dev };
        unused::judge(&declared, &files).is_some()
    };
    assert!(!complains("md-5", false));
    assert!(!complains("zstd", true));
    assert!(complains("zstd", false), "only its tests use it");
    for name in ["serde", "bytes", "rand", "absent"] {
        assert!(complains(name, true), "{name}");
    }
    let manifest = "[a]\nx = 1\n[workspace.dependencies]\n# why\none = \"1\"\ntwo-b = { path = \"b\" }\n\n[lints]\nz = 1\n";
    assert_eq!(unused::workspace_table(manifest), ["one", "two-b"]);
    assert_eq!(unused::without_reason(manifest, "| `zero`, `one` | `x` |\n"), Vec::<String>::new());
    assert_eq!(unused::without_reason(manifest, "| `zero` | `one` |\n").len(), 1);
}

/// Returns the complaints about documents with these names and texts; the folder `docs/pictures` exists too.
fn links_of(texts: &[(&str, &str)]) -> Vec<String> {
    let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    links::judge(&texts, &|path| path == "docs/pictures")
}

#[test]
fn links_lead_to_files_and_headings() {
    let guide = ("docs/guide/web.md", "# The web page\n## Who, when?\n## Same\n## Same\n");
    let good = "[a](docs/guide/web.md#who-when) [b](docs/pictures/) [c](https://x.example) [d](docs/guide/web.md#same-1)\n\
        `[e](nowhere)`\n```\n[f](nowhere)\n```\n";
    assert_eq!(links_of(&[guide, ("README.md", good)]), Vec::<String>::new());
    let back = ("docs/guide/jobs.md", "[a](web.md#same) [b](../../README.md) [c](#own)\n# Own\n");
    assert_eq!(links_of(&[guide, ("README.md", ""), back]), Vec::<String>::new());
    for bad in ["[a](web.md)", "[a](docs/guide/web.md#why)", "[a](../README.md)", "[a](#none)"] {
        assert_eq!(links_of(&[guide, ("README.md", bad)]).len(), 1, "{bad}");
    }
}

#[test]
fn headings_in_code_are_no_anchors() {
    let text = "# `cellar top`: a view\n```\n# comment\n```\n";
    assert_eq!(links::anchors(text), ["cellar-top-a-view".to_owned()].into());
}

#[test]
fn sources_name_documents_that_exist() {
    // The names of missing documents are built at run time, since `tidy` reads this file too.
    let folder = "docs";
    let name = format!("{folder}/web.md");
    let guide = (name.as_str(), "");
    let good =
        format!("//! See {folder}/web.md. rustdocs/other.md, {folder}/formats/, \"../../{folder}/web.md\"");
    assert_eq!(links_of(&[guide, ("crates/telemetry/web/src/lib.rs", &good)]), Vec::<String>::new());
    let bad = format!("\n// {folder}/gone.md, says `{folder}/old/web.md`.");
    let complaints = links_of(&[guide, ("scripts/run", &bad)]);
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(complaints[0].starts_with("scripts/run:2: "), "{complaints:?}");
}

#[test]
fn words_of_the_list_are_counted_in_comments_only() {
    let text =
        ["/// Nobody is told.", "let told = 1; // told", "    // so  many files, likewise", "//! Fine."];
    let lines: Vec<String> = text.map(str::to_owned).to_vec();
    let found: Vec<&str> = wording::markers(&lines).collect();
    assert_eq!(found, ["nobody", "told", "likewise"]);
}

#[test]
fn counts_of_words_may_only_fall() {
    let limits = wording::read("A text\nof two lines.\n\nrx 2\nstore 1\n").unwrap();
    let counts = [("rx", 2), ("store", 2), ("disk", 1)];
    let counts = counts.map(|(name, count)| (name.to_owned(), count)).into();
    let complaints = wording::judge(&counts, &limits);
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(
        complaints[0].contains("disk have 1") && complaints[1].contains("store have 2"),
        "{complaints:?}"
    );
    assert!(wording::read("text\n\nrx many\n").is_err());
}

#[test]
fn subjects_and_test_names_are_checked() {
    for good in [
        "rx: send less",
        "all: rename types and tests to the field's terms",
        "idl: write the README in plain English",
    ] {
        assert_eq!(wording::wrong_subject(good), None);
    }
    let long = format!("rx: {}", "x".repeat(70));
    for bad in [long.as_str(), "rx: send less.", "rx: who sends", "rx: fixed the window"] {
        assert!(wording::wrong_subject(bad).is_some(), "{bad}");
    }
    let name = "a".repeat(61);
    let text =
        format!("#[test]\nfn {name}() {{}}\n#[test]\nfn what_is_read() {{}}\n#[test]\nfn short() {{}}\n");
    let file = SourceFile::new("crates/floor/a/src/tests.rs".into(), &text);
    assert_eq!(wording::wrong_test_names(&file).len(), 2);
    let word = "told";
    let text = format!(
        "// fn {word}()\nfn un{word}() {{}}\npub(super) fn is_{word}<T>(it: T) {{}}\nfn folded() {{}}\n"
    );
    let file = SourceFile::new("crates/floor/a/src/tests.rs".into(), &text);
    assert_eq!(wording::wrong_function_names(&file).len(), 2);
}

#[test]
fn dependencies_that_need_a_later_compiler_are_named() {
    let package = |name: &str, source: Option<&str>, version: Option<&str>| serde_json::json!({ "name": name, "version": "1.0.0", "source": source, "rust_version": version });
    let metadata = serde_json::json!({ "packages": [
        package("own", None, Some("1.88")),
        package("older", Some("registry"), Some("1.65.0")),
        package("same", Some("registry"), Some("1.88.0")),
        package("silent", Some("registry"), None),
        package("later", Some("registry"), Some("1.89")),
    ] });
    let complaints = msrv::judge(&metadata).unwrap();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains("later") && complaints[0].contains("1.89"), "{complaints:?}");
    assert!(msrv::judge(&serde_json::json!({ "packages": [] })).is_err());
}
