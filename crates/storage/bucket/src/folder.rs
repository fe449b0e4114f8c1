//! A folder as a bucket, perhaps on a file system that several machines share.
//!
//! Everything except replacing an object by version is `object_store`'s: an object is created under another name,
//! synced, and gets its name by link(2), which fails if the name exists, also over NFS.
//!
//! Large objects are created in the same way, past the system's cache.
//!
//! Replacing by version (`If-Match`) uses the same call: the versions of an object `NAME` after the first one are files
//! `NAME#ID/v#NUMBER`, where ID is the e-tag of `NAME`, and the greatest number counts. Replacing version n creates
//! n + 1, which fails if another process has done so. There is no lock, so that a process that dies or stops in between
//! holds up no other, and no clock. `object_store` leaves files of such names out of lists.
//!
//! Old versions are removed in ascending order, and a mark is made before the first. So n + 1 is missing because it was
//! removed only if n is gone, too, or, for the first version, if there is a mark. A process that slept finds that out
//! after it has created n + 1, removes it and has lost.
//!
//! Commands run as root in a folder of the server's user: what root creates is given to the owner of the folder.

use crate::deleting::delete_each;
use async_trait::async_trait;
use bytes::Bytes;
use disk::{DIRECT_ALIGNMENT, Disk, RealDisk, beneath};
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result, UpdateVersion, UploadPart,
};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Versions that are kept behind the newest one, for readers that are about to open one.
const OLDER_KEPT: u64 = 16;

/// How often a reader looks again when the version that it is about to open has been removed.
const ATTEMPTS: u32 = 100;

/// Objects of at least this size are written past the system's cache, where the copy into it is most of the processor time. They are
/// unlikely to be read soon: a partition has its new chunks in memory.
const DIRECT_BYTES_MIN: usize = 256 << 10;

/// What the files of versions, and new ones before they have a number, begin with.
const VERSION: &str = "v#";
const NEW: &str = "n#";

/// The file that is there before the first removal of a version.
const MARK: &str = "m#1";

/// Objects in a folder, with replacement by version.
#[derive(Clone)]
pub struct Folder {
    files: LocalFileSystem,
    root: PathBuf,
    /// The path without links, if this process is root and the folder another user's.
    of_other_user: Option<PathBuf>,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folder({})", self.root.display())
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.root.display())
    }
}

/// A version of an object other than the first.
struct Newer {
    number: u64,
    path: PathBuf,
    file: File,
    meta: ObjectMeta,
}

