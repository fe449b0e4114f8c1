use crate::{
    BosServer, CellDescription, DatabaseHost, FileDates, KeyList, KeyVersion, LastExit, Overseer,
    OverseerError, Role, RoleKind, RoleState, key_checksum,
};
use afs_idl::bozo::{self, goal, time_mask};
use afs_idl::{CallStream, MemoryStream};
use base::{AbortCode, CallContext, Caller, Identity, Principal, SecurityLevel, UnixTime};
use bytes::Bytes;
use parking_lot::Mutex;
use proptest::prelude::*;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// An overseer with three roles. The last role is down. Roles can be stopped but not started.
#[derive(Default)]
struct Sample {
    users: Mutex<Vec<Principal>>,
    stopped: Mutex<Vec<(String, bool)>>,
}

fn named(name: &str) -> Principal {
    Principal { name: name.into(), instance: String::new(), realm: String::new() }
}

impl Overseer for Sample {
    fn is_administrator(&self, caller: &Caller) -> bool {
        caller.identity != Identity::Anonymous
    }

    fn roles(&self) -> Vec<Role> {
        let commands = ["cellar serve (file server)", "cellar serve (volume server)"];
        let down = Role {
            state: RoleState::Down,
            goal_running: false,
            last_exit: Some(LastExit { at: UnixTime(300), error: Some("disk".into()) }),
            ..Role::running("vlserver", RoleKind::Simple, UnixTime(200), &["cellar serve"])
        };
        vec![
            Role::running("fs", RoleKind::FileServer, UnixTime(100), &commands),
            Role::running("ptserver", RoleKind::Simple, UnixTime(101), &[&"x".repeat(300)]),
            down,
        ]
    }

    fn cell(&self) -> CellDescription {
        let host = |name: &str, is_clone| DatabaseHost { name: name.into(), is_clone };
        let hosts = vec![host("db1.example.org", false), host("db2.example.org", true)];
        CellDescription { name: "example.org".parse().unwrap(), hosts }
    }

    fn administrators(&self) -> Result<Vec<Principal>, OverseerError> {
        Ok(self.users.lock().clone())
    }

    fn add_administrator(&self, who: &Principal) -> Result<(), OverseerError> {
        let mut users = self.users.lock();
        if users.contains(who) {
            return Err(OverseerError::Exists);
        }
        users.push(who.clone());
        Ok(())
    }

    fn remove_administrator(&self, who: &Principal) -> Result<(), OverseerError> {
        let mut users = self.users.lock();
        let place = users.iter().position(|user| user == who).ok_or(OverseerError::NotFound)?;
        users.remove(place);
        Ok(())
    }

    fn keys(&self) -> Result<KeyList, OverseerError> {
        Ok(KeyList { keys: vec![KeyVersion { version: 3, checksum: 77 }], changed: UnixTime(500) })
    }

    fn log(&self, name: &str) -> Result<Box<dyn Read + Send>, OverseerError> {
        match name {
            "FileLog" => Ok(Box::new(&b"one\0two\n"[..])),
            "Long" => Ok(Box::new(std::io::repeat(b'x').take(100_000))),
            _ => Err(OverseerError::NotFound),
        }
    }

    fn file_dates(&self, path: &str) -> FileDates {
        let current = UnixTime(u32::from(path.ends_with("/cellar")) * 9);
        FileDates { current, ..FileDates::default() }
    }

    fn set_goal(&self, role: &str, running: bool, permanent: bool) -> Result<(), OverseerError> {
        if running {
            return Err(OverseerError::CannotNow);
        }
        self.stopped.lock().push((role.into(), permanent));
        Ok(())
    }
}

fn caller(identity: Identity) -> Caller {
    Caller {
        identity,
        level: SecurityLevel::Encrypted,
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 40000)),
        local: IpAddr::from(Ipv4Addr::LOCALHOST),
        connection: base::Connection::new(),
    }
}

fn anybody() -> Caller {
    caller(Identity::Anonymous)
}

fn admin() -> Caller {
    caller(Identity::Known(named("admin")))
}

fn server() -> (BosServer, Arc<Sample>) {
    let sample = Arc::new(Sample::default());
    (BosServer::new(sample.clone()), sample)
}

fn status_of(server: &BosServer, name: &str) -> bozo::GetInstanceInfoReply {
    server.get_instance_info(&anybody(), bozo::GetInstanceInfoRequest { instance: name.into() }).unwrap()
}

