//! The contents of a volume as shown by OpenAFS's cache manager and by `vos dump`.

use crate::tests::dumps::{contents, vnodes};
use crate::tests::fuse::unmount;
use crate::tests::import::content::Node;
use afs_format::dump::DumpedVnode;
use anyhow::{Context, Result, bail, ensure};
use interop::cell::{Cell, cellar_program};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Lists a directory tree with digests. Leaves out its root, since the client shows the mount point there,
/// and the mount point `mount`, which leads to another volume.
///
/// Inode numbers end in the vnode number, so names of the same file have the same one.
pub(crate) const LIST: &str = "find . -mindepth 1 -path ./mount -prune -o \
    -printf '%P|%y|%m|%U|%G|%n|%s|%T@|%l|%i\\n' 2>/dev/null; \
    find . -mindepth 1 -path ./mount -prune -o -type f -print0 2>/dev/null | \
    LC_ALL=C xargs -0 sha256sum 2>&1 || true";

/// One volume on one server.
pub(super) struct Seen {
    /// A line per name with type, mode, owner, group, links, length, time, target and vnode, and a line per
    /// file with its SHA-256; sorted.
    pub(super) listing: Vec<String>,
    /// The dump from the root directory on, which includes access lists and data versions.
    pub(super) vnodes: Vec<u8>,
    contents: Vec<(DumpedVnode, Vec<u8>)>,
    /// Its file, until the volume is dumped again.
    dump: PathBuf,
}

impl Seen {
    /// Reads the whole volume with a client that starts without a cache, and dumps it on the databases' host.
    pub(super) fn look(client: &Cell, host: &Cell, volume: &str, server: &str) -> Result<Seen> {
        let listing = listing(client, &format!("test.example:{volume}"), LIST)?;
        let (vnodes, dump) = dump_of(host, volume, server)?;
        let contents = contents(&std::fs::read(&dump)?)?;
        Ok(Seen { listing, vnodes, contents, dump })
    }

    /// Fails with the first differences unless both are equal.
    pub(super) fn compare(&self, wanted: &Seen) -> Result<()> {
        compare_lines(&self.listing, &wanted.listing)?;
        if self.vnodes != wanted.vnodes {
            bail!(
                "the client sees the same, but the dumps differ:\n{}",
                difference(&wanted.dump, &self.dump)?
            );
        }
        Ok(())
    }

    /// Compares without data versions and the server's times.
    pub(super) fn compare_contents(&self, wanted: &Seen) -> Result<()> {
        compare_lines(&self.listing, &wanted.listing)?;
        if self.contents != wanted.contents {
            bail!("the contents of the dumps differ:\n{}", difference(&wanted.dump, &self.dump)?);
        }
        Ok(())
    }

    /// Describes what was compared.
    pub(super) fn extent(&self) -> String {
        let digests = self.listing.iter().filter(|line| is_digest(line)).count();
        format!(
            "{} names, {digests} files, dump of {} KiB",
            self.listing.len() - digests,
            self.vnodes.len() >> 10
        )
    }

    /// Whether a file of this name has these contents.
    pub(super) fn holds(&self, path: &str, data: &[u8]) -> bool {
        self.listing.contains(&format!("{}  ./{path}", hex(data)))
    }
}

/// Returns the dump of a volume from the root directory on. A volume given by number needs no entry.
pub(super) fn dump_of(host: &Cell, volume: &str, server: &str) -> Result<(Vec<u8>, PathBuf)> {
    let dump = host.scratch()?.join(format!("{volume}.seen"));
    let command =
        format!("vos dump {volume} -server {server} -partition a -file {} -localauth", dump.display());
    host.run(&command)?.ok().context(command)?;
    Ok((vnodes(&std::fs::read(&dump)?)?, dump))
}

/// Returns the lines that a command prints in the root of `CELL:VOLUME`, sorted, with vnodes instead of
/// inodes.
pub(crate) fn listing(client: &Cell, volume: &str, command: &str) -> Result<Vec<String>> {
    let text = through_client(client, volume, command)?;
    let mut lines: Vec<String> = text.lines().map(with_vnode).collect();
    lines.sort();
    Ok(lines)
}

