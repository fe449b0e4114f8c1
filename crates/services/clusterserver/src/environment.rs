//! What the nodes' service needs from its process, as traits that the program implements.

use afs_idl::{CallStream, ClientConnection, cluster, fs};
use base::{AbortCode, CallContext, Caller, Monotonic, PartitionId, VolumeId};
use bytes::Bytes;
use cluster_proto::{CallKind, Epoch, Incarnation, NodeName, NodeRecord, PartitionName, Repeat, Route};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::{ChunkPlace, NewObject, StoreError};

/// A partition that this node owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// The ownership.
    pub epoch: Epoch,
    /// Whether reads may be answered now.
    pub reads: bool,
    /// Whether changes may be answered now.
    pub changes: bool,
    /// Whether it is being given up: calls that have begun are answered, and new ones wait for the next owner.
    pub is_draining: bool,
}

impl Own {
    /// Whether calls of this kind may be answered now.
    pub fn answers(self, kind: CallKind) -> bool {
        match kind {
            CallKind::Read => self.reads,
            CallKind::Change => self.changes,
        }
    }
}

/// The lease of a node cannot be read at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseError;

/// Who owns which partition.
pub trait Ownership: Send + Sync {
    /// Returns the name and the present membership of this node.
    fn node(&self) -> (NodeName, Incarnation);

    /// Returns all partitions of the cluster that this node knows.
    fn partitions(&self) -> Vec<PartitionName>;

    /// Whether the cluster has no others that may contain volumes. If not, no volume is said to be absent.
    fn knows_all(&self) -> bool {
        true
    }

    /// Returns the state of a partition that this node owns; `None` for others. It is asked for each forwarded call, and
    /// again before its reply.
    fn own(&self, partition: &PartitionName) -> Option<Own>;

    /// Returns the way of a client's call that has been here for `age`.
    fn route(&self, partition: &PartitionName, kind: CallKind, age: Duration) -> Route;

    /// For how long a call may be held.
    fn hold_limit(&self) -> Duration;

    /// Returns the lease of a node as it is in the bucket; `None` if there is none.
    ///
    /// # Errors
    /// If the bucket does not answer.
    fn lease(&self, node: &NodeName) -> Result<Option<NodeRecord>, LeaseError>;
}

/// The file service of this node.
pub trait Files: Send + Sync {
    /// Whether a volume is here, in a partition of this node that is not being given up. It is asked for each call of a
    /// client.
    fn is_here(&self, volume: VolumeId) -> bool;

    /// Returns the shared partition of a volume that is here.
    fn partition_of(&self, volume: VolumeId) -> Option<PartitionName>;

    /// Returns the shared partition with this number, whichever node owns it.
    fn place(&self, partition: PartitionId) -> Option<PartitionName>;

