//! The server's entry in the location database.

use crate::finding::Finding;
use crate::snapshot::Snapshot;

/// Reports an address of this server in another server's entry.
pub(crate) fn taken(snapshot: &Snapshot) -> Vec<Finding> {
    let evidence = snapshot.registration.taken.clone();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "address-conflict",
        weight: 84,
        what: "Another server is registered with an address of this one.".into(),
        evidence,
        cause: "Both machines have the address, for example that of a container bridge, or the address \
            belonged to another server whose entry was not removed. Clients look for the volumes of one \
            server on the other."
            .into(),
        remedy: "Exclude the address on both servers with NetRestrict (`announce` in cellar.toml) and \
            restart them. If the other server no longer exists, remove its entry with `vos changeaddr \
            ADDRESS -remove`."
            .into(),
    }]
}

/// Reports another server with this server's UUID.
pub(crate) fn copied(snapshot: &Snapshot) -> Vec<Finding> {
    let evidence = snapshot.registration.copied.clone();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "server-uuid-copied",
        weight: 86,
        what: "Another server has the same UUID as this one.".into(),
        evidence,
        cause: "A machine was cloned with its sysid file. Both servers register under one entry, and \
            clients look for the volumes of one server on the other."
            .into(),
        remedy: "Stop the server on the clone, remove its sysid file, and restart it: it creates a new one."
            .into(),
    }]
}

/// Reports addresses not registered for lack of space.
pub(crate) fn left_out(snapshot: &Snapshot) -> Vec<Finding> {
    let evidence = snapshot.registration.left_out.clone();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "addresses-left-out",
        weight: 42,
        what: "The server has more addresses than can be registered.".into(),
        evidence,
        cause: "An entry of the location database has at most 15 addresses. Clients that reach none of \
            these cannot reach the server."
            .into(),
        remedy: "List the addresses that clients use in NetInfo (`announce` in cellar.toml), or exclude \
            others with NetRestrict."
            .into(),
    }]
}

/// Reports addresses of running nodes of the cluster that clients do not know.
pub(crate) fn absent(snapshot: &Snapshot) -> Vec<Finding> {
    let evidence = snapshot.registration.absent.clone();
    if evidence.is_empty() {
        return vec![];
    }
    vec![Finding {
        problem: "node-not-registered",
        weight: 58,
        what: "The location database does not have the addresses of all nodes of the cluster.".into(),
        evidence,
        cause: "A node that has just been started is registered within a few minutes. Otherwise no node reaches the \
            location server, or the entry has no room for more than 15 addresses. Clients do not use that node, and \
            cannot go on with it when the others have died."
            .into(),
        remedy: "Look for `register` in the log of each node; the entry is in `vos listaddrs -printuuid`. Leave out \
            addresses that clients do not need (`announce` in cellar.toml)."
            .into(),
    }]
}
