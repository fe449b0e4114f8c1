//! OpenAFS's security advisories since 2013, replayed against a whole cell. `docs/reference/advisories.md`
//! lists all of them, including those covered by other tests and those that cannot apply.

use crate::support::cell::Cell;
use crate::support::place::address;
use afs_idl::{CallStream, ClientConnection, bozo, cellar as cellar_idl, fs, pr, vl, vol};
use base::{AbortCode, limits};
use load::files::{Fid, Files};
use load::station::{FILE_SERVICE, Station};
use rx::{ServerCall, Service};
use rx_proto::header::{self, Flags, Header, PacketType};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use xdr::{Encode, XdrString};

/// A cell, a caller without a token, and a caller with the cell's key.
struct World {
    cell: Cell,
    station: Station,
}

impl World {
    fn new() -> World {
        World { cell: Cell::start(""), station: Station::start().unwrap() }
    }

    fn anonymous(&self, port: u16, service: u16) -> Arc<dyn ClientConnection> {
        self.station.connect(SocketAddr::from((self.cell.address, port)), service, None)
    }

    fn administrator(&self, port: u16, service: u16) -> Arc<dyn ClientConnection> {
        let address = SocketAddr::from((self.cell.address, port));
        self.station.connect(address, service, Some(self.cell.security()))
    }

    /// Checks that both services exposed to a flood of garbage still answer.
    fn check_alive(&self) {
        let files = self.anonymous(fs::PORT, fs::SERVICE_ID);
        fs::get_time(&*files, &fs::GetTimeRequest).unwrap();
        let locations = self.anonymous(vl::PORT, vl::SERVICE_ID);
        vl::probe_server(&*locations, &vl::ProbeServerRequest).unwrap();
    }
}

/// Calls `opcode` with `body` unchanged and returns the reply's bytes.
fn call_raw(connection: &dyn ClientConnection, opcode: u32, body: &[u8]) -> Result<Vec<u8>, AbortCode> {
    let mut call = connection.begin()?;
    let mut message = xdr::to_vec(&opcode);
    message.extend_from_slice(body);
    call.write(message.into())?;
    call.end_request()?;
    let mut reply = Vec::new();
    loop {
        let chunk = call.read_chunk(1 << 16)?;
        if chunk.is_empty() {
            break;
        }
        reply.extend_from_slice(&chunk);
    }
    call.finish()?;
    Ok(reply)
}

fn acl_of(connection: &dyn ClientConnection, fid: Fid) -> Vec<u8> {
    fs::fetch_acl(connection, &fs::FetchACLRequest { fid }).unwrap().access_list
}

/// Access lists that made OpenAFS's parsers read or write beyond their buffers.
fn malformed_acls() -> Vec<Vec<u8>> {
    let entries = |count: usize| {
        let lines: Vec<String> = (0..count).map(|n| format!("{}\t1\n", n + 1)).collect();
        let lines = lines.concat();
        format!("{count}\n0\n{lines}\0").into_bytes()
    };
    vec![
        b"1\n0\n".iter().copied().chain(vec![b'a'; 4000]).chain(*b"\t127\n\0").collect(),
        entries(limits::ACL_ENTRIES_MAX + 1),
        b"1000000000\n0\nadmin\t127\n\0".to_vec(),
        b"-1\n-1\nadmin\t127\n\0".to_vec(),
        b"1\n0\nadmin\t99999999999999999999\n\0".to_vec(),
        b"1\n1\nadmin\t127\n\0".to_vec(),
        b"2\n0\nadmin\t127\0".to_vec(),
        b"1".to_vec(),
        b"1\n0".to_vec(),
        Vec::new(),
        vec![0xff; 1000],
    ]
}