#[test]
fn bos_status_walks_over_the_roles() {
    let (server, _) = server();
    let name = |index| {
        let reply = server.enumerate_instance(&anybody(), bozo::EnumerateInstanceRequest { index });
        reply.map(|reply| reply.instance.to_string())
    };
    assert_eq!(name(0).unwrap(), "fs");
    assert_eq!(name(2).unwrap(), "vlserver");
    assert_eq!((name(3), name(-1)), (Err(AbortCode::BZDOM), Err(AbortCode::BZDOM)));
    let fs = status_of(&server, "fs");
    assert_eq!(fs.instance_type, "fs");
    assert_eq!((fs.status.goal, fs.status.file_goal), (goal::NORMAL, goal::NORMAL));
    assert_eq!((fs.status.process_start_time, fs.status.process_starts), (100, 1));
    assert_eq!((fs.status.last_any_exit, fs.status.flags), (0, 0));
    let down = status_of(&server, "vlserver");
    assert_eq!((down.instance_type.to_string().as_str(), down.status.goal), ("simple", goal::DOWN));
    assert_eq!((down.status.file_goal, down.status.last_error_exit), (goal::NORMAL, 300));
    let missing = bozo::GetInstanceInfoRequest { instance: "dafs".into() };
    assert_eq!(server.get_instance_info(&anybody(), missing), Err(AbortCode::BZNOENT));
}

#[test]
fn bos_status_long_shows_state_commands_and_errors() {
    let (server, _) = server();
    let status = |name: &str| {
        let request = bozo::GetStatusRequest { instance: name.into() };
        let reply = server.get_status(&anybody(), request).unwrap();
        (reply.status, reply.description.to_string())
    };
    assert_eq!(status("fs"), (goal::NORMAL, "file server running".to_owned()));
    assert_eq!(status("ptserver"), (goal::NORMAL, String::new()));
    assert_eq!(status("vlserver"), (goal::DOWN, String::new()));
    let parameter = |name: &str, index| {
        let request = bozo::GetInstanceParmRequest { instance: name.into(), index };
        server.get_instance_parm(&anybody(), request).map(|reply| reply.parameter.to_string())
    };
    assert_eq!(parameter("fs", 1).unwrap(), "cellar serve (volume server)");
    assert_eq!(parameter("fs", 2), Err(AbortCode::BZDOM));
    assert_eq!(parameter("fs", 999), Err(AbortCode::BZNOENT), "no notifier");
    assert_eq!(parameter("ptserver", 0).unwrap().len(), 255, "cut to what a reply has room for");
    let request = bozo::GetInstanceStringsRequest { instance: "vlserver".into() };
    assert_eq!(server.get_instance_strings(&anybody(), request).unwrap().error_name, "disk");
}

#[test]
fn reached_goals_are_no_work() {
    let (server, sample) = server();
    let set = |caller: &Caller, name: &str, status| {
        let request = bozo::SetTStatusRequest { instance: name.into(), status };
        server.set_t_status(caller, request).map(|_| ())
    };
    assert_eq!(set(&anybody(), "fs", goal::NORMAL), Err(AbortCode::BZACCESS));
    assert_eq!(set(&admin(), "fs", goal::NORMAL), Ok(()));
    assert_eq!(set(&admin(), "vlserver", goal::NORMAL), Err(AbortCode::BZBUSY), "cannot start");
    assert_eq!(set(&admin(), "fs", 2), Err(AbortCode::BZDOM));
    assert_eq!(set(&admin(), "nothing", goal::NORMAL), Err(AbortCode::BZNOENT));
    assert_eq!(set(&admin(), "fs", goal::DOWN), Ok(()));
    assert_eq!(*sample.stopped.lock(), [("fs".to_owned(), false)]);
    let forever = bozo::SetStatusRequest { instance: "vlserver".into(), status: goal::DOWN };
    assert_eq!(server.set_status(&admin(), forever), Ok(bozo::SetStatusReply));
    assert_eq!(sample.stopped.lock()[1], ("vlserver".to_owned(), true), "it is configured to run");
}

#[test]
fn roles_are_stopped_started_and_restarted() {
    let (server, sample) = server();
    assert_eq!(server.shutdown_all(&admin(), bozo::ShutdownAllRequest), Ok(bozo::ShutdownAllReply));
    assert_eq!(sample.stopped.lock().len(), 2, "the third was down");
    assert_eq!(server.wait_all(&admin(), bozo::WaitAllRequest), Ok(bozo::WaitAllReply));
    assert_eq!(server.startup_all(&admin(), bozo::StartupAllRequest), Err(AbortCode::BZBUSY));
    assert_eq!(server.restart_all(&admin(), bozo::RestartAllRequest), Err(AbortCode::BZBUSY));
    assert_eq!(server.re_bozo(&admin(), bozo::ReBozoRequest), Err(AbortCode::BZBUSY));
    let request = bozo::RestartRequest { instance: "nothing".into() };
    assert_eq!(server.restart(&admin(), request), Err(AbortCode::BZNOENT));
    assert_eq!(server.restart_all(&anybody(), bozo::RestartAllRequest), Err(AbortCode::BZACCESS));
}

