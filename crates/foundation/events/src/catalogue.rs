//! The figures of a server.

use crate::{event, figures};

/// Outcome of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    #[default]
    Good,
    /// The caller lacks permission or did not prove its identity.
    Denied,
    /// The volume, file, entry or user does not exist.
    Missing,
    /// The caller should retry later or elsewhere: busy, restarting, moved, offline.
    Retry,
    /// No space, or quota exceeded.
    Full,
    /// The request was malformed, or its parameters or operation are not supported.
    Invalid,
    /// The connection ended, or the client gave up.
    Gone,
    /// An error of the server itself: I/O errors, bugs.
    Fault,
    /// Any other code.
    Other,
}

/// Names of [`Outcome`], in order.
pub const OUTCOMES: [&str; 9] =
    ["good", "denied", "missing", "retry", "full", "invalid", "gone", "fault", "other"];

/// Class of a call of the file service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Reads data of a file or directory.
    Fetch,
    /// Writes data of a file.
    Store,
    /// Reads status or access lists.
    Status,
    /// Changes directories, status or access lists.
    Change,
    /// Sets, extends or releases locks.
    Lock,
    /// Everything else.
    #[default]
    Other,
}

/// Names of [`Class`], in order.
pub const CLASSES: [&str; 6] = ["fetch", "store", "status", "change", "lock", "other"];

/// Why partitions came to a node of a cluster, in the order of `cluster_proto::Cause`.
pub const OWNERSHIP_CAUSES: [&str; 6] = ["new", "free", "moved", "restarted", "left", "died"];

/// Stages in which a node takes the partitions of another one over, in the order of `cluster_proto::Stage`.
pub const TAKEOVER_STAGES: [&str; 5] = ["detect", "evict", "claim", "open", "reset"];

/// Name of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheName {
    /// Status and access lists.
    Status,
    /// Directories.
    Directories,
    /// Totals of directories.
    Totals,
    /// File data.
    Chunks,
}

/// Names of [`CacheName`], in order.
pub const CACHES: [&str; 4] = ["status", "directories", "totals", "chunks"];

figures! {
    /// Calls of one procedure.
    CallFigures of "call", weight calls {
        /// Completed calls, successful or not.
        calls: counter Count,
        /// Completed calls by outcome.
        outcomes: counters("outcome", OUTCOMES) Count,
        /// Completed calls that the receiving thread answered without a worker.
        fast_path: counter Count,
        /// Bytes of requests, without packet headers.
        received: counter Bytes,
        /// Bytes of replies, without packet headers.
        sent: counter Bytes,
        /// Time that calls waited for a worker.
        wait: histogram Nanoseconds,
        /// Time spent serving calls, including waits for disks, locks and clients.
        run: histogram Nanoseconds,
    }
}

figures! {
    /// Usage by one client or of one volume.
    UsageFigures of "usage", weight calls {
        /// Completed calls, successful or not.
        calls: counter Count,
        /// Completed calls by class.
        classes: counters("class", CLASSES) Count,
        /// Calls that failed.
        failed: counter Count,
        /// Bytes of requests, without packet headers.
        received: counter Bytes,
        /// Bytes of replies, without packet headers.
        sent: counter Bytes,
        /// Total time that calls waited for a worker.
        wait: counter Nanoseconds,
        /// Total time spent serving calls.
        run: counter Nanoseconds,
        /// Longest time from the arrival of a call to its end.
        longest: longest Nanoseconds,
        /// Bytes of requests and replies of calls that read or write file data.
        data: counter Bytes,
        /// Total time of these calls from arrival to end.
        data_time: counter Nanoseconds,
        /// Longest time of these calls.
        data_longest: longest Nanoseconds,
    }
}

figures! {
    /// Activity of one host, for all its users.
    HostFigures of "host", weight calls {
        /// Current connections between the host and any port of the server.
        connections: gauge Count,
        /// Connections opened.
        opened: counter Count,
        /// Completed calls, successful or not.
        calls: counter Count,
        /// Completed calls by class.
        classes: counters("class", CLASSES) Count,
        /// Calls that failed.
        failed: counter Count,
        /// Calls that read or write file data.
        data_calls: counter Count,
        /// Bytes of requests and replies of these calls.
        data: counter Bytes,
        /// Total time of these calls from arrival to end.
        data_time: counter Nanoseconds,
        /// Longest time of these calls.
        data_longest: longest Nanoseconds,
    }
}