/// OPENAFS-SA-2013-001 (CVE-2013-1794) and OPENAFS-SA-2024-002 (CVE-2024-10396).
#[test]
fn sa_2013_001_and_2024_002_malformed_acls_are_refused() {
    let world = World::new();
    let root = world.cell.volume_with("acl", "rlidwka");
    let admin = world.administrator(fs::PORT, fs::SERVICE_ID);
    let before = acl_of(&*admin, root);
    for access_list in malformed_acls() {
        let shown = String::from_utf8_lossy(&access_list).into_owned();
        let stored = fs::store_acl(&*admin, &fs::StoreACLRequest { fid: root, access_list });
        assert!(stored.is_err(), "{shown:?}");
        assert_eq!(acl_of(&*admin, root), before, "{shown:?}");
    }
    assert_eq!(before.iter().position(|byte| *byte == 0), Some(before.len() - 1), "one NUL, at the end");
    world.check_alive();
}

/// OPENAFS-SA-2013-002 (CVE-2013-1795).
#[test]
fn sa_2013_002_id_to_name_takes_a_bounded_list() {
    let world = World::new();
    let protection = world.anonymous(pr::PORT, pr::SERVICE_ID);
    let ids = |count: usize| pr::IDToNameRequest { ids: vec![32_766; count] };
    assert_eq!(pr::id_to_name(&*protection, &ids(1000)).unwrap().names.len(), 1000);
    let refused = pr::id_to_name(&*protection, &ids(5001)).map(|reply| reply.names.len());
    assert_eq!(refused, Err(AbortCode::PRTOOMANY));
    let refused = pr::id_to_name(&*protection, &ids(600_000)).map(|reply| reply.names.len());
    assert!(refused.is_err());
    assert_eq!(pr::id_to_name(&*protection, &ids(1)).unwrap().names.len(), 1);
}

/// OPENAFS-SA-2014-001 (CVE-2014-0159).
#[test]
fn sa_2014_001_statistics_are_bounded_by_the_server() {
    let world = World::new();
    let files = world.anonymous(fs::PORT, fs::SERVICE_ID);
    for version in [0, 1, fs::STATISTICS64_MAX as i32, 17, 4096, i32::MAX, -1, i32::MIN] {
        if let Ok(reply) = fs::get_statistics64(&*files, &fs::GetStatistics64Request { version }) {
            assert!(reply.statistics.len() <= fs::STATISTICS64_MAX, "{version}");
        }
    }
    world.check_alive();
}

/// OPENAFS-SA-2015-001 (CVE-2015-3282): unused fields of a new entry are zero on the wire.
#[test]
fn sa_2015_001_unused_fields_of_entries_are_zero() {
    let world = World::new();
    world.cell.volume("entry");
    let locations = world.administrator(vl::PORT, vl::SERVICE_ID);
    let request = vl::GetEntryByNameNRequest { volume_name: XdrString(b"entry".to_vec()) };
    let entry = vl::get_entry_by_name_n(&*locations, &request).unwrap().entry;
    assert_eq!(entry.server_count, 1);
    assert!(entry.server_number[1..].iter().all(|server| *server == 0), "{entry:?}");
    assert!(entry.server_partition[1..].iter().all(|partition| *partition == 0), "{entry:?}");
    assert!(entry.server_flags[1..].iter().all(|flags| *flags == 0), "{entry:?}");
    assert_eq!((entry.spares, entry.match_index), ([0; 8], 0));
}

/// Opcodes of overseer calls that change something (OPENAFS-SA-2015-002, CVE-2015-3283).
const OVERSEER_CHANGES: &[u32] = &[
    bozo::CREATE_BNODE,
    bozo::DELETE_BNODE,
    bozo::SET_STATUS,
    bozo::ADD_S_USER,
    bozo::DELETE_S_USER,
    bozo::ADD_KEY,
    bozo::DELETE_KEY,
    bozo::SET_CELL_NAME,
    bozo::ADD_CELL_HOST,
    bozo::DELETE_CELL_HOST,
    bozo::SET_T_STATUS,
    bozo::SHUTDOWN_ALL,
    bozo::RESTART_ALL,
    bozo::STARTUP_ALL,
    bozo::SET_NO_AUTH_FLAG,
    bozo::RE_BOZO,
    bozo::RESTART,
    bozo::INSTALL,
    bozo::UN_INSTALL,
    bozo::EXEC,
    bozo::PRUNE,
    bozo::SET_RESTART_TIME,
    bozo::SET_RESTRICTED_MODE,
];