impl Folder {
    /// Opens an existing folder.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(path: &std::path::Path) -> Result<Folder> {
        // Without `fsync`, an acknowledged object may be lost with the power.
        let files = LocalFileSystem::new_with_prefix(path)?.with_fsync(true);
        let owner = fs::metadata(path).map_err(failed)?.uid();
        let is_others = beneath::may_give() && owner != rustix::process::geteuid().as_raw();
        let of_other_user = is_others.then(|| path.canonicalize()).transpose().map_err(failed)?;
        Ok(Folder { files, root: path.to_owned(), of_other_user })
    }

    /// Whether the second object is a copy of the first, with which it shares its file. Another copy would leave a name
    /// behind: rename(2) does nothing for two names of one file.
    async fn is_copy(&self, from: &Path, to: &Path) -> Result<bool> {
        let (from, to) = (self.files.path_to_filesystem(from)?, self.files.path_to_filesystem(to)?);
        let file = |path: &std::path::Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        blocking(move || {
            let is_copy = file(&from).is_some_and(|from| file(&to) == Some(from));
            // It may have been made by a process that ended before the name was synced.
            if is_copy { to.parent().map_or(Ok(()), sync).map(|()| true) } else { Ok(false) }
        })
        .await
    }

    /// Gives what was created for an object, also if that failed, to the owner of the folder.
    async fn give_to_owner(&self, location: &Path) -> Result<()> {
        let Some(root) = self.of_other_user.clone() else { return Ok(()) };
        let file = self.files.path_to_filesystem(location)?;
        blocking(move || give_to_owner(Some(&root), &file)).await
    }

    /// Returns the folder of the versions of an object whose first version has this metadata.
    fn versions(&self, first: &ObjectMeta) -> Result<PathBuf> {
        let id: String = first.e_tag.iter().flat_map(|tag| tag.chars()).filter(|c| *c != '"').collect();
        let mut path = self.files.path_to_filesystem(&first.location)?.into_os_string();
        path.push(format!("#{id}"));
        Ok(path.into())
    }

    /// Returns the newest version of an object, if that is not the first one.
    async fn newer(&self, first: &ObjectMeta) -> Result<Option<Newer>> {
        let (folder, location) = (self.versions(first)?, first.location.clone());
        blocking(move || newest(&folder, &location)).await
    }

    async fn replace(&self, location: &Path, new: PutPayload, expected: &UpdateVersion) -> Result<PutResult> {
        let conflict = |why: &str| Error::Precondition { path: location.to_string(), source: why.into() };
        let first = match self.files.head(location).await {
            Ok(first) => first,
            Err(Error::NotFound { .. }) => return Err(conflict("there is no such object")),
            Err(error) => return Err(error),
        };
        let newer = self.newer(&first).await?;
        let (number, present) =
            newer.map_or((0, first.e_tag.clone()), |newer| (newer.number, newer.meta.e_tag));
        if expected.e_tag.is_none() || expected.e_tag != present {
            return Err(conflict("it has another version"));
        }
        let (folder, path) = (self.versions(&first)?, location.clone());
        let root = self.of_other_user.clone();
        let pieces: Vec<Bytes> = new.into_iter().collect();
        let written = blocking(move || {
            write_version(&folder, &path, (number, present.as_ref()), &pieces, root.as_deref())
        })
        .await?;
        match written {
            Some(meta) => {
                Ok(PutResult { e_tag: meta.e_tag, version: None, extensions: Extensions::default() })
            }
            None => Err(conflict("it was replaced at the same time")),
        }
    }

    /// Creates or replaces an object that has one version at most.
    async fn write_first(&self, location: &Path, new: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_direct = options.mode == PutMode::Create && new.content_length() >= DIRECT_BYTES_MIN;
        if is_direct && let Some(created) = self.create_large(location, &new).await? {
            return Ok(created);
        }
        let written = self.files.put_opts(location, new, options).await;
        self.give_to_owner(location).await?;
        written
    }

    /// Creates an object; `None` if the folder that it belongs to is missing.
    async fn create_large(&self, location: &Path, new: &PutPayload) -> Result<Option<PutResult>> {
        let file = self.files.path_to_filesystem(location)?;
        let (root, pieces) = (self.of_other_user.clone(), new.clone().into_iter().collect::<Vec<Bytes>>());
        match blocking(move || create_large(&file, &pieces, root.as_deref())).await? {
            Created::Done => {
                let e_tag = self.files.head(location).await?.e_tag;
                Ok(Some(PutResult { e_tag, version: None, extensions: Extensions::default() }))
            }
            Created::Exists => Err(Error::AlreadyExists {
                path: location.to_string(),
                source: ErrorKind::AlreadyExists.to_string().into(),
            }),
            Created::NoFolder => Ok(None),
        }
    }

    /// Replaces an object whatever its version.
    async fn overwrite(&self, location: &Path, new: PutPayload, options: PutOptions) -> Result<PutResult> {
        loop {
            let first = match self.files.head(location).await {
                Ok(first) => first,
                Err(Error::NotFound { .. }) => return self.write_first(location, new, options).await,
                Err(error) => return Err(error),
            };
            let Some(newer) = self.newer(&first).await? else {
                return self.write_first(location, new, options).await;
            };
            let present = UpdateVersion { e_tag: newer.meta.e_tag, version: None };
            match self.replace(location, new.clone(), &present).await {
                Err(Error::Precondition { .. }) => {}
                replaced => return replaced,
            }
        }
    }
}

/// An object that is written in parts.
#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    folder: Folder,
    location: Path,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.inner.put_part(part)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let written = self.inner.complete().await?;
        self.folder.give_to_owner(&self.location).await?;
        Ok(written)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

/// Runs work with files where it holds up no other request.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| failed(io::Error::other(error)))?;
    done.map_err(failed)
}

fn failed(error: io::Error) -> Error {
    Error::Generic { store: "folder", source: error.into() }
}

