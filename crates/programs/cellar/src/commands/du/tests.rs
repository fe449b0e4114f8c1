//! A file server with and without Cellar's service, over the loopback interface.

use super::{DiskUsage, Found, Source, TotalsRow, asking, below_first, show, walking};
use adminserver::{AdminServer, AdminServerParts, Below, DirectoryUsage, SnapshotEntry, SnapshotHost};
use afs_format::acl::{Acl, AclEntry};
use afs_idl::cellar::DirectoryTotals;
use afs_idl::{ClientConnection, cellar, fs, vl};
use base::{
    AbortCode, CallContext, Caller, Fid, LocalAuthority, PartitionId, Principal, Rights, UnixTime, UserId,
    VolumeId, VolumeType,
};
use bytes::Bytes;
use cell_client::network::AfsNetwork;
use cell_client::{CellClient, Network};
use cellar_server::environment::{Callbacks, SystemClock};
use cellar_server::observed::Observatory;
use cellar_server::services::FromFileServer;
use fileserver::{Environment, FileServer, FileServerConfig, Membership, Subject, TransportFigures};
use rx::{Server, ServerCall, ServerConfig, Service, ServiceEntry};
use rx_proto::ServiceConfig;
use rx_security::{Null, ServerSecurity};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use store::{MemoryChunks, MemoryMeta};
use volume::{
    Actor, NewVolume, PartitionHandle, SetStatus, Space, StoreRequest, Totals, Volume, VolumeOptions, Volumes,
};

const HOME: VolumeId = VolumeId(536_870_915);
const NOTHING: SetStatus = SetStatus { mode: None, owner: None, group: None, client_modified: None };

fn actor() -> Actor {
    Actor { user: UserId(1), privileged: true, in_transaction: false, call: None, now: UnixTime(1) }
}

/// Treats every caller as anonymous.
struct Anybody;

impl Membership for Anybody {
    fn subject(&self, _: &Caller) -> Result<Subject, AbortCode> {
        Ok(Subject {
            user: UserId::ANONYMOUS,
            groups: vec![UserId::ANONYMOUS, UserId::ANYUSER],
            host_groups: vec![],
            administrator: false,
            superuser: false,
            is_partial: false,
        })
    }

    fn names(&self, ids: &[UserId]) -> Result<Vec<Vec<u8>>, AbortCode> {
        Ok(ids.iter().map(|id| id.0.to_string().into_bytes()).collect())
    }

    fn ids(&self, names: &[&[u8]]) -> Result<Vec<Option<UserId>>, AbortCode> {
        Ok(names.iter().map(|_| None).collect())
    }
}

impl LocalAuthority for Anybody {
    fn is_superuser(&self, _: &Caller) -> bool {
        false
    }

    fn is_local_realm(&self, _: &Principal) -> bool {
        true
    }
}

/// Refuses every request; these tests make no snapshots.
impl SnapshotHost for Anybody {
    fn new_ids(&self) -> Result<VolumeId, AbortCode> {
        Err(AbortCode::UAEACCES)
    }

    fn is_name_taken(&self, _: &str) -> Result<bool, AbortCode> {
        Err(AbortCode::UAEACCES)
    }

    fn register(&self, _: &SnapshotEntry) -> Result<(), AbortCode> {
        Err(AbortCode::UAEACCES)
    }

    fn unregister(&self, _: VolumeId) -> Result<(), AbortCode> {
        Err(AbortCode::UAEACCES)
    }

    fn exclusively(
        &self,
        _: VolumeId,
        _: PartitionId,
        _: &mut dyn FnMut() -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode> {
        Err(AbortCode::UAEACCES)
    }

    fn volume_changed(&self, _: VolumeId) {}
}

/// A server that has not computed its totals yet.
impl DirectoryUsage for Anybody {
    fn totals(&self, _: &CallContext<'_>, _: Fid) -> Result<Totals, AbortCode> {
        Err(AbortCode::UAEAGAIN)
    }

