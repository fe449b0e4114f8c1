//! Records of calls, and the effect of sinks on serving threads.

use crate::argument::Value;
use crate::draft::Draft;
use crate::event::{Event, Shape};
use crate::raw_record::RawRecord;
use crate::record::{Found, Record};
use crate::{
    Call, Filter, Form, Messages, Policy, Program, ServiceTrail, SinkSettings, Target, Trail, tables,
};
use afs_idl::{bozo, cellar, fs, pr, vl, vol};
use base::{
    AbortCode, CallFacts, Caller, Identity, LocalAuthority, Monotonic, Principal, Privilege, Privileges,
    SecurityLevel, UserId,
};
use events::catalogue::AuditFigures;
use proptest::prelude::*;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

mod members;
mod sinks;
mod threads;

/// Long enough for any busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A clock unrelated to the date.
fn clock() -> Monotonic {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Monotonic(START.elapsed().as_nanos() as u64)
}

/// An authority whose local realm is `CELL`.
struct Authority;

impl LocalAuthority for Authority {
    fn is_superuser(&self, _: &Caller) -> bool {
        false
    }

    fn is_local_realm(&self, principal: &Principal) -> bool {
        ["", "CELL"].contains(&&principal.realm[..])
    }
}

fn caller(identity: Identity) -> Caller {
    Caller {
        identity,
        level: SecurityLevel::Encrypted,
        peer: SocketAddr::from(([192, 0, 2, 7], 7001)),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        connection: base::Connection::new(),
    }
}

fn known(name: &str, instance: &str, realm: &str) -> Identity {
    Identity::Known(Principal { name: name.into(), instance: instance.into(), realm: realm.into() })
}

fn settings(target: Target, form: Form, policy: Policy) -> SinkSettings {
    SinkSettings { name: "test".into(), target, form, filter: Filter::ALL, policy, queue_records: 16 }
}

fn start(settings: &[SinkSettings]) -> Arc<Trail> {
    let authority: Arc<dyn LocalAuthority> = Arc::new(Authority);
    Arc::new(Trail::start(settings, &[], &authority, clock).unwrap())
}

fn figures(trail: &Trail) -> AuditFigures {
    trail.figures()[0].1.clone()
}

/// Waits until the condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Records a call, given opcode, request and reply.
fn call(
    service: &ServiceTrail,
    caller: &Caller,
    opcode: u32,
    request: &impl xdr::Encode,
    result: Result<Vec<u8>, AbortCode>,
) {
    let Some(outline) = service.begin(opcode) else { return };
    let mut draft = Draft::new(outline);
    draft.received(&opcode.to_be_bytes());
    let request = xdr::to_vec(request);
    // Arrives in pieces, as from the network.
    request.chunks(7).for_each(|piece| draft.received(piece));
    let result = result.map(|reply| draft.sent(&reply));
    let used = Privileges::default().and(Privilege::StoreAcl).and(Privilege::SetMode);
    let privileges = if opcode == fs::STORE_ACL { used } else { Privileges::default() };
    let facts = CallFacts { user: 42, privileges, ..CallFacts::default() };
    let call = Call { caller, result, facts: &facts, took_ns: 1_500_000, ended: clock() };
    service.record(draft.outline(), draft.messages(), &call);
}

fn fid(vnode: u32) -> fs::Fid {
    fs::Fid { volume: 536_870_912, vnode, unique: 1 }
}

