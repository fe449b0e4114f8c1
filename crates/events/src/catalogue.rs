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
        /// Calls that ended, well or not.
        calls: counter Count,
        /// Calls that ended, by how.
        outcomes: counters("outcome", OUTCOMES) Count,
        /// Calls of those that the receiving thread answered itself, without a worker.
        at_once: counter Count,
        /// Bytes of requests, without headers of packets.
        received: counter Bytes,
        /// Bytes of replies, without headers of packets.
        sent: counter Bytes,
        /// Time that calls waited for a worker.
        wait: histogram Nanoseconds,
        /// Time that calls were served, with what they waited for disks, locks and clients.
        run: histogram Nanoseconds,
    }
}

figures! {
    /// Usage by one client or of one volume.
    UsageFigures of "usage", weight calls {
        /// Calls that ended, well or not.
        calls: counter Count,
        /// Calls that ended, by what they are about.
        classes: counters("class", CLASSES) Count,
        /// Calls that ended with an error.
        failed: counter Count,
        /// Bytes of requests, without headers of packets.
        received: counter Bytes,
        /// Bytes of replies, without headers of packets.
        sent: counter Bytes,
        /// Sum of the times that calls waited for a worker.
        wait: counter Nanoseconds,
        /// Sum of the times that calls were served.
        run: counter Nanoseconds,
        /// The longest time from the arrival of a call to its end.
        longest: longest Nanoseconds,
        /// Bytes of requests and replies of those calls that read or write data of files.
        data: counter Bytes,
        /// Sum of the times from the arrival of those calls to their ends.
        data_time: counter Nanoseconds,
        /// The longest of them.
        data_longest: longest Nanoseconds,
    }
}

figures! {
    /// Activity of one host, for all its users.
    HostFigures of "host", weight calls {
        /// Connections present between it and any port of the server.
        connections: gauge Count,
        /// Connections made.
        opened: counter Count,
        /// Calls that ended, well or not.
        calls: counter Count,
        /// Calls that ended, by what they are about.
        classes: counters("class", CLASSES) Count,
        /// Calls that ended with an error.
        failed: counter Count,
        /// Calls that read or write data of files.
        data_calls: counter Count,
        /// Bytes of their requests and replies.
        data: counter Bytes,
        /// Sum of the times from their arrivals to their ends.
        data_time: counter Nanoseconds,
        /// The longest of them.
        data_longest: longest Nanoseconds,
    }
}

figures! {
    /// One kind of disk access.
    DiskFigures of "disk", weight accesses {
        /// Accesses that ended.
        accesses: counter Count,
        /// Accesses that failed.
        failed: counter Count,
        /// Writes that were to go past the system's cache, where the file system or the device cannot do that.
        buffered: counter Count,
        /// Bytes read or written.
        moved: counter Bytes,
        /// Time that accesses took.
        time: histogram Nanoseconds,
    }
}

figures! {
    /// Waits for locks of one name.
    LockFigures of "lock", weight waits {
        /// Times that a thread had to wait.
        waits: counter Count,
        /// Threads that wait now; who is no longer among them has been counted.
        waiting: gauge Count,
        /// How long threads had to wait.
        wait: histogram Nanoseconds,
    }
}

