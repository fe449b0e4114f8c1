//! The most expensive anonymous call of each service: its memory use while a client reads the reply.

use crate::memory;
use afs_idl::{CallStream, MemoryStream, pr, vl, vol};
use base::{
    AbortCode, CallContext, Caller, Identity, LocalAuthority, PartitionId, Principal, SecurityLevel,
    UnixTime, VolumeId, VolumeType,
};
use bytes::Bytes;
use std::net::Ipv4Addr;
use std::sync::Arc;
use store::{MemoryChunks, MemoryMeta};
use vldb::{Locations, NewLocation, NewSite, entry_flags, site_flags};
use volserver::{Administrators, FileService, VolumeServer, VolumeServerParts};
use volume::{NewVolume, PartitionHandle, Space, VolumeOptions, Volumes};
use xdr::{Encode, XdrString};

/// Maximum memory for one anonymous call, in bytes. The stores of these tests are in memory and copy what
/// they scan; a database on disk does not.
const CALL_BYTES_MAX: usize = 4 << 20;

const NOW: UnixTime = UnixTime(1_700_000_000);

/// An authority that trusts no caller.
struct Nobody;

impl LocalAuthority for Nobody {
    fn is_superuser(&self, _: &Caller) -> bool {
        false
    }

    fn is_local_realm(&self, _: &Principal) -> bool {
        false
    }
}

impl Administrators for Nobody {
    fn is_administrator(&self, _: &Caller) -> bool {
        false
    }
}

impl FileService for Nobody {
    fn volume_changed(&self, _: VolumeId) {}

    fn volume_moved(&self, _: VolumeId) {}
}

fn anonymous() -> Caller {
    Caller {
        identity: Identity::Anonymous,
        level: SecurityLevel::Clear,
        peer: (Ipv4Addr::LOCALHOST, 7001).into(),
        local: Ipv4Addr::LOCALHOST.into(),
        connection: base::Connection::new(),
    }
}

/// A client that discards the reply.
struct Forgetting {
    request: MemoryStream,
    got: usize,
}

impl CallStream for Forgetting {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, AbortCode> {
        self.request.read(buf)
    }

    fn read_chunk(&mut self, max: usize) -> Result<Bytes, AbortCode> {
        self.request.read_chunk(max)
    }

    fn write(&mut self, data: Bytes) -> Result<(), AbortCode> {
        self.got += data.len();
        Ok(())
    }
}

/// Makes one call; returns its result and the size of its reply.
fn call(
    (opcode, request): (u32, &impl Encode),
    dispatch: impl FnOnce(&CallContext<'_>, &mut dyn CallStream) -> Result<(), AbortCode>,
) -> (Result<(), AbortCode>, usize) {
    let mut message = xdr::to_vec(&opcode);
    request.encode(&mut message);
    let mut client = Forgetting { request: MemoryStream::new(&message, 1444), got: 0 };
    let mut outcome = Ok(());
    let peak = memory::peak(|| outcome = dispatch(&CallContext::new(&anonymous()), &mut client));
    assert!(peak <= CALL_BYTES_MAX, "opcode {opcode} takes {peak} bytes");
    (outcome, client.got)
}

#[test]
fn protection_calls_take_bounded_memory() {
    let protection = corpus::services::protection(Arc::new(MemoryMeta::new()));
    let service = ptserver::PtService::new(protection, Arc::new(Nobody), Arc::new(|| NOW));
    let ids = |count| pr::IDToNameRequest { ids: vec![-204; count] };
    let translate =
        |count| call((pr::ID_TO_NAME, &ids(count)), |caller, stream| pr::dispatch(&service, caller, stream));
    assert_eq!(translate(5000), (Ok(()), 4 + 5000 * 256));
    assert_eq!(translate(pr::IDS_MAX), (Err(AbortCode::PRTOOMANY), 0));
    let names = pr::NameToIDRequest { names: vec![XdrString(vec![b'a'; 63]); 65_536] };
    let look_up = call((pr::NAME_TO_ID, &names), |caller, stream| pr::dispatch(&service, caller, stream));
    assert_eq!(look_up, (Err(AbortCode::RXGEN_SS_UNMARSHAL), 0));
}

#[test]
fn location_lists_take_bounded_memory() {
    const ENTRIES: u32 = 3000;
    let locations = Locations::open(Arc::new(MemoryMeta::new())).unwrap();
    for n in 0..ENTRIES {
        let id = VolumeId(1000 + n);
        let site = NewSite {
            address: Ipv4Addr::new(192, 0, 2, 1),
            partition: 0,
            flags: i32::from(site_flags::READ_WRITE),
        };
        let new = NewLocation {
            name: format!("volume.{n}").into_bytes(),
            ids: [id, VolumeId(0), VolumeId(0)],
            clone: VolumeId(0),
            flags: entry_flags::RW_EXISTS,
            sites: vec![site],
            form: vldb::EntryForm::Current,
        };
        locations.create(&new).unwrap();
    }
    let settings = vlserver::Settings::default();
    let service = vlserver::VlService::new(Arc::new(locations), Arc::new(Nobody), settings, Arc::new(|| NOW));
    for opcode in [vl::LIST_ATTRIBUTES_U, vl::LINKED_LIST_N] {
        let request = vl::ListAttributesURequest::default();
        let (outcome, got) =
            call((opcode, &request), |caller, stream| vl::dispatch(&service, caller, stream));
        assert!(outcome.is_ok() && got > 400 * ENTRIES as usize, "{outcome:?}: {got} bytes");
    }
}

#[test]
fn volume_lists_take_bounded_memory() {
    const VOLUMES: u32 = 6000;
    let partition = PartitionId::from_index(0).unwrap();
    let handle = PartitionHandle {
        id: partition,
        meta: Arc::new(MemoryMeta::new()),
        chunks: Arc::new(MemoryChunks::new()),
        space: Arc::new(|| Space { total_kib: 1 << 30, free_kib: 1 << 30 }),
    };
    let volumes = Arc::new(Volumes::open(vec![handle], VolumeOptions::default()).unwrap());
    for n in 0..VOLUMES {
        let new = NewVolume {
            id: VolumeId(1000 + n),
            name: format!("volume.{n}").parse().unwrap(),
            kind: VolumeType::ReadWrite,
            parent: VolumeId(1000 + n),
            quota_max_kib: 0,
            with_root: false,
            in_service: true,
            destroy_me: 0,
            now: NOW,
        };
        volumes.create(partition, &new).unwrap();
    }
    let server = VolumeServer::new(VolumeServerParts {
        volumes,
        administrators: Arc::new(Nobody),
        file_service: Arc::new(Nobody),
        clock: Arc::new(|| NOW),
    });
    let request = vol::XListVolumesRequest { partition: 0, flags: 1 };
    let (outcome, got) =
        call((vol::X_LIST_VOLUMES, &request), |caller, stream| vol::dispatch(&server, caller, stream));
    assert!(outcome.is_ok() && got > 300 * VOLUMES as usize, "{outcome:?}: {got} bytes");
}
