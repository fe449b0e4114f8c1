//! Safe access to folders with untrusted names: nothing outside them is reached.
//!
//! A [`Folder`] is an open directory. Every name is looked up in that directory, as a single component, and
//! symbolic links are never followed, so neither a name such as `../x` nor a planted link leads out of it.
//! Data is written to a fresh file that takes the name at the end: a link, a hard link or another user's file
//! of that name is replaced, never written through. Where the file system allows it (`O_TMPFILE`), a fresh file
//! has no name at all until then, so a process that is killed leaves nothing behind; elsewhere it has a temporary
//! name, `.cellar-` and 16 digits.

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

/// How often a lookup is retried that a concurrent rename disturbed.
const ATTEMPTS: usize = 8;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// A file that does not have its name yet. It is removed on drop unless [`Fresh::keep`] is called.
#[derive(Debug)]
pub struct Fresh {
    folder: Arc<Folder>,
    file: File,
    /// `None` if it has no name at all.
    temporary: Option<OsString>,
    name: OsString,
}

/// Whether an open file can be named by its number.
static HAS_PROC: LazyLock<bool> = LazyLock::new(|| Path::new(OPEN_FILES).exists());
const OPEN_FILES: &str = "/proc/self/fd";

/// Levels of folders beneath one that is given to its owner.
const LEVELS_MAX: usize = 32;

/// Whether this process may give files to other users, as root may.
#[must_use]
pub fn may_give() -> bool {
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::CHOWN))
}

