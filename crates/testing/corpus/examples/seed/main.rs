//! Writes the seeds for fuzzing to `corpus/`: data from this program's encoders, and data from other
//! programs. Inputs found by fuzzers are not touched.

mod buckets;
mod captures;
mod conversations;
mod formats;
mod histories;
mod images;
mod messages;
mod nodes;
mod tickets;

use std::io;
use std::path::Path;

/// An input: its target, file name and bytes.
#[derive(Clone)]
pub(crate) struct Seed {
    target: &'static str,
    file: String,
    data: Vec<u8>,
}

/// Creates a seed.
pub(crate) fn seed(target: &'static str, file: impl Into<String>, data: impl Into<Vec<u8>>) -> Seed {
    Seed { target, file: file.into(), data: data.into() }
}

/// Reads a test file of another crate.
pub(crate) fn testdata(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn main() -> io::Result<()> {
    let seeds = [
        buckets::seeds(),
        captures::seeds(),
        conversations::seeds(),
        formats::seeds(),
        histories::seeds(),
        images::seeds(),
        messages::seeds(),
        nodes::seeds(),
        tickets::seeds(),
    ];
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for Seed { target, file, data } in seeds.into_iter().flatten() {
        assert!(corpus::target(target).is_some(), "{target} is not a target");
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(&file), &data)?;
        println!("{target}/{file}: {} bytes", data.len());
    }
    Ok(())
}
