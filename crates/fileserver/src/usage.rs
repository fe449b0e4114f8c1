//! What directories hold, for `cellar du`: the middle of calls of Cellar's own service.
//!
//! Whoever has "lookup" on a directory is told the sums over all that lies in and below it, also of what lies
//! deeper and that person may not list: sums tell no names, and the quota of a volume tells anybody as much.
//! Owners of volumes and administrators need no right, as for a status.

use crate::access::Reading;
use crate::pipeline::{Need, Session, View};
use crate::server::FileServer;
use base::{AbortCode, Caller, Fid};
use volume::Totals;

/// A directory in another one, and what it holds if the caller may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subdirectory {
    /// Its name.
    pub name: Vec<u8>,
    /// Which it is.
    pub fid: Fid,
    /// What it holds, or why the caller is not told.
    pub totals: Result<Totals, AbortCode>,
}

impl FileServer {
    /// What a directory holds with everything below it.
    ///
    /// # Errors
    /// UAEACCES, UAENOTDIR, VNOVNODE; UAEAGAIN if it is not counted yet; those of every call.
    pub fn directory_totals(&self, caller: &Caller, directory: Fid) -> Result<Totals, AbortCode> {
        let session = self.session(caller)?;
        session.totals(&session.listable(directory)?)
    }

    /// The directories in a directory, in the order of their names, from behind `after` on, at most
    /// `most`; and whether there are more.
    ///
    /// # Errors
    /// UAEACCES, UAENOTDIR, VNOVNODE, those of every call.
    pub fn subdirectories(
        &self,
        caller: &Caller,
        directory: Fid,
        after: &[u8],
        most: usize,
    ) -> Result<(Vec<Subdirectory>, bool), AbortCode> {
        let session = self.session(caller)?;
        let view = session.listable(directory)?;
        let (mut found, mut is_more) = (Vec::new(), false);
        view.volume.entries(directory, &mut |name, target| {
            if !target.vnode.is_directory() || matches!(name, b"." | b"..") || name <= after {
                return;
            }
            is_more = found.len() == most;
            if !is_more {
                let fid = Fid { vnode: target.vnode, unique: target.unique, ..directory };
                found.push((name.to_vec(), fid));
            }
        })?;
        let told = found.into_iter().map(|(name, fid)| {
            let totals = session.view_in(view.volume.clone(), fid);
            Subdirectory { name, fid, totals: totals.and_then(|below| session.totals(&below)) }
        });
        Ok((told.collect(), is_more))
    }
}

impl Session<'_> {
    fn listable(&self, directory: Fid) -> Result<View, AbortCode> {
        let view = self.view(directory.into(), Need::Directory)?;
        self.may_read(&view, Reading::Status)?;
        Ok(view)
    }

    fn totals(&self, directory: &View) -> Result<Totals, AbortCode> {
        self.may_read(directory, Reading::Status)?;
        Ok(directory.volume.totals(directory.fid)?)
    }
}
