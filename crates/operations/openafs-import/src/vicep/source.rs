//! A partition and its volumes, as stored on disk.

use super::in_use;
use crate::dump::contents::printable;
use afs_format::contents::DIRECTORY_BYTES_MAX;
use afs_format::directory::DirectoryBlob;
use afs_format::namei::{
    DESTROY_ME, HEADER_BYTES, INFO_BYTES, IndexClass, Inode, LINKS_HEADER_BYTES, NameiError, NameiVnode,
    VolumeInfo, VolumePlaces, check_links, header_name, header_volume,
};
use anyhow::{Context, Result, bail};
use base::{VolumeName, VolumeType};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Number of bytes of an index read at a time.
const INDEX_BUFFER_BYTES: usize = 256 << 10;

/// Offline message that OpenAFS's volume servers set while they work on a volume, and leave behind.
const AT_WORK: &[u8] = b"A volume utility is running.";

/// A problem in a volume.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Path in the volume, or file of the partition.
    pub place: String,
    /// Description of the problem.
    pub what: String,
}

impl Problem {
    /// Creates a problem.
    pub fn new(place: impl Into<String>, what: impl Into<String>) -> Problem {
        Problem { place: place.into(), what: what.into() }
    }
}

/// A partition in use by no OpenAFS server, locked against use by one until this is dropped. Nothing in it is
/// ever written.
pub struct Vicep {
    path: PathBuf,
    _lock: File,
}

impl Vicep {
    /// Opens a partition.
    ///
    /// # Errors
    /// If it is not a partition, or in use.
    pub fn open(path: &Path) -> Result<Vicep> {
        let path = fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
        let lock = in_use::lock(&path)?;
        Ok(Vicep { path, _lock: lock })
    }

    /// Returns the partition's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the numbers of its volumes, in order.
    ///
    /// # Errors
    /// If the directory cannot be read, or has neither volumes nor a data directory.
    pub fn volumes(&self) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        let failed = || format!("cannot list {}", self.path.display());
        for entry in fs::read_dir(&self.path).with_context(failed)? {
            let name = entry.with_context(failed)?.file_name();
            out.extend(name.to_str().and_then(header_volume));
        }
        out.sort_unstable();
        if out.is_empty() && !self.path.join("AFSIDat").is_dir() {
            bail!("{} has no volumes of OpenAFS (V*.vol, AFSIDat)", self.path.display());
        }
        Ok(out)
    }

    /// Opens one of its volumes.
    ///
    /// # Errors
    /// What is wrong with its header or information.
    pub fn source(&self, volume: u32) -> Result<Source<'_>, Problem> {
        let header = header_name(volume);
        let bytes = self.read_head(&header, HEADER_BYTES).map_err(|error| unreadable(&header, &error))?;
        let places = VolumePlaces::parse(&bytes).map_err(|error| wrong(&header, error))?;
        if places.id != volume {
            return Err(Problem::new(header, format!("it says that it is volume {}", places.id)));
        }
        let file = places.info.path(places.parent);
        let bytes = self.read_head(&file, INFO_BYTES).map_err(|error| unreadable(&file, &error))?;
        let info = VolumeInfo::parse(&bytes).map_err(|error| wrong(&file, error))?;
        if (info.id, info.parent) != (volume, places.parent) {
            let (id, parent) = (info.id, info.parent);
            return Err(Problem::new(file, format!("it says that it is volume {id} of the group {parent}")));
        }
        let name = std::str::from_utf8(&info.name).ok().and_then(|name| name.parse().ok());
        let name = name.ok_or_else(|| {
            Problem::new(&file, format!("`{}` is not a volume name", printable(&info.name)))
        })?;
        let kind = VolumeType::from_wire(info.kind);
        let kind = kind.ok_or_else(|| Problem::new(&file, format!("{} is not a volume type", info.kind)))?;
        Ok(Source { partition: self, places, info, name, kind })
    }

    /// Returns the first bytes of a file.
    fn read_head(&self, file: &str, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(file)?.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Opens a regular file without following links.
    fn open_file(&self, file: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(self.path.join(file), flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
    }
}

/// Returns the problem for a file that cannot be read.
pub(crate) fn unreadable(place: &str, error: &io::Error) -> Problem {
    match error.kind() {
        ErrorKind::NotFound => Problem::new(place, "the file is missing"),
        _ => Problem::new(place, format!("cannot be read: {error}")),
    }
}

fn wrong(file: &str, error: NameiError) -> Problem {
    Problem::new(file, error.to_string())
}

/// A volume of a partition.
pub struct Source<'a> {
    partition: &'a Vicep,
    places: VolumePlaces,
    /// Information stored about the volume.
    pub info: VolumeInfo,
    /// Name of the volume.
    pub name: VolumeName,
    /// Type of the volume.
    pub kind: VolumeType,
}