figures! {
    /// One kind of disk access.
    DiskFigures of "disk", weight accesses {
        /// Completed accesses.
        accesses: counter Count,
        /// Failed accesses.
        failed: counter Count,
        /// Writes meant to bypass the system's cache on a file system or device that does not support it.
        buffered: counter Count,
        /// Bytes read or written.
        moved: counter Bytes,
        /// Duration of accesses.
        time: histogram Nanoseconds,
    }
}

figures! {
    /// One kind of requests to the bucket of a partition.
    BucketFigures of "bucket", weight requests {
        /// Requests that have ended, however.
        requests: counter Count,
        /// Requests whose condition was not met.
        conflicts: counter Count,
        /// Requests that the bucket does not carry out, for lack of permission for example.
        refused: counter Count,
        /// Requests that failed otherwise: an error of the bucket's server or of the connection. They are repeated.
        failed: counter Count,
        /// Requests that were given up without an answer.
        unanswered: counter Count,
        /// Bytes of objects sent.
        sent: counter Bytes,
        /// Bytes of objects received.
        received: counter Bytes,
        /// Time until the answer began.
        time: histogram Nanoseconds,
        /// Time from the first to the last of the failures since a request succeeded; 0 if the last request succeeded, or failed more than a minute ago.
        failing: gauge Nanoseconds,
    }
}

figures! {
    /// Waits for locks of one name.
    LockFigures of "lock", weight waits {
        /// Number of times that a thread had to wait.
        waits: counter Count,
        /// Threads that are waiting now; a completed wait is counted before its thread leaves this number.
        waiting: gauge Count,
        /// Time that threads had to wait.
        wait: histogram Nanoseconds,
    }
}

figures! {
    /// Traffic of one lane: a thread with a socket.
    LaneFigures of "lane", weight received_datagrams {
        /// Datagrams received.
        received_datagrams: counter Count,
        /// Bytes received, without UDP and IP headers.
        received: counter Bytes,
        /// System calls that received at least one datagram.
        receive_batches: counter Count,
        /// Datagrams dropped by the kernel at the lane's sockets, mostly for lack of buffer space.
        kernel_drops: counter Count,
        /// Datagrams of another lane's peers that were passed to that lane.
        handed_over: counter Count,
        /// Datagrams that could not be passed on because the other lane was behind.
        handover_drops: counter Count,
        /// Datagrams sent.
        sent_datagrams: counter Count,
        /// Bytes sent, without UDP and IP headers.
        sent: counter Bytes,
        /// System calls that sent at least one datagram.
        send_batches: counter Count,
        /// Number of times that the lane waited for space in the send buffer.
        send_waits: counter Count,
        /// Datagrams dropped because the kernel rejected them.
        send_errors: counter Count,
        /// Number of times that the lane's thread woke up.
        wakeups: counter Count,
        /// Time during which the lane's thread was idle.
        idle: counter Nanoseconds,
        /// DATA packets received for the first time.
        data_received: counter Count,
        /// Duplicate DATA packets received.
        data_duplicates: counter Count,
        /// DATA packets sent for the first time.
        data_sent: counter Count,
        /// DATA packets retransmitted.
        data_resent: counter Count,
        /// Retransmission timeouts.
        timeouts: counter Count,
        /// Packets that belong to no connection or call, or are malformed.
        bad_packets: counter Count,
        /// Calls refused because too many were waiting or running.
        calls_refused: counter Count,
        /// Round trips measured.
        round_trips: counter Count,
        /// Sum of the measured round-trip times.
        round_trip: counter Nanoseconds,
        /// Longest measured round-trip time.
        round_trip_max: highest Nanoseconds,
        /// Current connections.
        connections: gauge Count,
        /// Current calls.
        calls_present: gauge Count,
        /// Current peers.
        peers: gauge Count,
        /// Faults caught; each is a bug.
        faults: counter Count,
    }
}

