//! The services of a node, with its volumes in memory.

use crate::sharing::Sharing;
use crate::{IDENTITY, People, SERVER, VOLUMES, is_cell, open_all, partition};
use afs_idl::{CallStream, cellar, cluster, fs, vol};
use base::{AbortCode, CallContext, PartitionId, VolumeId};
use bytes::Bytes;
use cluster_proto::{CallKind, PartitionName, Repeat};
use clusterserver::{Data, Files, Services, kind_of_administration};
use fileserver::{CallbackNetwork, Clock, Environment, FileServer, FileServerConfig, TransportFigures};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{Bucket, ChunkPlace, ForeignChunks, NewObject, StoreError};
use volserver::VolumeServer;
use volume::{PartitionHandle, VolumeOptions, Volumes, recorded_locks};

/// What the services of a node need besides volumes.
pub struct Surroundings {
    /// Connections to clients.
    pub network: Arc<dyn CallbackNetwork>,
    /// The time of the file service.
    pub clock: Arc<dyn Clock>,
    /// The other nodes.
    pub sharing: Arc<Sharing>,
}

/// The services of a node.
pub struct Local {
    partition: PartitionName,
    surroundings: OnceLock<Surroundings>,
    /// The volumes once they are open; nothing waits under the lock.
    open: RwLock<Option<(Arc<Volumes>, Arc<FileServer>)>>,
    volume_server: OnceLock<VolumeServer>,
    /// The file data of the other node's partition, and the identity of that.
    pub foreign: RwLock<Option<([u8; 16], ForeignChunks)>>,
    /// The bucket in which this node creates objects for the other one.
    pub bucket: RwLock<Option<Arc<dyn Bucket>>>,
    /// Names of the objects whose creation was cancelled.
    pub cancelled: Mutex<Vec<String>>,
    /// The chunks that were announced.
    pub expected: Mutex<Vec<([u8; 16], ChunkPlace)>>,
    executed: AtomicU64,
    privileged: AtomicU64,
}

impl Local {
    /// Creates the services of the owner of a partition.
    pub fn new(partition: PartitionName) -> Arc<Local> {
        let (surroundings, open, volume_server) = Default::default();
        let (foreign, bucket, cancelled, expected) = Default::default();
        let (executed, privileged) = Default::default();
        Arc::new(Local {
            partition,
            surroundings,
            open,
            volume_server,
            foreign,
            bucket,
            cancelled,
            expected,
            executed,
            privileged,
        })
    }

    /// Sets what the services need. To be called once, before volumes are opened.
    pub fn surround(&self, surroundings: Surroundings) {
        assert!(self.surroundings.set(surroundings).is_ok(), "it was called before");
    }

    /// Begins to serve volumes.
    pub fn open(&self, volumes: Volumes) {
        let Surroundings { network, clock, sharing } = self.surroundings.get().expect("they are set first");
        let volumes = Arc::new(volumes);
        let mut config = FileServerConfig { uuid: SERVER, ..FileServerConfig::default() };
        // The second attempt to identify a client follows the first one at once.
        config.callbacks.refused_after_silence = Duration::ZERO;
        let server = FileServer::new(
            config,
            Environment {
                volumes: volumes.clone(),
                membership: Arc::new(People),
                network: Arc::clone(network),
                clock: Arc::clone(clock),
                locator: None,
                transport: Arc::new(TransportFigures::default),
                process_kib: Arc::new(|| 0),
            },
        );
        let server = Arc::new(server);
        _ = self.volume_server.set(sharing.volume_server(&volumes, &server));
        *self.open.write() = Some((volumes, server));
    }

    /// Opens the volumes of partitions of another process, with their locks.
    pub fn take_over(&self, handles: &[PartitionHandle]) {
        self.open(open_all(handles, VolumeOptions::default()));
        let server = self.server().expect("it was opened");
        for handle in handles {
            let locks = recorded_locks(&*handle.meta).expect("a store in memory");
            server.restore_locks(handle.id, locks);
        }
    }

    /// Returns the file service.
    ///
    /// # Errors
    /// VNOVOL if no volumes were opened.
    pub fn server(&self) -> Result<Arc<FileServer>, AbortCode> {
        self.open.read().as_ref().map(|(_, server)| server.clone()).ok_or(AbortCode::VNOVOL)
    }

    /// Returns the volumes.
    ///
    /// # Errors
    /// VNOVOL if none were opened.
    pub fn volumes(&self) -> Result<Arc<Volumes>, AbortCode> {
        self.open.read().as_ref().map(|(volumes, _)| volumes.clone()).ok_or(AbortCode::VNOVOL)
    }

    /// Returns the volume service.
    ///
    /// # Errors
    /// `RXGEN_OPCODE` if no volumes were opened.
    pub fn volume_server(&self) -> Result<&VolumeServer, AbortCode> {
        self.volume_server.get().ok_or(AbortCode::RXGEN_OPCODE)
    }

