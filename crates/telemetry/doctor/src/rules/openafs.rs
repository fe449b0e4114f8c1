//! Rules for servers other than Cellar, which report through rxdebug and xstat.

use crate::finding::Finding;
use crate::snapshot::{Operation, Port, Snapshot};
use crate::text::{percent, time};

/// Tolerated retransmissions, and duplicates, per thousand packets.
const RESENT_PERMILLE_MAX: u64 = 1;
const TWICE_PERMILLE_MAX: u64 = 10;

/// Minimum number of packets for a meaningful result.
const PACKETS_MIN: u64 = 20;

/// A kind of call with this average duration or more is slow.
const SLOW_US: u64 = 500_000;
const CALLS_MIN: u64 = 3;

fn count(port: &Port, name: &str) -> u64 {
    port.counters.get(name).copied().unwrap_or(0)
}

/// Collects the findings of `says` for each port.
fn each(snapshot: &Snapshot, says: impl Fn(&Port) -> Option<Finding>) -> Vec<Finding> {
    snapshot.ports.iter().filter_map(says).collect()
}

/// Reports calls that wait for threads. Threads that OpenAFS reserves for its other services may be idle
/// meanwhile.
pub(crate) fn threads(snapshot: &Snapshot) -> Vec<Finding> {
    each(snapshot, |port| {
        if port.waiting == 0 && (port.waited == 0 || port.idle_threads > 0) {
            return None;
        }
        Some(Finding {
            problem: "rx-threads-exhausted",
            weight: 74,
            what: format!("Calls wait for the threads of {}.", port.name),
            evidence: vec![format!(
                "{}: {} calls waiting in both samples, {} began to wait between them; {} threads idle, \
                reserved for other services",
                port.name, port.waiting, port.waited, port.idle_threads
            )],
            cause: "More calls arrive than there are threads, or threads are held up: by a slow disk, by \
                clients that do not answer callbacks, or by one user's many calls, since OpenAFS serves \
                calls in order of arrival."
                .into(),
            remedy: "`cellar stat rx SERVER --connections` shows whose calls are active (`active` channels \
                by peer), `cellar sniff` their times. More threads (`-p`, up to 256) help if threads mostly \
                wait. OpenAFS cannot keep one user from taking all threads; Cellar's fair queue can."
                .into(),
        })
    })
}

/// Reports packet buffers that run out.
pub(crate) fn packets(snapshot: &Snapshot) -> Vec<Finding> {
    let names = [
        "no_packets_receiving",
        "no_packets_sending",
        "no_packets_special",
        "reads_without_packet",
        "reads_without_buffers",
    ];
    each(snapshot, |port| {
        let short: u64 = names.iter().map(|name| count(port, name)).sum();
        if short == 0 && !port.is_waiting_for_packets && (port.packets == 0 || port.free_packets > 0) {
            return None;
        }
        let waiting = if port.is_waiting_for_packets { "; calls wait for packets" } else { "" };
        Some(Finding {
            problem: "rx-packets-exhausted",
            weight: 68,
            what: format!("{} runs out of packets.", port.name),
            evidence: vec![format!(
                "{}: {} of {} packets free at most; none was free {short} times{waiting}",
                port.name, port.free_packets, port.packets
            )],
            cause: "The packet pool of OpenAFS's Rx is too small for the traffic; datagrams that arrive \
                while it is empty are discarded."
                .into(),
            remedy: "Raise the server's `-rxpck` and restart it.".into(),
        })
    })
}

/// Reports packets that are retransmitted or arrive twice.
pub(crate) fn sent_again(snapshot: &Snapshot) -> Vec<Finding> {
    each(snapshot, |port| {
        let [sent, resent] = ["data_packets_sent", "data_packets_resent"].map(|name| count(port, name));
        let [read, twice] = ["data_packets_read", "duplicate_packets_read"].map(|name| count(port, name));
        let loses = resent >= PACKETS_MIN && resent * 1000 > sent * RESENT_PERMILLE_MAX;
        let is_late = twice >= PACKETS_MIN && twice * 1000 > read * TWICE_PERMILLE_MAX;
        if !loses && !is_late {
            return None;
        }
        Some(Finding {
            problem: "rx-packets-lost",
            weight: 47,
            what: format!("{} and its clients retransmit packets.", port.name),
            evidence: vec![format!(
                "{}: {resent} of {sent} data packets retransmitted ({}); {twice} of {read} received twice \
                ({})",
                port.name,
                percent(resent, sent),
                percent(twice, read)
            )],
            cause: "Packets are lost, or the server's single listener thread acknowledges them so late that \
                clients consider them lost: the listener is saturated, or a receive buffer overflows."
                .into(),
            remedy: "On the server, `ss -uampn` shows drops (d) of the socket and `top -H` the listener's \
                thread. Raise net.core.rmem_max and `-udpsize` (16 MiB); a listener that needs a whole \
                processor can only be relieved by moving volumes. `cellar sniff` shows which side loses \
                packets."
                .into(),
        })
    })
}

