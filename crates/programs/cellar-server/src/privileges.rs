//! Privileges of a server that was started as root.

use cellar_config::Settings;
use rustix::io;
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use rustix::thread::{capability_is_in_bounding_set, remove_capability_from_bounding_set};

/// Capabilities that the server uses if it has them: larger socket buffers than `net.core.rmem_max`, service addresses, ports of
/// metrics and of the web page below 1024, priorities of workers, partitions and keys of other users, and the
/// names of processes of other users that have a port of the server.
const USED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_PTRACE);

/// Gives up all other capabilities of this thread and of the threads and programs that it starts; to be called
/// before it has started any. A failure is logged: the server then keeps them. A node of a cluster also keeps that to send
/// frames, by which service addresses are announced.
pub(crate) fn give_up_unused(settings: &Settings) {
    let of_node = if settings.cluster.is_some() { CapabilitySet::NET_RAW } else { CapabilitySet::empty() };
    if let Err(error) = keep_only(USED.union(of_node)) {
        tracing::warn!(%error, "the server keeps privileges that it does not use");
    }
}

fn keep_only(used: CapabilitySet) -> io::Result<()> {
    let own = capabilities(None)?;
    if own.permitted.contains(CapabilitySet::SETPCAP) {
        for bit in (0..u64::BITS).map(|bit| 1 << bit) {
            let capability = CapabilitySet::from_bits_retain(bit);
            // The kernel refuses to read bits that it does not know.
            if !used.contains(capability) && capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    let kept = CapabilitySets {
        effective: own.effective & used,
        permitted: own.permitted & used,
        inheritable: own.inheritable & used,
    };
    if kept == own { Ok(()) } else { set_capabilities(None, kept) }
}

/// Sets the nice value of this thread and of those that it starts; to be called before it has started any. Without the
/// permission (CAP_SYS_NICE, RLIMIT_NICE) to have a lower one than the program was started with, that is kept, and the log
/// says so.
pub(crate) fn set_priority(nice: i32) {
    if getpriority_process(None) == Ok(nice) {
        return;
    }
    if let Err(error) = setpriority_process(None, nice) {
        let now = getpriority_process(None).unwrap_or_default();
        tracing::info!(nice, now, %error, "no permission for server.nice; the program keeps its priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_nice_value_of_the_settings_if_it_may() {
        let tested = std::thread::spawn(|| {
            set_priority(3);
            let started = std::thread::spawn(|| getpriority_process(None).unwrap()).join().unwrap();
            assert_eq!(started, 3);
            let may_raise = setpriority_process(None, -7).is_ok() && setpriority_process(None, 3).is_ok();
            set_priority(-5);
            assert_eq!(getpriority_process(None).unwrap(), if may_raise { -5 } else { 3 });
        });
        tested.join().unwrap();
    }

    #[test]
    fn threads_keep_only_used_capabilities() {
        // Capabilities belong to a thread, so the test gives up those of its own.
        let tested = std::thread::spawn(|| {
            let before = capabilities(None).unwrap();
            keep_only(USED).unwrap();
            let after = std::thread::spawn(|| capabilities(None).unwrap()).join().unwrap();
            assert_eq!(after.permitted, before.permitted & USED);
            assert_eq!(after.effective, before.effective & USED);
            assert!((after.inheritable - USED).is_empty());
            if before.permitted.contains(CapabilitySet::SETPCAP) {
                assert!(!capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap());
                let regained = CapabilitySets { permitted: before.permitted, ..after };
                assert!(set_capabilities(None, regained).is_err());
            }
            keep_only(USED).unwrap();
        });
        tested.join().unwrap();
    }
}