/// Checks that a name is one component that stays in its folder.
///
/// # Errors
/// `InvalidInput` with a description of the problem.
pub fn check_name(name: &OsStr) -> io::Result<()> {
    let wrong = match name.as_bytes() {
        b"" => "it is empty",
        b"." | b".." => "it is a path component, not an entry",
        bytes if bytes.contains(&b'/') => "it contains `/`",
        bytes if bytes.contains(&0) => "it contains a zero byte",
        _ => return Ok(()),
    };
    let text = format!("`{}` cannot be a file's name: {wrong}", name.as_bytes().escape_ascii());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

impl Folder {
    /// Opens the folder at a path given by the user. Links in the path are followed; a link as the last
    /// component only if the path ends in `/`.
    ///
    /// # Errors
    /// `ENOTDIR` or `ELOOP` if it is not a folder, or is a link.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let fd = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
        Ok(Folder { fd, path: path.to_owned() })
    }

    /// Returns the path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder `name`.
    ///
    /// # Errors
    /// `ENOTDIR` or `ELOOP` if it is not a folder, or is a link.
    pub fn enter(&self, name: &OsStr) -> io::Result<Folder> {
        check_name(name)?;
        let fd = rustix::fs::openat(&self.fd, name, DIRECTORY, Mode::empty())?;
        Ok(Folder { fd, path: self.path.join(name) })
    }

    /// Opens the folder `name`, creating it if it does not exist; the flag is true if it was created. A link
    /// of that name is replaced.
    ///
    /// # Errors
    /// `ENOTDIR` if it is a file.
    pub fn enter_or_make(&self, name: &OsStr) -> io::Result<(Folder, bool)> {
        match self.enter(name) {
            Err(_) if self.is_link(name) => self.remove(name)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(|folder| (folder, false)),
        }
        self.make(name)?;
        Ok((self.enter(name)?, true))
    }

    /// Creates the folder `name`.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, even by a link.
    pub fn make(&self, name: &OsStr) -> io::Result<()> {
        check_name(name)?;
        Ok(rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o777))?)
    }

    /// Opens a folder some levels below; an empty path means this folder.
    ///
    /// # Errors
    /// `InvalidInput` if the path leads outside, `ELOOP` if it contains a link.
    pub fn descend(&self, path: &Path) -> io::Result<Folder> {
        for component in path.components() {
            let Component::Normal(name) = component else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads outside"));
            };
            check_name(name)?;
        }
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let whole = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        for _ in 0..ATTEMPTS {
            match rustix::fs::openat2(&self.fd, whole, DIRECTORY, Mode::empty(), beneath) {
                Ok(fd) => return Ok(Folder { fd, path: self.path.join(path) }),
                Err(Errno::AGAIN) => {}
                // Linux before 5.6, or a seccomp filter that does not know this system call.
                Err(Errno::NOSYS | Errno::PERM) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.descend_by_steps(path)
    }

    fn descend_by_steps(&self, path: &Path) -> io::Result<Folder> {
        let mut folder = Folder { fd: self.fd.try_clone()?, path: self.path.clone() };
        for name in path {
            folder = folder.enter(name)?;
        }
        Ok(folder)
    }

    /// Returns the names in the folder, sorted, without `.` and `..`.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(&*name, b"." | b"..") {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the status of `name`; for a link, that of the link itself.
    ///
    /// # Errors
    /// `NotFound` among others.
    pub fn status(&self, name: &OsStr) -> io::Result<Stat> {
        check_name(name)?;
        Ok(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn is_link(&self, name: &OsStr) -> bool {
        self.status(name).is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_symlink())
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// `ELOOP` if it is a link; another error if it is not a regular file.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        check_name(name)?;
        // Opening a pipe without a writer would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
    }

    /// Returns the target of the link `name`.
    ///
    /// # Errors
    /// `InvalidInput` if it is not a link.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        check_name(name)?;
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Creates a new file, to which [`Fresh::keep`] gives the name. `mode` has the permission bits, which the
    /// umask restricts.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin(self: &Arc<Folder>, name: &OsStr, mode: u32) -> io::Result<Fresh> {
        check_name(name)?;
        if *HAS_PROC {
            let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
            match rustix::fs::openat(&self.fd, ".", flags, permissions(mode)) {
                // The file system has no files without names, or the kernel does not know them.
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
                made => return Ok(self.fresh(made?, None, name)),
            }
        }
        self.begin_named(name, mode)
    }

    /// Creates a new file like [`Folder::begin`], which has a temporary name until then. For a file that is synced
    /// before it gets its name: a file without one has a link count of zero on the medium, and the sync of a folder
    /// does not write the count of its files if the file system has no journal.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin_named(self: &Arc<Folder>, name: &OsStr, mode: u32) -> io::Result<Fresh> {
        check_name(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = |temporary: &OsStr| rustix::fs::openat(&self.fd, temporary, flags, permissions(mode));
        let (temporary, fd) = with_temporary(make)?;
        Ok(self.fresh(fd, Some(temporary), name))
    }

    fn fresh(self: &Arc<Folder>, fd: OwnedFd, temporary: Option<OsString>, name: &OsStr) -> Fresh {
        Fresh { folder: Arc::clone(self), file: File::from(fd), temporary, name: name.to_owned() }
    }

    /// Creates a symbolic link. Replaces anything else of that name except a folder.
    ///
    /// # Errors
    /// `EISDIR` if a folder has the name.
    pub fn make_link(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        check_name(name)?;
        let (temporary, ()) = with_temporary(|name| rustix::fs::symlinkat(target, &self.fd, name))?;
        let renamed = rustix::fs::renameat(&self.fd, &*temporary, &self.fd, name);
        if renamed.is_err() {
            let _ = self.remove(&temporary);
        }
        Ok(renamed?)
    }

    /// Creates a hard link to the file `name` in another folder.
    ///
    /// # Errors
    /// `AlreadyExists` if the new name is taken.
    pub fn make_hard_link(&self, name: &OsStr, folder: &Folder, other: &OsStr) -> io::Result<()> {
        check_name(name)?;
        check_name(other)?;
        Ok(rustix::fs::linkat(&self.fd, name, &folder.fd, other, AtFlags::empty())?)
    }

    /// Sets owner, group, permission bits and modification time, each if given.
    ///
    /// # Errors
    /// An error of the system.
    pub fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        attributes.set(&File::from(self.fd.try_clone()?))
    }

    /// Gives `name` to the owner of this folder if it belongs to the process's user: a folder, or a regular file with no
    /// other name. Does nothing unless [`may_give`].
    ///
    /// # Errors
    /// `NotFound` among others.
    pub fn give_to_owner(&self, name: &OsStr) -> io::Result<()> {
        check_name(name)?;
        if !may_give() {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        let (status, own) = (rustix::fs::fstat(&entry)?, rustix::fs::fstat(&self.fd)?);
        let kind = FileType::from_raw_mode(status.st_mode);
        // Another name of a file may be outside.
        let is_here_only = kind.is_dir() || kind.is_file() && status.st_nlink == 1;
        let user = rustix::process::geteuid().as_raw();
        if !is_here_only || status.st_uid != user || own.st_uid == user {
            return Ok(());
        }
        let (owner, group) = (Uid::from_raw(own.st_uid), Gid::from_raw(own.st_gid));
        Ok(rustix::fs::chownat(&entry, "", Some(owner), Some(group), AtFlags::EMPTY_PATH)?)
    }

    /// Gives each component of a path beneath to the owner of this folder, as [`Folder::give_to_owner`] does. What does
    /// not exist is left out.
    ///
    /// # Errors
    /// `InvalidInput` if the path leads outside; an error of the system.
    pub fn give_path_to_owner(&self, path: &Path) -> io::Result<()> {
        let mut above = PathBuf::new();
        for component in path.components() {
            let Component::Normal(name) = component else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads outside"));
            };
            match self.descend(&above).and_then(|folder| folder.give_to_owner(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                given => given?,
            }
            above.push(name);
        }
        Ok(())
    }

    /// Gives everything beneath to the owner of this folder, as [`Folder::give_to_owner`] does, except on other file systems.
    /// What is removed meanwhile is left out.
    ///
    /// # Errors
    /// The first one, when everything else has been given. A folder cannot be read, among others.
    pub fn give_all_to_owner(&self) -> io::Result<()> {
        if may_give() { self.give_levels_to_owner(LEVELS_MAX) } else { Ok(()) }
    }

    fn give_levels_to_owner(&self, levels: usize) -> io::Result<()> {
        let device = rustix::fs::fstat(&self.fd)?.st_dev;
        let give = |name: &OsStr| {
            let status = self.status(name)?;
            if status.st_dev != device {
                return Ok(());
            }
            self.give_to_owner(name)?;
            match (FileType::from_raw_mode(status.st_mode).is_dir(), levels.checked_sub(1)) {
                (false, _) => Ok(()),
                (true, Some(levels)) => self.enter(name)?.give_levels_to_owner(levels),
                (true, None) => Err(io::Error::other("there are more levels of folders than expected")),
            }
        };
        let mut first_error = Ok(());
        for name in self.names()? {
            match give(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                given => first_error = first_error.and(given),
            }
        }
        first_error
    }

    /// Makes the names in the folder durable.
    ///
    /// # Errors
    /// An error of the system.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }
}

