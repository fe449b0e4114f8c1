//! The contract of engines, on each engine of this crate.

use super::contract::{CLAUSES, Clause};
use super::memory::MemoryEngine;
use super::*;

#[test]
fn each_engine_keeps_every_clause_of_the_contract() {
    for (name, clause) in CLAUSES {
        println!("{name}");
        with_each(clause);
    }
}

/// Runs a clause in a new folder with each engine.
fn with_each(clause: Clause) {
    for engine in [local(), Arc::new(MemoryEngine::new())] {
        let folder = tempfile::tempdir().unwrap();
        clause(&*engine, &folder.path().join("meta"));
    }
}
