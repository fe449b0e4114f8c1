//! Damage to a partition written by OpenAFS's server, whose clones share files: which volumes are rejected,
//! and with which message.

use super::content::VICTIM_BYTES;
use super::files;
use afs_format::namei::{Inode, LINKS_HEADER_BYTES};
use anyhow::{Context, Result, ensure};
use interop::cell::Output;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Digits of six bits for numbers in file names, lowest first.
const DIGITS: &str = "+=0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Types of the files that belong to a volume as a whole.
const SMALL_INDEX: u64 = 2;
const LARGE_INDEX: u64 = 3;
const LINKS: u64 = 6;
/// Offsets in a record of an index.
const LINK_COUNT_OFFSET: u64 = 2;
const MAGIC_OFFSET: u64 = 36;
/// Volumes of the group whose clones share files.
const GROUP: [&str; 3] = ["tree", "tree.readonly", "tree.backup"];

/// A change to a file, or its removal.
struct Damage {
    what: &'static str,
    file: PathBuf,
    /// New bytes and their offset; `None` to remove the file.
    bytes: Option<(u64, Vec<u8>)>,
    volumes: &'static [&'static str],
    reported: &'static str,
}

/// Parses the ids of volumes by name from the output of `vos listvol`.
pub(super) fn numbers(listed: &str) -> BTreeMap<String, u64> {
    let rows = listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    });
    rows.collect()
}

/// Applies each damage to the partition and imports it: exactly the affected volumes must be rejected and
/// reported. Then repairs the damage.
pub(super) fn each_is_named(
    partition: &Path,
    numbers: &BTreeMap<String, u64>,
    import: impl Fn(&str) -> Result<Output>,
) -> Result<()> {
    for damage in damages(partition, numbers)? {
        let whole = std::fs::read(&damage.file)?;
        match &damage.bytes {
            Some((at, bytes)) => {
                std::fs::File::options().write(true).open(&damage.file)?.write_all_at(bytes, *at)?;
            }
            None => std::fs::remove_file(&damage.file)?,
        }
        let all = import("--dry-run")?;
        let refused = format!("{} of 7 volumes cannot be imported", damage.volumes.len());
        ensure!(all.status == 1 && all.text.contains(&refused), "{}: {}", damage.what, all.text);
        for volume in damage.volumes {
            let one = import(&format!("--volume {volume}"))?;
            let is_named = one.text.contains(&format!("({volume})")) && one.text.contains(damage.reported);
            ensure!(one.status == 1 && is_named, "{}, {volume}: {}", damage.what, one.text);
        }
        println!("interop: {}: {} refused", damage.what, damage.volumes.join(", "));
        std::fs::write(&damage.file, whole)?;
    }
    Ok(())
}

fn damages(partition: &Path, numbers: &BTreeMap<String, u64>) -> Result<Vec<Damage>> {
    let number = |volume: &str| numbers.get(volume).copied().with_context(|| format!("no volume {volume}"));
    let group = u32::try_from(number("tree")?)?;
    let special = |kind: u64, volume: &str| -> Result<PathBuf> {
        Ok(partition.join(Inode(number(volume)? << 32 | kind << 26 | 0x3ff_ffff).path(group)))
    };
    let shared = shared_file(partition, &special(LINKS, "tree")?)?;
    let vnode = u64::from(shared.1.vnode());
    let record = 64 * (vnode >> 1);
    let (links, row) = (special(LINKS, "tree")?, shared.1.links_offset());
    Ok(vec![
        Damage {
            what: "the stamp of an index",
            file: special(SMALL_INDEX, "tree.backup")?,
            bytes: Some((0, vec![0; 4])),
            volumes: &["tree.backup"],
            reported: "byte 0: expected",
        },
        Damage {
            what: "the mark of a vnode",
            file: special(LARGE_INDEX, "tree.readonly")?,
            bytes: Some((256 + MAGIC_OFFSET, vec![0; 4])),
            volumes: &["tree.readonly"],
            reported: "expected the mark of a vnode",
        },
        Damage {
            what: "a vnode's count of links",
            file: special(SMALL_INDEX, "tree")?,
            bytes: Some((record + LINK_COUNT_OFFSET, vec![7, 0])),
            volumes: &["tree"],
            reported: "/dir/victim: its count of links is 7; there are 1",
        },
        Damage {
            what: "a file that is gone, shared by three volumes",
            file: shared.0,
            bytes: None,
            volumes: &GROUP,
            reported: "/dir/victim: ",
        },
        Damage {
            what: "its count in the table of links",
            file: links,
            bytes: Some((row, vec![0; 2])),
            volumes: &GROUP,
            reported: "/dir/victim: the link table has no link to",
        },
    ])
}

/// Returns the file that all volumes of the group share, with its number; the link table counts three of
/// them.
fn shared_file(partition: &Path, links: &Path) -> Result<(PathBuf, Inode)> {
    let found = files(partition)?.into_iter().find(|(_, (bytes, _))| *bytes == VICTIM_BYTES);
    let (path, _) = found.context("no data file of the victim's length")?;
    let name = path.file_name().and_then(|name| name.to_str()).context("a name of digits")?;
    let digits = name.chars().rev().map(|digit| DIGITS.find(digit).context("no digit"));
    let number =
        digits.into_iter().try_fold(0, |sum: u64, digit| Ok::<_, anyhow::Error>(sum << 6 | digit? as u64))?;
    let inode = Inode(number);
    ensure!(inode.links_offset() > LINKS_HEADER_BYTES as u64, "{name} is no vnode's");
    let mut row = [0; 2];
    std::fs::File::open(links)?.read_exact_at(&mut row, inode.links_offset())?;
    ensure!(inode.links(row) == 3, "{} volumes have {}", inode.links(row), path.display());
    Ok((path, inode))
}
