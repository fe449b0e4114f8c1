//! The contents of a dump: every vnode, with a digest in place of a file's data.

use afs_format::directory::DirectoryBlob;
use afs_format::dump::{DumpError, DumpHeader, DumpVolume, DumpedVnode, Item, Reader, VnodeAttributes};
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum length of a symbolic link or mount point (AFSPATHMAX).
const LINK_BYTES_MAX: u64 = 1024;
/// Vnode number of the root directory.
pub const ROOT: u32 = 1;

/// The contents of an undamaged dump.
pub struct Contents {
    /// Header of the dump.
    pub header: DumpHeader,
    /// Header of the volume.
    pub volume: DumpVolume,
    /// Vnodes by number.
    pub nodes: BTreeMap<u32, Node>,
}

/// A vnode.
pub struct Node {
    /// Uniquifier of the vnode.
    pub unique: u32,
    /// Status; `None` for an unchanged vnode in an incremental dump.
    pub attributes: Option<VnodeAttributes>,
    /// Data of the vnode.
    pub data: Data,
}

/// A vnode's data.
#[derive(Clone, PartialEq, Eq)]
pub enum Data {
    /// Not in the dump.
    None,
    /// Length in bytes and SHA-256 of a file.
    File(u64, [u8; 32]),
    /// Names and vnode numbers in a directory, without `.` and `..`, in order of the names.
    Directory(Vec<(Vec<u8>, u32)>),
    /// Target of a symbolic link, or `#volume.` or `%volume.` for a mount point.
    Link(Vec<u8>),
}

/// Source of a dump's bytes.
pub type Source = Box<dyn FnMut(usize) -> io::Result<Bytes>>;

/// Opens a dump file; returns a reader and the dump's header.
pub fn open(path: &Path) -> Result<(Reader<Source>, DumpHeader)> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let source: Source = Box::new(move |most| {
        let mut buffer = vec![0; most];
        let got = file.read(&mut buffer)?;
        buffer.truncate(got);
        Ok(Bytes::from(buffer))
    });
    Reader::open(source).map_err(|error| refused(path, &error))
}

/// Returns the error for a dump that cannot be read.
pub fn refused(path: &Path, error: &DumpError<io::Error>) -> anyhow::Error {
    anyhow!("{}: {error}", path.display())
}

impl Contents {
    /// Reads a dump file.
    ///
    /// # Errors
    /// If the file cannot be read or the dump is damaged; the message has the position.
    pub fn read(path: &Path) -> Result<Contents> {
        let (mut reader, header) = open(path)?;
        let failed = |error: DumpError<io::Error>| refused(path, &error);
        let mut contents = Contents { header, volume: DumpVolume::default(), nodes: BTreeMap::new() };
        let mut has_volume = false;
        loop {
            match reader.next_item().map_err(failed)? {
                Item::Volume(volume) => (contents.volume, has_volume) = (*volume, true),
                Item::Vnode(vnode) if has_volume => {
                    let number = vnode.vnode;
                    let node = Node::read(vnode, &mut reader).map_err(failed)?;
                    contents.nodes.insert(number, node);
                }
                Item::End if has_volume => return Ok(contents),
                Item::Vnode(_) | Item::End => {
                    return Err(failed(reader.damaged("a volume header first")));
                }
            }
        }
    }

    /// Reads a dump file that is to become a volume.
    ///
    /// # Errors
    /// As for [`read`](Self::read), and if the dump is incremental and leaves out unchanged vnodes.
    pub fn read_all(path: &Path) -> Result<Contents> {
        let contents = Contents::read(path)?;
        match contents.left_out() {
            0 => Ok(contents),
            count => bail!(
                "{}: it leaves out {count} files and directories that had not changed; \
                 only a restore over the volume as it was before (`--overwrite incremental`) can use it",
                path.display()
            ),
        }
    }

    /// Returns the number of files and directories that are only named, because they had not changed.
    pub fn left_out(&self) -> usize {
        self.nodes.values().filter(|node| node.attributes.is_none()).count()
    }

