//! A whole cell, known calls of every service, and exactly their lines in both forms.

mod support;

use afs_idl::{bozo, cellar as own, fs as rxafs, pr, vl, vol};
use anyhow::Result;
use base::{AbortCode, VolumeName};
use cellar::client::{CellClient, Interface, Network};
use cellar::commands::volume::{self, Create};
use cellar::config::{self, Settings};
use cellar::network::{AfsNetwork, local_authentication};
use cellar::serve;
use load::files::volume_root;
use load::station::{FILE_SERVICE, Station};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A cell on an address of loopback that nobody else is likely to use: the ports are AFS's.
fn settings(folder: &Path, address: Ipv4Addr) -> Result<Settings> {
    let more = "[audit.all]\nfile = \"all.json\"\nevents = [\"all\"]\npolicy = \"block\"\n\
                [audit.changes]\nfile = \"changes\"\nformat = \"openafs\"\n";
    let config = support::configure(folder, address, more)?;
    config::file::load(&config)
}

/// What UAEACCES is to a client that has not said that it knows it.
const EACCES: AbortCode = AbortCode(13);

/// The lines of a sink.
fn lines(folder: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn known_calls_leave_exactly_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let address = support::address();
    let settings = Arc::new(settings(folder.path(), address).unwrap());
    let running = serve::start(&settings).unwrap();
    let network = Arc::new(AfsNetwork::start(Some(local_authentication(&settings.keys).unwrap())).unwrap());
    let client = CellClient::new(network.clone(), vec![address]).unwrap();
    let name: VolumeName = "load".parse().unwrap();
    volume::create_volume(&client, &Create::with_acl(name, 0, &["system:anyuser=rl"])).unwrap();
    let root = volume_root(&*client.connection(address, Interface::Locations), "load").unwrap();
    let port = SocketAddr::from((address, 7000));
    let admin = network.connect(port, FILE_SERVICE);
    let station = Station::start().unwrap();
    let nobody = station.connect(port, FILE_SERVICE, None);

    // From here on: what the two are expected to leave.
    let mark = "before-the-known-calls";
    let protection = client.connection(address, Interface::Protection);
    let made = pr::new_entry(&*protection, &pr::NewEntryRequest { name: mark.into(), flag: 0, owner: 0 });
    let user = made.unwrap().id;
    let denied = rxafs::MakeDirRequest { directory: root, name: "mine".into(), ..Default::default() };
    assert_eq!(rxafs::make_dir(&*nobody, &denied).err(), Some(EACCES));
    rxafs::fetch_status(&*nobody, &rxafs::FetchStatusRequest { fid: root }).unwrap();
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

    let stat = Command::new(env!("CARGO_BIN_EXE_cellar"))
        .args(["stat", "audit", "--json", "--config"])
        .arg(folder.path().join("cellar.toml"))
        .output()
        .unwrap();
    let stat: Value = serde_json::from_slice(&stat.stdout).unwrap();
    running.stop().unwrap();
    for sink in ["all", "changes"] {
        let row = stat.as_array().unwrap().iter().find(|row| row["sink"] == sink).unwrap();
        assert_eq!((&row["dropped"], &row["failures"]), (&json!(0), &json!(0)), "{stat}");
    }

    let all: Vec<Value> = lines(folder.path(), "all.json")
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
    let told: Vec<&Value> =
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
        told.iter().map(shown).collect::<Vec<_>>(),
        expected.iter().map(expect).collect::<Vec<_>>(),
        "{all:?}"
    );

    // The other form: FetchStatus is not among what it wants by default.
    let colon = |fid: rxafs::Fid| format!("{}:{}:{}", fid.volume, fid.vnode, fid.unique);
    let (host, id) = ("HOST 127.0.0.1", told[3]["user_id"].as_i64().unwrap_or(0));
    assert_eq!((&told[1]["outcome"], &told[1]["user_id"]), (&json!("denied"), &json!(32766)));
    let changes: Vec<String> = lines(folder.path(), "changes")
        .iter()
        .map(|line| line[25..].to_owned())
        .skip_while(|line| !line.contains(mark))
        .collect();
    let expected = [
        format!("EVENT AFS_PTS_NewEnt CODE 0 NAME afs {host} ID {user} STR {mark} ID 0 "),
        "EVENT AFS_Aud_Unauth CODE -1 STR AFS_SRX_MakeDir ".to_owned(),
        format!(
            "EVENT AFS_SRX_MakeDir CODE {} NAME --UnAuth-- {host} ID 32766 FID {} STR mine FID 0:0:0 ",
            EACCES.0,
            colon(root)
        ),
        format!(
            "EVENT AFS_SRX_MakeDir CODE 0 NAME afs {host} ID {id} FID {} STR ours FID {} ",
            colon(root),
            colon(directory)
        ),
        // Who holds the cell's key is an administrator.
        format!("EVENT AFS_Priv CODE 0 ID {id} INT 1 "),
        format!(
            "EVENT AFS_SRX_StACL CODE 0 NAME afs {host} ID {id} FID {} ACL 1\\n0\\n{mark} 7\\n ",
            colon(directory)
        ),
        format!("EVENT AFS_PTS_Del CODE 0 NAME afs {host} ID {user} "),
        format!("EVENT AFS_VS_DelVol CODE {volserver} NAME afs {host} LONG 4711 "),
        format!("EVENT AFS_VL_DelEnt CODE {vlserver} NAME afs {host} LONG 4711 "),
        format!("EVENT AFS_BOS_AddSUsr CODE 0 NAME afs {host} "),
        format!("EVENT CELLAR_SetVolumePolicy CODE 0 NAME afs {host} LONG {} STR lz4 ", root.volume),
        "EVENT AFS_Aud_Off CODE 0 ".to_owned(),
    ];
    assert_eq!(changes, expected);
}

