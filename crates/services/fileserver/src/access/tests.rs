//! The matrix of callers and permitted operations.

use super::*;
use afs_format::acl::AclEntry;
use base::{Caller, Connection, Identity, SecurityLevel, UnixTime, VnodeId};
use std::net::{IpAddr, Ipv4Addr};

const OWNER: UserId = UserId(100);
const OTHER: UserId = UserId(200);
const GROUP: UserId = UserId(-300);

fn subject(user: UserId, groups: &[UserId]) -> Subject {
    let groups: Vec<UserId> = [user, UserId::ANYUSER].iter().chain(groups).copied().collect();
    let administrator = groups.contains(&UserId::ADMINISTRATORS);
    Subject { user, groups, host_groups: Vec::new(), administrator, superuser: false, is_partial: false }
}

fn status(kind: FileKind, owner: UserId, mode: u16) -> VnodeStatus {
    VnodeStatus {
        vnode: VnodeId(if kind == FileKind::Directory { 3 } else { 2 }),
        unique: 1,
        kind,
        mode,
        owner,
        group: 0,
        links: 1,
        length: 0,
        data_version: 0,
        client_modified: UnixTime(0),
        server_modified: UnixTime(0),
        author: owner,
        parent: VnodeId(1),
        parent_unique: 1,
    }
}

fn rights(letters: &str) -> Rights {
    letters.chars().fold(Rights::NONE, |sum, letter| {
        sum | match letter {
            'r' => Rights::READ,
            'l' => Rights::LOOKUP,
            'i' => Rights::INSERT,
            'd' => Rights::DELETE,
            'w' => Rights::WRITE,
            'k' => Rights::LOCK,
            'a' => Rights::ADMINISTER,
            other => panic!("{other}"),
        }
    })
}

struct Case {
    subject: Subject,
    status: VnodeStatus,
    owns_volume: bool,
}

impl Case {
    fn plain(kind: FileKind) -> Case {
        Case { subject: subject(OTHER, &[]), status: status(kind, OWNER, 0o644), owns_volume: false }
    }

    fn owner(kind: FileKind) -> Case {
        Case { subject: subject(OWNER, &[]), ..Case::plain(kind) }
    }

    fn admin(kind: FileKind) -> Case {
        Case { subject: subject(OTHER, &[UserId::ADMINISTRATORS]), ..Case::plain(kind) }
    }

    fn volume_owner(kind: FileKind) -> Case {
        Case { owns_volume: true, ..Case::plain(kind) }
    }

    fn mode(mut self, mode: u16) -> Case {
        self.status.mode = mode;
        self
    }

    fn ask<T>(&self, letters: &str, ask: impl FnOnce(&Gate<'_>) -> T) -> T {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let caller = Caller {
            identity: Identity::Anonymous,
            level: SecurityLevel::Clear,
            peer: (local, 7001).into(),
            local,
            connection: Connection::new(),
        };
        ask(&Gate {
            context: &CallContext::new(&caller),
            subject: &self.subject,
            status: &self.status,
            rights: rights(letters),
            owns_volume: &|| self.owns_volume,
        })
    }
}

const YES: Result<(), AbortCode> = Ok(());
const NO: Result<(), AbortCode> = Err(AbortCode::UAEACCES);
const NOT_YOURS: Result<(), AbortCode> = Err(AbortCode::UAEPERM);

use FileKind::{Directory, File, SymbolicLink};