#[test]
fn sa_2015_002_strangers_change_nothing_of_the_overseer() {
    let world = World::new();
    // Enough zeros for the arguments of any call, as numbers or empty strings.
    for opcode in OVERSEER_CHANGES {
        // A new caller for each, because aborts to a single caller are throttled.
        let station = Station::start().unwrap();
        let address = SocketAddr::from((world.cell.address, bozo::PORT));
        let overseer = station.connect(address, bozo::SERVICE_ID, None);
        let refused = call_raw(&*overseer, *opcode, &[0; 64]).unwrap_err();
        let name = bozo::procedure_name(*opcode).unwrap();
        let expected = [AbortCode::BZACCESS, AbortCode::RXGEN_OPCODE, AbortCode::RXGEN_SS_UNMARSHAL];
        assert!(expected.contains(&refused), "{name}: {refused}");
    }
    world.check_alive();
}

/// OPENAFS-SA-2015-006 (CVE-2015-6587): patterns for volume names.
#[test]
fn sa_2015_006_hostile_patterns_cost_nothing() {
    let world = World::new();
    world.cell.volume(&"a".repeat(22));
    let locations = world.administrator(vl::PORT, vl::SERVICE_ID);
    for pattern in ["(((a+)+)+)+$", "(a|a)*(a|a)*(a|a)*b", "[", "\\", "a{1000}{1000}{1000}", &"a".repeat(254)]
    {
        let request = vl::ListAttributesN2Request {
            volume_name: XdrString(pattern.into()),
            ..vl::ListAttributesN2Request::default()
        };
        // Whether it matches, finds nothing or rejects the pattern, the call must end.
        let _ = vl::list_attributes_n2(&*locations, &request);
    }
    let long = vl::ListAttributesN2Request {
        volume_name: XdrString(vec![b'a'; 4096]),
        ..vl::ListAttributesN2Request::default()
    };
    assert!(vl::list_attributes_n2(&*locations, &long).is_err());
    world.check_alive();
}

/// A peer without a ticket that sends and receives individual Rx packets.
struct RawPeer {
    socket: UdpSocket,
    header: Header,
}

impl RawPeer {
    /// Opens a new connection to the location service.
    fn new(server: Ipv4Addr) -> RawPeer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect((server, vl::PORT)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let header = Header {
            epoch: rand::random::<u32>() | 1 << 31,
            cid: rand::random::<u32>() & !3,
            call_number: 1,
            sequence: 1,
            serial: 1,
            kind: PacketType::Data,
            flags: Flags::CLIENT_INITIATED,
            user_status: 0,
            security_index: 0,
            checksum: 0,
            service_id: vl::SERVICE_ID,
        };
        RawPeer { socket, header }
    }

    fn send(&mut self, kind: PacketType, sequence: u32, flags: Flags, body: &[u8]) {
        self.header.serial += 1;
        let flags = flags.with(Flags::CLIENT_INITIATED);
        let header = Header { kind, sequence, flags, ..self.header };
        let mut packet = header.encode().to_vec();
        packet.extend_from_slice(body);
        self.socket.send(&packet).unwrap();
    }

    fn receive(&self) -> (Header, Vec<u8>) {
        let mut packet = [0; 2048];
        let length = self.socket.recv(&mut packet).expect("an answer in time");
        let (header, body) = header::parse(&packet[..length]).unwrap();
        (header, body.to_vec())
    }

    fn receive_ack(&self) -> Vec<u8> {
        loop {
            let (header, body) = self.receive();
            if header.kind == PacketType::Ack {
                return body;
            }
        }
    }
}