figures! {
    /// Traffic of one lane: a thread with a socket.
    LaneFigures of "lane", weight received_datagrams {
        /// Datagrams received.
        received_datagrams: counter Count,
        /// Bytes in them, without headers of UDP and IP.
        received: counter Bytes,
        /// System calls that received something.
        receive_batches: counter Count,
        /// Datagrams that the kernel dropped at the lane's sockets, mostly for want of buffer.
        kernel_drops: counter Count,
        /// Datagrams of another lane's peers, handed over to it.
        handed_over: counter Count,
        /// Datagrams that could not be handed over because the other lane was behind.
        handover_drops: counter Count,
        /// Datagrams sent.
        sent_datagrams: counter Count,
        /// Bytes in them, without headers of UDP and IP.
        sent: counter Bytes,
        /// System calls that sent something.
        send_batches: counter Count,
        /// Times that the lane waited for room in the send buffer.
        send_waits: counter Count,
        /// Datagrams given up because the kernel refused them.
        send_errors: counter Count,
        /// Times that the lane's thread woke up.
        wakeups: counter Count,
        /// Time that the lane's thread had nothing to do.
        idle: counter Nanoseconds,
        /// DATA packets received for the first time.
        data_received: counter Count,
        /// DATA packets received again.
        data_duplicates: counter Count,
        /// DATA packets sent for the first time.
        data_sent: counter Count,
        /// DATA packets sent again.
        data_resent: counter Count,
        /// Retransmission timeouts.
        timeouts: counter Count,
        /// Packets that fit no connection or call, or are malformed.
        bad_packets: counter Count,
        /// Calls that were refused because too many were waiting or running.
        calls_refused: counter Count,
        /// Round trips measured.
        round_trips: counter Count,
        /// Sum of the round trips measured.
        round_trip: counter Nanoseconds,
        /// The longest round trip measured.
        round_trip_max: highest Nanoseconds,
        /// Connections present.
        connections: gauge Count,
        /// Calls present.
        calls_present: gauge Count,
        /// Peers present.
        peers: gauge Count,
        /// Faults caught; each is a bug.
        faults: counter Count,
    }
}

figures! {
    /// Workers of one port.
    WorkerFigures of "workers", weight threads {
        /// Worker threads, those among them that stand in for others that wait for their clients.
        threads: gauge Count,
        /// Calls that may be served at a time, besides those that wait for their clients.
        limit: gauge Count,
        /// Workers that serve a call now.
        busy: gauge Count,
        /// 1 while calls wait and no worker may take one of them.
        full: gauge Count,
        /// Calls that wait for a worker now.
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
        /// Entries present.
        entries: gauge Count,
        /// Bytes held.
        held: gauge Bytes,
        /// The most bytes that were held at a time.
        held_max: highest Bytes,
        /// Bytes that may be held.
        limit: gauge Bytes,
        /// Questions that the cache could answer.
        hits: counter Count,
        /// Questions that it could not answer.
        misses: counter Count,
        /// Entries that made room for others.
        evictions: counter Count,
        /// Entries thrown out together with all of their volume.
        purged: counter Count,
        /// How long the last entry that made room for others had been there.
        recycle_age: gauge Nanoseconds,
    }
}

figures! {
    /// Callback promises and callback breaks of the file service.
    CallbackFigures of "callbacks", weight hosts {
        /// Client hosts that are known.
        hosts: gauge Count,
        /// Of those, hosts that did not answer when they were last told something.
        hosts_down: gauge Count,
        /// Promises to tell of changes.
        promises: gauge Count,
        /// Promises that there may be.
        limit: gauge Count,
        /// Messages about changes that reached their host.
        delivered: counter Count,
        /// Messages about changes that their host did not answer.
        unanswered: counter Count,
        /// Times that promises were taken back to make room for others.
        evictions: counter Count,
        /// UUIDs that two clients used at the same time within the last day.
        shared_uuids: gauge Count,
    }
}