#[test]
fn reading() {
    use Reading::{Acl, Data, Status};
    let table = [
        (Case::plain(File), "l", Data, NO),
        (Case::plain(File), "r", Data, YES),
        (Case::plain(File), "r", Status, YES),
        (Case::plain(File), "l", Status, NO),
        (Case::plain(Directory), "l", Data, YES),
        (Case::plain(Directory), "r", Data, NO),
        (Case::plain(Directory), "", Acl, NO),
        (Case::plain(SymbolicLink), "l", Data, YES),
        (Case::plain(SymbolicLink), "r", Data, NO),
        // The owner of the volume may always list directories, but not read files.
        (Case::volume_owner(Directory), "", Data, YES),
        (Case::volume_owner(File), "", Data, NO),
        // Only the owner and administrators may read a file without read and execute bits.
        (Case::plain(File).mode(0o077), "r", Data, NO),
        (Case::plain(File).mode(0o100), "r", Data, YES),
        (Case::plain(File).mode(0o077), "r", Status, YES),
        (Case::owner(File).mode(0), "r", Data, YES),
        (Case::admin(File).mode(0), "r", Data, YES),
        // In a drop box, the owner of a file may read it back.
        (Case::owner(File), "il", Data, YES),
        (Case::plain(File), "il", Data, NO),
        (Case::owner(Directory), "i", Data, NO),
        // Administrators may read every status and list, but data only according to the list.
        (Case::admin(File), "", Status, YES),
        (Case::admin(Directory), "", Acl, YES),
        (Case::admin(File), "", Data, NO),
        (Case::admin(Directory), "l", Data, YES),
    ];
    for (number, (case, letters, what, expected)) in table.iter().enumerate() {
        assert_eq!(case.ask(letters, |gate| gate.read(*what)), *expected, "case {number}");
    }
}

#[test]
fn anonymous_callers_own_nothing_in_a_drop_box() {
    let case = Case {
        subject: subject(UserId::ANONYMOUS, &[]),
        status: status(File, UserId::ANONYMOUS, 0o644),
        owns_volume: false,
    };
    assert_eq!(case.ask("i", |gate| gate.read(Reading::Data)), NO);
}

#[test]
fn writing() {
    use Writing::{Acl, Data, Status};
    let table = [
        (Case::plain(File), "w", Data, YES),
        (Case::plain(File), "rlidka", Data, NO),
        (Case::plain(File).mode(0o444), "w", Data, NO),
        (Case::admin(File).mode(0o444), "w", Data, YES),
        (Case::admin(File), "", Data, NO),
        // The creator may fill the file with only "insert", even if it is read-only.
        (Case::owner(File).mode(0o444), "i", Data, YES),
        (Case::owner(File).mode(0o444), "w", Data, NO),
        (Case::owner(File), "i", Status, YES),
        (Case::plain(File), "i", Status, NO),
        (Case::plain(File), "w", Status, YES),
        (Case::plain(SymbolicLink), "w", Status, YES),
        (Case::owner(SymbolicLink), "i", Status, NO),
        (Case::plain(Directory), "w", Status, NO),
        (Case::plain(Directory), "i", Status, YES),
        (Case::plain(Directory), "d", Status, YES),
        (Case::admin(Directory), "", Status, YES),
        (Case::plain(Directory), "rlidwk", Acl, NO),
        (Case::plain(Directory), "a", Acl, YES),
        (Case::owner(Directory), "rlidwk", Acl, NO),
        (Case::volume_owner(Directory), "", Acl, YES),
        (Case::admin(Directory), "", Acl, YES),
    ];
    for (number, (case, letters, what, expected)) in table.iter().enumerate() {
        let asked = case.ask(letters, |gate| gate.write(*what, &SetStatus::default()));
        assert_eq!(asked, *expected, "case {number}");
    }
}

#[test]
fn giving_away_and_set_user_id_bits_are_for_administrators() {
    let give = SetStatus { owner: Some(OTHER), ..SetStatus::default() };
    let keep = SetStatus { owner: Some(OWNER), group: Some(0), ..SetStatus::default() };
    let group = SetStatus { group: Some(5), ..SetStatus::default() };
    let set_id = SetStatus { mode: Some(0o4755), ..SetStatus::default() };
    let table = [
        (Case::plain(File), "w", give, NOT_YOURS),
        (Case::owner(File), "rlidwka", give, NOT_YOURS),
        (Case::owner(File), "w", group, NOT_YOURS),
        (Case::owner(File), "w", keep, YES),
        (Case::admin(File), "", give, YES),
        (Case::admin(File), "", set_id, YES),
        (Case::plain(File), "w", set_id, NO),
        (Case::plain(Directory), "rlidwka", give, NOT_YOURS),
    ];
    for (number, (case, letters, set, expected)) in table.iter().enumerate() {
        let asked = case.ask(letters, |gate| gate.write(Writing::Status, set));
        assert_eq!(asked, *expected, "case {number}");
    }
}

