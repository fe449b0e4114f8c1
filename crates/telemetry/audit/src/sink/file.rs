//! Files and named pipes.

use super::{Batch, Sink};
use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file that lines are appended to.
pub(crate) struct Lines {
    path: PathBuf,
    file: File,
    is_pipe: bool,
}

impl Lines {
    /// Opens the file; creates it if `makes` is set and it does not exist. A pipe without a reader is an
    /// error.
    pub(crate) fn open(path: &Path, makes: bool) -> io::Result<Lines> {
        let file = OpenOptions::new()
            .append(true)
            .create(makes)
            .mode(0o600)
            // Otherwise opening a pipe without a reader would block, as would writing to a full one.
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .map_err(|error| explained(error, path))?;
        let is_pipe = file.metadata()?.file_type().is_fifo();
        if !makes && !is_pipe {
            return Err(io::Error::other("not a pipe; create one with `mkfifo`"));
        }
        Ok(Lines { path: path.to_owned(), file, is_pipe })
    }
}

fn explained(error: io::Error, path: &Path) -> io::Error {
    let nobody = error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error());
    if nobody { io::Error::other(format!("{} has no reader", path.display())) } else { error }
}

impl Sink for Lines {
    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        while !batch.is_done() {
            match self.file.write(batch.rest()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => batch.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if self.is_pipe && error.kind() == io::ErrorKind::BrokenPipe {
                        batch.start_line_again();
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn is_stale(&self) -> bool {
        let place = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        let named = std::fs::metadata(&self.path).as_ref().map(place).ok();
        named != self.file.metadata().as_ref().map(place).ok()
    }
}