figures! {
    /// One partition.
    PartitionFigures of "partition", weight size {
        /// Its size without the reserve and without blocks that only root can allocate: size - free is what is used.
        size: gauge Bytes,
        /// What may still be used.
        free: gauge Bytes,
        /// 1 if it could not be opened, so that its volumes are offline.
        offline: gauge Count,
        /// 1 if it takes no more writes after an I/O error, until the server is started again.
        read_only: gauge Count,
        /// Places that are known to be damaged, at most 10,000.
        damaged: gauge Count,
        /// Deleted volumes and huge files whose space is still to be reclaimed, at most 10,000.
        reclaiming: gauge Count,
        /// Bytes of metadata and chunks that the scrubber has read since the start.
        scrubbed: counter Bytes,
        /// Chunks that volumes with deduplication have stored, each once.
        deduplicated_chunks: gauge Count,
        /// How often these are named by files.
        deduplicated_names: gauge Count,
        /// Bytes of these chunks as stored.
        deduplicated: gauge Bytes,
        /// Bytes that a chunk of its own for each name would take besides.
        deduplication_saved: gauge Bytes,
        /// Bytes of the table that says where the chunks are, in the metadata.
        deduplication_table: gauge Bytes,
        /// Memory of deduplication besides the caches of the metadata.
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
        /// Calls that waited until there was room for their record.
        waits: counter Count,
        /// Time that they waited.
        blocked: counter Nanoseconds,
        /// Times that the sink could not be opened or written.
        failures: counter Count,
        /// Times that the sink was opened.
        opened: counter Count,
        /// 1 while the sink cannot be opened or written.
        failing: gauge Count,
        /// Records that wait to be written now.
        queued: gauge Count,
        /// Records that may wait.
        queue_limit: gauge Count,
    }
}

figures! {
    /// Callers refused for one reason before their call was dispatched.
    RefusalFigures of "refusal", weight refused {
        /// Proofs of identity, and calls without one, that were refused.
        refused: counter Count,
        /// Hosts of these in the last ten minutes, at most 256 for all reasons.
        hosts: gauge Count,
    }
}

figures! {
    /// Traffic between a port and one peer: a host and its port.
    PeerFigures of "peer", weight received_packets {
        /// Connections made.
        opened: counter Count,
        /// Connections present.
        connections: gauge Count,
        /// Packets received on connections.
        received_packets: counter Count,
        /// Bytes in them, without headers of UDP and IP.
        received: counter Bytes,
        /// DATA packets sent, for the first time or again.
        data_sent: counter Count,
        /// DATA packets sent again.
        data_resent: counter Count,
        /// Bytes sent on connections, without headers of UDP and IP.
        sent: counter Bytes,
        /// Round trips measured, in powers of two of a microsecond.
        round_trips: histogram Nanoseconds,
        /// The smoothed round-trip time.
        round_trip: gauge Nanoseconds,
        /// Its mean deviation.
        variation: gauge Nanoseconds,
        /// The time after which what was not acknowledged is sent again.
        timeout: gauge Nanoseconds,
        /// Packets that the peer's last call had room for.
        window: gauge Count,
        /// Packets that may be under way to it at a time, as its last call learnt.
        congestion_window: gauge Count,
        /// The longest packet that is sent to it.
        packet: gauge Bytes,
    }
}

figures! {
    /// The last probe of a volume from outside (`cellar probe run`).
    ProbeFigures of "probe", weight time {
        /// When it began, since 1970.
        begun: gauge Nanoseconds,
        /// 1 if it failed.
        failed: gauge Count,
        /// Time that it took, from locating the volume to comparing what was read.
        time: gauge Nanoseconds,
        /// Time that writing took, if it came to that.
        write: gauge Nanoseconds,
        /// Time that reading took, if it came to that.
        read: gauge Nanoseconds,
    }
}

figures! {
    /// The process.
    ProcessFigures of "process", weight resident {
        /// When the process started, since 1970.
        started: gauge Nanoseconds,
        /// Resident memory.
        resident: gauge Bytes,
        /// Volumes in memory.
        volumes_loaded: gauge Count,
    }
}

figures! {
    /// Log lines of one kind of event.
    EventFigures of "event_lines", weight written {
        /// 1 while lines of it are wanted.
        on: gauge Count,
        /// Events that took as long leave a line.
        from: gauge Nanoseconds,
        /// Lines handed to the log.
        written: counter Count,
        /// Lines left out because there were more than may be in a second, or the log did not keep up.
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
        at_once: adds Count,
        /// Bytes of the request.
        received: adds Bytes,
        /// Bytes of the reply.
        sent: adds Bytes,
        /// Time spent waiting for a worker.
        wait: records(unless at_once) Nanoseconds,
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