    fn below(
        &self,
        _: &CallContext<'_>,
        _: Fid,
        _: &[u8],
        _: usize,
    ) -> Result<(Vec<Below>, bool), AbortCode> {
        Err(AbortCode::UAEAGAIN)
    }
}

/// A location database with a single volume.
impl vl::Server for Anybody {
    fn get_entry_by_name_n(
        &self,
        _: &CallContext<'_>,
        _: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let mut entry = vl::NVldbEntry { name: "home".into(), server_count: 1, ..vl::NVldbEntry::default() };
        entry.server_number[0] = Ipv4Addr::LOCALHOST.into();
        entry.server_flags[0] = vl::site_flags::READ_WRITE;
        entry.volume_id[0] = HOME.0;
        Ok(vl::GetEntryByNameNReply { entry })
    }
}

struct Serving<F>(F);

impl<F: Fn(&Caller, &mut ServerCall) -> Result<(), AbortCode> + Send + Sync> Service for Serving<F> {
    fn serve(&self, call: &mut ServerCall) -> Result<(), AbortCode> {
        let caller = call.caller().clone();
        (self.0)(&caller, call)
    }
}

fn service<F>(id: u16, serve: F) -> ServiceEntry
where
    F: Fn(&Caller, &mut ServerCall) -> Result<(), AbortCode> + Send + Sync + 'static,
{
    let security: Vec<Arc<dyn ServerSecurity>> = vec![Arc::new(Null)];
    ServiceEntry {
        config: ServiceConfig { id, name: "test".into(), security },
        service: Arc::new(Serving(serve)),
    }
}

/// The usual network, but with all services on one local port.
struct OnePort {
    network: AfsNetwork,
    port: u16,
}

impl Network for OnePort {
    fn connect(&self, address: SocketAddr, service: u16) -> Arc<dyn ClientConnection> {
        self.network.connect(SocketAddr::new(address.ip(), self.port), service)
    }
}

/// How the server answers requests for directory totals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Like OpenAFS: the service is unknown.
    Foreign,
    /// The totals are not computed yet.
    Uncounted,
    Cellar,
}