    /// Returns whether it contains only changes since a date.
    pub fn is_incremental(&self) -> bool {
        self.header.dates.first().is_some_and(|(from, _)| from.0 != 0)
    }

    /// Returns the paths of every vnode reachable from the root directory: `/`, `/a`, `/a/b` ... A file with
    /// several names has several. In an incremental dump, directories may be missing on the path.
    pub fn paths(&self) -> Result<BTreeMap<Vec<u8>, u32>> {
        let mut paths = BTreeMap::from([(b"/".to_vec(), ROOT)]);
        let mut seen = HashSet::from([ROOT]);
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((path, directory)) = todo.pop() {
            for (name, vnode) in self.entries(directory) {
                let path = [&path[..], b"/", name].concat();
                if is_directory(*vnode) {
                    if !seen.insert(*vnode) {
                        bail!("{} is a directory with two names", printable(&path));
                    }
                    todo.push((path.clone(), *vnode));
                }
                paths.insert(path, *vnode);
            }
        }
        Ok(paths)
    }

    /// Returns the vnodes without a name in the dump.
    pub fn without_name(&self, paths: &BTreeMap<Vec<u8>, u32>) -> Vec<u32> {
        let named: HashSet<u32> = paths.values().copied().collect();
        self.nodes.keys().copied().filter(|vnode| !named.contains(vnode)).collect()
    }

    /// Returns the entries of a directory.
    pub fn entries(&self, vnode: u32) -> &[(Vec<u8>, u32)] {
        match self.nodes.get(&vnode).map(|node| &node.data) {
            Some(Data::Directory(entries)) => entries,
            _ => &[],
        }
    }
}

/// Returns whether a vnode number is that of a directory: directories have odd numbers.
pub(super) fn is_directory(vnode: u32) -> bool {
    vnode % 2 == 1
}

type Failure = DumpError<io::Error>;

impl Node {
    fn read(vnode: DumpedVnode, reader: &mut Reader<Source>) -> Result<Node, Failure> {
        let data = match vnode.attributes.as_ref().map(|attributes| (attributes.kind, attributes.length)) {
            None | Some((_, None)) => Data::None,
            Some((1, Some(length))) => Data::File(length, digest(reader)?),
            Some((2, Some(_))) => Data::Directory(entries(&reader.directory(&vnode)?)),
            Some((3, Some(length))) => Data::Link(whole(reader, length, LINK_BYTES_MAX)?),
            Some(_) => return Err(reader.damaged("a file, a directory or a symbolic link")),
        };
        Ok(Node { unique: vnode.unique, attributes: vnode.attributes, data })
    }
}

fn digest(reader: &mut Reader<Source>) -> Result<[u8; 32], Failure> {
    let mut digest = Sha256::new();
    loop {
        let piece = reader.data(usize::MAX)?;
        if piece.is_empty() {
            return Ok(digest.finalize().into());
        }
        digest.update(&piece);
    }
}

/// Reads all of a vnode's data, up to a limit.
pub(super) fn whole(reader: &mut Reader<Source>, length: u64, most: u64) -> Result<Vec<u8>, Failure> {
    if length > most {
        return Err(reader.damaged("less data than this for a link or a directory"));
    }
    let mut bytes = Vec::new();
    loop {
        let piece = reader.data(usize::MAX)?;
        if piece.is_empty() {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&piece);
    }
}

fn entries(blob: &DirectoryBlob) -> Vec<(Vec<u8>, u32)> {
    let inside = blob.entries().filter(|(name, _)| !matches!(*name, b"." | b".."));
    let mut entries: Vec<_> = inside.map(|(name, target)| (name.to_vec(), target.vnode.0)).collect();
    entries.sort_unstable();
    entries
}

/// Formats a name or path for display and JSON: invalid UTF-8 and characters that move the cursor are
/// escaped.
pub fn printable(bytes: &[u8]) -> String {
    base::text::escape(bytes)
}