#[test]
fn administrators_are_listed_added_and_removed() {
    let (server, _) = server();
    let list = |index| {
        let reply = server.list_s_users(&anybody(), bozo::ListSUsersRequest { index });
        reply.map(|reply| reply.name.to_string())
    };
    let add = |caller: &Caller, name: &str| {
        server.add_s_user(caller, bozo::AddSUserRequest { name: name.into() }).map(|_| ())
    };
    let remove = |name: &str| {
        server.delete_s_user(&admin(), bozo::DeleteSUserRequest { name: name.into() }).map(|_| ())
    };
    assert_eq!(list(0), Err(AbortCode(1)), "what bos takes for the end");
    assert_eq!(add(&anybody(), "ann"), Err(AbortCode::BZACCESS));
    assert_eq!(add(&admin(), "ann.admin@OTHER.ORG"), Ok(()));
    assert_eq!(add(&admin(), "ann.admin@OTHER.ORG"), Err(AbortCode(17)));
    assert_eq!(add(&admin(), "a b"), Err(AbortCode::BZSYNTAX));
    assert_eq!((list(0), list(1)), (Ok("ann.admin@OTHER.ORG".to_owned()), Err(AbortCode(1))));
    assert_eq!(remove("bob"), Err(AbortCode(2)), "what bos takes for a missing user");
    assert_eq!(remove("ann.admin@OTHER.ORG"), Ok(()));
    assert_eq!(list(0), Err(AbortCode(1)));
}

#[test]
fn keys_are_listed_by_version_and_checksum() {
    let (server, _) = server();
    let list = |caller: &Caller, index| server.list_keys(caller, bozo::ListKeysRequest { index });
    assert_eq!(list(&anybody(), 0), Err(AbortCode::BZACCESS));
    let reply = list(&admin(), 0).unwrap();
    assert_eq!((reply.version, reply.key.data), (3, [0; 8]));
    assert_eq!((reply.info.checksum, reply.info.modified_seconds), (77, 500));
    assert_eq!(list(&admin(), 1), Err(AbortCode::BZDOM));
    // Published value: zeros encrypted with the key that consists of parity bits are 8CA64DE9C1B123A7.
    assert_eq!(key_checksum(&[0x01; 8]), 0x8ca6_4de9);
}

#[test]
fn cell_and_hosts_are_listed() {
    let (server, _) = server();
    let name = server.get_cell_name(&anybody(), bozo::GetCellNameRequest).unwrap().name;
    assert_eq!(name, "example.org");
    let host = |index| {
        let reply = server.get_cell_host(&anybody(), bozo::GetCellHostRequest { index });
        reply.map(|reply| reply.name.to_string())
    };
    assert_eq!(host(0).unwrap(), "db1.example.org");
    assert_eq!(host(1).unwrap(), "[db2.example.org]");
    assert_eq!(host(2), Err(AbortCode::BZDOM));
}

#[test]
fn restarts_never_happen_by_themselves() {
    let (server, _) = server();
    for kind in [1, 2] {
        let reply = server.get_restart_time(&anybody(), bozo::GetRestartTimeRequest { kind }).unwrap();
        assert_eq!(reply.restart_time.mask, time_mask::NEVER);
    }
    let wrong = server.get_restart_time(&anybody(), bozo::GetRestartTimeRequest { kind: 3 });
    assert_eq!(wrong, Err(AbortCode::BZDOM));
    let set = |mask| {
        let restart_time = bozo::NetKTime { mask, ..Default::default() };
        server.set_restart_time(&admin(), bozo::SetRestartTimeRequest { kind: 1, restart_time }).map(|_| ())
    };
    assert_eq!((set(time_mask::NEVER), set(7)), (Ok(()), Err(AbortCode::BZBUSY)));
}

#[test]
fn restricted_mode_is_on_and_stays_on() {
    let (server, _) = server();
    let mode = server.get_restricted_mode(&anybody(), bozo::GetRestrictedModeRequest).unwrap().mode;
    assert_eq!(mode, 1);
    let exec = bozo::ExecRequest { command: "id".into() };
    assert_eq!(server.exec(&admin(), exec), Err(AbortCode::BZACCESS));
    let create = bozo::CreateBnodeRequest::default();
    assert_eq!(server.create_bnode(&admin(), create), Err(AbortCode::BZACCESS));
    let mode = bozo::SetRestrictedModeRequest { mode: 0 };
    assert_eq!(server.set_restricted_mode(&admin(), mode), Err(AbortCode::BZACCESS));
    let noauth = |flag| server.set_no_auth_flag(&admin(), bozo::SetNoAuthFlagRequest { flag });
    assert_eq!((noauth(0), noauth(1)), (Ok(bozo::SetNoAuthFlagReply), Err(AbortCode::BZACCESS)));
}