fn volumes() -> Arc<Volumes> {
    let partition = PartitionHandle {
        id: PartitionId::from_index(0).unwrap(),
        meta: Arc::new(MemoryMeta::new()),
        chunks: Arc::new(MemoryChunks::new()),
        space: Arc::new(|| Space { total_kib: 1 << 30, free_kib: 1 << 30 }),
    };
    let volumes = Volumes::open(vec![partition], VolumeOptions::default()).unwrap();
    let new = NewVolume {
        id: HOME,
        name: "home".parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: HOME,
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    fill(&volumes.create(PartitionId::from_index(0).unwrap(), &new).unwrap());
    Arc::new(volumes)
}

fn directory(volume: &Volume, above: Fid, name: &str) -> Fid {
    let made = volume.make_directory(&actor(), above, name.as_bytes(), &NOTHING).unwrap();
    made.status.fid(HOME)
}

fn file(volume: &Volume, directory: Fid, name: &str, length: usize) -> Fid {
    let fid = volume.create_file(&actor(), directory, name.as_bytes(), &NOTHING).unwrap().status.fid(HOME);
    let mut data = Bytes::from(vec![b'x'; length]);
    let length = length as u64;
    let request = StoreRequest { offset: 0, length, file_length: length, set: NOTHING };
    volume
        .store(&actor(), fid, &request, &mut |most: usize| Ok(data.split_to(most.min(data.len()))))
        .unwrap();
    fid
}

/// Creates /many with 120 files, a second link to one of them and /many/deep/deeper; /empty; and the
/// unreadable /secret.
fn fill(volume: &Volume) {
    let anybody = AclEntry { id: UserId::ANYUSER, rights: Rights::READ | Rights::LOOKUP };
    volume.set_acl(&actor(), volume.root(), Acl::new(&[anybody], &[]).unwrap()).unwrap();
    let many = directory(volume, volume.root(), "many");
    let first = file(volume, many, "0", 3000);
    volume.link(&actor(), many, b"again", first).unwrap();
    (1..120).for_each(|number| _ = file(volume, many, &number.to_string(), 10));
    volume.create_symlink(&actor(), many, b"link", b"0", &NOTHING).unwrap();
    let deep = directory(volume, many, "deep");
    file(volume, directory(volume, deep, "deeper"), "file", 5000);
    directory(volume, volume.root(), "empty");
    let secret = directory(volume, volume.root(), "secret");
    file(volume, secret, "file", 2000);
    volume.set_acl(&actor(), secret, Acl::new(&[], &[]).unwrap()).unwrap();
}

struct World {
    client: CellClient,
    volume: Arc<Volume>,
    _server: Server,
}

fn world(kind: Kind) -> World {
    let (volumes, callbacks) = (volumes(), Arc::new(Callbacks::default()));
    let environment = Environment {
        volumes: Arc::clone(&volumes),
        membership: Arc::new(Anybody),
        network: callbacks.clone(),
        clock: Arc::new(SystemClock),
        locator: None,
        transport: Arc::new(TransportFigures::default),
        process_kib: Arc::new(|| 1),
    };
    let files = Arc::new(FileServer::new(FileServerConfig::default(), environment));
    let usage: Arc<dyn DirectoryUsage> =
        if kind == Kind::Cellar { Arc::new(FromFileServer(files.clone())) } else { Arc::new(Anybody) };
    let admin = AdminServer::new(AdminServerParts {
        volumes: Arc::clone(&volumes),
        authority: Arc::new(Anybody),
        usage,
        snapshots: Arc::new(Anybody),
        observed: Arc::new(Observatory::new(Vec::new(), &volumes, None, None)),
        clock: Arc::new(|| UnixTime(1)),
        version: "Cellar".into(),
    });
    let mut services = vec![
        service(1, move |caller, stream| {
            files
                .serve(|call| fs::dispatch(call, &CallContext::new(caller), stream))
                .wait()
                .expect("a store in memory")
        }),
        service(52, |caller, call| vl::dispatch(&Anybody, &CallContext::new(caller), call)),
    ];
    if kind != Kind::Foreign {
        services.push(service(20011, move |caller, call| {
            cellar::dispatch(&admin, &CallContext::new(caller), call)
        }));
    }
    let config = ServerConfig {
        name: "test".into(),
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        ..ServerConfig::default()
    };
    let server = Server::start(&config, services).unwrap();
    callbacks.way.open(server.connector());
    let network = OnePort { network: AfsNetwork::start(None).unwrap(), port: server.addresses()[0].port() };
    let client = CellClient::new(Arc::new(network), vec![Ipv4Addr::LOCALHOST]).unwrap();
    World { client, volume: volumes.get(HOME).unwrap(), _server: server }
}

fn du(depth: usize, walk: bool) -> DiskUsage {
    DiskUsage { paths: vec![], depth, summarize: false, sort: false, walk }
}

/// Returns path, bytes, blocks, files and directories of each row.
fn rows(shown: &[TotalsRow]) -> Vec<(&str, u64, u64, u64, u64)> {
    shown.iter().map(|row| (&*row.path, row.bytes, row.kib, row.files, row.directories)).collect()
}

#[test]
fn a_cellar_server_returns_totals() {
    let world = world(Kind::Cellar);
    let shown = show(&world.client, &du(2, false), "cell:home").unwrap();
    // A directory with 122 entries has three pages.
    assert_eq!(
        rows(&shown),
        [
            ("cell:home/empty", 0, 2, 0, 0),
            ("cell:home/many/deep", 5000, 9, 1, 1),
            ("cell:home/many", 9191, 138, 122, 2),
            ("cell:home/secret", 0, 0, 0, 0),
            ("cell:home/", 11191, 146, 123, 5),
        ]
    );
    assert!(shown.iter().all(|row| row.source == Source::Server && !row.partial));
    let secret = shown[3].error.as_deref().unwrap();
    assert!(
        secret.contains("permission denied") && shown.iter().filter(|row| row.error.is_some()).count() == 1
    );
    let root = world.volume.totals(world.volume.root()).unwrap();
    assert_eq!((root.bytes, root.kib), (shown[4].bytes, world.volume.header().used_kib));
    let summary = DiskUsage { summarize: true, ..du(9, false) };
    assert_eq!(
        rows(&show(&world.client, &summary, "home/many").unwrap()),
        [("cell:home/many", 9191, 138, 122, 2)]
    );
    assert!(
        show(&world.client, &summary, "home/many/0").unwrap_err().to_string().contains("not a directory")
    );
    assert!(show(&world.client, &summary, "home/none").unwrap_err().to_string().contains("there is no"));
}

#[test]
fn many_subdirectories_come_in_several_answers() {
    let world = world(Kind::Cellar);
    let wide = directory(&world.volume, world.volume.root(), "wide");
    (0..2345).for_each(|number| _ = directory(&world.volume, wide, &format!("{number:05}")));
    let shown = show(&world.client, &du(1, false), "home/wide").unwrap();
    assert_eq!(shown.len(), 2346);
    assert!(shown.windows(2).all(|pair| pair[1].path.len() < 20 || pair[0].path < pair[1].path));
    assert_eq!(shown[2345].directories, 2345);
}

#[test]
fn foreign_servers_are_walked_by_file() {
    let sums = |kind, walk| {
        let world = world(kind);
        let shown = show(&world.client, &du(2, walk), "home").unwrap();
        assert!(shown.iter().all(|row| row.source == Source::Walk));
        assert_eq!((&*shown[3].path, shown[3].kib, &shown[3].error), ("cell:home/secret", 2, &None));
        assert_eq!(
            shown.iter().map(|row| row.partial).collect::<Vec<_>>(),
            [false, false, false, true, true]
        );
        rows(&shown).into_iter().map(|row| (row.0.to_owned(), row.1, row.2, row.3, row.4)).collect::<Vec<_>>()
    };
    let foreign = sums(Kind::Foreign, false);
    // All but the unreadable file of 2000 bytes.
    assert_eq!(foreign[4], ("cell:home/".to_owned(), 9191, 144, 122, 5));
    let cellar = world(Kind::Cellar);
    let known = show(&cellar.client, &du(2, false), "home").unwrap();
    for (walked, known) in foreign[..3].iter().zip(rows(&known)) {
        assert_eq!((&*walked.0, walked.1, walked.2, walked.3, walked.4), known);
    }
    assert_eq!(sums(Kind::Uncounted, false), foreign);
    assert_eq!(sums(Kind::Cellar, true), foreign);
}

#[test]
fn a_server_says_whether_it_knows() {
    let ask = |kind| {
        let world = world(kind);
        let root = world.client.root_of("home").unwrap();
        asking::ask(&world.client, &root, 0).unwrap()
    };
    assert!(matches!(ask(Kind::Foreign), asking::Answer::Unknown));
    assert!(matches!(ask(Kind::Uncounted), asking::Answer::NotCounted));
    assert!(matches!(ask(Kind::Cellar), asking::Answer::Found(found) if found.len() == 1));
}

#[test]
fn a_walk_respects_the_depth() {
    let world = world(Kind::Foreign);
    let root = world.client.root_of("home").unwrap();
    let found = walking::walk(&world.client, &root, 0).unwrap();
    let [Found { way, totals: Ok(totals), is_partial: true }] = &found[..] else { panic!("{found:?}") };
    assert!(way.is_empty());
    let expected = DirectoryTotals { bytes: 9191, kib: 144, files: 122, directories: 5 };
    assert_eq!(totals, &expected);
}

#[test]
fn children_are_listed_before_parents() {
    let mut ways: Vec<Vec<String>> = ["", "b", "a", "a/b", "a/b/c", "a-b"]
        .iter()
        .map(|way| way.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect())
        .collect();
    ways.sort_by(|a, b| below_first(a, b));
    let ways: Vec<String> = ways.iter().map(|way| way.join("/")).collect();
    assert_eq!(ways, ["a/b/c", "a/b", "a", "a-b", "b", ""]);
}
