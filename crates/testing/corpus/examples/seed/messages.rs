//! Requests and replies of every service.

use crate::{Seed, seed};
use corpus::frames::push;

/// Upper bound of opcodes.
const OPCODES: u32 = 70_000;

type Name = fn(u32) -> Option<&'static str>;

const SERVICES: [(&str, Name); 9] = [
    ("xdr_bozo", afs_idl::bozo::procedure_name),
    ("xdr_cb", afs_idl::cb::procedure_name),
    ("xdr_cellar", afs_idl::cellar::procedure_name),
    ("xdr_cluster", afs_idl::cluster::procedure_name),
    ("xdr_fs", afs_idl::fs::procedure_name),
    ("xdr_pr", afs_idl::pr::procedure_name),
    ("xdr_rxstats", afs_idl::rxstats::procedure_name),
    ("xdr_vl", afs_idl::vl::procedure_name),
    ("xdr_vol", afs_idl::vol::procedure_name),
];

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns requests for all procedures of a service, with the same arguments.
fn requests(name: Name, arguments: &[u8]) -> Vec<u8> {
    let mut input = Vec::new();
    for opcode in (0..OPCODES).filter(|opcode| name(*opcode).is_some()) {
        push(&mut input, &[&opcode.to_be_bytes(), arguments].concat());
    }
    input
}

fn one(frame: &[u8]) -> Vec<u8> {
    let mut input = Vec::new();
    push(&mut input, frame);
    input
}

pub(crate) fn seeds() -> Vec<Seed> {
    // A string of nine characters, then numbers that are also valid lengths.
    let text = [&words(&[9])[..], b"root.cell\0\0\0", &words(&[1; 30])].concat();
    let numbers = words(&(0..300).map(|index| [0, 1, 2, 3, 0, 1][index % 6]).collect::<Vec<_>>());
    let service = |(target, name): (&'static str, Name)| {
        [
            seed(target, "requests_zeros", requests(name, &[0; 100])),
            seed(target, "requests_ones", requests(name, &words(&[1; 40]))),
            seed(target, "requests_text", requests(name, &text)),
            seed(target, "replies_zeros", one(&[0; 8192])),
            seed(target, "replies_numbers", one(&numbers)),
        ]
    };
    SERVICES.into_iter().flat_map(service).collect()
}
