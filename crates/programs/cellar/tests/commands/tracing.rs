//! Compares the program's probes, as reported by `readelf`, with the list in docs/reference/tracing.md.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Returns the table in docs/reference/tracing.md: names, and the number of arguments of each.
fn documented() -> BTreeMap<String, usize> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/tracing.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let probes = rows.filter(|(name, _)| name.contains("__"));
    let count = |rest: &str| {
        let cell = rest.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap().to_owned();
        1 + cell.matches(',').count() + cell.matches("(text)").count()
    };
    probes.map(|(name, rest)| (name.to_owned(), count(rest))).collect()
}

/// Returns the probes found by `readelf`: names, and the number of arguments at each site.
fn present() -> BTreeMap<String, Vec<usize>> {
    let output = Command::new("readelf").args(["-n", env!("CARGO_BIN_EXE_cellar")]).output();
    let output = output.expect("readelf (package binutils) is needed; `make deps` installs it");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut probes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let (mut is_ours, mut name) = (false, String::new());
    for line in text.lines().map(str::trim) {
        if let Some(provider) = line.strip_prefix("Provider: ") {
            is_ours = provider == "cellar";
        } else if let Some(reported) = line.strip_prefix("Name: ") {
            reported.clone_into(&mut name);
        } else if let Some(arguments) = line.strip_prefix("Arguments: ").filter(|_| is_ours) {
            let arguments: Vec<&str> = arguments.split_whitespace().collect();
            assert!(arguments.iter().all(|argument| argument.starts_with("-8@")), "{name}: {arguments:?}");
            probes.entry(name.clone()).or_default().push(arguments.len());
        }
    }
    probes
}

#[test]
fn the_program_has_the_probes_that_are_documented() {
    let (documented, present) = (documented(), present());
    assert_eq!(documented.keys().collect::<Vec<_>>(), present.keys().collect::<Vec<_>>());
    for (name, counts) in present {
        assert!(counts.iter().all(|count| *count == documented[&name]), "{name}: {counts:?} {documented:?}");
    }
}

/// Scripts use only existing probes and arguments.
#[test]
fn the_scripts_use_probes_and_arguments_that_there_are() {
    let documented = documented();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib/bpftrace");
    let mut scripts = 0;
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "bt") {
            continue;
        }
        scripts += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let mut arguments = 0;
        for word in text.split(|c: char| !(c.is_alphanumeric() || "_:/".contains(c))) {
            if let Some(probe) = word.strip_prefix("usdt:/usr/bin/cellar:cellar:") {
                arguments = *documented.get(probe).unwrap_or_else(|| panic!("{}: {probe}", path.display()));
            } else if let Some(number) =
                word.strip_prefix("arg").and_then(|number| number.parse::<usize>().ok())
            {
                assert!(number < arguments, "{}: arg{number} of {arguments}", path.display());
            }
        }
    }
    assert!(scripts >= 5);
}