/// Offset of the packet count in an ACK; a byte for each packet follows.
const ACK_COUNT: usize = 17;

/// OPENAFS-SA-2015-007 (CVE-2015-7762, CVE-2015-7763): ACK packets contain none of the server's memory.
#[test]
fn sa_2015_007_padding_of_acks_is_zero() {
    let world = World::new();
    let mut peer = RawPeer::new(world.cell.address);
    peer.send(PacketType::Data, 1, Flags::REQUEST_ACK, &[0; 500]);
    let body = peer.receive_ack();
    let bits = ACK_COUNT + 1 + usize::from(body[ACK_COUNT]);
    assert_eq!(&body[bits..bits + 3], &[0; 3]);
    assert_eq!(body[..4], [0; 4], "buffer space and skew are not used");
    assert!(body.len() <= bits + 3 + 16, "nothing behind the trailer: {} bytes", body.len());
}

/// OPENAFS-SA-2017-001 (CVE-2017-17432): a peer's transport parameters are not trusted blindly.
#[test]
fn sa_2017_001_absurd_ack_trailers_do_no_harm() {
    let world = World::new();
    for value in [0, 1, 27, 28, 29, 32, u32::MAX, i32::MAX as u32] {
        let mut peer = RawPeer::new(world.cell.address);
        let ack = |serial: u32| {
            let mut body = vec![0; 4];
            for word in [1_u32, 0, serial] {
                word.encode(&mut body);
            }
            body.extend_from_slice(&[7, 0, 0, 0, 0]);
            (0..4).for_each(|_| value.encode(&mut body));
            body
        };
        peer.send(PacketType::Ack, 0, Flags::default(), &ack(0));
        peer.send(
            PacketType::Data,
            1,
            Flags::LAST_PACKET.with(Flags::REQUEST_ACK),
            &xdr::to_vec(&vl::PROBE_SERVER),
        );
        // Answer each packet of the server with such a trailer until the reply has arrived.
        loop {
            let (header, _) = peer.receive();
            peer.send(PacketType::Ack, 0, Flags::default(), &ack(header.serial));
            if header.kind == PacketType::Data {
                break;
            }
        }
    }
    world.check_alive();
}

/// OPENAFS-SA-2016-002 (CVE-2016-4536), OPENAFS-SA-2018-002 (CVE-2018-16948), OPENAFS-SA-2019-001
/// (CVE-2019-18603) and OPENAFS-SA-2019-002 (CVE-2019-18602): replies contain none of the server's memory.
#[test]
fn sa_2016_002_to_2019_002_unused_fields_of_replies_are_zero() {
    let world = World::new();
    let root = world.cell.volume("status");
    let files = world.anonymous(fs::PORT, fs::SERVICE_ID);
    let found = fs::fetch_status(&*files, &fs::FetchStatusRequest { fid: root }).unwrap();
    assert_eq!((found.sync.spare2, found.sync.spare3, found.sync.spare4), (0, 0, 0));
    assert_eq!((found.sync.spare5, found.sync.spare6), (0, 0));
    let message = fs::GetVolumeStatusRequest { volume_id: root.volume };
    let status = fs::get_volume_status(&*files, &message).unwrap();
    assert_eq!(status.name.0, b"status");
    assert!(status.offline_message.0.is_empty() && status.message_of_the_day.0.is_empty());
    // A failed call returns its code and no byte of a reply.
    let absent = fs::FetchStatusRequest { fid: Fid { vnode: 999, ..root } };
    let mut call = files.begin().unwrap();
    let mut request = xdr::to_vec(&fs::FETCH_STATUS);
    absent.encode(&mut request);
    call.write(request.into()).unwrap();
    call.end_request().unwrap();
    assert_eq!(call.read_chunk(1 << 16), Err(AbortCode::VNOVNODE));
}