/// Gives a file beneath `root`, and the folders on the way to it, to the owner of `root`, if it is another user.
fn give_to_owner(root: Option<&std::path::Path>, file: &std::path::Path) -> io::Result<()> {
    let Some(root) = root else { return Ok(()) };
    let below = file.strip_prefix(root).map_err(io::Error::other)?;
    beneath::Folder::open(root)?.give_path_to_owner(below)
}

/// What became of the creation of a file.
enum Created {
    Done,
    Exists,
    NoFolder,
}

/// Creates a synced file with these contents if its name is free. If `of_other_user` is given, it belongs to its owner.
fn create_large(
    path: &std::path::Path,
    pieces: &[Bytes],
    of_other_user: Option<&std::path::Path>,
) -> io::Result<Created> {
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!("#{}", rand::random::<u64>()));
    let staged = PathBuf::from(staged);
    match File::options().write(true).create_new(true).open(&staged) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Created::NoFolder),
        created => drop(created?),
    }
    let linked = write_direct(&staged, pieces).and_then(|()| {
        give_to_owner(of_other_user, &staged)?;
        match fs::hard_link(&staged, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Created::Exists),
            linked => {
                linked?;
                path.parent().map_or(Ok(()), sync)?;
                Ok(Created::Done)
            }
        }
    });
    _ = fs::remove_file(&staged);
    linked
}

/// Writes whole blocks past the system's cache, if the file system can, and syncs the file.
fn write_direct(path: &std::path::Path, pieces: &[Bytes]) -> io::Result<()> {
    let file = RealDisk.open(path)?;
    let mut at = 0;
    for piece in pieces {
        let blocks =
            if at % DIRECT_ALIGNMENT as u64 == 0 { piece.len() & !(DIRECT_ALIGNMENT - 1) } else { 0 };
        let (blocks, rest) = piece.split_at(blocks);
        file.write_all_direct_at(&mut [IoSlice::new(blocks)], at)?;
        file.write_all_at(&mut [IoSlice::new(rest)], at + blocks.len() as u64)?;
        at += piece.len() as u64;
    }
    file.sync_all()
}