/// How the call of an event ended; it did not end well.
fn code(lines: &[Value], event: &str) -> i32 {
    let code = lines.iter().find(|line| line["event"] == event).unwrap()["code"].as_i64().unwrap();
    assert_ne!(code, 0, "{event}");
    code as i32
}

/// All metrics of the audit: by name and sink. To ask for them leaves no record.
fn figures(running: &serve::Running, sink: &str) -> impl Fn(&str) -> u64 + use<> {
    let mut stream = TcpStream::connect(running.metrics_address().unwrap()).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let sink = sink.to_owned();
    move |name| -> u64 {
        let row = format!("cellar_audit_{name}{{sink=\"{sink}\"}} ");
        let number = text.lines().find_map(|line| line.strip_prefix(&row));
        number.unwrap_or_else(|| panic!("no {row} in {text}")).parse().unwrap()
    }
}

fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What is in a trail: records, and how many it says are lost.
fn told(lines: &[String]) -> (u64, u64) {
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_notice = |line: &&Value| line["host"].is_null();
    let notices = lines.iter().filter(is_notice).count();
    (lines.len() as u64 - notices as u64, lines.iter().filter_map(|line| line["lost"].as_u64()).sum())
}

#[test]
fn what_is_written_and_what_a_sink_that_stands_still_loses_is_all_that_happened() {
    let folder = tempfile::tempdir().unwrap();
    let address = support::address();
    settings(folder.path(), address).unwrap();
    let config = folder.path().join("cellar.toml");
    let more = "[audit.stuck]\npipe = \"stuck\"\nevents = [\"all\"]\nqueue = 16\n[metrics]\nport = 0\n";
    std::fs::write(&config, std::fs::read_to_string(&config).unwrap() + more).unwrap();
    let pipe = folder.path().join("stuck");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Somebody has it open, and does not read.
    let standing_still = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let settings = Arc::new(config::file::load(&config).unwrap());
    let running = serve::start(&settings).unwrap();
    let network = Arc::new(AfsNetwork::start(Some(local_authentication(&settings.keys).unwrap())).unwrap());
    let client = CellClient::new(network, vec![address]).unwrap();
    volume::create_volume(&client, &Create::with_acl("load".parse().unwrap(), 0, &["system:anyuser=rl"]))
        .unwrap();
    let root = volume_root(&*client.connection(address, Interface::Locations), "load").unwrap();
    let station = Station::start().unwrap();
    let nobody = station.connect(SocketAddr::from((address, 7000)), FILE_SERVICE, None);
    for _ in 0..2000 {
        rxafs::fetch_status(&*nobody, &rxafs::FetchStatusRequest { fid: root }).unwrap();
    }

    // Who looks for what is wrong is told of it: the sink lost more meanwhile.
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_cellar"));
    doctor.args(["doctor", "--interval", "1", "--json", "--config"]).arg(&config);
    let output = doctor.env("HOME", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = said["findings"].as_array().unwrap();
    let behind = findings.iter().find(|finding| finding["problem"] == "audit-behind");
    let behind = behind.unwrap_or_else(|| panic!("{findings:#?}"));
    let [evidence] = &behind["evidence"].as_array().unwrap()[..] else { panic!("of one sink: {behind}") };
    let evidence = evidence.as_str().unwrap();
    assert!(evidence.starts_with("stuck: 0 records written, ") && !evidence.contains(" 0 lost"), "{behind}");

    // The sink that takes everything has all lines that its row says, byte for byte.
    let all = soon("what the row says is in the file", || {
        let (row, text) =
            (figures(&running, "all"), std::fs::read_to_string(folder.path().join("all.json")).unwrap());
        let (records, lost) = told(&lines(folder.path(), "all.json"));
        let is_equal = (row("records_total"), row("written_bytes_total")) == (records, text.len() as u64);
        (is_equal && records > 2000 && row("queued") == 0).then_some((records, lost, row("dropped_total")))
    });
    assert_eq!((all.1, all.2), (0, 0));
    let all = all.0;
    let row = figures(&running, "stuck");
    assert!(row("dropped_total") > 0 && row("queued") == row("queue_limit"), "it stands still");
    assert!(row("records_total") + row("dropped_total") + row("queued") <= all);
    assert_eq!((row("waits_total"), row("failures_total")), (0, 0));

    let out = std::fs::File::create(folder.path().join("stuck.json")).unwrap();
    let mut reader = Command::new("cat").arg(&pipe).stdout(out).spawn().unwrap();
    let (records, lost) = soon("what is not lost is written", || {
        let row = figures(&running, "stuck");
        let numbers = (row("records_total"), row("dropped_total"));
        (numbers.0 + numbers.1 == all && row("queued") == 0).then_some(numbers)
    });
    running.stop().unwrap();
    drop(standing_still);
    assert!(reader.wait().unwrap().success());
    assert_eq!(
        told(&lines(folder.path(), "stuck.json")),
        (records, lost),
        "the trail says what its row says"
    );
}