/// OPENAFS-SA-2016-003 (CVE-2016-9772): directories sent to clients do not contain removed names.
#[test]
fn sa_2016_003_directories_do_not_keep_removed_names() {
    let world = World::new();
    let root = world.cell.volume("names");
    let connection = world.anonymous(fs::PORT, fs::SERVICE_ID);
    let files = Files::new(Arc::clone(&connection));
    let secret = "a-name-that-nobody-may-see-again";
    files.create(root, secret).unwrap();
    assert!(contains(&directory(&*connection, root), secret), "the test sees names");
    let name = XdrString(secret.as_bytes().to_vec());
    fs::remove_file(&*connection, &fs::RemoveFileRequest { directory: root, name }).unwrap();
    files.create(root, "b").unwrap();
    assert!(!contains(&directory(&*connection, root), secret));
}

fn directory(connection: &dyn ClientConnection, fid: Fid) -> Vec<u8> {
    let request = fs::FetchData64Request { fid, position: 0, length: 1 << 20 };
    let mut found = Vec::new();
    fs::fetch_data64(connection, &request, |stream| {
        let word = |stream: &mut dyn CallStream| {
            let mut bytes = Vec::new();
            while bytes.len() < 4 {
                bytes.extend_from_slice(&stream.read_chunk(4 - bytes.len())?);
            }
            Ok::<_, AbortCode>(u32::from_be_bytes(bytes.try_into().unwrap()))
        };
        let (_high, length) = (word(stream)?, word(stream)?);
        while found.len() < length as usize {
            found.extend_from_slice(&stream.read_chunk(length as usize - found.len())?);
        }
        Ok(())
    })
    .unwrap();
    found
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

/// Opcodes of volume service calls that change a volume or send it elsewhere.
const VOLUME_CHANGES: &[u32] = &[
    vol::CREATE_VOLUME,
    vol::DELETE_VOLUME,
    vol::RESTORE,
    vol::FORWARD,
    vol::CLONE_VOLUME,
    vol::SET_FLAGS,
    vol::TRANS_CREATE,
    vol::DUMP,
    vol::SET_FORWARDING,
    vol::SET_IDS_TYPES,
    vol::RE_CLONE,
    vol::NUKE_VOLUME,
    vol::SET_DATE,
    vol::SET_INFO,
    vol::FORWARD_MULTIPLE,
    vol::CONVERT_RO_TO_RW_VOLUME,
    vol::SPLIT_VOLUME,
];

/// OPENAFS-SA-2018-001 (CVE-2018-16947): no service uses the cell's key on behalf of callers without it.
#[test]
fn sa_2018_001_strangers_cannot_write_volumes() {
    let world = World::new();
    let volumes = world.anonymous(vol::PORT, vol::SERVICE_ID);
    for opcode in VOLUME_CHANGES {
        let opcode = *opcode;
        let name = vol::procedure_name(opcode).unwrap();
        let answer = call_raw(&*volumes, opcode, &[0; 128]);
        let refused =
            [AbortCode::VOLSERBAD_ACCESS, AbortCode::RXGEN_SS_UNMARSHAL, AbortCode::UAEPERM, AbortCode(1)];
        assert!(answer.as_ref().is_err_and(|code| refused.contains(code)), "{name}: {answer:?}");
    }
    assert!(UdpSocket::bind((world.cell.address, 7025)).is_ok(), "no tape controller listens");
}

/// OPENAFS-SA-2018-003 (CVE-2018-16949): array lengths claimed by callers are not trusted.
#[test]
fn sa_2018_003_claimed_lengths_cost_nothing() {
    let world = World::new();
    let services = [
        (fs::PORT, fs::SERVICE_ID, fs::PROCEDURES),
        (pr::PORT, pr::SERVICE_ID, pr::PROCEDURES),
        (vl::PORT, vl::SERVICE_ID, vl::PROCEDURES),
        (vol::PORT, vol::SERVICE_ID, vol::PROCEDURES),
        (bozo::PORT, bozo::SERVICE_ID, bozo::PROCEDURES),
        (fs::PORT, cellar_idl::SERVICE_ID, cellar_idl::PROCEDURES),
    ];
    for (port, service, procedures) in services {
        for (opcode, _) in procedures {
            // A new caller for each procedure, because aborts to a single caller are throttled.
            let station = Station::start().unwrap();
            let connection = station.connect(SocketAddr::from((world.cell.address, port)), service, None);
            for leading in 0..4 {
                let body = [vec![0; 4 * leading], vec![0xff; 8]].concat();
                // Any answer is acceptable, as long as the server allocates nothing and keeps running.
                let _ = call_raw(&*connection, *opcode, &body);
            }
        }
    }
    world.check_alive();
}

/// OPENAFS-SA-2019-003 (CVE-2019-18601): debugging calls to the databases while they change.
#[test]
fn sa_2019_003_debugging_calls_survive_changes() {
    let world = World::new();
    let protection = world.administrator(pr::PORT, pr::SERVICE_ID);
    let voting = world.anonymous(pr::PORT, vlserver::ubik::SERVICE_ID);
    thread::scope(|scope| {
        scope.spawn(|| {
            for (opcode, _) in vlserver::ubik::PROCEDURES.iter().cycle().take(300) {
                let _ = call_raw(&*voting, *opcode, &[0; 8]);
            }
        });
        for number in 0..100 {
            let name = XdrString(format!("user{number}").into_bytes());
            pr::new_entry(&*protection, &pr::NewEntryRequest { name, flag: 0, owner: 0 }).unwrap();
        }
    });
    assert!(call_raw(&*voting, vlserver::ubik::PROCEDURES[0].0, &[]).is_ok());
}

/// A server whose replies claim to be longer than they are.
struct Liar;

impl Service for Liar {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        call.write(bytes::Bytes::from_static(&[0xff; 400]))
    }
}

