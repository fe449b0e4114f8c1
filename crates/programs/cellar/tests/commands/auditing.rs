//! Makes known calls to every service of a whole cell and checks their audit lines in both formats.

use crate::support::cell::Cell;
use crate::support::place::Place;
use crate::support::{figure, look, soon};
use afs_idl::{bozo, cellar as own, fs as rxafs, pr, vl, vol};
use base::AbortCode;
use cell_client::{Interface, Network};
use cellar_server::FaultInjection;
use load::station::{FILE_SERVICE, Station};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;

/// Two sinks: one with all events, and one with OpenAFS's default events in its format.
const SINKS: &str = "[audit.all]\nfile = \"all.json\"\nevents = [\"all\"]\npolicy = \"block\"\n\
                     [audit.changes]\nfile = \"changes\"\nformat = \"openafs\"\n";

/// What a client that has not declared support for universal error codes receives for UAEACCES.
const EACCES: AbortCode = AbortCode(13);

/// Returns the lines of a sink.
fn lines(place: &Place, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(place.path(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Replaces the thread number in a line of OpenAFS's format, which differs between runs.
fn without_thread_number(line: &str) -> String {
    let number = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    match number {
        Some((number, rest)) if number.parse::<u64>().is_ok() => format!("[thread] {rest}"),
        _ => line.to_owned(),
    }
}

#[test]
fn known_calls_leave_exactly_their_lines() {
    let cell = Cell::start(SINKS);
    let root = cell.volume_with("load", "rl");
    let (address, client, network) = (cell.address, cell.client(), cell.network());
    let admin = network.connect(cell.files_port(), FILE_SERVICE);
    let station = Station::start().unwrap();
    let nobody = cell.connect(&station);

    // The lines of both sinks are compared from this point on.
    let mark = "before-the-known-calls";
    let protection = client.connection(address, Interface::Protection);
    let made = pr::new_entry(&*protection, &pr::NewEntryRequest { name: mark.into(), flag: 0, owner: 0 });
    let user = made.unwrap().id;
    let denied = rxafs::MakeDirRequest { directory: root, name: "mine".into(), ..Default::default() };
    assert_eq!(rxafs::make_dir(&*nobody, &denied).err(), Some(EACCES));
    look(&*nobody, root);
    let request = rxafs::MakeDirRequest { directory: root, name: "ours".into(), ..Default::default() };
    let directory = rxafs::make_dir(&*admin, &request).unwrap().fid;
    let acl = format!("1\n0\n{mark} 7\n").into_bytes();
    let request = rxafs::StoreACLRequest { fid: directory, access_list: acl };
    rxafs::store_acl(&*admin, &request).unwrap();
    pr::delete(&*protection, &pr::DeleteRequest { id: user }).unwrap();
    let volumes = client.connection(address, Interface::Volumes);
    assert!(vol::delete_volume(&*volumes, &vol::DeleteVolumeRequest { transaction: 4711 }).is_err());
    let locations = client.connection(address, Interface::Locations);
    let request = vl::DeleteEntryRequest { volume_id: 4711, volume_type: -1 };
    assert!(vl::delete_entry(&*locations, &request).is_err());
    let overseer = network.connect(SocketAddr::from((address, 7007)), 1);
    bozo::add_s_user(&*overseer, &bozo::AddSUserRequest { name: "zoe".into() }).unwrap();
    let ours = client.connection(address, Interface::Cellar);
    let request = own::SetVolumePolicyRequest { volume: root.volume, compression: "lz4".into() };
    own::set_volume_policy(&*ours, &request).unwrap();

    let stat = cell.stat("audit");
    let Cell { running, place } = cell;
    running.stop().unwrap();
    for sink in ["all", "changes"] {
        let row = stat.iter().find(|row| row["sink"] == sink).unwrap();
        assert_eq!((&row["dropped"], &row["failures"]), (&json!(0), &json!(0)), "{stat:?}");
    }

    let all: Vec<Value> = lines(&place, "all.json")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .skip_while(|line: &Value| line["arguments"]["name"] != mark)
        .collect();
    let fid = |fid: rxafs::Fid| format!("{}.{}.{}", fid.volume, fid.vnode, fid.unique);
    let (volserver, vlserver) = (code(&all, "AFS_VS_DelVol"), code(&all, "AFS_VL_DelEnt"));
    let acl = format!("1\n0\n{mark} 7\n");
    let nothing = "0.0.0";
    let expected = [
        ("AFS_PTS_NewEnt", "afs", 0, json!({ "id": user, "name": mark, "owner": 0, "flag": 0 })),
        ("AFS_SRX_MakeDir", "", EACCES.0, json!({ "directory": fid(root), "name": "mine", "fid": nothing })),
        ("AFS_SRX_FchStat", "", 0, json!({ "fid": fid(root) })),
        (
            "AFS_SRX_MakeDir",
            "afs",
            0,
            json!({ "directory": fid(root), "name": "ours", "fid": fid(directory) }),
        ),
        ("AFS_SRX_StACL", "afs", 0, json!({ "fid": fid(directory), "acl": acl })),
        ("AFS_PTS_Del", "afs", 0, json!({ "id": user })),
        ("AFS_VS_DelVol", "afs", volserver, json!({ "transaction": 4711 })),
        ("AFS_VL_DelEnt", "afs", vlserver, json!({ "volume": 4711 })),
        ("AFS_BOS_AddSUsr", "afs", 0, json!({ "name": "zoe" })),
        ("CELLAR_SetVolumePolicy", "afs", 0, json!({ "volume": root.volume, "compression": "lz4" })),
    ];
    let wanted: Vec<&str> = expected.iter().map(|(event, ..)| *event).collect();
    let reported: Vec<&Value> =
        all.iter().filter(|line| wanted.iter().any(|event| line["event"] == *event)).collect();
    let shown = |line: &&Value| {
        let user = line["user"].as_str().unwrap_or_default().to_owned();
        assert_eq!((&line["cut_off"], &line["host"]), (&json!(false), &json!("127.0.0.1")), "{line}");
        (
            line["event"].as_str().unwrap().to_owned(),
            user,
            line["code"].as_i64().unwrap(),
            line["arguments"].clone(),
        )
    };
    let expect = |(event, user, code, arguments): &(&str, &str, i32, Value)| {
        ((*event).to_owned(), (*user).to_owned(), i64::from(*code), arguments.clone())
    };
    assert_eq!(
        reported.iter().map(shown).collect::<Vec<_>>(),
        expected.iter().map(expect).collect::<Vec<_>>(),
        "{all:?}"
    );

    // The other format: FetchStatus is not among its default events.
    let colon = |fid: rxafs::Fid| format!("{}:{}:{}", fid.volume, fid.vnode, fid.unique);
    // There, holders of the cell's key have the ID of anonymous callers.
    let (host, id) = ("HOST 127.0.0.1", 32766);
    assert_eq!((&reported[1]["outcome"], &reported[1]["user_id"]), (&json!("denied"), &json!(32766)));
    let changes: Vec<String> = lines(&place, "changes")
        .iter()
        .map(|line| without_thread_number(&line[25..]))
        .skip_while(|line| !line.contains(mark))
        .collect();
    let expected = [
        format!("EVENT AFS_PTS_NewEnt CODE 0 NAME afs {host} ID {user} STR {mark} ID 0 "),
        "[thread] EVENT AFS_Aud_Unauth CODE -1 STR AFS_SRX_MakeDir ".to_owned(),
        format!(
            "[thread] EVENT AFS_SRX_MakeDir CODE {} NAME --UnAuth-- {host} ID 32766 FID {} STR mine FID 0:0:0 ",
            EACCES.0,
            colon(root)
        ),
        format!(
            "[thread] EVENT AFS_SRX_MakeDir CODE 0 NAME afs {host} ID {id} FID {} STR ours FID {} ",
            colon(root),
            colon(directory)
        ),
        // A holder of the cell's key is an administrator.
        format!("[thread] EVENT AFS_Priv CODE 0 ID {id} INT 1 "),
        format!(
            "[thread] EVENT AFS_SRX_StACL CODE 0 NAME afs {host} ID {id} FID {} ACL 1\\n0\\n{mark} 7\\n ",
            colon(directory)
        ),
        format!("EVENT AFS_PTS_Del CODE 0 NAME afs {host} ID {user} "),
        format!("[thread] EVENT AFS_VS_DelVol CODE {volserver} NAME afs {host} LONG 4711 "),
        format!("EVENT AFS_VL_DelEnt CODE {vlserver} NAME afs {host} LONG 4711 "),
        format!("EVENT AFS_BOS_AddSUsr CODE 0 NAME afs {host} "),
        format!("[thread] EVENT CELLAR_SetVolumePolicy CODE 0 NAME afs {host} LONG {} STR lz4 ", root.volume),
        "EVENT AFS_Aud_Off CODE 0 ".to_owned(),
    ];
    assert_eq!(changes, expected);
}

/// Returns the abort code of an event's call, which must have failed.
fn code(lines: &[Value], event: &str) -> i32 {
    let code = lines.iter().find(|line| line["event"] == event).unwrap()["code"].as_i64().unwrap();
    assert_ne!(code, 0, "{event}");
    code as i32
}

/// Returns all audit metrics, by name, of a sink. Reading them leaves no record.
fn figures(cell: &Cell, sink: &str) -> impl Fn(&str) -> u64 + use<> {
    let (text, sink) = (cell.get("/metrics"), sink.to_owned());
    move |name| -> u64 {
        let name = format!("cellar_audit_{name}{{sink=\"{sink}\"}}");
        figure(&text, &name).unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

/// Counts the records in a trail, and those it reports as lost.
fn reported(lines: &[String]) -> (u64, u64) {
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_notice = |line: &&Value| line["host"].is_null();
    let notices = lines.iter().filter(is_notice).count();
    (lines.len() as u64 - notices as u64, lines.iter().filter_map(|line| line["lost"].as_u64()).sum())
}

#[test]
fn written_and_lost_records_add_up() {
    let more = "[audit.stuck]\npipe = \"stuck\"\nevents = [\"all\"]\nqueue = 16\n[metrics]\nport = 0\n";
    let place = Place::new(&format!("{SINKS}{more}"));
    let pipe = place.path("stuck");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A reader has the pipe open, but does not read.
    let standing_still = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let cell = Cell::start_at(place, &FaultInjection::default());
    let root = cell.volume("load");
    let station = Station::start().unwrap();
    let nobody = cell.connect(&station);
    (0..2000).for_each(|_| look(&*nobody, root));

    // The doctor reports it; the sink has lost more records by then.
    let behind = cell.finding("audit-behind");
    let [evidence] = &behind["evidence"].as_array().unwrap()[..] else { panic!("of one sink: {behind}") };
    let evidence = evidence.as_str().unwrap();
    assert!(evidence.starts_with("stuck: 0 records written, ") && !evidence.contains(" 0 lost"), "{behind}");

    // The sink for all events has every line counted in its row, byte for byte.
    let all = soon("what the row says is in the file", || {
        let (row, text) = (figures(&cell, "all"), std::fs::read_to_string(cell.path("all.json")).unwrap());
        let (records, lost) = reported(&lines(&cell, "all.json"));
        let is_equal = (row("records_total"), row("written_bytes_total")) == (records, text.len() as u64);
        (is_equal && records > 2000 && row("queued") == 0).then_some((records, lost, row("dropped_total")))
    });
    assert_eq!((all.1, all.2), (0, 0));
    let all = all.0;
    let row = figures(&cell, "stuck");
    assert!(row("dropped_total") > 0 && row("queued") == row("queue_limit"), "it stands still");
    assert!(row("records_total") + row("dropped_total") + row("queued") <= all);
    assert_eq!((row("waits_total"), row("failures_total")), (0, 0));

    let out = std::fs::File::create(cell.path("stuck.json")).unwrap();
    let mut reader = Command::new("cat").arg(&pipe).stdout(out).spawn().unwrap();
    let (records, lost) = soon("what is not lost is written", || {
        let row = figures(&cell, "stuck");
        let numbers = (row("records_total"), row("dropped_total"));
        (numbers.0 + numbers.1 == all && row("queued") == 0).then_some(numbers)
    });
    let Cell { running, place } = cell;
    running.stop().unwrap();
    drop(standing_still);
    assert!(reader.wait().unwrap().success());
    assert_eq!(reported(&lines(&place, "stuck.json")), (records, lost), "the trail says what its row says");
}