figures! {
    /// Workers of one port.
    WorkerFigures of "workers", weight threads {
        /// Worker threads, including substitutes for those that wait for their clients.
        threads: gauge Count,
        /// Maximum number of calls served at a time, not counting those that wait for their clients.
        limit: gauge Count,
        /// Workers that are serving a call now.
        busy: gauge Count,
        /// 1 while calls are waiting and no worker may take one of them.
        full: gauge Count,
        /// Calls that are waiting for a worker now.
        waiting: gauge Count,
        /// Calls that arrived.
        arrived: counter Count,
        /// Calls refused because too many were waiting.
        refused: counter Count,
        /// Services that panicked; each is a bug.
        panicked: counter Count,
    }
}

figures! {
    /// State and activity of one cache.
    CacheCounts of "cache", weight hits {
        /// Current entries.
        entries: gauge Count,
        /// Current size of the entries.
        held: gauge Bytes,
        /// Peak size of the entries.
        held_max: highest Bytes,
        /// Maximum size of the entries.
        limit: gauge Bytes,
        /// Lookups that found an entry.
        hits: counter Count,
        /// Lookups that found no entry.
        misses: counter Count,
        /// Entries evicted to make room.
        evictions: counter Count,
        /// Entries evicted together with all others of their volume.
        purged: counter Count,
        /// Age of the entry last evicted to make room.
        recycle_age: gauge Nanoseconds,
    }
}

figures! {
    /// Callback promises and callback breaks of the file service.
    CallbackFigures of "callbacks", weight hosts {
        /// Known client hosts.
        hosts: gauge Count,
        /// Known client hosts that did not answer the last callback break.
        hosts_down: gauge Count,
        /// Current callback promises.
        promises: gauge Count,
        /// Maximum number of callback promises.
        limit: gauge Count,
        /// Callback breaks that their host acknowledged.
        delivered: counter Count,
        /// Callback breaks that their host did not answer.
        unanswered: counter Count,
        /// Number of times that callback promises were revoked to make room.
        evictions: counter Count,
        /// UUIDs that two clients used at the same time within the last day.
        shared_uuids: gauge Count,
    }
}

figures! {
    /// One partition.
    PartitionFigures of "partition", weight size {
        /// Size without the reserve and without blocks that only root can allocate; size - free is the space
        /// used.
        size: gauge Bytes,
        /// Space that may still be used.
        free: gauge Bytes,
        /// 1 if it could not be opened, so that its volumes are offline.
        offline: gauge Count,
        /// 1 if it became read-only after an I/O error, until it is opened again.
        read_only: gauge Count,
        /// Known damaged items, at most 10,000.
        damaged: gauge Count,
        /// Deleted volumes and huge files whose space has not been reclaimed yet, at most 10,000.
        reclaiming: gauge Count,
        /// Bytes of metadata and chunks that the scrubber has read since the start.
        scrubbed: counter Bytes,
        /// Reads that found a chunk in the copies on the local disk of what is in the bucket.
        copy_hits: counter Count,
        /// Reads that did not.
        copy_misses: counter Count,
        /// Errors of the local disk with the copies.
        copy_failures: counter Count,
        /// Size of the copies of chunks on the local disk.
        copies: gauge Bytes,
        /// Objects in the bucket that are kept for other partitions, which have borrowed them.
        lent_objects: gauge Count,
        /// Objects of other partitions in the bucket that contain data of this one.
        borrowed_objects: gauge Count,
        /// Chunks stored by volumes with deduplication, each counted once.
        deduplicated_chunks: gauge Count,
        /// Number of references to these chunks by files.
        deduplicated_names: gauge Count,
        /// Stored bytes of these chunks.
        deduplicated: gauge Bytes,
        /// Additional bytes that a separate chunk for each reference would take.
        deduplication_saved: gauge Bytes,
        /// Bytes of the table in the metadata that locates the chunks.
        deduplication_table: gauge Bytes,
        /// Memory used by deduplication, in addition to the caches of the metadata.
        deduplication_memory: gauge Bytes,
    }
}

figures! {
    /// Records of one sink of the audit.
    AuditFigures of "audit", weight records {
        /// Records written.
        records: counter Count,
        /// Bytes of their lines.
        written: counter Bytes,
        /// Records lost because the sink did not keep up or could not be written.
        dropped: counter Count,
        /// Calls that waited for space for their record.
        waits: counter Count,
        /// Time that these calls waited.
        blocked: counter Nanoseconds,
        /// Number of times that the sink could not be opened or written.
        failures: counter Count,
        /// Number of times that the sink was opened.
        opened: counter Count,
        /// 1 while the sink cannot be opened or written.
        failing: gauge Count,
        /// Records that are waiting to be written now.
        queued: gauge Count,
        /// Maximum number of waiting records.
        queue_limit: gauge Count,
    }
}