impl Source<'_> {
    /// Returns whether the operation that created the volume did not finish.
    pub fn is_unfinished(&self) -> bool {
        self.info.destroy_me == DESTROY_ME
    }

    /// Returns why the volume should be salvaged first, if so.
    pub fn unclean(&self) -> Option<&'static str> {
        if self.info.needs_salvage != 0 {
            Some("OpenAFS found an error in it and wants to salvage it")
        } else if self.info.in_use != 0 {
            Some("it was not cleanly detached")
        } else {
            None
        }
    }

    /// Returns the files of the volume itself.
    pub fn special_files(&self) -> [Inode; 4] {
        let VolumePlaces { info, small_index, large_index, link_table, .. } = self.places;
        [info, small_index, large_index, link_table]
    }

    /// Describes what is not imported unchanged: recomputed counters, and dropped properties. `vnodes` is the
    /// number of vnodes of the volume.
    pub fn notes(&self, vnodes: u64) -> Vec<Problem> {
        let mut found = Vec::new();
        let mut note = |what: String| found.push(Problem::new("the volume", what));
        let (info, is_served) = (&self.info, self.info.in_service != 0 && self.info.blessed != 0);
        if u64::from(info.file_count) != vnodes {
            note(format!("its count of files is {}, there are {vnodes}: repaired", info.file_count));
        }
        if info.copied.0 == 0 {
            note("it has no copy date: using the time of the import".to_owned());
        }
        if is_served && !matches!(&info.offline_message[..], b"" | AT_WORK) {
            note(format!(
                "its offline message `{}` is left out, as it is in service",
                printable(&info.offline_message)
            ));
        }
        found
    }

    /// Returns the path of a file of the volume's group within the partition.
    pub fn place(&self, inode: Inode) -> String {
        inode.path(self.places.parent)
    }

    /// Opens a vnode's data.
    ///
    /// # Errors
    /// Those of opening a file.
    pub fn open(&self, inode: Inode) -> io::Result<File> {
        self.partition.open_file(&self.place(inode))
    }

    /// Opens an index of vnodes.
    ///
    /// # Errors
    /// If the index is missing or not an index.
    pub fn index(&self, class: IndexClass) -> Result<Index, Problem> {
        let inode = match class {
            IndexClass::Large => self.places.large_index,
            IndexClass::Small => self.places.small_index,
        };
        let place = self.place(inode);
        let file = self.partition.open_file(&place).map_err(|error| unreadable(&place, &error))?;
        let mut index = Index {
            file: BufReader::with_capacity(INDEX_BUFFER_BYTES, file),
            class,
            file_place: place,
            next: 0,
            is_over: false,
            record: Vec::new(),
        };
        let read = index.read_up_to_record()?;
        class.check_stamp(&index.record).map_err(|error| wrong(&index.file_place, error))?;
        // An index that never had a vnode consists of the stamp alone.
        index.is_over = read < class.record_bytes();
        Ok(index)
    }

    /// Opens the link table.
    ///
    /// # Errors
    /// If it is missing or not a link table.
    pub fn links(&self) -> Result<Links, Problem> {
        let place = self.place(self.places.link_table);
        let file = self.partition.open_file(&place).map_err(|error| unreadable(&place, &error))?;
        let mut stamp = Vec::new();
        let read = (&file).take(LINKS_HEADER_BYTES as u64).read_to_end(&mut stamp);
        read.map_err(|error| unreadable(&place, &error))?;
        check_links(&stamp).map_err(|error| wrong(&place, error))?;
        Ok(Links { file })
    }

    /// Reads a directory of this length.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn directory(&self, inode: Inode, length: u64) -> Result<DirectoryBlob, String> {
        if length > DIRECTORY_BYTES_MAX {
            return Err(format!("a directory of {length} bytes; at most {DIRECTORY_BYTES_MAX} are possible"));
        }
        let place = self.place(inode);
        let mut bytes = vec![0; length as usize];
        let read = self.open(inode).and_then(|file| file.read_exact_at(&mut bytes, 0));
        read.map_err(|error| format!("{place} cannot be read: {error}"))?;
        DirectoryBlob::parse(&bytes.into()).map_err(|error| format!("{place}: {error}"))
    }
}

/// Reads an index from start to end.
pub struct Index {
    file: BufReader<File>,
    class: IndexClass,
    file_place: String,
    next: u32,
    is_over: bool,
    record: Vec<u8>,
}

/// An index record of a vnode.
pub struct Listed {
    /// Number of the vnode.
    pub number: u32,
    /// The vnode, or what is wrong with its record.
    pub vnode: Result<NameiVnode, Problem>,
}

impl Index {
    /// Returns the next vnode in use.
    ///
    /// # Errors
    /// If the file cannot be read or ends within a record.
    pub fn next_vnode(&mut self) -> Result<Option<Listed>, Problem> {
        while self.read_record()? {
            let number = self.class.vnode(self.next);
            let number = number.ok_or_else(|| Problem::new(&self.file_place, "more records than vnodes"))?;
            self.next += 1;
            match NameiVnode::parse(self.class, &self.record) {
                Ok(None) => {}
                Ok(Some(vnode)) => return Ok(Some(Listed { number, vnode: Ok(vnode) })),
                Err(error) => {
                    let what = format!("the record of vnode {number}: {error}");
                    return Ok(Some(Listed { number, vnode: Err(Problem::new(&self.file_place, what)) }));
                }
            }
        }
        Ok(None)
    }

    /// Reads a record; returns false at the end of the file.
    fn read_record(&mut self) -> Result<bool, Problem> {
        if self.is_over {
            return Ok(false);
        }
        match self.read_up_to_record()? {
            0 => Ok(false),
            got if got == self.class.record_bytes() => Ok(true),
            _ => Err(Problem::new(&self.file_place, "the index ends within a record")),
        }
    }

    /// Reads a record, or as much of it as the file has; returns the number of bytes.
    fn read_up_to_record(&mut self) -> Result<usize, Problem> {
        self.record.clear();
        let length = self.class.record_bytes() as u64;
        let read = (&mut self.file).take(length).read_to_end(&mut self.record);
        read.map_err(|error| unreadable(&self.file_place, &error))
    }
}

/// Link table of a group.
pub struct Links {
    file: File,
}

impl Links {
    /// Returns the number of volumes of the group that use a file, according to the table.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn of(&self, inode: Inode) -> io::Result<u8> {
        let mut row = [0; 2];
        match self.file.read_exact_at(&mut row, inode.links_offset()) {
            Ok(()) => Ok(inode.links(row)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            Err(error) => Err(error),
        }
    }
}
