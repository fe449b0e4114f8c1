//! Advice about socket buffers and dropped datagrams, for `cellar server status`, the server's log and the
//! rules.

/// Returns advice about receive buffers if they are smaller than requested.
pub fn small_buffers(buffer_kib: u64, wanted_kib: u64) -> Option<String> {
    (buffer_kib < wanted_kib).then(|| {
        format!(
            "the system limits a socket's receive buffer to {buffer_kib} KiB instead of {wanted_kib}: \
            datagrams will be lost when many clients call at the same time; {}",
            raise_limit(wanted_kib)
        )
    })
}

/// Returns how to make the system grant such buffers.
pub(crate) fn raise_limit(wanted_kib: u64) -> String {
    format!(
        "run `sysctl -w net.core.rmem_max={}` and add it to /etc/sysctl.d, or give the server \
        CAP_NET_ADMIN, then restart it",
        wanted_kib * 1024
    )
}

/// Advice about drops when the buffers have the requested size.
pub const MORE_BUFFER: &str = "datagrams were dropped although the buffers have the requested size: raise \
    `rx.socket_buffer_mb`, or `rx.lanes` if there are idle processors";