/// Opens the newest version in a folder of versions.
fn newest(folder: &std::path::Path, location: &Path) -> io::Result<Option<Newer>> {
    for _ in 0..ATTEMPTS {
        let Some(number) = numbers(folder)?.last().copied() else { return Ok(None) };
        let path = version_path(folder, number);
        match File::open(&path) {
            Ok(file) => {
                let meta = meta(&file, number, location)?;
                return Ok(Some(Newer { number, path, file, meta }));
            }
            // There are newer ones by now.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("the versions in {} change too fast to be read", folder.display())))
}

/// Returns the numbers of versions in ascending order; none if there is no such folder.
fn numbers(folder: &std::path::Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix(VERSION)?.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn version_path(folder: &std::path::Path, number: u64) -> PathBuf {
    folder.join(format!("{VERSION}{number:020}"))
}

fn meta(file: &File, number: u64, location: &Path) -> io::Result<ObjectMeta> {
    let found = file.metadata()?;
    let (inode, modified, nanos) = (found.ino(), found.mtime(), found.mtime_nsec());
    Ok(ObjectMeta {
        location: location.clone(),
        last_modified: found.modified()?.into(),
        size: found.len(),
        e_tag: Some(format!("\"{number}-{inode:x}-{modified:x}-{nanos:x}\"")),
        version: None,
    })
}

/// Creates the version after `before`, a number and its e-tag; `None` if that is not the newest one. If `of_other_user` is
/// given, what is created belongs to its owner.
fn write_version(
    folder: &std::path::Path,
    location: &Path,
    (before, tag): (u64, Option<&String>),
    pieces: &[Bytes],
    of_other_user: Option<&std::path::Path>,
) -> io::Result<Option<ObjectMeta>> {
    let created = fs::create_dir(folder);
    // Another process may have begun, and not have come to this.
    give_to_owner(of_other_user, folder)?;
    match created {
        Ok(()) => sync(folder.parent().unwrap_or(folder))?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let staged = folder.join(format!("{NEW}{:020}", rand::random::<u64>()));
    let created = File::options().write(true).create_new(true).open(&staged).and_then(|mut file| {
        pieces.iter().try_for_each(|piece| file.write_all(piece))?;
        give_to_owner(of_other_user, &staged)?;
        file.sync_all()?;
        publish(folder, &staged, before + 1)?.then(|| meta(&file, before + 1, location)).transpose()
    });
    _ = fs::remove_file(&staged);
    let Some(created) = created? else { return Ok(None) };
    if !is_present(folder, location, before, tag)? {
        _ = fs::remove_file(version_path(folder, before + 1));
        return Ok(None);
    }
    let cleaned = clean(folder, before + 1);
    give_to_owner(of_other_user, &folder.join(MARK))?;
    cleaned.map(|()| Some(created))
}

/// Gives a complete file its number; returns false if the number is taken.
fn publish(folder: &std::path::Path, staged: &std::path::Path, number: u64) -> io::Result<bool> {
    match fs::hard_link(staged, version_path(folder, number)) {
        Ok(()) => sync(folder).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a version has not been removed.
fn is_present(
    folder: &std::path::Path,
    location: &Path,
    number: u64,
    tag: Option<&String>,
) -> io::Result<bool> {
    if number == 0 {
        return Ok(!folder.join(MARK).try_exists()?);
    }
    match File::open(version_path(folder, number)) {
        Ok(file) => Ok(meta(&file, number, location)?.e_tag.as_ref() == tag),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes versions that are much older than `newest`. Does only what is safe if it ends at any step.
fn clean(folder: &std::path::Path, newest: u64) -> io::Result<()> {
    if !newest.is_multiple_of(OLDER_KEPT) {
        return Ok(());
    }
    let mut numbers = numbers(folder)?;
    numbers.retain(|old| old + OLDER_KEPT < newest);
    if numbers.is_empty() {
        return Ok(());
    }
    match File::options().write(true).create_new(true).open(folder.join(MARK)) {
        Ok(_) => sync(folder)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    for old in numbers {
        match fs::remove_file(version_path(folder, old)) {
            Err(error) if error.kind() != ErrorKind::NotFound => break,
            _ => {}
        }
    }
    Ok(())
}

fn sync(folder: &std::path::Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[async_trait]
impl ObjectStore for Folder {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        match &options.mode {
            PutMode::Create => self.write_first(location, payload, options).await,
            PutMode::Overwrite => self.overwrite(location, payload, options).await,
            PutMode::Update(version) => {
                let version = version.clone();
                self.replace(location, payload, &version).await
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.files.put_multipart_opts(location, options).await;
        self.give_to_owner(location).await?;
        let inner = inner?;
        Ok(Box::new(Upload { inner, folder: self.clone(), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        // Conditions are about the newest version, not the first.
        let plain = GetOptions { range: options.range.clone(), head: options.head, ..GetOptions::default() };
        let first = self.files.get_opts(location, plain).await;
        let newer = match &first {
            Ok(first) => self.newer(&first.meta).await?,
            // The range is not one of the first version.
            Err(Error::NotFound { .. }) => None,
            Err(_) => self.newer(&self.files.head(location).await?).await?,
        };
        let Some(Newer { path, file, meta, .. }) = newer else {
            let first = first?;
            options.check_preconditions(&first.meta)?;
            return Ok(first);
        };
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range.as_range(meta.size).map_err(|error| failed(io::Error::other(error)))?,
            None => 0..meta.size,
        };
        Ok(GetResult {
            payload: GetResultPayload::File(file, path),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        delete_each(locations, move |location| {
            let this = this.clone();
            async move {
                let versions = this.files.head(&location).await.and_then(|first| this.versions(&first));
                this.files.delete(&location).await?;
                // Without the first version, the others are of no object.
                if let Ok(folder) = versions {
                    _ = blocking(move || fs::remove_dir_all(folder)).await;
                }
                Ok(())
            }
        })
    }

    /// Sizes and e-tags are those of first versions.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.files.list_with_delimiter(prefix).await?;
        let is_folder = |path: &Path| !path.filename().is_some_and(|name| name.contains('#'));
        listed.common_prefixes.retain(is_folder);
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        if options.mode == CopyMode::Overwrite && self.is_copy(from, to).await? {
            return Ok(());
        }
        let copied = self.files.copy_opts(from, to, options).await;
        self.give_to_owner(to).await?;
        copied
    }
}

#[cfg(test)]
mod tests;