figures! {
    /// Callers refused for one reason before their call was dispatched.
    RefusalFigures of "refusal", weight refused {
        /// Refused proofs of identity, and refused calls without one.
        refused: counter Count,
        /// Hosts that these came from in the last ten minutes, at most 256 for all reasons.
        hosts: gauge Count,
    }
}

figures! {
    /// Traffic between a port and one peer: a host and its port.
    PeerFigures of "peer", weight received_packets {
        /// Connections opened.
        opened: counter Count,
        /// Current connections.
        connections: gauge Count,
        /// Packets received on connections.
        received_packets: counter Count,
        /// Bytes of these packets, without UDP and IP headers.
        received: counter Bytes,
        /// DATA packets sent, including retransmissions.
        data_sent: counter Count,
        /// DATA packets retransmitted.
        data_resent: counter Count,
        /// Number of times that a call had data to send and the peer's window had no room for it.
        stalls: counter Count,
        /// Bytes sent on connections, without UDP and IP headers.
        sent: counter Bytes,
        /// Round trips measured, in powers of two of a microsecond.
        round_trips: histogram Nanoseconds,
        /// Smoothed round-trip time.
        round_trip: gauge Nanoseconds,
        /// Mean deviation of the round-trip time.
        variation: gauge Nanoseconds,
        /// Retransmission timeout.
        timeout: gauge Nanoseconds,
        /// Window that the peer advertised in its last call, in packets.
        window: gauge Count,
        /// Congestion window after the last call, in packets.
        congestion_window: gauge Count,
        /// Maximum size of packets sent to the peer.
        packet: gauge Bytes,
    }
}

figures! {
    /// This server as a node of a cluster.
    ClusterFigures of "cluster", weight renewals {
        /// Renewals of the node's lease.
        renewals: counter Count,
        /// Number of times that the lease was not renewed in time.
        lapses: counter Count,
        /// Time since the lease was last not renewed in time; 0 if that has not happened.
        lapse_age: gauge Nanoseconds,
        /// Number of times that another node has evicted this one.
        losses: counter Count,
        /// Other nodes that this one has evicted.
        evictions: counter Count,
        /// Time for which the lease is still valid.
        lease: gauge Nanoseconds,
        /// Time without a renewal after which other nodes evict this one.
        ttl: gauge Nanoseconds,
        /// Partitions of the cluster.
        partitions: gauge Count,
        /// Partitions that this node serves.
        owned: gauge Count,
        /// Partitions that no node serves, as far as this one knows.
        unserved: gauge Count,
        /// Nodes that renew their leases, as this one has read them last: each ten seconds, or each second with service addresses.
        nodes_live: gauge Count,
        /// Nodes that do not, and have neither been stopped nor found dead yet.
        nodes_silent: gauge Count,
        /// Nodes that another one has found dead, and that have neither come back nor been removed.
        nodes_dead: gauge Count,
        /// 1 while this node takes nothing and leaves the clients to the others, because it reaches none of them, or has reached one for less
        /// than ten seconds; 0 otherwise.
        isolated: gauge Count,
        /// Ownerships that have begun here, by what became of the owner before.
        ownerships: counters("cause", OWNERSHIP_CAUSES) Count,
        /// Ownerships that this node gave up.
        given_up: counter Count,
        /// Ownerships that ended without being given up.
        fences: counter Count,
        /// Duration of takeovers from nodes that died, from the last renewal of the lease that was seen until everything was answered.
        takeover: histogram Nanoseconds,
        /// Time of these takeovers by stage.
        takeover_stages: counters("stage", TAKEOVER_STAGES) Nanoseconds,
        /// Duration of requests to the bucket about leases and owners.
        bucket: histogram Nanoseconds,
        /// Requests of these that took a quarter of the lease's lifetime or longer; they are ended then.
        bucket_late: counter Count,
        /// Requests of these of unknown outcome.
        bucket_unknown: counter Count,
        /// Writes of these that were not done because another node was faster, or had been done before.
        bucket_conflicts: counter Count,
        /// Clients' calls that another node answered, also with an error.
        forwarded: counter Count,
        /// Time that these calls took here, with all attempts.
        forward: counter Nanoseconds,
        /// Attempts to forward a call that a node refused because it is not the owner, or cannot answer.
        forwards_refused: counter Count,
        /// Attempts to forward a call whose outcome is not known.
        forwards_unknown: counter Count,
        /// Clients' calls that were given up after 20 seconds, or because they could not be repeated.
        forwards_failed: counter Count,
        /// Client fetches from other nodes' partitions for which this node read data from the bucket.
        reads: counter Count,
        /// Data of these fetches, from the bucket or from this node's caches.
        read: counter Bytes,
        /// Fetches whose rest another node had to send, because this one could not read something in the bucket.
        reads_failed: counter Count,
        /// Client stores into other nodes' partitions for which this node wrote data to the bucket.
        writes: counter Count,
        /// Data of these stores, before compression.
        written: counter Bytes,
        /// Stores whose rest was sent to another node, because this one could not create an object in the bucket.
        writes_failed: counter Count,
        /// Replies of other nodes that this one passed on to clients.
        relayed: counter Bytes,
        /// Calls of other nodes' clients that were executed here.
        executed: counter Count,
        /// Repeated calls of these that found the result of an earlier attempt.
        executed_before: counter Count,
        /// Messages to clients that were sent through another node.
        sent_through: counter Count,
        /// Messages of these that were then sent directly, because the other node did not reach the client.
        sent_directly: counter Count,
        /// Calls of the cluster's service by callers that are not nodes.
        strangers: counter Count,
    }
}

