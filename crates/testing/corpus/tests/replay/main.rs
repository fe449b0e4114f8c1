//! Replays the committed inputs of every target, and seeded mutations of each, while measuring memory.
//!
//! `CORPUS_SEED` (a number) selects other mutations, `CELLAR_SOAK=1` makes many more of them. An input that
//! makes a target panic is saved to a file whose name is printed; once the bug is fixed, move the file to
//! `corpus/<target>/`.

mod inputs;
mod layout;
mod memory;
mod mutate;
mod nodes;
mod strangers;
mod worst;

use inputs::Input;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::path::PathBuf;

/// Number of mutations for a target, and maximum number for one of its inputs.
const MUTATIONS_TARGET: usize = 6_000;
const MUTATIONS_INPUT_MAX: usize = 1_000;
/// Factor for these numbers with `CELLAR_SOAK`.
const SOAK_FACTOR: usize = 50;

/// Memory limit of a target: as much as an idle server takes, plus a multiple of the input's length.
const MEMORY_BYTES: usize = 64 << 20;
const MEMORY_PER_INPUT_BYTE: usize = 64;

/// One run of a target; prints how to repeat it if it panics.
struct Run<'a> {
    target: &'a str,
    origin: &'a str,
    data: &'a [u8],
}

impl Run<'_> {
    fn make(&self, target: corpus::Target) {
        let peak = memory::peak(|| target(self.data));
        let most = MEMORY_BYTES + MEMORY_PER_INPUT_BYTE * self.data.len();
        assert!(peak <= most, "{peak} bytes of memory for {} of input", self.data.len());
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.input", self.target));
            let kept = std::fs::write(&path, self.data);
            eprintln!("{} of {}: {} ({kept:?})", self.target, self.origin, path.display());
        }
    }
}

fn mutations(inputs: usize) -> usize {
    let factor = if std::env::var_os("CELLAR_SOAK").is_some() { SOAK_FACTOR } else { 1 };
    factor * (MUTATIONS_TARGET / inputs.max(1)).min(MUTATIONS_INPUT_MAX)
}

fn seed() -> u64 {
    std::env::var("CORPUS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Runs a target with all its inputs unchanged, then with mutations.
fn replay(name: &str) {
    let target = corpus::target(name).expect("a target");
    let inputs = inputs::of(name);
    assert!(!inputs.is_empty(), "{name} has no inputs: run `cargo run -p corpus --example seed`");
    for Input { file, data } in &inputs {
        Run { target: name, origin: file, data }.make(target);
    }
    for (number, Input { file, data }) in inputs.iter().enumerate() {
        let mut random = SmallRng::seed_from_u64(seed() ^ (number as u64) << 32);
        for round in 0..mutations(inputs.len()) {
            let other = &inputs[round % inputs.len()].data;
            let data = mutate::mutated(&mut random, data, other);
            let origin = format!("{file}, CORPUS_SEED={}, mutation {round}", seed());
            Run { target: name, origin: &origin, data: &data }.make(target);
        }
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        const REPLAYED: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*
    };
}

replays! {
    acl
    bucket_objects
    capture
    cellservdb
    challenge
    cluster_records
    directory
    dump
    key_ring
    keyfile
    keytab
    krb_conf
    location_records
    namei
    names
    netinfo
    protection_records
    restored_dump
    rx_endpoint
    rx_header
    rxkad_packet
    rxkad_response
    segment
    serve_bozo
    serve_cluster
    serve_fs
    serve_pr
    serve_vl
    serve_vol
    sysid
    ticket
    upkeep_records
    userlist
    volume_records
    xdr_bozo
    xdr_cb
    xdr_cellar
    xdr_cluster
    xdr_fs
    xdr_pr
    xdr_rxstats
    xdr_vl
    xdr_vol
}
