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
        "{} messages about changes were not answered, {} were; since the start {} and {}; {} of {} hosts are \
         down",
        news.unanswered, news.delivered, since.unanswered, since.delivered, news.hosts_down, news.hosts
    )];
    evidence.extend(waited);
    if news.unanswered == 0 {
        evidence.push(
            "between the two looks none was left unanswered: a client that is only slow may be it, too"
                .into(),
        );
    }
    vec![Finding {
        problem: "callbacks-unanswered",
        weight: 52,
        what: "Clients do not answer when they are told of changes, and others' changes wait for that.".into(),
        evidence,
        cause: "A client was promised to be told of changes, and is gone: switched off, out of the network, or \
                behind a firewall or address translator that lets nothing through to its port 7001. Who changes \
                the file waits until the server gives up on it."
            .into(),
        remedy: "The log names the clients (`a client was not reached`). Let UDP from the server's port 7000 to \
                 port 7001 of clients pass, with a time limit of the translator above 10 minutes. A host that is \
                 down is not waited for a second time until it calls again."
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
        what: "Clients take long to answer when they are told of changes, and others' changes wait for that.".into(),
        evidence: vec![
            waited,
            format!(
                "they did answer: since the start {} messages about changes were answered, {} were not; {} of {} \
                 hosts are down",
                since.delivered, since.unanswered, since.hosts_down, since.hosts
            ),
        ],
        cause: "A client that was promised to be told of changes is there, but slow: it is busy, short of memory, was \
                asleep, or its network is slow or loses packets. Who changes the file waits for its answer."
            .into(),
        remedy: "`cellar stat peers` shows round trips of clients and packets sent to them again; `cellar server \
                 log-events callback=100ms` has the log name those that answer late."
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
            "{} UUIDs were answered to at two addresses at the same time within the last day; the log names each with \
             both addresses (`two clients use one UUID`)",
            now.shared_uuids
        )],
        cause: "A machine was cloned with its client's UUID, or somebody names the UUID of another client. Both are told of \
                changes, each of what it was promised itself."
            .into(),
        remedy: "On the clone remove the UUID (OpenAFS: the folder /var/cache/openafs) and restart the client; if \
                 none was cloned, find out who is at the address that the log names second."
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
        what: "The server takes promises back, to have room for others.".into(),
        evidence: vec![format!(
            "{} times all promises of a host were taken back; there are {} of at most {}, of {} hosts",
            news.evictions, news.promises, news.limit, news.hosts
        )],
        cause: "Clients together hold more files than the server may promise to watch. They lose what they \
                have cached, and ask again."
            .into(),
        remedy:
            "Divide the volumes between more servers, or tell what your clients need: the limit is one of \
                 the program."
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
            "The client sends its data, or takes the reply, more slowly than the server could: its network \
                is slow or loses packets, or it is busy."
                .into(),
        remedy:
            "Others do not wait for it (`fairness.stalled_calls`). `cellar stat rx SERVER --peers` shows its \
                 round trips and packets sent again, `cellar sniff` its windows."
                .into(),
    }]
}
