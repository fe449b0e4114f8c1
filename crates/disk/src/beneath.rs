//! Folders in which names chosen by others are used: nothing outside them is reached.
//!
//! A [`Folder`] is an open directory. Every name is looked up in that directory itself, as one component,
//! and symbolic links are never followed, so neither a name such as `../x` nor a link that somebody put
//! there leads out of it. What is written goes to a fresh file that takes the name at the end: a link, a
//! hard link or another user's file of that name is replaced, never written through.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// How often a look-up is repeated that a concurrent rename disturbed.
const ATTEMPTS: usize = 8;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// A file that has no name yet. Without [`Fresh::keep`] it is removed.
#[derive(Debug)]
pub struct Fresh {
    folder: Arc<Folder>,
    file: File,
    temporary: OsString,
    name: OsString,
    is_kept: bool,
}

/// Checks that a name is one component that stays in its folder.
///
/// # Errors
/// `InvalidInput` that says what is wrong with the name.
pub fn check_name(name: &OsStr) -> io::Result<()> {
    let wrong = match name.as_bytes() {
        b"" => "it is empty",
        b"." | b".." => "it names a folder's place, not an entry",
        bytes if bytes.contains(&b'/') => "it contains `/`",
        bytes if bytes.contains(&0) => "it contains a zero byte",
        _ => return Ok(()),
    };
    let text = format!("`{}` cannot be a file's name: {wrong}", name.as_bytes().escape_ascii());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

impl Folder {
    /// Opens the folder at a path that the user named. Links on the way are followed, a link that is the last
    /// component only if the path ends in `/`.
    ///
    /// # Errors
    /// `ENOTDIR` or `ELOOP` if something else is there, or a link.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let fd = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
        Ok(Folder { fd, path: path.to_owned() })
    }

    /// Where it is, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder `name`.
    ///
    /// # Errors
    /// `ENOTDIR` or `ELOOP` if something else is there, or a link.
    pub fn enter(&self, name: &OsStr) -> io::Result<Folder> {
        check_name(name)?;
        let fd = rustix::fs::openat(&self.fd, name, DIRECTORY, Mode::empty())?;
        Ok(Folder { fd, path: self.path.join(name) })
    }

    /// Opens the folder `name`, and makes it if it is missing; the flag says so. A link of that name is
    /// replaced.
    ///
    /// # Errors
    /// `ENOTDIR` if a file is there.
    pub fn enter_or_make(&self, name: &OsStr) -> io::Result<(Folder, bool)> {
        match self.enter(name) {
            Err(_) if self.is_link(name) => self.remove(name)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(|folder| (folder, false)),
        }
        self.make(name)?;
        Ok((self.enter(name)?, true))
    }

    /// Makes the folder `name`.
    ///
    /// # Errors
    /// `AlreadyExists` if anything is there, a link too.
    pub fn make(&self, name: &OsStr) -> io::Result<()> {
        check_name(name)?;
        Ok(rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o777))?)
    }

    /// Opens a folder some levels below; an empty path is this one.
    ///
    /// # Errors
    /// `InvalidInput` if the path leads elsewhere, `ELOOP` if there is a link on the way.
    pub fn descend(&self, path: &Path) -> io::Result<Folder> {
        for component in path.components() {
            let Component::Normal(name) = component else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leads elsewhere"));
            };
            check_name(name)?;
        }
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let whole = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        for _ in 0..ATTEMPTS {
            match rustix::fs::openat2(&self.fd, whole, DIRECTORY, Mode::empty(), beneath) {
                Ok(fd) => return Ok(Folder { fd, path: self.path.join(path) }),
                Err(Errno::AGAIN) => {}
                // Linux before 5.6, or a filter of system calls that does not know this one.
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

    /// The names in it, sorted, without `.` and `..`.
    ///
    /// # Errors
    /// It cannot be read.
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

    /// The status of `name`, of a link that of the link itself.
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
    /// `ELOOP` if it is a link; something else that is no regular file.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        check_name(name)?;
        // Opening a pipe that nobody writes to would wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
    }

    /// Where the link `name` leads.
    ///
    /// # Errors
    /// `InvalidInput` if it is none.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        check_name(name)?;
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Begins a new file that [`Fresh::keep`] gives the name. `mode` has the permission bits, from which the
    /// umask takes some.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn begin(self: &Arc<Folder>, name: &OsStr, mode: u32) -> io::Result<Fresh> {
        check_name(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode & 0o777);
        let (temporary, fd) = with_temporary(|name| rustix::fs::openat(&self.fd, name, flags, mode))?;
        let (folder, name) = (Arc::clone(self), name.to_owned());
        Ok(Fresh { folder, file: File::from(fd), temporary, name, is_kept: false })
    }

    /// Makes a symbolic link. What else had the name, but a folder, is replaced.
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

    /// Gives the file `name` one more name, in another folder.
    ///
    /// # Errors
    /// `AlreadyExists` if the new name is taken.
    pub fn make_hard_link(&self, name: &OsStr, folder: &Folder, other: &OsStr) -> io::Result<()> {
        check_name(name)?;
        check_name(other)?;
        Ok(rustix::fs::linkat(&self.fd, name, &folder.fd, other, AtFlags::empty())?)
    }

    /// Sets owner, group, permission bits and the time of the last change, each if given.
    ///
    /// # Errors
    /// The system refuses one.
    pub fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        attributes.set(&File::from(self.fd.try_clone()?))
    }

    /// Makes the names in it durable.
    ///
    /// # Errors
    /// The system fails to.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }
}

/// What a file or folder is given besides its contents; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// Owner and group, which are set first since that clears set-id bits.
    pub owners: Option<(u32, u32)>,
    /// Permission bits, exactly: the umask does not count.
    pub mode: Option<u32>,
    /// The time of the last change.
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
    /// The file, to be written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// As [`Folder::set_attributes`].
    ///
    /// # Errors
    /// The system refuses one.
    pub fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        attributes.set(&self.file)
    }

    /// Gives the file its name. What else had it, but a folder, is replaced.
    ///
    /// # Errors
    /// `EISDIR` if a folder has the name.
    pub fn keep(mut self) -> io::Result<()> {
        let folder = &self.folder.fd;
        rustix::fs::renameat(folder, &*self.temporary, folder, &*self.name)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = self.folder.remove(&self.temporary);
        }
    }
}

/// Makes something under a name that is free.
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
