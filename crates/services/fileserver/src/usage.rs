//! Sizes of directories, for `cellar du`: the handlers of calls of Cellar's own service.
//!
//! A caller with "lookup" on a directory gets the totals of everything in and below it, including
//! subdirectories that it may not list: totals reveal no names, and the quota of a volume reveals as much to
//! anyone. Owners of volumes and administrators need no right, as for a status.

use crate::access::Reading;
use crate::pipeline::{Need, Session, View};
use crate::server::FileServer;
use base::{AbortCode, CallContext, Fid};
use volume::{Commits, Found, Totals};

/// A subdirectory with its totals, if the caller may see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subdirectory {
    /// Name of the subdirectory.
    pub name: Vec<u8>,
    /// FID of the subdirectory.
    pub fid: Fid,
    /// Totals of the subdirectory, or the reason why the caller may not see them.
    pub totals: Result<Totals, AbortCode>,
}

impl FileServer {
    /// Returns the totals of a directory and everything below it.
    ///
    /// # Errors
    /// UAEACCES, UAENOTDIR, VNOVNODE; UAEAGAIN if it has not been counted yet; errors common to all calls.
    pub fn directory_totals(&self, caller: &CallContext<'_>, directory: Fid) -> Result<Totals, AbortCode> {
        at_once(|commits| {
            let session = self.session(caller, commits)?;
            session.totals(&session.listable(directory)?)
        })
    }

    /// Returns at most `most` subdirectories of a directory after the name `after`, in order of their names,
    /// and whether there are more.
    ///
    /// # Errors
    /// UAEACCES, UAENOTDIR, VNOVNODE, errors common to all calls.
    pub fn subdirectories(
        &self,
        caller: &CallContext<'_>,
        directory: Fid,
        after: &[u8],
        most: usize,
    ) -> Result<(Vec<Subdirectory>, bool), AbortCode> {
        at_once(|commits| self.session(caller, commits)?.subdirectories(directory, after, most))
    }
}

/// Answers a call that changes nothing. Unlike in the file service, a missing vnode is reported even if its
/// removal is not durable yet.
fn at_once<T>(answer: impl FnOnce(&Commits) -> T) -> T {
    let (answer, _) = Commits::collect(answer).into_parts();
    answer
}

impl Session<'_> {
    fn subdirectories(
        &self,
        directory: Fid,
        after: &[u8],
        most: usize,
    ) -> Result<(Vec<Subdirectory>, bool), AbortCode> {
        let view = self.listable(directory)?;
        let (mut found, mut is_more) = (Vec::new(), false);
        let mut visit = |name: &[u8], target: Found| {
            if !target.vnode.is_directory() || matches!(name, b"." | b"..") || name <= after {
                return;
            }
            is_more = found.len() == most;
            if !is_more {
                let fid = Fid { vnode: target.vnode, unique: target.unique, ..directory };
                found.push((name.to_vec(), fid));
            }
        };
        view.volume.read(directory, |volume| volume.entries(directory, &mut visit))?;
        let reported = found.into_iter().map(|(name, fid)| {
            let totals = self.view_in(view.volume.clone(), fid);
            Subdirectory { name, fid, totals: totals.and_then(|below| self.totals(&below)) }
        });
        Ok((reported.collect(), is_more))
    }

    fn listable(&self, directory: Fid) -> Result<View<'_>, AbortCode> {
        let view = self.view(directory.into(), Need::Directory)?;
        self.may_read(&view, Reading::Status)?;
        Ok(view)
    }

    fn totals(&self, directory: &View<'_>) -> Result<Totals, AbortCode> {
        self.may_read(directory, Reading::Status)?;
        Ok(directory.volume.access(|volume| volume.totals(directory.fid))?)
    }
}
