//! Access rules (`GetRights`, `Check_PermissionRights` and `CheckWriteMode` of OpenAFS).
//!
//! Access lists belong to directories and govern everything in them. Mode bits matter little: the owner's
//! read, execute and write bits of a file restrict all users.

use crate::subject::Subject;
use afs_format::acl::Acl;
use base::{AbortCode, CallContext, Privilege, Rights, UserId};
use callbacks::LockKind;
use volume::{FileKind, SetStatus, VnodeStatus};

const OWNER_READ_OR_EXECUTE: u16 = 0o500;
const OWNER_WRITE: u16 = 0o200;
const SET_ID_BITS: u16 = 0o6000;
const EXECUTE_BITS: u16 = 0o111;

/// Rights of the caller and of anyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) caller: Rights,
    pub(crate) anyone: Rights,
}

impl Access {
    /// Computes the rights that `acl` grants. Those of the caller's groups and of its host's groups are
    /// computed separately, each minus its own negative entries, and combined (`GetRights`, fs_setacl(1)): a
    /// negative entry of a host group takes nothing from users. `implicit` are the rights that administrators
    /// always have. Except on directories, "administer" marks that the caller owns the vnode.
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

/// Checks the access of one caller to one vnode.
pub(crate) struct Gate<'a> {
    pub(crate) context: &'a CallContext<'a>,
    pub(crate) subject: &'a Subject,
    pub(crate) status: &'a VnodeStatus,
    pub(crate) rights: Rights,
    /// Whether the caller owns the volume; evaluated only if it matters.
    pub(crate) owns_volume: &'a dyn Fn() -> bool,
}

/// The part of a vnode to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Data,
    Acl,
    Status,
}

/// The part of a vnode to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    Data,
    Acl,
    Status,
}

/// Returns the privilege to audit when an administrator writes something that others may not.
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

    /// Checks that the caller may read. Administrators may read any status and list, but have no special
    /// rights to data.
    pub(crate) fn read(&self, what: Reading) -> Result<(), AbortCode> {
        if what != Reading::Data && self.subject.administrator {
            self.context.note_privilege(if what == Reading::Acl {
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

    /// Checks that the caller may write, and set `set` in the process.
    pub(crate) fn write(&self, what: Writing, set: &SetStatus) -> Result<(), AbortCode> {
        if self.is_just_creating(what) {
            // The creator of a file may fill it with only "insert", whatever its mode.
            return self.keep_owner(what, set);
        }
        if what != Writing::Data && self.subject.administrator {
            self.context.note_privilege(privilege(what));
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

    /// Checks that only administrators change the owner or group.
    fn keep_owner(&self, what: Writing, set: &SetStatus) -> Result<(), AbortCode> {
        let new_owner = set.owner.is_some_and(|owner| owner != self.status.owner);
        let new_group = set.group.is_some_and(|group| group != self.status.group);
        if !new_owner && !new_group {
            return Ok(());
        }
        if !self.subject.administrator {
            return Err(AbortCode::UAEPERM);
        }
        self.context.note_privilege(privilege(what));
        Ok(())
    }

    fn write_data(&self) -> Result<(), AbortCode> {
        allow_if(self.has(Rights::WRITE))?;
        if self.status.is_directory() || self.status.mode & OWNER_WRITE != 0 {
            return Ok(());
        }
        allow_if(self.subject.administrator)?;
        self.context.note_privilege(Privilege::StoreData);
        Ok(())
    }

    fn write_status(&self) -> Result<(), AbortCode> {
        if self.status.is_directory() {
            allow_if(self.has(Rights::DELETE) || self.has(Rights::INSERT))
        } else {
            allow_if(self.has(Rights::WRITE))
        }
    }

    /// Checks that the caller may change entries of this directory.
    pub(crate) fn change_entries(&self, needed: Rights) -> Result<(), AbortCode> {
        allow_if(self.has(needed))
    }

    /// Checks that the caller may create a symbolic link with this mode here. One without execute bits is a
    /// mount point, which requires "administer" on the directory.
    pub(crate) fn link_with_mode(&self, mode: Option<u16>) -> Result<(), AbortCode> {
        let mounts = mode.is_some_and(|mode| mode & EXECUTE_BITS == 0);
        allow_if(!mounts || self.subject.administrator || self.has(Rights::ADMINISTER))
    }

    /// Checks that the caller may lock this vnode.
    pub(crate) fn lock(&self, kind: LockKind) -> Result<(), AbortCode> {
        let writes = self.has(Rights::WRITE) || (self.owns() && self.has(Rights::INSERT));
        allow_if(writes || (kind == LockKind::Read && self.has(Rights::LOCK)))
    }
}

#[cfg(test)]
mod tests;
