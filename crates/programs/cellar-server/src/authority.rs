//! Callers trusted by configuration: UserList, and holders of the cell's key.

use afs_format::userlist::UserList;
use base::{Caller, Identity, LocalAuthority, Principal};
use cellar_config::Settings;
use parking_lot::RwLock;
use rx_security::LocalRealms;
use std::path::PathBuf;

/// Name that holders of the cell's key use in tickets they make for themselves, without a realm; a Kerberos
/// principal keeps its realm and cannot pose as it.
const CELL_PRINCIPAL: &str = "afs";

/// Returns the principal of holders of the cell's key.
#[cfg(feature = "bucket")]
pub(crate) fn cell_principal() -> Principal {
    Principal { name: CELL_PRINCIPAL.into(), instance: String::new(), realm: String::new() }
}

/// The present UserList, and the cell's realms.
pub struct Authority {
    path: PathBuf,
    realms: LocalRealms,
    /// Guards the list; updated after its file has been written.
    list: RwLock<UserList>,
}

impl Authority {
    /// Creates the authority from the settings.
    pub fn new(settings: &Settings) -> Authority {
        Authority {
            path: settings.userlist_path.clone(),
            realms: settings.realms.clone(),
            list: RwLock::new(settings.userlist.clone()),
        }
    }

    /// Creates an authority from a list without a file.
    #[cfg(test)]
    pub fn of_list(list: &str, realms: LocalRealms) -> Authority {
        Authority { path: PathBuf::new(), realms, list: RwLock::new(UserList::parse(list)) }
    }

    /// Returns whether the caller holds the cell's key: a server of the cell, or a tool with `-localauth`.
    pub fn is_cell(caller: &Caller) -> bool {
        matches!(&caller.identity, Identity::Known(principal)
            if principal.name == CELL_PRINCIPAL && principal.instance.is_empty() && principal.realm.is_empty())
    }

    /// Returns the principals on the list.
    pub fn users(&self) -> Vec<Principal> {
        self.list.read().principals().cloned().collect()
    }

    /// Changes the list and its file. `change` returns whether there is anything to write.
    pub fn edit(&self, change: impl FnOnce(&mut UserList) -> bool) -> std::io::Result<bool> {
        let mut list = self.list.write();
        let mut edited = list.clone();
        if !change(&mut edited) {
            return Ok(false);
        }
        cellar_config::files::replace(&self.path, edited.to_text().as_bytes())?;
        *list = edited;
        Ok(true)
    }
}

impl LocalAuthority for Authority {
    fn is_superuser(&self, caller: &Caller) -> bool {
        let Identity::Known(principal) = &caller.identity else { return false };
        Authority::is_cell(caller)
            || self.list.read().contains(principal, |principal| self.realms.is_local(principal))
    }

    fn is_local_realm(&self, principal: &Principal) -> bool {
        self.realms.is_local(principal)
    }
}

impl volserver::Administrators for Authority {
    fn is_administrator(&self, caller: &Caller) -> bool {
        self.is_superuser(caller)
    }
}