/// Reports calls rejected because the server was busy.
pub(crate) fn turned_away(snapshot: &Snapshot) -> Vec<Finding> {
    let own = snapshot.extended.get("fs_nBusies").copied().unwrap_or(0);
    let mut findings = each(snapshot, |port| {
        let [busies, sent] = ["busies", "busy_packets_sent"].map(|name| count(port, name));
        (busies.max(sent) > 0).then(|| busy(format!("{}: {busies} calls refused, {sent} replies", port.name)))
    });
    if own > 0 && findings.is_empty() {
        findings.push(busy(format!("{own} calls answered with VBUSY (fs_nBusies)")));
    }
    findings
}

fn busy(evidence: String) -> Finding {
    Finding {
        problem: "rx-calls-turned-away",
        weight: 84,
        what: "The server refuses calls as busy.".into(),
        evidence: vec![evidence],
        cause: "More calls wait for a thread than `-busyat` allows, or a volume is busy.".into(),
        remedy:
            "Find out what holds up the threads (`rx-threads-exhausted`); `vos status SERVER` shows volumes \
            in a transaction."
                .into(),
    }
}

/// Reports datagrams that cannot be sent, or buffers that cannot be allocated.
pub(crate) fn buffers(snapshot: &Snapshot) -> Vec<Finding> {
    each(snapshot, |port| {
        let names = ["send_failures", "receive_buffer_failures", "send_buffer_failures"];
        let [failed, receive, send] = names.map(|name| count(port, name));
        (failed + receive + send > 0).then(|| Finding {
            problem: "rx-buffers",
            weight: 41,
            what: format!("{} fails to send packets.", port.name),
            evidence: vec![format!(
                "{}: {failed} datagrams could not be sent; {receive} packets got no receive buffer, {send} \
                no send buffer",
                port.name
            )],
            cause: "The system has no memory for sockets, or the network rejects datagrams.".into(),
            remedy: "Raise net.core.wmem_max and `-udpsize`; check the server's routes and firewall.".into(),
        })
    })
}

/// Reports a full table of callbacks.
pub(crate) fn callback_space(snapshot: &Snapshot) -> Vec<Finding> {
    let count = |name: &str| snapshot.extended.get(name).copied().unwrap_or(0);
    let taken = count("GotSomeSpaces");
    if taken <= 0 {
        return vec![];
    }
    vec![Finding {
        problem: "callback-space",
        weight: 49,
        what: "The server revokes callbacks to make room for new ones.".into(),
        evidence: vec![format!(
            "GotSomeSpaces {taken}, GSS3 {}, GSS4 {}, GSS5 {} since the first sample",
            count("GSS3"),
            count("GSS4"),
            count("GSS5")
        )],
        cause:
            "All clients together cache more files than the table has callbacks. They lose cached files and \
            fetch their status again."
                .into(),
        remedy: "Raise `-cb` of the file server (1,500,000 need about 50 MiB) and restart it.".into(),
    }]
}

/// Reports kinds of calls that are slow on average.
pub(crate) fn slow_operations(snapshot: &Snapshot) -> Vec<Finding> {
    let mean = |of: &Operation| of.time_us.checked_div(of.calls).unwrap_or(0);
    let is_slow = |of: &&Operation| of.calls >= CALLS_MIN && mean(of) >= SLOW_US;
    let says = |of: &Operation| {
        format!("{}: {} calls, {} on average", of.name, of.calls, time(mean(of).saturating_mul(1000)))
    };
    let evidence: Vec<String> = snapshot.operations.iter().filter(is_slow).map(says).collect();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "slow-calls",
        weight: 45,
        what: "Calls take long once a thread serves them.".into(),
        evidence,
        cause: "The thread that serves the call waits: for the disk (fetches and stores of data), for \
            clients that do not answer callbacks (changes), or for the lock of a volume or of the hosts."
            .into(),
        remedy: "`cellar sniff` on the server's machine shows unanswered callbacks and the time of each \
            call by volume and client; `iostat -x 1` shows the disk. `cellar doctor` cannot say more about \
            a server that does not measure where time is spent."
            .into(),
    }]
}