figures! {
    /// Traffic with another node of the cluster, and what is seen of its lease.
    NodeFigures of "node", weight received_packets {
        /// Packets received on connections.
        received_packets: counter Count,
        /// Bytes of these packets, without UDP and IP headers.
        received: counter Bytes,
        /// DATA packets sent, including retransmissions.
        data_sent: counter Count,
        /// DATA packets retransmitted.
        data_resent: counter Count,
        /// Number of times that a call had data to send and the node's window had no room for it.
        stalls: counter Count,
        /// Bytes sent on connections, without UDP and IP headers.
        sent: counter Bytes,
        /// Connections opened.
        opened: counter Count,
        /// Current connections.
        connections: gauge Count,
        /// Round trips measured, in powers of two of a microsecond.
        round_trips: histogram Nanoseconds,
        /// Smoothed round-trip time.
        round_trip: gauge Nanoseconds,
        /// Mean deviation of the round-trip time.
        variation: gauge Nanoseconds,
        /// Retransmission timeout.
        timeout: gauge Nanoseconds,
        /// Window that the node advertised in its last call, in packets.
        window: gauge Count,
        /// Congestion window after the last call, in packets.
        congestion_window: gauge Count,
        /// Maximum size of packets sent to the node.
        packet: gauge Bytes,
        /// Partitions that the node owns.
        owned: gauge Count,
        /// Time since its lease was last seen to change; 0 if it owns nothing, and so is not watched.
        silence: gauge Nanoseconds,
        /// Mean time between its renewals in the last minutes by this node's clock; 0 if that is not known yet.
        renewal: gauge Nanoseconds,
    }
}

figures! {
    /// A partition that came to this node, or left it.
    TakeoverFigures of "takeover", weight began {
        /// When it began, since 1970: if the owner died, when its lease was last seen to be renewed.
        began: gauge Nanoseconds,
        /// Time since then.
        age: gauge Nanoseconds,
        /// Sum of all stages.
        total: gauge Nanoseconds,
        /// Until the lease of the node that died was taken to have ended.
        detect: gauge Nanoseconds,
        /// Until the lease said that its node is dead.
        evict: gauge Nanoseconds,
        /// Until the owner's object in the bucket named this node.
        claim: gauge Nanoseconds,
        /// Until the database was open.
        open: gauge Nanoseconds,
        /// Until the clients that may hold promises of earlier owners were reset.
        reset: gauge Nanoseconds,
        /// If the partition left: until the database was closed.
        close: gauge Nanoseconds,
        /// If the partition left: until the bucket said that it is free.
        free: gauge Nanoseconds,
        /// From the beginning to the first reply; 0 if there was none. Reads are answered before the resets are done.
        answered: gauge Nanoseconds,
        /// 1 unless the ownership ended before everything was answered.
        complete: gauge Count,
    }
}