#[test]
fn locking() {
    let table = [
        (Case::plain(File), "k", YES, NO),
        (Case::plain(File), "w", YES, YES),
        (Case::plain(File), "rlid", NO, NO),
        (Case::owner(File), "i", YES, YES),
        (Case::plain(File), "i", NO, NO),
    ];
    for (number, (case, letters, to_read, to_write)) in table.iter().enumerate() {
        assert_eq!(case.ask(letters, |gate| gate.lock(LockKind::Read)), *to_read, "case {number}");
        assert_eq!(case.ask(letters, |gate| gate.lock(LockKind::Write)), *to_write, "case {number}");
    }
}

fn entry(id: UserId, letters: &str) -> AclEntry {
    AclEntry { id, rights: rights(letters) }
}

#[test]
fn rights_come_from_lists_hosts_and_ownership() {
    let acl = Acl::new(
        &[entry(UserId::ANYUSER, "l"), entry(GROUP, "rlidwka"), entry(UserId(-9), "k")],
        &[entry(OTHER, "w")],
    )
    .unwrap();
    let directory = status(Directory, OWNER, 0o755);
    let file = status(File, OWNER, 0o644);
    let access = |subject: &Subject, status| Access::new(&acl, status, subject, Rights::LOOKUP);

    let member = access(&subject(OWNER, &[GROUP]), &directory);
    assert_eq!((member.caller, member.anyone), (rights("rlidwka"), rights("l")));
    // Negative entries take precedence.
    assert_eq!(access(&subject(OTHER, &[GROUP]), &directory).caller, rights("rlidka"));
    // On a file, "a" only marks its owner.
    assert_eq!(access(&subject(OTHER, &[GROUP]), &file).caller, rights("rlidk"));
    assert_eq!(access(&subject(OWNER, &[]), &file).caller, rights("la"));
    // Rights of a host apply to all its users.
    let at_host = Subject { host_groups: vec![UserId(-9)], ..subject(OTHER, &[]) };
    let at_host = access(&at_host, &directory);
    assert_eq!((at_host.caller, at_host.anyone), (rights("lk"), rights("lk")));
    // A negative entry of a host group removes rights of hosts, not those of users (fs_setacl(1)).
    let acl = Acl::new(
        &[entry(UserId::ANYUSER, "rl"), entry(GROUP, "rlidwk"), entry(UserId(-9), "rlik")],
        &[entry(UserId(-9), "ri"), entry(UserId(-8), "lik"), entry(OTHER, "w")],
    )
    .unwrap();
    let at_hosts = |groups: &[i32], user| {
        let host_groups = groups.iter().map(|group| UserId(*group)).collect();
        let subject = Subject { host_groups, ..subject(user, &[]) };
        let Access { caller, anyone } = Access::new(&acl, &directory, &subject, Rights::NONE);
        assert_eq!(caller, anyone);
        caller
    };
    assert_eq!(at_hosts(&[], OTHER), rights("rl"));
    assert_eq!(at_hosts(&[-9], OTHER), rights("rlk"));
    assert_eq!(at_hosts(&[-9, -8], OTHER), rights("rl"));
    assert_eq!(at_hosts(&[-8], UserId::ANONYMOUS), rights("rl"));
    // Administrators always have "lookup".
    let nothing = Acl::new(&[], &[]).unwrap();
    let admin = subject(OTHER, &[UserId::ADMINISTRATORS]);
    assert_eq!(Access::new(&nothing, &directory, &admin, Rights::LOOKUP).caller, rights("l"));
}

#[test]
fn mount_points_need_administer() {
    let table = [
        (Case::plain(Directory), "i", None, YES),
        (Case::plain(Directory), "i", Some(0o755), YES),
        (Case::plain(Directory), "i", Some(0o644), NO),
        (Case::plain(Directory), "ia", Some(0o644), YES),
        (Case::admin(Directory), "i", Some(0o644), YES),
    ];
    for (number, (case, letters, mode, expected)) in table.iter().enumerate() {
        assert_eq!(case.ask(letters, |gate| gate.link_with_mode(*mode)), *expected, "case {number}");
    }
}
