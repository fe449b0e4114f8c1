//! Clients that do not answer callback breaks, or read too slowly.

use crate::finding::Finding;
use crate::slow;
use crate::snapshot::Snapshot;

/// Minimum number of slow calls of one kind that is unlikely to be a coincidence.
const SLOW_CALLS_MIN: usize = 3;

/// Reports clients that do not answer callback breaks.
pub(crate) fn unanswered(snapshot: &Snapshot) -> Vec<Finding> {
    let news = Snapshot::total(&snapshot.callbacks());
    let waited = slow::evidence(snapshot.slow_for("callback"), "waited for clients to answer");
    if news.unanswered == 0 && (waited.is_none() || have_all_answered(snapshot)) {
        return vec![];
    }
    let since = Snapshot::total(&snapshot.now.callbacks);
    let mut evidence = vec![format!(
        "{} callback breaks were not answered, {} were; since the start {} and {}; {} of {} hosts are \
         down",
        news.unanswered, news.delivered, since.unanswered, since.delivered, news.hosts_down, news.hosts
    )];
    evidence.extend(waited);
    if news.unanswered == 0 {
        evidence.push("none was left unanswered between the two samples: the client may just be slow".into());
    }
    vec![Finding {
        problem: "callbacks-unanswered",
        weight: 52,
        what: "Clients do not answer callback breaks, and changes by others wait for them.".into(),
        evidence,
        cause: "A client with a callback promise is unreachable: switched off, disconnected, or behind a \
            firewall or NAT that lets nothing through to its port 7001. Every change of the file waits \
            until the server gives up on the client."
            .into(),
        remedy: "The log names the clients (`a client was not reached`). Let UDP from the server's port \
            7000 to port 7001 of clients pass, with a NAT timeout above 10 minutes. The server does not \
            wait again for a host that is down until the host calls."
            .into(),
    }]
}

/// Whether all clients that were waited for have answered, however late.
fn have_all_answered(snapshot: &Snapshot) -> bool {
    let since = Snapshot::total(&snapshot.now.callbacks);
    since.unanswered == 0 || since.hosts_down == 0
}

/// Reports clients that answer callback breaks late.
pub(crate) fn late(snapshot: &Snapshot) -> Vec<Finding> {
    let news = Snapshot::total(&snapshot.callbacks());
    let waited = slow::evidence(snapshot.slow_for("callback"), "waited for clients to answer");
    let Some(waited) = waited.filter(|_| news.unanswered == 0 && have_all_answered(snapshot)) else {
        return vec![];
    };
    let since = Snapshot::total(&snapshot.now.callbacks);
    vec![Finding {
        problem: "callbacks-late",
        weight: 46,
        what: "Clients are slow to answer callback breaks, and changes by others wait for them.".into(),
        evidence: vec![
            waited,
            format!(
                "they did answer: since the start {} callback breaks were answered, {} were not; {} of {} \
                 hosts are down",
                since.delivered, since.unanswered, since.hosts_down, since.hosts
            ),
        ],
        cause: "A client with a callback promise is reachable but slow: it is busy, short of memory, was \
            asleep, or its network is slow or loses packets. Every change of the file waits for its answer."
            .into(),
        remedy:
            "`cellar stat peers` shows the clients' round trip times and retransmissions; `cellar server \
                 log-events callback=100ms` logs the clients that answer late."
                .into(),
    }]
}

/// Reports two clients with the same UUID.
pub(crate) fn shared_uuids(snapshot: &Snapshot) -> Vec<Finding> {
    let now = Snapshot::total(&snapshot.now.callbacks);
    if now.shared_uuids == 0 {
        return vec![];
    }
    vec![Finding {
        problem: "shared-uuids",
        weight: 44,
        what: "Two clients use the same UUID.".into(),
        evidence: vec![format!(
            "{} UUIDs were in use at two addresses at the same time within the last day; the log has each \
            with both addresses (`two clients use one UUID`)",
            now.shared_uuids
        )],
        cause: "A machine was cloned with its client's UUID, or a client uses the UUID of another one on \
            purpose. Each still receives the callback breaks for its own callback promises."
            .into(),
        remedy: "On the clone, remove the UUID (OpenAFS: the directory /var/cache/openafs) and restart the \
            client. If no machine was cloned, find out which machine has the second address in the log."
            .into(),
    }]
}

/// Reports callback promises that are revoked for lack of space.
pub(crate) fn promises_exhausted(snapshot: &Snapshot) -> Vec<Finding> {
    let news = Snapshot::total(&snapshot.callbacks());
    if news.evictions == 0 {
        return vec![];
    }
    vec![Finding {
        problem: "promises-exhausted",
        weight: 48,
        what: "The server revokes callback promises to make room for new ones.".into(),
        evidence: vec![format!(
            "all promises of a host were revoked {} times; there are {} of at most {} promises, of {} hosts",
            news.evictions, news.promises, news.limit, news.hosts
        )],
        cause: "All clients together cache more files than the server can keep callback promises for. They \
            lose cached files and fetch their status again."
            .into(),
        remedy:
            "Divide the volumes between more servers. The limit is built into the program; please report it \
            if you need more."
                .into(),
    }]
}

/// Reports clients that receive or send slowly.
pub(crate) fn slow_takers(snapshot: &Snapshot) -> Vec<Finding> {
    if snapshot.slow_for("client").count() < SLOW_CALLS_MIN {
        return vec![];
    }
    vec![Finding {
        problem: "slow-clients",
        weight: 15,
        what: "Calls take long because their own clients are slow.".into(),
        evidence: slow::evidence(snapshot.slow_for("client"), "waited for their own client")
            .into_iter()
            .collect(),
        cause:
            "The client sends its data, or reads the reply, more slowly than the server could: its network \
            is slow or loses packets, or it is busy."
                .into(),
        remedy:
            "Other clients do not wait for it (`fairness.stalled_calls`). `cellar stat rx SERVER --peers` \
            shows its round trip times and retransmissions, `cellar sniff` its windows."
                .into(),
    }]
}
