//! The files of a dump on a local disk.

use super::contents::{Contents, Data, ROOT, Source, is_directory, open, printable, refused};
use afs_format::dump::{Item, Reader, VnodeAttributes};
use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// What to do with the files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Give them the owners and groups of the dump (needs root).
    pub owners: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, mount points among them.
    pub links: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Vnodes that no name in the dump leads to; they were left out.
    pub nameless: u64,
}

/// Writes the files of the dump in `dump` into `folder`, which must be empty or missing. Mount points
/// become symbolic links with their text. Nothing is written if the dump is not sound.
///
/// # Errors
/// What is wrong with the dump, the folder or the disk.
pub fn extract(dump: &Path, folder: &Path, options: Options) -> Result<Written> {
    let contents = Contents::read(dump)?;
    let paths = contents.paths()?;
    let mut places: HashMap<u32, Vec<PathBuf>> = HashMap::new();
    for (path, vnode) in &paths {
        places.entry(*vnode).or_default().push(place(folder, path)?);
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut inside = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    ensure!(inside.next().is_none(), "{} is not empty", folder.display());
    let written = Written { nameless: contents.without_name(&paths).len() as u64, ..Written::default() };
    let mut extraction = Extraction { contents, paths, places, options, written };
    extraction.make_directories(folder)?;
    extraction.write_files(dump)?;
    extraction.make_links()?;
    extraction.finish_directories()?;
    Ok(extraction.written)
}

/// A path of a dump below `folder`. Names were checked when the directory was read; this is the last
/// guard against one that leads elsewhere.
fn place(folder: &Path, path: &[u8]) -> Result<PathBuf> {
    let mut place = folder.to_owned();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if matches!(name, b"." | b"..") || name.contains(&0) {
            bail!("{} is no path to write to", printable(path));
        }
        place.push(OsStr::from_bytes(name));
    }
    Ok(place)
}

struct Extraction {
    contents: Contents,
    paths: BTreeMap<Vec<u8>, u32>,
    places: HashMap<u32, Vec<PathBuf>>,
    options: Options,
    written: Written,
}

impl Extraction {
    /// In the order of paths, a directory comes before what is in it.
    fn make_directories(&mut self, folder: &Path) -> Result<()> {
        for (path, vnode) in &self.paths {
            if is_directory(*vnode) {
                let place = place(folder, path)?;
                if *vnode != ROOT {
                    fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?;
                }
                self.written.directories += 1;
            }
        }
        Ok(())
    }

    fn write_files(&mut self, dump: &Path) -> Result<()> {
        let (mut reader, _) = open(dump)?;
        loop {
            match reader.next_item().map_err(|error| refused(dump, &error))? {
                Item::End => return Ok(()),
                Item::Vnode(vnode) if vnode.attributes.as_ref().is_some_and(|status| status.kind == 1) => {
                    let Some(places) = self.places.get(&vnode.vnode).cloned() else { continue };
                    let status = vnode.attributes.unwrap_or_default();
                    self.write_file(&mut reader, &places, &status)?;
                }
                _ => {}
            }
        }
    }

    fn write_file(
        &mut self,
        reader: &mut Reader<Source>,
        places: &[PathBuf],
        status: &VnodeAttributes,
    ) -> Result<()> {
        let first = &places[0];
        let doing = || format!("cannot write {}", first.display());
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(first).with_context(doing)?;
        loop {
            let piece = reader.data(usize::MAX)?;
            if piece.is_empty() {
                break;
            }
            let length = piece.len() as u64;
            // Holes are zeros in a dump, which here take no room again.
            if piece.iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Current(length as i64)).with_context(doing)?;
            } else {
                file.write_all(&piece).with_context(doing)?;
            }
            self.written.bytes += length;
        }
        file.set_len(status.length.unwrap_or(0)).with_context(doing)?;
        self.finish(&file, first, status)?;
        for other in &places[1..] {
            fs::hard_link(first, other).with_context(|| format!("cannot link {}", other.display()))?;
        }
        self.written.files += 1;
        Ok(())
    }

    /// Last, so that nothing is ever written through one of them.
    fn make_links(&mut self) -> Result<()> {
        for (vnode, node) in &self.contents.nodes {
            let (Data::Link(target), Some(places)) = (&node.data, self.places.get(vnode)) else { continue };
            for place in places {
                symlink(OsStr::from_bytes(target), place)
                    .with_context(|| format!("cannot make the link {}", place.display()))?;
            }
            self.written.links += 1;
        }
        Ok(())
    }

    /// Deepest first: what is written into a directory changes its time.
    fn finish_directories(&self) -> Result<()> {
        for vnode in self.paths.iter().rev().map(|(_, vnode)| vnode) {
            let status = self.contents.nodes.get(vnode).and_then(|node| node.attributes.as_ref());
            if let Some(status) = status.filter(|status| status.kind == 2) {
                let place = &self.places[vnode][0];
                let folder = File::open(place).with_context(|| format!("cannot open {}", place.display()))?;
                self.finish(&folder, place, status)?;
            }
        }
        Ok(())
    }

    fn finish(&self, file: &File, place: &Path, status: &VnodeAttributes) -> Result<()> {
        let doing = || format!("cannot set mode, owner and time of {}", place.display());
        if self.options.owners {
            chown(place, Some(status.owner), Some(status.group)).with_context(doing)?;
        }
        // Set-user-id bits would give away a local user's rights.
        let mode = Permissions::from_mode(u32::from(status.mode) & 0o1777);
        file.set_permissions(mode).with_context(doing)?;
        let modified = UNIX_EPOCH + Duration::from_secs(status.client_modified.0.into());
        file.set_times(FileTimes::new().set_modified(modified)).with_context(doing)
    }
}