#[test]
fn program_dates_are_returned() {
    let (server, _) = server();
    let dates = |path: &str| {
        let reply = server.get_dates(&anybody(), bozo::GetDatesRequest { path: path.into() }).unwrap();
        (reply.new_time, reply.bak_time, reply.old_time)
    };
    assert_eq!(dates("/usr/afs/bin/cellar"), (9, 0, 0));
    assert_eq!(dates("/usr/afs/bin/fileserver"), (0, 0, 0));
}

/// Public Ansible roles search for `bnode (fs|dafs) \S+ 1`.
#[test]
fn bos_config_lists_the_roles() {
    let roles = [
        Role::running("ptserver", RoleKind::Simple, UnixTime(7), &["cellar serve (role ptserver)"]),
        Role::running("fs", RoleKind::FileServer, UnixTime(7), &["cellar a", "cellar b"]),
    ];
    let expected = "restrictmode 1\nrestarttime 16 0 0 0 0\ncheckbintime 16 0 0 0 0\n\
                    bnode simple ptserver 1\nparm cellar serve (role ptserver)\nend\n\
                    bnode fs fs 1\nparm cellar a\nparm cellar b\nend\n";
    assert_eq!(crate::bos_config(&roles), expected);
}

#[test]
fn logs_come_without_nuls_and_end_with_one() {
    let (server, _) = server();
    let get = |caller: &Caller, name: &str| {
        let mut stream = MemoryStream::default();
        let request = bozo::GetLogRequest { name: name.into() };
        server.get_log(caller, request, &mut stream).map(|_| stream.outgoing)
    };
    assert_eq!(get(&admin(), "FileLog").unwrap(), b"onetwo\n\0");
    assert_eq!(get(&admin(), "Long").unwrap().len(), 100_001);
    assert_eq!(get(&admin(), "None"), Err(AbortCode::BZNOENT));
    for folder in ["/usr/afs/logs/", "/var/log/openafs/"] {
        assert_eq!(get(&admin(), &format!("{folder}FileLog")).unwrap(), b"onetwo\n\0");
        assert_eq!(get(&admin(), &format!("{folder}None")), Err(AbortCode::BZNOENT));
        assert_eq!(get(&admin(), &format!("{folder}../FileLog")), Err(AbortCode::BZACCESS));
        assert_eq!(get(&anybody(), &format!("{folder}FileLog")), Err(AbortCode::BZACCESS));
    }
    assert_eq!(get(&admin(), "/etc/passwd"), Err(AbortCode::BZACCESS));
    assert_eq!(get(&admin(), "/var/log/syslog"), Err(AbortCode::BZACCESS));
    assert_eq!(get(&admin(), "/usr/afs/logs/SalvageLog"), Err(AbortCode::BZNOENT));
    assert_eq!(get(&anybody(), "FileLog"), Err(AbortCode::BZACCESS));
}

/// A stream to a peer that has disconnected.
struct Gone;

impl CallStream for Gone {
    fn read(&mut self, _: &mut [u8]) -> Result<usize, AbortCode> {
        Err(AbortCode::RX_CALL_DEAD)
    }

    fn read_chunk(&mut self, _: usize) -> Result<Bytes, AbortCode> {
        Err(AbortCode::RX_CALL_DEAD)
    }

    fn write(&mut self, _: Bytes) -> Result<(), AbortCode> {
        Err(AbortCode::RX_CALL_DEAD)
    }
}

#[test]
fn a_log_is_not_read_on_when_nobody_listens() {
    let (server, _) = server();
    let outcome = server.get_log(&admin(), bozo::GetLogRequest { name: "Long".into() }, &mut Gone);
    assert_eq!(outcome, Err(AbortCode::RX_CALL_DEAD));
}

proptest! {
    #[test]
    fn any_request_is_answered_or_refused(opcode in 79..118_u32, rest in prop::collection::vec(any::<u8>(), 0..300)) {
        let (server, _) = server();
        let mut wire = opcode.to_be_bytes().to_vec();
        wire.extend(rest);
        let mut stream = MemoryStream::new(&wire, 100);
        let _ = bozo::dispatch(&server, &CallContext::new(&admin()), &mut stream);
    }
}