figures! {
    /// The last probe of a volume from outside (`cellar probe run`).
    ProbeFigures of "probe", weight time {
        /// Start time, since 1970.
        begun: gauge Nanoseconds,
        /// 1 if it failed.
        failed: gauge Count,
        /// Duration, from locating the volume to comparing the data.
        time: gauge Nanoseconds,
        /// Duration of writing, if the probe got that far.
        write: gauge Nanoseconds,
        /// Duration of reading, if the probe got that far.
        read: gauge Nanoseconds,
    }
}

figures! {
    /// The process.
    ProcessFigures of "process", weight resident {
        /// Start time of the process, since 1970.
        started: gauge Nanoseconds,
        /// Resident memory.
        resident: gauge Bytes,
        /// Loaded volumes.
        volumes_loaded: gauge Count,
    }
}

figures! {
    /// Log lines of one kind of event.
    EventFigures of "event_lines", weight written {
        /// 1 while lines of this event are enabled.
        on: gauge Count,
        /// Minimum duration of an event that is logged.
        from: gauge Nanoseconds,
        /// Lines passed to the log.
        written: counter Count,
        /// Lines omitted because they exceeded the limit per second, or the log did not keep up.
        dropped: counter Count,
    }
}

event! {
    /// A call has ended. The caller is logged in addition.
    CallEnded is Call, counted by CallFigures.calls {
        /// The service.
        service: shows Name,
        /// The procedure.
        procedure: shows Name,
        /// First volume that the call used; 0 for none.
        volume: shows Count,
        /// Outcome of the call.
        outcome: chooses(outcomes) Outcome,
        /// Abort code; 0 on success.
        code: shows Code,
        /// 1 if the receiving thread answered the call.
        fast_path: adds Count,
        /// Bytes of the request.
        received: adds Bytes,
        /// Bytes of the reply.
        sent: adds Bytes,
        /// Time spent waiting for a worker.
        wait: records(unless fast_path) Nanoseconds,
        /// Time spent serving the call.
        run: records Nanoseconds,
    }
}

event! {
    /// A disk access has ended.
    DiskAccess is Disk, counted by DiskFigures.accesses {
        /// Kind of access: read, write, sync.
        access: shows Name,
        /// 1 if it failed.
        failed: adds Count,
        /// 1 for a write that was meant to bypass the system's cache and could not.
        buffered: adds Count,
        /// Bytes read or written.
        moved: adds Bytes,
        /// Duration of the access.
        time: records Nanoseconds,
    }
}

event! {
    /// A thread has waited for a lock.
    LockWait is Lock, counted by LockFigures.waits {
        /// Name of the lock.
        lock: shows Name,
        /// Source location where the lock was held when the wait began.
        holder: shows Site,
        /// Duration of the wait.
        wait: records Nanoseconds,
    }
}

event! {
    /// A cache missed or evicted entries. Hits are only counted, not logged.
    CacheAction is Cache, counted by CacheCounts {
        /// Name of the cache.
        cache: shows Name,
        /// 1 for a miss.
        misses: adds Count,
        /// 1 for an entry that was evicted to make room, or was too large to be cached.
        evictions: adds Count,
        /// Number of entries evicted together with all others of their volume.
        purged: adds Count,
        /// Bytes freed.
        freed: shows Bytes,
        /// Age of the entry that was evicted to make room.
        age: shows Age,
    }
}

event! {
    /// A callback break was sent to a client, and acknowledged or abandoned; the file service counts it.
    CallbackSent is Callback {
        /// Address of the client.
        client: shows Text,
        /// `delivered` or `unanswered`.
        outcome: shows Name,
        /// Time until the client answered or was given up on.
        time: shows Nanoseconds,
    }
}

event! {
    /// A DATA packet is retransmitted; the lane counts it.
    PacketResent is Packet {
        /// Connection id, including the channel.
        connection: shows Count,
        /// Number of the call.
        call: shows Count,
        /// Sequence number of the packet in the call.
        sequence: shows Count,
        /// Length of the packet.
        sent: shows Bytes,
    }
}
