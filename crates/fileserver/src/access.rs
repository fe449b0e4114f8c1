//! The rules of access (`GetRights`, `Check_PermissionRights` and `CheckWriteMode` of OpenAFS).
//!
//! Access lists belong to directories and govern everything in them. What is left to mode bits is
//! little: the owner's read, execute and write bits of a file restrict everybody.

use crate::subject::Subject;
use afs_format::acl::Acl;
use base::{AbortCode, Rights, UserId};
use callbacks::LockKind;
use events::current::{self, Privilege};
use volume::{FileKind, SetStatus, VnodeStatus};

const OWNER_READ_OR_EXECUTE: u16 = 0o500;
const OWNER_WRITE: u16 = 0o200;
const SET_ID_BITS: u16 = 0o6000;
const EXECUTE_BITS: u16 = 0o111;

/// Rights of the caller and of everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) caller: Rights,
    pub(crate) anyone: Rights,
}

impl Access {
    /// What `acl` gives. What the caller's groups have and what its host's groups have is computed apart, each less
    /// its own negative entries, and added (`GetRights`, fs_setacl(1)): a negative entry of a group of hosts takes
    /// nothing from users. `implicit` is what administrators have in any case. For what is not a
    /// directory, "administer" says whether the caller owns it.
    pub(crate) fn new(acl: &Acl, status: &VnodeStatus, subject: &Subject, implicit: Rights) -> Access {
        let host = acl.rights_of(&subject.host_groups);
        let mut caller = acl.rights_of(&subject.groups) | host;
        if subject.administrator {
            caller = caller | implicit;
        }
        if !status.is_directory() {
            caller = caller & !Rights::ADMINISTER;
            if status.owner == subject.user {
                caller = caller | Rights::ADMINISTER;
            }
        }
        Access { caller, anyone: acl.rights_of(&[UserId::ANYUSER]) | host }
    }
}

/// One caller before one vnode.
pub(crate) struct Gate<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) status: &'a VnodeStatus,
    pub(crate) rights: Rights,
    /// Whether the caller owns the volume; asked only when it matters.
    pub(crate) owns_volume: &'a dyn Fn() -> bool,
}

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Data,
    Acl,
    Status,
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    Data,
    Acl,
    Status,
}

/// What the audit calls it when an administrator may write what others may not.
fn privilege(what: Writing) -> Privilege {
    match what {
        Writing::Data => Privilege::StoreData,
        Writing::Acl => Privilege::StoreAcl,
        Writing::Status => Privilege::StoreStatus,
    }
}

fn allow_if(allowed: bool) -> Result<(), AbortCode> {
    if allowed { Ok(()) } else { Err(AbortCode::UAEACCES) }
}

impl Gate<'_> {
    fn has(&self, rights: Rights) -> bool {
        self.rights.contains(rights)
    }

    fn owns(&self) -> bool {
        self.status.owner == self.subject.user
    }

    /// May the caller read? Administrators read any status and list; data is for nobody free.
    pub(crate) fn read(&self, what: Reading) -> Result<(), AbortCode> {
        if what != Reading::Data && self.subject.administrator {
            current::privilege(if what == Reading::Acl {
                Privilege::FetchAcl
            } else {
                Privilege::FetchStatus
            });
            return Ok(());
        }
        if self.status.kind != FileKind::File {
            return allow_if(self.has(Rights::LOOKUP) || (self.owns_volume)());
        }
        let fills_dropbox = self.owns() && self.has(Rights::INSERT) && self.subject.user != UserId::ANONYMOUS;
        allow_if(self.has(Rights::READ) || fills_dropbox)?;
        let past_mode = what != Reading::Data || self.owns() || self.subject.administrator;
        allow_if(past_mode || self.status.mode & OWNER_READ_OR_EXECUTE != 0)
    }

    /// May the caller write, and set `set` with it?
    pub(crate) fn write(&self, what: Writing, set: &SetStatus) -> Result<(), AbortCode> {
        if self.is_just_creating(what) {
            // The creator of a file may fill it, whatever its mode and with only "insert".
            return self.keep_owner(what, set);
        }
        if what != Writing::Data && self.subject.administrator {
            current::privilege(privilege(what));
            return Ok(());
        }
        if what == Writing::Acl {
            return allow_if(self.has(Rights::ADMINISTER) || (self.owns_volume)());
        }
        self.keep_owner(what, set)?;
        let sets_id = set.mode.is_some_and(|mode| mode & SET_ID_BITS != 0);
        allow_if(!sets_id || self.subject.administrator)?;
        if what == Writing::Data { self.write_data() } else { self.write_status() }
    }

    fn is_just_creating(&self, what: Writing) -> bool {
        self.has(Rights::INSERT) && self.owns() && what != Writing::Acl && self.status.kind == FileKind::File
    }

    /// Only administrators give files away.
    fn keep_owner(&self, what: Writing, set: &SetStatus) -> Result<(), AbortCode> {
        let new_owner = set.owner.is_some_and(|owner| owner != self.status.owner);
        let new_group = set.group.is_some_and(|group| group != self.status.group);
        if !new_owner && !new_group {
            return Ok(());
        }
        if !self.subject.administrator {
            return Err(AbortCode::UAEPERM);
        }
        current::privilege(privilege(what));
        Ok(())
    }

    fn write_data(&self) -> Result<(), AbortCode> {
        allow_if(self.has(Rights::WRITE))?;
        if self.status.is_directory() || self.status.mode & OWNER_WRITE != 0 {
            return Ok(());
        }
        allow_if(self.subject.administrator)?;
        current::privilege(Privilege::StoreData);
        Ok(())
    }

    fn write_status(&self) -> Result<(), AbortCode> {
        if self.status.is_directory() {
            allow_if(self.has(Rights::DELETE) || self.has(Rights::INSERT))
        } else {
            allow_if(self.has(Rights::WRITE))
        }
    }

    /// May the caller change entries of this directory?
    pub(crate) fn change_entries(&self, needed: Rights) -> Result<(), AbortCode> {
        allow_if(self.has(needed))
    }

    /// May the caller make a symbolic link of this mode here? One without execute bits is a mount
    /// point, for which it must administer the directory.
    pub(crate) fn link_with_mode(&self, mode: Option<u16>) -> Result<(), AbortCode> {
        let mounts = mode.is_some_and(|mode| mode & EXECUTE_BITS == 0);
        allow_if(!mounts || self.subject.administrator || self.has(Rights::ADMINISTER))
    }

    /// May the caller lock this?
    pub(crate) fn lock(&self, kind: LockKind) -> Result<(), AbortCode> {
        let writes = self.has(Rights::WRITE) || (self.owns() && self.has(Rights::INSERT));
        allow_if(writes || (kind == LockKind::Read && self.has(Rights::LOCK)))
    }
}

#[cfg(test)]
mod tests;