/// Makes calls of all services by all kinds of callers.
fn calls(trail: &Arc<Trail>) {
    let ann = caller(known("ann", "", "CELL"));
    let admin = caller(known("ann", "admin", "CELL"));
    let foreign = caller(known("bob", "", "ELSEWHERE"));
    let nobody = caller(Identity::Anonymous);
    let files = trail.service("AFS", fs::PROCEDURES);
    let acl = b"1\n0\nann 127\n\0".to_vec();
    let request = fs::StoreACLRequest { fid: fid(1), access_list: acl };
    call(&files, &ann, fs::STORE_ACL, &request, Ok(vec![]));
    let request = fs::FetchStatusRequest { fid: fid(3) };
    call(&files, &nobody, fs::FETCH_STATUS, &request, Err(AbortCode::UAEACCES));
    let request = fs::CreateFileRequest { directory: fid(1), name: "two words".into(), ..Default::default() };
    let reply = xdr::to_vec(&fs::CreateFileReply { fid: fid(4), ..Default::default() });
    call(&files, &foreign, fs::CREATE_FILE, &request, Ok(reply));
    call(&files, &foreign, fs::CREATE_FILE, &request, Err(AbortCode::UAEEXIST));
    let request = fs::BulkStatusRequest { fids: vec![fid(1), fid(2)] };
    call(&files, &ann, fs::INLINE_BULK_STATUS, &request, Ok(vec![]));
    let protection = trail.service("PR", pr::PROCEDURES);
    let request = pr::NewEntryRequest { name: "ann:friends".into(), flag: 2, owner: 0 };
    let reply = xdr::to_vec(&pr::NewEntryReply { id: -207 });
    call(&protection, &admin, pr::NEW_ENTRY, &request, Ok(reply));
    let request = pr::NameToIDRequest { names: vec!["ann".into(), "zoe".into()] };
    let reply = xdr::to_vec(&pr::NameToIDReply { ids: vec![7, 32766] });
    call(&protection, &nobody, pr::NAME_TO_ID, &request, Ok(reply));
    let volumes = trail.service("AFSVol", vol::PROCEDURES);
    let request = vol::CreateVolumeRequest {
        name: "home.ann".into(),
        volume_id: 9,
        parent_id: 9,
        ..Default::default()
    };
    let reply = xdr::to_vec(&vol::CreateVolumeReply { volume_id: 9, transaction: 77 });
    call(&volumes, &admin, vol::CREATE_VOLUME, &request, Ok(reply));
    let snapshots = trail.service("CELLAR", cellar::PROCEDURES);
    let request = cellar::RemoveSnapshotRequest { volume: 9, name: "daily".into() };
    call(&snapshots, &ann, cellar::REMOVE_SNAPSHOT, &request, Err(AbortCode::UAEACCES));
    call(&snapshots, &ann, 9999, &0, Err(AbortCode::RXGEN_OPCODE));
}

/// Returns the lines of a sink with this format, without times.
fn lines(form: Form) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let trail = start(&[settings(Target::File(path.clone()), form, Policy::Block)]);
    calls(&trail);
    trail.stop();
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.len() as u64, figures(&trail).written);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn lines_are_those_of_openafs() {
    let lines = lines(Form::OpenAfs);
    // Strips a prefix like `Mon Nov 16 12:00:00 2026 `.
    let timeless: Vec<&str> = lines.iter().map(|line| &line[25..]).collect();
    let expected = [
        "EVENT AFS_Aud_On CODE 0 ",
        "[1] EVENT AFS_Priv CODE 0 ID 42 INT 1 ",
        "[1] EVENT AFS_PrivSet CODE 0 ID 42 INT 2 ",
        "[1] EVENT AFS_SRX_StACL CODE 0 NAME ann HOST 192.0.2.7 ID 42 FID 536870912:1:1 ACL 1\\n0\\nann 127\\n ",
        "[1] EVENT AFS_Aud_Unauth CODE -1 STR AFS_SRX_FchStat ",
        "[1] EVENT AFS_SRX_FchStat CODE 49733388 NAME --UnAuth-- HOST 192.0.2.7 ID 42 FID 536870912:3:1 ",
        "[1] EVENT AFS_SRX_CrFile CODE 0 NAME bob@ELSEWHERE HOST 192.0.2.7 ID 42 FID 536870912:1:1 STR two words \
         FID 536870912:4:1 ",
        "[1] EVENT AFS_SRX_CrFile CODE 49733392 NAME bob@ELSEWHERE HOST 192.0.2.7 ID 42 FID 536870912:1:1 \
         STR two words FID 0:0:0 ",
        "[1] EVENT AFS_SRX_BIFchSt CODE 0 NAME ann HOST 192.0.2.7 ID 42 FIDS 2 FID 536870912:1:1 FID 536870912:2:1 ",
        "EVENT AFS_PTS_NewEnt CODE 0 NAME ann.admin HOST 192.0.2.7 ID -207 STR ann:friends ID 0 ",
        "EVENT AFS_PTS_NmToId CODE 0 STR ann ID 7 ",
        "EVENT AFS_PTS_NmToId CODE 267268 STR zoe ID 32766 ",
        "EVENT AFS_Aud_Unauth CODE -1 STR AFS_PTS_NmToId ",
        "EVENT AFS_PTS_NmToId CODE 0 NAME --UnAuth-- HOST 192.0.2.7 ",
        "[1] EVENT AFS_VS_CrVol CODE 0 NAME ann.admin HOST 192.0.2.7 LONG 77 LONG 9 STR home.ann LONG 0 LONG 9 ",
        "[1] EVENT CELLAR_RemoveSnapshot CODE 49733388 NAME ann HOST 192.0.2.7 LONG 9 STR daily ",
        "[1] EVENT CELLAR_unknown CODE -455 NAME ann HOST 192.0.2.7 ",
        "EVENT AFS_Aud_Off CODE 0 ",
    ];
    assert_eq!(timeless, expected);
}