    /// Returns the number of calls for clients of other nodes, and of reports, that were let through to the services; and of
    /// these, of calls for holders of the cell's key.
    pub fn executed(&self) -> (u64, u64) {
        (self.executed.load(Relaxed), self.privileged.load(Relaxed))
    }

    fn note(&self, call: &CallContext<'_>) {
        self.executed.fetch_add(1, Relaxed);
        self.privileged.fetch_add(is_cell(call.caller()).into(), Relaxed);
    }
}

impl Files for Local {
    fn is_here(&self, volume: VolumeId) -> bool {
        self.open.read().as_ref().is_some_and(|(volumes, _)| volumes.get_any_state(volume).is_ok())
    }

    fn partition_of(&self, volume: VolumeId) -> Option<PartitionName> {
        let id = self.open.read().as_ref()?.0.partition_of(volume)?;
        // A test may have one partition, of another name.
        let is_pair = (0..VOLUMES.len()).any(|index| partition(index) == self.partition);
        Some(if is_pair { partition(id.index() as usize) } else { self.partition.clone() })
    }

    fn place(&self, id: PartitionId) -> Option<PartitionName> {
        let index = id.index() as usize;
        (index < VOLUMES.len()).then(|| partition(index))
    }

    fn serve(&self, call: &CallContext<'_>, stream: &mut dyn CallStream) -> Result<(), AbortCode> {
        self.note(call);
        let served = self.server()?.serve(|server| fs::dispatch(server, call, stream));
        served.wait().map_err(|error| error.abort_code())?
    }

    fn try_answer(&self, call: &CallContext<'_>, request: &[u8]) -> Option<Bytes> {
        self.note(call);
        self.server().ok()?.try_answer(call, request).map(|answer| answer.reply)
    }

    fn fetch(
        &self,
        call: &CallContext<'_>,
        request: &cluster::FetchRequest,
    ) -> Result<cluster::FetchReply, AbortCode> {
        self.note(call);
        let served = self.server()?.serve(|server| server.fetch_for_front(call, request));
        served.wait().map_err(|error| error.abort_code())?
    }

    fn offer(
        &self,
        call: &CallContext<'_>,
        request: &fs::StoreData64Request,
    ) -> Result<cluster::OfferStoreReply, AbortCode> {
        self.note(call);
        let served = self.server()?.serve(|server| server.offer_for_front(call, request));
        served.wait().map_err(|error| error.abort_code())?
    }

    fn store(
        &self,
        call: &CallContext<'_>,
        request: fs::StoreData64Request,
        objects: (Vec<u64>, u64),
        stream: &mut dyn CallStream,
    ) -> Result<fs::StoreData64Reply, AbortCode> {
        self.note(call);
        let served = self.server()?.serve(|server| server.store_for_front(call, request, objects, stream));
        served.wait().map_err(|error| error.abort_code())?
    }
}

impl Data for Local {
    fn read(&self, _: &PartitionName, identity: [u8; 16], chunk: ChunkPlace) -> Result<Bytes, StoreError> {
        match &*self.foreign.read() {
            Some((known, chunks)) if *known == identity => chunks.read(chunk),
            _ => Err(unavailable("not here")),
        }
    }

    fn expect(&self, _: &PartitionName, identity: [u8; 16], chunks: &[ChunkPlace]) {
        self.expected.lock().extend(chunks.iter().map(|chunk| (identity, *chunk)));
    }

    fn begin(&self, _: &PartitionName, identity: [u8; 16], object: &NewObject) -> Result<(), StoreError> {
        assert_eq!(identity, IDENTITY, "the identity of the partition in the bucket");
        let bucket = self.bucket.read().clone().ok_or_else(|| unavailable("no bucket"))?;
        bucket.begin(&object.name, &object.contents);
        Ok(())
    }

    fn finish(&self, _: &PartitionName, object: &NewObject) -> Result<(), StoreError> {
        let bucket = self.bucket.read().clone().ok_or_else(|| unavailable("no bucket"))?;
        bucket.finish(std::slice::from_ref(&object.name)).map_err(|error| unavailable(&error.to_string()))
    }

    fn cancel(&self, _: &PartitionName, object: &NewObject) {
        self.cancelled.lock().push(object.name.clone());
    }
}

fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable { place: "the bucket".into(), what: what.to_owned() }
}

impl Services for Local {
    fn kind(&self, service: u16, opcode: u32) -> Option<(CallKind, Repeat)> {
        kind_of_administration(service, opcode)
    }

    fn serve(
        &self,
        (service, _): (u16, u32),
        _: &PartitionName,
        call: &CallContext<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode> {
        self.note(call);
        match service {
            vol::SERVICE_ID => vol::dispatch(self.volume_server()?, call, stream),
            cellar::SERVICE_ID => cellar::dispatch(self.volume_server()?, call, stream),
            _ => Err(AbortCode::RXGEN_OPCODE),
        }
    }

    fn volume_deleted(&self, volume: VolumeId) {
        self.executed.fetch_add(1, Relaxed);
        if let Ok(server) = self.volume_server() {
            server.deleted_elsewhere(volume);
        }
    }
}
