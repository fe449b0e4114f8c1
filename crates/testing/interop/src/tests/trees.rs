//! Copies real trees with `cellar cp` and `afsio`, and compares them by SHA-256, also after a restart.

use crate::Test;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server};
use interop::means::Means;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "trees-in-and-out", needs: &[Means::Netns], run: trees_in_and_out }]
}

/// An entry of a tree.
#[derive(Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File([u8; 32]),
    Link(PathBuf),
}

fn digest(path: &Path) -> Result<[u8; 32]> {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path)?, &mut hash)?;
    Ok(hash.finalize().into())
}

fn survey(root: &Path) -> Result<BTreeMap<PathBuf, Node>> {
    let mut out = BTreeMap::new();
    for entry in walkdir::WalkDir::new(root).min_depth(1) {
        let entry = entry?;
        let node = if entry.file_type().is_dir() {
            Node::Directory
        } else if entry.file_type().is_symlink() {
            Node::Link(std::fs::read_link(entry.path())?)
        } else {
            Node::File(digest(entry.path())?)
        };
        out.insert(entry.path().strip_prefix(root)?.to_owned(), node);
    }
    Ok(out)
}

/// Returns the trees to copy: documentation (many small files, links), and the standard library's sources or
/// any headers on the machine.
fn sources() -> Vec<(&'static str, PathBuf)> {
    let candidates = [("doc", "/usr/share/doc"), ("include", "/usr/include"), ("lib", "/usr/lib/rustlib")];
    let mut out: Vec<(&str, PathBuf)> = candidates
        .iter()
        .map(|&(name, path)| (name, PathBuf::from(path)))
        .filter(|(_, path)| path.is_dir())
        .collect();
    if let Some(home) = std::env::var_os("HOME") {
        let toolchains = Path::new(&home).join(".rustup/toolchains");
        let first = std::fs::read_dir(toolchains).ok().and_then(|mut list| list.next()).and_then(Result::ok);
        out.extend(first.map(|entry| ("rust", entry.path().join("lib"))).filter(|(_, path)| path.is_dir()));
    }
    out
}

fn trees_in_and_out() -> Result<()> {
    let mut cell = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    let sources = sources();
    ensure!(!sources.is_empty(), "there is no tree to move");
    for (name, source) in &sources {
        cell.open_volume(Server::Cellar, name)?;
        cell.run(&format!("cellar cp {}/ cell:{name}/", source.display()))?
            .ok()
            .with_context(|| format!("storing {}", source.display()))?;
    }
    cell.end_cellar("TERM")?;
    cell.start_cellar()?;
    for (name, source) in &sources {
        let copy = cell.path().join(format!("copy-{name}"));
        cell.run(&format!("cellar cp cell:{name}/ {}", copy.display()))?
            .ok()
            .with_context(|| format!("fetching {name}"))?;
        compare(source, &copy)?;
        std::fs::remove_dir_all(copy)?;
    }
    afsio(&cell)
}

/// Checks that `copy` has everything in `source`, and nothing else.
pub(crate) fn compare(source: &Path, copy: &Path) -> Result<()> {
    let (want, got) = (survey(source)?, survey(copy)?);
    for (path, node) in &want {
        let found = got.get(path);
        ensure!(found == Some(node), "{}: {node:?} became {found:?}", source.join(path).display());
    }
    ensure!(want.len() == got.len(), "{} names went in, {} came out", want.len(), got.len());
    println!("interop: {} names of {} agree", want.len(), source.display());
    Ok(())
}

/// Reads and overwrites files with OpenAFS's `afsio`, whose paths start at root.afs.
fn afsio(cell: &Cell) -> Result<()> {
    for volume in ["root.afs", "root.cell"] {
        cell.open_volume(Server::Cellar, volume)?;
    }
    let original = cell.path().join("original");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&original, bytes)?;
    let original = original.display().to_string();
    for command in [
        "cellar volume mount root.afs/test.example root.cell".to_owned(),
        format!("cellar cp {original} cell:root.cell/stored"),
    ] {
        cell.run(&command)?.ok().with_context(|| command)?;
    }
    let path = "/afs/test.example/stored";
    let read = format!("afsio read -file {path} 2>/dev/null | cmp - {original}");
    cell.shell(&read)?.ok().context("afsio read")?;
    let refused = cell.shell(&format!("head -c 1234 {original} | afsio write -file {path}"))?;
    ensure!(refused.text.contains("use -force"), "afsio write over a file: {}", refused.text);
    // On a longer file `-force` changes the start and keeps the rest, like pwrite. (1.8.9 cannot create a
    // file given by its path, not even on OpenAFS's servers.)
    cell.run(&format!("cellar cp {original} cell:root.cell/stored.new"))?.ok()?;
    for command in [
        format!("tail -c 1234567 {original} >{original}.tail"),
        format!("afsio write -file {path} -force <{original}.tail"),
        format!("afsio append -file {path}.new <{original}.tail"),
        format!("cat {original} {original}.tail >{original}.both"),
        format!("cp {original} {original}.over; dd conv=notrunc if={original}.tail of={original}.over"),
    ] {
        cell.shell(&command)?.ok().context(command)?;
    }
    for (stored, wanted) in [("stored", "over"), ("stored.new", "both")] {
        let fetched = cell.path().join(stored);
        cell.run(&format!("cellar cp cell:root.cell/{stored} {}", fetched.display()))?.ok()?;
        let agrees = digest(&fetched)? == digest(Path::new(&format!("{original}.{wanted}")))?;
        ensure!(agrees, "what afsio wrote to {stored} reads otherwise");
    }
    Ok(())
}