/// Covers a caller with the cell's key, an empty list of FIDs, and a volume sent to two servers.
#[test]
fn rare_fields_are_those_of_openafs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let trail = start(&[settings(Target::File(path.clone()), Form::OpenAfs, Policy::Block)]);
    let files = trail.service("AFS", fs::PROCEDURES);
    let key_holder = caller(known("afs", "", "CELL"));
    let facts = CallFacts { user: UserId::ADMINISTRATORS.0, ..CallFacts::default() };
    let request = [&fs::INLINE_BULK_STATUS.to_be_bytes()[..], &[0; 4]].concat();
    let outline = files.begin(fs::INLINE_BULK_STATUS).unwrap();
    let ended = Call { caller: &key_holder, result: Ok(()), facts: &facts, took_ns: 1, ended: clock() };
    files.record(outline, Messages { request: &request, reply: &[] }, &ended);
    let volumes = trail.service("AFSVol", vol::PROCEDURES);
    let replica = |last: u32, transaction| vol::Replica {
        transaction,
        server: vol::DestServer { host: 0xc000_0200 + last, ..Default::default() },
    };
    let request = vol::ForwardMultipleRequest {
        transaction: 5,
        destinations: vec![replica(1, 6), replica(2, 7)],
        ..Default::default()
    };
    let reply = xdr::to_vec(&vol::ForwardMultipleReply { results: vec![0, -1] });
    call(&volumes, &key_holder, vol::FORWARD_MULTIPLE, &request, Ok(reply));
    trail.stop();
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().map(|line| &line[25..]).collect();
    let expected = [
        "[1] EVENT AFS_SRX_BIFchSt CODE 0 NAME afs HOST 192.0.2.7 ID 32766 FIDS 0 FID 0:0:0 ",
        "[1] EVENT AFS_VS_Forward CODE -1 NAME afs HOST 192.0.2.7 LONG 5 HOST 192.0.2.2 LONG 7 ",
        "[1] EVENT AFS_VS_Forward CODE 0 NAME afs HOST 192.0.2.7 LONG 5 HOST 192.0.2.1 LONG 6 ",
    ];
    assert_eq!(lines[1..4], expected);
}

