//! Extracts a dump to a local disk. The owner of the volume controls the names and links in a dump, so
//! nothing is written outside the folder ([`disk::beneath`]).

use super::contents::{Contents, Data, ROOT, Source, is_directory, open, printable, refused};
use afs_format::dump::{Item, Reader, VnodeAttributes};
use anyhow::{Context as _, Result, ensure};
use disk::beneath::{Attributes, Folder, check_name};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::create_dir_all;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Permission bits of files while they are written.
const PRIVATE: u32 = 0o600;

/// Options of an extraction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether to apply the dump's owners and groups (needs root), and its modes regardless of the umask.
    pub owners: bool,
}

/// Totals of what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Number of files.
    pub files: u64,
    /// Number of directories.
    pub directories: u64,
    /// Number of symbolic links, including mount points.
    pub links: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Number of vnodes without a name in the dump, which were left out.
    pub nameless: u64,
}

/// Extracts the dump file `dump` into `folder`, which must be empty or missing. Mount points become symbolic
/// links with their text. Nothing is written if the dump is damaged.
///
/// # Errors
/// If the dump is damaged, or the folder cannot be written.
pub fn extract(dump: &Path, folder: &Path, options: Options) -> Result<Written> {
    let contents = Contents::read(dump)?;
    let paths = contents.paths()?;
    let mut places: HashMap<u32, Vec<Place>> = HashMap::new();
    for (path, vnode) in &paths {
        places.entry(*vnode).or_default().push(Place::parse(path)?);
    }
    create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // The user named the folder, possibly through a symbolic link, which is followed.
    let root = Folder::open(&folder.join(""));
    let root = root.with_context(|| format!("cannot read {}", folder.display()))?;
    let inside = root.names().with_context(|| format!("cannot read {}", folder.display()))?;
    ensure!(inside.is_empty(), "{} is not empty", folder.display());
    let written = Written { nameless: contents.without_name(&paths).len() as u64, ..Written::default() };
    let umask = if options.owners { 0 } else { crate::umask::current() };
    let mut extraction = Extraction { root, contents, paths, places, options, umask, written };
    extraction.make_directories()?;
    extraction.write_files(dump)?;
    extraction.make_links()?;
    extraction.finish_directories()?;
    Ok(extraction.written)
}

/// A path in a dump, relative to the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    folder: PathBuf,
    /// Empty for the folder itself.
    name: OsString,
}

impl Place {
    /// Names were checked when the directory was read; this is the last defence against a path that leads
    /// outside.
    fn parse(path: &[u8]) -> Result<Place> {
        let mut place = Place::default();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let name = OsStr::from_bytes(name);
            check_name(name)
                .with_context(|| format!("{} is not a path that can be written", printable(path)))?;
            place.folder.push(&place.name);
            name.clone_into(&mut place.name);
        }
        Ok(place)
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

struct Extraction {
    root: Folder,
    contents: Contents,
    paths: BTreeMap<Vec<u8>, u32>,
    places: HashMap<u32, Vec<Place>>,
    options: Options,
    /// Permission bits to clear.
    umask: u32,
    written: Written,
}

impl Extraction {
    /// Opens the directory that contains a place.
    fn around(&self, place: &Place) -> Result<Arc<Folder>> {
        let folder = self.root.descend(&place.folder);
        let shown = || format!("cannot open {}", self.root.path().join(&place.folder).display());
        folder.map(Arc::new).with_context(shown)
    }

    fn shown(&self, place: &Place) -> String {
        self.root.path().join(place.path()).display().to_string()
    }

    /// In path order, a directory comes before its contents.
    fn make_directories(&mut self) -> Result<()> {
        for (path, vnode) in &self.paths {
            if is_directory(*vnode) {
                let place = Place::parse(path)?;
                if *vnode != ROOT {
                    let made = self.around(&place)?.make(&place.name);
                    made.with_context(|| format!("cannot make {}", self.shown(&place)))?;
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
        places: &[Place],
        status: &VnodeAttributes,
    ) -> Result<()> {
        let first = &places[0];
        let folder = self.around(first)?;
        let shown = format!("cannot write {}", self.shown(first));
        let doing = || shown.clone();
        let mut fresh = folder.begin(&first.name, PRIVATE).with_context(doing)?;
        loop {
            let piece = reader.data(usize::MAX)?;
            if piece.is_empty() {
                break;
            }
            let length = piece.len() as u64;
            // Holes are zeros in a dump; they become holes again.
            if piece.iter().all(|byte| *byte == 0) {
                fresh.file().seek(SeekFrom::Current(length as i64)).with_context(doing)?;
            } else {
                fresh.file().write_all(&piece).with_context(doing)?;
            }
            self.written.bytes += length;
        }
        fresh.file().set_len(status.length.unwrap_or(0)).with_context(doing)?;
        fresh.set_attributes(&self.attributes(status)).with_context(doing)?;
        fresh.keep().with_context(doing)?;
        for other in &places[1..] {
            let linked = folder.make_hard_link(&first.name, &*self.around(other)?, &other.name);
            linked.with_context(|| format!("cannot link {}", self.shown(other)))?;
        }
        self.written.files += 1;
        Ok(())
    }

    /// Links come last, so that nothing is ever written through one of them.
    fn make_links(&mut self) -> Result<()> {
        for (vnode, node) in &self.contents.nodes {
            let (Data::Link(target), Some(places)) = (&node.data, self.places.get(vnode)) else { continue };
            for place in places {
                let made = self.around(place)?.make_link(&place.name, OsStr::from_bytes(target));
                made.with_context(|| format!("cannot make the link {}", self.shown(place)))?;
            }
            self.written.links += 1;
        }
        Ok(())
    }

    /// Deepest first: writing into a directory changes its time.
    fn finish_directories(&self) -> Result<()> {
        for vnode in self.paths.iter().rev().map(|(_, vnode)| vnode) {
            let status = self.contents.nodes.get(vnode).and_then(|node| node.attributes.as_ref());
            if let Some(status) = status.filter(|status| status.kind == 2) {
                let place = &self.places[vnode][0];
                let finish = || -> io::Result<()> {
                    self.root.descend(&place.path())?.set_attributes(&self.attributes(status))
                };
                let doing = || format!("cannot set mode, owner and time of {}", self.shown(place));
                finish().with_context(doing)?;
            }
        }
        Ok(())
    }

    fn attributes(&self, status: &VnodeAttributes) -> Attributes {
        Attributes {
            owners: self.options.owners.then_some((status.owner, status.group)),
            // Set-user-ID and set-group-ID bits would grant a local user's rights.
            mode: Some(u32::from(status.mode) & 0o1777 & !self.umask),
            modified: Some(UNIX_EPOCH + Duration::from_secs(status.client_modified.0.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let place = Place::parse(b"/a//b/c").unwrap();
        assert_eq!((&*place.folder, &*place.name), (Path::new("a/b"), OsStr::new("c")));
        assert_eq!(Place::parse(b"/").unwrap(), Place::default());
        for path in ["/..", "/a/../b", "/./a", "/a\0b"] {
            let refused = format!("{:#}", Place::parse(path.as_bytes()).unwrap_err());
            assert!(refused.contains("is not a path that can be written: "), "{refused}");
        }
    }
}
