//! The process as presented by its overseer service.

use super::authority::Authority;
use super::cell_keys::CellKeys;
use super::log::{LOG_FILE, OLD_LOG_FILE};
use base::{Caller, LocalAuthority, Principal, UnixTime};
use bosserver::{CellDescription, DatabaseHost, KeyList, Overseer, OverseerError, RoleKind};
use cell_client::network::now;
use cellar_config::{Role, Settings};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::Arc;

/// Prefix of every role's command line.
const COMMAND: &str = "cellar serve (role ";

/// The overseer service of this process.
pub struct ProcessOverseer {
    settings: Arc<Settings>,
    authority: Arc<Authority>,
    keys: Arc<CellKeys>,
    started: UnixTime,
}

impl ProcessOverseer {
    /// Creates the overseer; to be called when the process starts serving.
    pub fn new(settings: Arc<Settings>, authority: Arc<Authority>, keys: Arc<CellKeys>) -> ProcessOverseer {
        ProcessOverseer { settings, authority, keys, started: now() }
    }

    /// Writes the roles as `BosConfig`. A file written by OpenAFS's bosserver is left unchanged, because that
    /// one starts programs from it. Nothing depends on the file, so a failure is only logged.
    pub fn write_bos_config(&self) {
        let path = &self.settings.bos_config_path;
        let is_foreign = std::fs::read(path).is_ok_and(|text| !is_own_bos_config(&text));
        if is_foreign {
            tracing::info!(path = %path.display(), "BosConfig is OpenAFS's and stays as it is");
            return;
        }
        if let Err(error) =
            cellar_config::files::replace(path, bosserver::bos_config(&self.roles()).as_bytes())
        {
            tracing::warn!(path = %path.display(), %error, "cannot write BosConfig; only tools of sites read it");
        }
    }

    fn edit(
        &self,
        absent: OverseerError,
        change: impl FnOnce(&mut afs_format::userlist::UserList) -> bool,
    ) -> Result<(), OverseerError> {
        match self.authority.edit(change) {
            Ok(true) => Ok(()),
            Ok(false) => Err(absent),
            Err(error) => {
                tracing::error!(%error, "cannot write UserList");
                Err(OverseerError::Io)
            }
        }
    }
}

impl Overseer for ProcessOverseer {
    fn is_administrator(&self, caller: &Caller) -> bool {
        self.authority.is_superuser(caller)
    }

    fn roles(&self) -> Vec<bosserver::Role> {
        let has = |role| self.settings.roles.contains(&role);
        let running =
            |name, kind, commands: &[&str]| bosserver::Role::running(name, kind, self.started, commands);
        let mut roles = Vec::new();
        if has(Role::Pt) {
            roles.push(running("ptserver", RoleKind::Simple, &[&command(Role::Pt)]));
        }
        if has(Role::Vl) {
            roles.push(running("vlserver", RoleKind::Simple, &[&command(Role::Vl)]));
        }
        if has(Role::Fs) {
            let commands = [command(Role::Fs), command(Role::Vol)];
            let commands = commands.each_ref().map(String::as_str);
            roles.push(running("fs", RoleKind::FileServer, &commands[..if has(Role::Vol) { 2 } else { 1 }]));
        }
        roles
    }

    fn cell(&self) -> CellDescription {
        let name_of = |server: &afs_format::cellservdb::CellServer| match server.host.as_str() {
            "" => server.address.to_string(),
            name => name.to_owned(),
        };
        let hosts = self.settings.database_servers.iter();
        CellDescription {
            name: self.settings.cell.clone(),
            hosts: hosts
                .map(|server| DatabaseHost { name: name_of(server), is_clone: server.is_clone })
                .collect(),
        }
    }

    fn administrators(&self) -> Result<Vec<Principal>, OverseerError> {
        Ok(self.authority.users())
    }

    fn add_administrator(&self, who: &Principal) -> Result<(), OverseerError> {
        self.edit(OverseerError::Exists, |list| list.add(who.clone()))
    }

    fn remove_administrator(&self, who: &Principal) -> Result<(), OverseerError> {
        self.edit(OverseerError::NotFound, |list| list.remove(who))
    }

    fn keys(&self) -> Result<KeyList, OverseerError> {
        Ok(self.keys.des())
    }

    fn log(&self, name: &str) -> Result<Box<dyn Read + Send>, OverseerError> {
        let path = self.settings.log_path.join(log_file(name, &self.settings.roles));
        match File::open(&path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(OverseerError::NotFound),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "cannot read the log");
                Err(OverseerError::Io)
            }
        }
    }
}

/// Returns whether every command in a `BosConfig` is one of Cellar's roles.
fn is_own_bos_config(text: &[u8]) -> bool {
    let own = format!("parm {COMMAND}");
    let mut commands = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"parm "));
    commands.all(|line| line.starts_with(own.as_bytes()))
}

/// Returns a role's command line; scripts search it for the name of OpenAFS's program.
fn command(role: Role) -> String {
    format!("{COMMAND}{})", role.instance())
}

/// Returns the file of a log. This process has a single log for what OpenAFS's servers write to separate
/// files, so the names of logs of its roles, and those with `.old` for the previous run, refer to it. A file
/// of that name left behind by an OpenAFS server is not used.
fn log_file<'n>(name: &'n str, roles: &[Role]) -> &'n str {
    let (plain, is_old) = match name.strip_suffix(".old") {
        Some(plain) => (plain, true),
        None => (name, false),
    };
    let is_ours = roles.iter().any(|role| role.openafs_log() == plain);
    match (is_ours, is_old) {
        (true, false) => LOG_FILE,
        (true, true) => OLD_LOG_FILE,
        (false, _) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_names_of_openafs_programs() {
        let commands = [Role::Pt, Role::Vl, Role::Fs, Role::Vol].map(command);
        let expected = ["ptserver", "vlserver", "fileserver", "volserver"]
            .map(|program| format!("cellar serve (role {program})"));
        assert_eq!(commands, expected);
    }

    #[test]
    fn a_bos_config_of_openafs_is_not_ours() {
        let own = [bosserver::Role::running("fs", RoleKind::FileServer, now(), &[&command(Role::Fs)])];
        assert!(is_own_bos_config(bosserver::bos_config(&own).as_bytes()));
        assert!(is_own_bos_config(b""));
        assert!(!is_own_bos_config(
            b"restrictmode 0\nbnode fs fs 1\nparm /usr/lib/openafs/fileserver -L\nend\n"
        ));
    }

    #[test]
    fn names_of_openafs_logs_mean_the_one_log() {
        let roles = [Role::Fs, Role::Vl, Role::Bos];
        for name in ["FileLog", "VLLog", "BosLog"] {
            assert_eq!(log_file(name, &roles), "CellarLog");
            assert_eq!(log_file(&format!("{name}.old"), &roles), "CellarLog.old");
        }
        for name in ["PtLog", "VolserLog", "SalvageLog", "CellarLog", "CellarLog.old", "x.old", ""] {
            assert_eq!(log_file(name, &roles), name);
        }
    }
}
