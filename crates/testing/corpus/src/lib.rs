//! Every decoder as a function of arbitrary bytes.
//!
//! Data from the network, from configuration files and from the disk must never make the program panic, hang,
//! or take an excessive amount of memory. Each function here passes bytes to one decoder and to the code that
//! uses its result; it panics only if something is wrong. The same functions are called by this crate's test,
//! with the committed inputs in `corpus/` and mutations of them, and by the fuzzers in `fuzz/` at the top of
//! the repository.
//!
//! A new target requires a function, a line in [`TARGETS`], a seed in `examples/seed`, and a file in
//! `fuzz/fuzz_targets`; the test reports what is missing. `docs/design/testing.md` describes how to fuzz.

pub mod bucket;
pub mod captures;
pub mod formats;
pub mod frames;
pub mod idl;
pub mod names;
pub mod records;
mod replies;
pub mod rings;
pub mod rx;
pub mod security;
pub mod segments;
pub mod services;
pub mod upkeep;

/// A function that exercises a decoder with arbitrary bytes.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("acl", formats::acl),
    ("bucket_objects", bucket::bucket_objects),
    ("capture", captures::capture),
    ("cellservdb", formats::cellservdb),
    ("challenge", security::challenge),
    ("cluster_records", bucket::cluster_records),
    ("directory", formats::directory),
    ("dump", formats::dump),
    ("key_ring", rings::key_ring),
    ("keyfile", formats::keyfile),
    ("keytab", formats::keytab),
    ("krb_conf", security::krb_conf),
    ("location_records", records::location_records),
    ("namei", formats::namei),
    ("names", names::names),
    ("netinfo", formats::netinfo),
    ("protection_records", records::protection_records),
    ("restored_dump", services::restored_dump),
    ("rx_endpoint", rx::endpoint),
    ("rx_header", rx::header),
    ("rxkad_packet", security::rxkad_packet),
    ("rxkad_response", security::rxkad_response),
    ("segment", segments::segment),
    ("serve_bozo", services::serve_bozo),
    ("serve_cluster", services::serve_cluster),
    ("serve_fs", services::serve_fs),
    ("serve_pr", services::serve_pr),
    ("serve_vl", services::serve_vl),
    ("serve_vol", services::serve_vol),
    ("sysid", formats::sysid),
    ("ticket", security::ticket),
    ("upkeep_records", upkeep::upkeep_records),
    ("userlist", formats::userlist),
    ("volume_records", records::volume_records),
    ("xdr_bozo", idl::bozo),
    ("xdr_cb", idl::cb),
    ("xdr_cellar", idl::cellar),
    ("xdr_cluster", idl::cluster),
    ("xdr_fs", idl::fs),
    ("xdr_pr", idl::pr),
    ("xdr_rxstats", idl::rxstats),
    ("xdr_vl", idl::vl),
    ("xdr_vol", idl::vol),
];

/// Returns the target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// Runs the target with this name; used by the fuzzers.
///
/// # Panics
/// If there is no such target, or if the target detects an error.
pub fn run(name: &str, data: &[u8]) {
    let target = target(name).expect("the name of a target");
    target(data);
}
