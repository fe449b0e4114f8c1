//! Checks that targets, inputs, fuzzers and tests match.

use crate::inputs;
use std::path::Path;

/// Maximum size of all inputs together, and of the inputs of one target.
const CORPUS_BYTES_MAX: usize = 2 << 20;
const INPUTS_MAX: usize = 60;

fn targets() -> Vec<&'static str> {
    corpus::TARGETS.iter().map(|(name, _)| *name).collect()
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
}

#[test]
fn every_target_is_replayed_and_nothing_else_has_inputs() {
    assert_eq!(targets(), crate::REPLAYED);
    assert_eq!(inputs::names(&inputs::folder()), targets());
}

#[test]
fn every_target_has_a_fuzzer() {
    let files: Vec<String> = targets().iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(inputs::names(&repository().join("fuzz/fuzz_targets")), files);
    let manifest = std::fs::read_to_string(repository().join("fuzz/Cargo.toml")).unwrap();
    for name in targets() {
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name} is not in fuzz/Cargo.toml");
        let text =
            std::fs::read_to_string(repository().join(format!("fuzz/fuzz_targets/{name}.rs"))).unwrap();
        assert!(
            text.contains(&format!("corpus::run(\"{name}\", data)")),
            "{name}.rs does not run the target {name}"
        );
    }
}

#[test]
fn the_corpus_is_small() {
    let sizes: Vec<Vec<usize>> = targets()
        .iter()
        .map(|name| inputs::of(name).iter().map(|input| input.data.len()).collect())
        .collect();
    assert!(sizes.iter().all(|sizes| sizes.len() <= INPUTS_MAX));
    assert!(sizes.concat().iter().sum::<usize>() <= CORPUS_BYTES_MAX);
}

#[test]
fn every_reply_of_every_service_is_checked() {
    for (service, checked) in corpus::idl::replies_checked() {
        let path = repository().join(format!("crates/protocol/afs-idl/src/generated/{service}.rs"));
        let text = std::fs::read_to_string(path).unwrap();
        let is_reply = |line: &&str| {
            let name = line.strip_prefix("pub struct ").and_then(|rest| rest.split([' ', ';']).next());
            name.is_some_and(|name| name.ends_with("Reply"))
        };
        assert_eq!(text.lines().filter(is_reply).count(), checked, "{service}");
    }
}