/// Attributes of a file or folder; `None` leaves one unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// Owner and group. They are set first, since that clears set-id bits.
    pub owners: Option<(u32, u32)>,
    /// Permission bits, set exactly: the umask does not apply.
    pub mode: Option<u32>,
    /// Modification time.
    pub modified: Option<SystemTime>,
}

impl Attributes {
    fn set(&self, file: &File) -> io::Result<()> {
        if let Some((owner, group)) = self.owners {
            std::os::unix::fs::fchown(file, Some(owner), Some(group))?;
        }
        if let Some(mode) = self.mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        match self.modified {
            Some(modified) => file.set_times(FileTimes::new().set_modified(modified)),
            None => Ok(()),
        }
    }
}

impl Fresh {
    /// Returns the file for writing.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Sets attributes of the file; see [`Folder::set_attributes`].
    ///
    /// # Errors
    /// An error of the system.
    pub fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        attributes.set(&self.file)
    }

    /// Gives the file its name. Replaces anything else of that name except a folder.
    ///
    /// # Errors
    /// `EISDIR` if a folder has the name.
    pub fn keep(mut self) -> io::Result<()> {
        if self.temporary.is_none() {
            match self.link(&self.name) {
                // Links do not replace.
                Err(Errno::EXIST) => self.temporary = Some(with_temporary(|name| self.link(name))?.0),
                linked => return Ok(linked?),
            }
        }
        if let Some(temporary) = &self.temporary {
            rustix::fs::renameat(&self.folder.fd, &**temporary, &self.folder.fd, &*self.name)?;
        }
        self.temporary = None;
        Ok(())
    }

    /// Gives a file without a name this one.
    fn link(&self, name: &OsStr) -> rustix::io::Result<()> {
        let this = format!("{OPEN_FILES}/{}", self.file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, this, &self.folder.fd, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = self.folder.remove(temporary);
        }
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

/// Creates an object under an unused name.
fn with_temporary<T>(make: impl Fn(&OsStr) -> rustix::io::Result<T>) -> io::Result<(OsString, T)> {
    for _ in 0..ATTEMPTS {
        let name = OsString::from(format!(".cellar-{:016x}", rand::random::<u64>()));
        match make(&name) {
            Err(Errno::EXIST) => {}
            made => return Ok((name, made?)),
        }
    }
    Err(Errno::EXIST.into())
}

#[cfg(test)]
mod tests;