#[test]
fn lines_are_json() {
    let lines: Vec<serde_json::Value> =
        lines(Form::Json).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 12);
    assert_eq!((&lines[0]["event"], &lines[11]["event"]), (&"AFS_Aud_On".into(), &"AFS_Aud_Off".into()));
    let mut first = lines[1].clone();
    assert!(first["connection"].take().as_u64().is_some_and(|number| number > 0));
    let time = first["time"].take().as_str().unwrap().to_owned();
    assert_eq!((time.len(), time.ends_with('Z')), ("2026-11-16T12:00:00.123456Z".len(), true), "{time}");
    let expected = serde_json::json!({
        "time": null, "event": "AFS_SRX_StACL", "class": "rights", "service": "AFS", "procedure": "StoreACL",
        "outcome": "good", "code": 0, "user": "ann@CELL", "local_user": true, "user_id": 42,
        "host": "192.0.2.7", "port": 7001, "level": "encrypted", "connection": null, "took_us": 1500,
        "privileges": ["store-acl", "set-mode"], "cut_off": false, "arguments": { "fid": "536870912.1.1", "acl": "1\n0\nann 127\n" },
    });
    assert_eq!(first, expected);
    assert_eq!((&lines[2]["user"], &lines[2]["outcome"]), (&serde_json::Value::Null, &"denied".into()));
    assert_eq!(lines[7]["arguments"]["found"][1], serde_json::json!({ "name": "zoe", "id": 32766 }));
    assert_eq!(lines[10]["procedure"], "unknown");
}

#[test]
fn program_starts_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    let authority: Arc<dyn LocalAuthority> = Arc::new(Authority);
    let sinks = [settings(Target::File(path.clone()), Form::OpenAfs, Policy::Block)];
    Trail::start(&sinks, &[Program::Protection, Program::Volumes], &authority, clock).unwrap().stop();
    let text = std::fs::read_to_string(path).unwrap();
    let events: Vec<&str> = text.lines().map(|line| line.split(' ').nth(6).unwrap()).collect();
    assert_eq!(events, ["AFS_Aud_On", "AFS_PTS_Start", "AFS_VS_Start", "AFS_Aud_Off"]);
}

/// Lines of one second share its text; a line of another second has different text.
#[test]
fn times_are_those_of_the_records() {
    let mut times = crate::form::Times::default();
    let text = |time: jiff::Timestamp| time.to_string();
    for (at_ns, expected) in [
        (0, ("1970-01-01T00:00:00Z", 0)),
        (999_999_999, ("1970-01-01T00:00:00Z", 999_999)),
        (7_000_000_000, ("1970-01-01T00:00:07Z", 0)),
        (1_000_007_999, ("1970-01-01T00:00:01Z", 7)),
    ] {
        assert_eq!(times.of(at_ns, text), expected);
    }
}

#[test]
fn a_sink_receives_selected_records() {
    for (events, expected) in [
        (&["rights"][..], vec!["AFS_SRX_StACL"]),
        (&["users", "volumes"], vec!["AFS_PTS_NewEnt", "AFS_VS_CrVol", "CELLAR_RemoveSnapshot"]),
        (&["denied"], vec!["AFS_SRX_FchStat", "CELLAR_RemoveSnapshot"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut sink = settings(Target::File(path.clone()), Form::Json, Policy::Block);
        sink.filter = Filter::parse(events.iter().copied()).unwrap();
        let trail = start(&[sink]);
        calls(&trail);
        trail.stop();
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let names: Vec<String> = lines.map(|line| line["event"].as_str().unwrap().to_owned()).collect();
        assert_eq!(names[1..names.len() - 1], expected, "{events:?}");
    }
}

#[test]
fn nobody_forges_a_line() {
    for form in [Form::Json, Form::OpenAfs] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let trail = start(&[settings(Target::File(path.clone()), form, Policy::Block)]);
        let files = trail.service("AFS", fs::PROCEDURES);
        let name = "x\nMon Nov 16 12:00:00 2026 EVENT AFS_SRX_StACL CODE 0 NAME root";
        let request = fs::RemoveFileRequest { directory: fid(1), name: name.into() };
        let who = caller(known("a\nb", "", "CELL"));
        call(&files, &who, fs::REMOVE_FILE, &request, Err(AbortCode::UAENOENT));
        trail.stop();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}

/// A service's name, the events declared for it, and its list of procedures.
type Declared = (&'static str, &'static [Event], &'static [(u32, &'static str)]);