/// OPENAFS-SA-2024-003 (CVE-2024-10397): servers' replies do not overrun clients.
#[test]
fn sa_2024_003_clients_refuse_replies_that_do_not_decode() {
    let (address, port) = (address(), 7300);
    let _server = crate::support::serve(address, port, Liar);
    let station = Station::start().unwrap();
    let connection = station.connect(SocketAddr::from((address, port)), FILE_SERVICE, None);
    let fid = Fid { volume: 1, vnode: 1, unique: 1 };
    let acl = fs::fetch_acl(&*connection, &fs::FetchACLRequest { fid });
    assert_eq!(acl, Err(AbortCode::RXGEN_CC_UNMARSHAL));
    let statuses = fs::bulk_status(&*connection, &fs::BulkStatusRequest { fids: vec![fid] });
    assert_eq!(statuses.unwrap_err(), AbortCode::RXGEN_CC_UNMARSHAL);
    let names = pr::id_to_name(&*connection, &pr::IDToNameRequest { ids: vec![1] });
    assert_eq!(names.unwrap_err(), AbortCode::RXGEN_CC_UNMARSHAL);
}

/// Returns the first word of each row of the table in `docs/reference/advisories.md`, with the tests named in
/// the row.
fn table() -> Vec<(String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/advisories.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| OPENAFS-SA-") || line.starts_with("| CVE-"));
    rows.map(|row| {
        let advisory = row.split_whitespace().nth(1).unwrap().to_owned();
        let last = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap();
        let names = last.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (advisory, names)
    })
    .collect()
}

#[test]
fn each_test_of_the_table_exists() {
    let rows = table();
    assert!(rows.len() >= 25, "{} advisories", rows.len());
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources: Vec<String> = walkdir::WalkDir::new(crates)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .collect();
    for (advisory, names) in rows {
        for name in names {
            let definition = format!("fn {name}()");
            assert!(sources.iter().any(|text| text.contains(&definition)), "{advisory}: no test {name}");
        }
    }
}
