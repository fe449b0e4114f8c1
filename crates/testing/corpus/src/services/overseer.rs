//! The overseer's service, with a program of two roles that can be stopped but not started.

use super::{Authority, history};
use afs_format::userlist::UserList;
use base::{Caller, LocalAuthority, Principal, UnixTime};
use bosserver::{
    BosServer, CellDescription, DatabaseHost, KeyList, KeyVersion, Overseer, OverseerError, Role, RoleKind,
};
use parking_lot::Mutex;
use std::io::Read;
use std::sync::Arc;

/// Length of the log in bytes.
const LOG_BYTES: u64 = 40_000;

struct Program {
    users: Mutex<UserList>,
}

impl Overseer for Program {
    fn is_administrator(&self, caller: &Caller) -> bool {
        Authority.is_superuser(caller)
    }

    fn roles(&self) -> Vec<Role> {
        let long = "x".repeat(300);
        vec![
            Role::running("fs", RoleKind::FileServer, UnixTime(100), &["files", "volumes"]),
            Role::running("ptserver", RoleKind::Simple, UnixTime(101), &[&long]),
        ]
    }

    fn cell(&self) -> CellDescription {
        let host = |name: &str, is_clone| DatabaseHost { name: name.into(), is_clone };
        let hosts = vec![host("db1.test.example", false), host("db2.test.example", true)];
        CellDescription { name: "test.example".parse().expect("a name"), hosts }
    }

    fn administrators(&self) -> Result<Vec<Principal>, OverseerError> {
        Ok(self.users.lock().principals().cloned().collect())
    }

    fn add_administrator(&self, who: &Principal) -> Result<(), OverseerError> {
        if self.users.lock().add(who.clone()) { Ok(()) } else { Err(OverseerError::Exists) }
    }

    fn remove_administrator(&self, who: &Principal) -> Result<(), OverseerError> {
        if self.users.lock().remove(who) { Ok(()) } else { Err(OverseerError::NotFound) }
    }

    fn keys(&self) -> Result<KeyList, OverseerError> {
        Ok(KeyList { keys: vec![KeyVersion { version: 3, checksum: 77 }], changed: UnixTime(500) })
    }

    fn log(&self, name: &str) -> Result<Box<dyn Read + Send>, OverseerError> {
        match name {
            "FileLog" => Ok(Box::new(&b"one\0two\n"[..])),
            "VolserLog" => Ok(Box::new(std::io::repeat(0).chain(&b"!"[..]).take(LOG_BYTES))),
            _ => Err(OverseerError::NotFound),
        }
    }

    fn set_goal(&self, _: &str, running: bool, _: bool) -> Result<(), OverseerError> {
        if running { Err(OverseerError::CannotNow) } else { Ok(()) }
    }
}

/// Exercises the overseer's service. The list of administrators that it wrote must read back unchanged.
pub fn serve_bozo(data: &[u8]) {
    let program = Arc::new(Program { users: Mutex::new(UserList::parse("admin\n")) });
    let server = BosServer::new(program.clone());
    history(data, |caller, stream| afs_idl::bozo::dispatch(&server, caller, stream));
    let users = program.users.lock();
    let again = UserList::parse(&users.to_text());
    assert!(again.principals().eq(users.principals()), "parsing the text gives other principals");
}