/// Runs a shell command in the root of `CELL:VOLUME`, mounted by a new client for this command.
pub(super) fn through_client(client: &Cell, volume: &str, command: &str) -> Result<String> {
    let mount = client.path().join("seen");
    std::fs::create_dir_all(&mount)?;
    client.mount_fuse(&mount)?;
    let root = format!("{}/.:mount/{volume}", mount.display());
    // Retries, since the client needs a moment.
    let text = client.shell(&format!(
        "for i in $(seq 600); do cd {root} && break; sleep 0.1; done 2>/dev/null; cd {root} && {{ {command}; }}"
    ));
    let unmounted = unmount(client, &mount);
    let text = text?.ok().with_context(|| format!("{volume} through afsd.fuse"))?;
    unmounted?;
    Ok(text)
}

/// Replaces the inode number, which includes the volume, by the vnode number.
fn with_vnode(line: &str) -> String {
    match line.rsplit_once('|').and_then(|(head, inode)| Some((head, inode.parse::<u64>().ok()?))) {
        Some((head, inode)) => format!("{head}|{}", inode & 0xffff),
        None => line.to_owned(),
    }
}

fn is_digest(line: &str) -> bool {
    !line.contains('|')
}

fn hex(data: &[u8]) -> String {
    format!("{:x}", Sha256::digest(data))
}

/// Maximum number of lines in a failure message.
const SHOWN: usize = 8;

pub(crate) fn compare_lines(got: &[String], wanted: &[String]) -> Result<()> {
    let only = |these: &[String], those: &[String], mark: &str| -> Vec<String> {
        let those: std::collections::HashSet<&String> = those.iter().collect();
        these.iter().filter(|line| !those.contains(line)).map(|line| format!("{mark} {line}")).collect()
    };
    let mut lines = only(wanted, got, "-");
    lines.truncate(SHOWN);
    lines.extend(only(got, wanted, "+").into_iter().take(SHOWN));
    ensure!(lines.is_empty() && got.len() == wanted.len(), "- expected, + found:\n{}", lines.join("\n"));
    Ok(())
}

/// Returns the output of `cellar dump diff`.
fn difference(one: &Path, other: &Path) -> Result<String> {
    let output = std::process::Command::new(cellar_program()?)
        .args(["dump", "diff", "--everything"])
        .args([one, other])
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the expected listing of a volume with these nodes.
pub(super) fn expected(nodes: &[Node]) -> Result<Vec<String>> {
    let by_vnode: HashMap<u32, &Node> = nodes.iter().map(|node| (node.vnode, node)).collect();
    let mut lines = Vec::new();
    let mut left = vec![(String::new(), 1)];
    while let Some((path, vnode)) = left.pop() {
        let node = by_vnode.get(&vnode).with_context(|| format!("{path} leads to nothing"))?;
        if !path.is_empty() {
            lines.extend(lines_of(&path, node));
        }
        let inner = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        left.extend(
            node.names.iter().filter(|(name, _)| name != "mount").map(|(name, vnode)| (inner(name), *vnode)),
        );
    }
    lines.sort();
    Ok(lines)
}

fn lines_of(path: &str, node: &Node) -> Vec<String> {
    let is = &node.attributes;
    let (kind, target) = match is.kind {
        1 => ('f', ""),
        2 => ('d', ""),
        _ => ('l', std::str::from_utf8(&node.data).unwrap_or_default()),
    };
    let mut lines = vec![format!(
        "{path}|{kind}|{:o}|{}|{}|{}|{}|{}.0000000000|{target}|{}",
        // The client does not show the other bits.
        is.mode & 0o777,
        is.owner,
        is.group,
        is.links,
        node.data.len(),
        is.client_modified.0,
        node.vnode
    )];
    match kind {
        'f' if is.mode & 0o400 == 0 => lines.push(format!("sha256sum: ./{path}: Permission denied")),
        'f' => lines.push(format!("{}  ./{path}", hex(&node.data))),
        _ => {}
    }
    lines
}