    /// Serves a call here. Returns when its changes are durable.
    ///
    /// # Errors
    /// The abort code of the call.
    fn serve(&self, call: &CallContext<'_>, stream: &mut dyn CallStream) -> Result<(), AbortCode>;

    /// Returns the reply to a complete request if it needs no waiting. `None` has no effect that a client could observe.
    fn try_answer(&self, call: &CallContext<'_>, request: &[u8]) -> Option<Bytes>;

    /// Answers a fetch here for another node, which reads the data that is in the bucket itself; see
    /// `FileCall::fetch_for_front` of `fileserver`.
    ///
    /// # Errors
    /// The abort code of the call.
    fn fetch(
        &self,
        call: &CallContext<'_>,
        request: &cluster::FetchRequest,
    ) -> Result<cluster::FetchReply, AbortCode>;

    /// Answers another node how it may write the data of a store to the bucket; see `FileCall::offer_for_front` of `fileserver`.
    ///
    /// # Errors
    /// The abort code of the call.
    fn offer(
        &self,
        call: &CallContext<'_>,
        request: &fs::StoreData64Request,
    ) -> Result<cluster::OfferStoreReply, AbortCode>;

    /// Executes a store for another node, which has written chunks of this size to these objects; see `FileCall::store_for_front`.
    /// Returns when it is durable.
    ///
    /// # Errors
    /// The abort code of the call.
    fn store(
        &self,
        call: &CallContext<'_>,
        request: fs::StoreData64Request,
        objects: (Vec<u64>, u64),
        stream: &mut dyn CallStream,
    ) -> Result<fs::StoreData64Reply, AbortCode>;
}

/// The file data of partitions that other nodes own.
pub trait Data: Send + Sync {
    /// Returns a chunk of the partition with this identity, from the bucket or a cache, decoded and verified. Waits for a few
    /// seconds at most.
    ///
    /// # Errors
    /// If it is not there any more, or cannot be read. The owner is asked then.
    fn read(
        &self,
        partition: &PartitionName,
        identity: [u8; 16],
        chunk: ChunkPlace,
    ) -> Result<Bytes, StoreError>;

    /// Announces chunks that will be read soon, in this order, so that they may be fetched meanwhile. Returns at once. It changes
    /// nothing but the time that [`read`](Self::read) takes.
    fn expect(&self, partition: &PartitionName, identity: [u8; 16], chunks: &[ChunkPlace]);

    /// Begins to create an object of the partition with this identity, and returns soon. Call [`finish`](Self::finish) or
    /// [`cancel`](Self::cancel) then.
    ///
    /// # Errors
    /// If that is impossible here. The owner gets the data then.
    fn begin(
        &self,
        partition: &PartitionName,
        identity: [u8; 16],
        object: &NewObject,
    ) -> Result<(), StoreError>;

    /// Waits until an object that was begun exists, for a limited time.
    ///
    /// # Errors
    /// If it may not exist. The owner gets the data then.
    fn finish(&self, partition: &PartitionName, object: &NewObject) -> Result<(), StoreError>;

    /// Ends the creation of an object that was begun. It may exist, or appear later.
    fn cancel(&self, partition: &PartitionName, object: &NewObject);
}

/// The other services of this node that execute calls for clients of other nodes.
pub trait Services: Send + Sync {
    /// Returns what a call of the service with this Rx number does to the partition, and whether it may be executed twice;
    /// `None` for a call that is not forwarded.
    fn kind(&self, service: u16, opcode: u32) -> Option<(CallKind, Repeat)>;

    /// Serves a call of this service and with this opcode here. It is about what is stored in the partition. Returns when its
    /// changes are durable.
    ///
    /// # Errors
    /// The abort code of the call.
    fn serve(
        &self,
        procedure: (u16, u32),
        partition: &PartitionName,
        call: &CallContext<'_>,
        stream: &mut dyn CallStream,
    ) -> Result<(), AbortCode>;

    /// Another node has deleted a volume. One of this node that waits for that takes its place. Returns at once.
    fn volume_deleted(&self, volume: VolumeId);
}

/// Connections to the cluster services of other nodes.
pub trait Nodes: Send + Sync {
    /// Returns an encrypted connection with the cell's identity, whose calls fail soon after a node has died, and later if it
    /// lives but moves no data.
    fn connect(&self, address: SocketAddr) -> Arc<dyn ClientConnection>;

    /// Returns one for calls that may take any time, such as the copying of a volume.
    fn connect_patiently(&self, address: SocketAddr) -> Arc<dyn ClientConnection> {
        self.connect(address)
    }
}

/// Connections to the callback services of clients.
pub trait Clients: Send + Sync {
    /// Returns a connection from the file server's own port; see `fileserver::CallbackNetwork::connection`.
    fn connection(&self, client: SocketAddr, patience: Duration) -> Arc<dyn ClientConnection>;
}

/// All dependencies.
#[derive(Clone)]
pub struct Environment {
    /// Who owns which partition.
    pub ownership: Arc<dyn Ownership>,
    /// The file service.
    pub files: Arc<dyn Files>,
    /// File data in the bucket.
    pub data: Arc<dyn Data>,
    /// The other services.
    pub services: Arc<dyn Services>,
    /// Other nodes.
    pub nodes: Arc<dyn Nodes>,
    /// Clients.
    pub clients: Arc<dyn Clients>,
    /// Whether a caller holds the cell's key.
    pub is_cell: fn(&Caller) -> bool,
    /// The time, for limits.
    pub now: fn() -> Monotonic,
    /// Lets the thread of a call wait. Meanwhile others should be served.
    pub pause: fn(Duration),
}