fn services() -> [Declared; 6] {
    [
        ("AFS", fs::PROCEDURES),
        ("PR", pr::PROCEDURES),
        ("VL", vl::PROCEDURES),
        ("AFSVol", vol::PROCEDURES),
        ("BOZO", bozo::PROCEDURES),
        ("CELLAR", cellar::PROCEDURES),
    ]
    .map(|(name, procedures)| (name, tables::events(name), procedures))
}

#[test]
fn tables_fit_the_services() {
    for (service, events, procedures) in services() {
        assert!(!events.is_empty(), "{service}");
        let mut seen = HashSet::new();
        for event in events {
            assert!(procedures.iter().any(|(opcode, _)| *opcode == event.opcode), "{service} {}", event.name);
            assert!(seen.insert(event.opcode), "{service} {} twice", event.opcode);
        }
    }
}

#[test]
fn a_key_does_not_get_into_the_audit() {
    let folder = tempfile::tempdir().unwrap();
    let trail = start(&[settings(Target::File(folder.path().join("a")), Form::Json, Policy::Block)]);
    let overseer = trail.service("BOZO", bozo::PROCEDURES);
    let mut draft = Draft::new(overseer.begin(bozo::ADD_KEY).unwrap());
    draft.received(&bozo::ADD_KEY.to_be_bytes());
    draft.received(&xdr::to_vec(&(7_i32)));
    draft.received(b"a secret");
    assert_eq!(draft.messages().request, [0, 0, 0, bozo::ADD_KEY as u8, 0, 0, 0, 7]);
}

proptest! {
    /// Holds for any request and reply.
    #[test]
    fn arbitrary_messages_are_survived(request in prop::collection::vec(any::<u8>(), 0..600),
                                       reply in prop::collection::vec(any::<u8>(), 0..600)) {
        for (_, events, _) in services() {
            for event in events {
                let _ = (event.arguments)(&request, &reply, &mut Vec::new());
            }
        }
    }

    /// The FID read without decoding the arguments equals the one in the arguments.
    #[test]
    fn a_fid_is_that_of_the_arguments(request in prop::collection::vec(any::<u8>(), 0..40)) {
        let outlines = tables::events("AFS").iter().filter(|event| event.shape == Shape::Fid);
        for event in outlines {
            let outline = crate::Outline { event, service: "AFS", procedure: "", number: 0 };
            let (who, facts) = (caller(Identity::Anonymous), CallFacts::default());
            let call = Call { caller: &who, result: Ok(()), facts: &facts, took_ns: 0, ended: clock() };
            let raw_record = RawRecord::new(&outline, &call, Messages { request: &request, reply: &[] }, false);
            let words: Vec<AtomicU64> = (0..raw_record.parts().words).map(|_| AtomicU64::new(u64::MAX)).collect();
            raw_record.write(&raw_record.parts(), &words);
            let record = Record::new(&words, &outline, 1);
            let mut found = Found::default();
            let value = record.arguments(&mut found).map(|found| (found.len(), found[0].name, found[0].value.clone()));
            prop_assert_eq!(record.fid().map(|fid| (1, "fid", Value::Fid(fid))), value);
        }
    }

    /// However messages are split, the outline's number of bytes is kept.
    #[test]
    fn drafts_keep_the_beginning(request in 0_usize..9000, piece in 1_usize..5000) {
        let event = tables::events("AFS").iter().find(|event| event.opcode == fs::FETCH_ACL).unwrap();
        let mut draft = Draft::new(&crate::Outline { event, service: "AFS", procedure: "", number: 0 });
        let bytes: Vec<u8> = (0..request).map(|at| at as u8).collect();
        bytes.chunks(piece).for_each(|piece| draft.received(piece));
        bytes.chunks(piece).for_each(|piece| draft.sent(piece));
        let kept = draft.messages();
        prop_assert_eq!(kept.request, &bytes[..request.min(event.request_max)]);
        prop_assert_eq!(kept.reply, &bytes[..request.min(event.reply_max)]);
    }
}

/// Returns a folder and a path in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("place");
    (folder, path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
