//! Calls about the cluster that the server belongs to.

use crate::AdminServer;
use afs_idl::cellar::{GiveUpPartitionReply, GiveUpPartitionRequest, RemoveNodeReply, RemoveNodeRequest};
use base::{AbortCode, Caller};
use cluster_proto::{NodeName, Owned};
use std::fmt;

/// What the service needs of the cluster.
pub trait Cluster: Send + Sync {
    /// Gives a partition or the databases up for a node, which takes it over: ends its calls, closes it, and says in the bucket that
    /// it is free for `to`. Returns when that is done, within a minute.
    ///
    /// # Errors
    /// Why it is not given up; after `Late`, it may be later.
    fn give_up(&self, what: Owned, to: &NodeName) -> Result<(), GiveUpError>;

    /// Removes the lease of a node that does not run, so that the cluster does not know it any more.
    ///
    /// # Errors
    /// Why it is not removed; after `Late`, it may be nevertheless.
    fn remove(&self, node: &NodeName) -> Result<(), RemoveNodeError>;
}

/// Why a node is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveNodeError {
    /// The cluster does not know it.
    Unknown,
    /// Its lease says that it runs.
    Member,
    /// It is the last owner of something.
    Owner,
    /// The bucket does not answer.
    Late,
}

impl fmt::Display for RemoveNodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemoveNodeError::Unknown => "there is no such node",
            RemoveNodeError::Member => "its lease says that it runs",
            RemoveNodeError::Owner => "it owns something that no other node has taken over",
            RemoveNodeError::Late => "the bucket does not answer",
        })
    }
}

impl RemoveNodeError {
    /// Returns the code that the caller gets.
    pub fn abort_code(self) -> AbortCode {
        match self {
            RemoveNodeError::Unknown => AbortCode::UAENOENT,
            RemoveNodeError::Member => AbortCode::UAEBUSY,
            RemoveNodeError::Owner => AbortCode::UAENOTEMPTY,
            RemoveNodeError::Late => AbortCode::UAETIMEDOUT,
        }
    }
}

/// Why a partition, or the databases, are not given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpError {
    /// This node does not own it.
    NotOwned,
    /// No running node has the name.
    NoNode,
    /// It is this node's own name.
    OwnName,
    /// It is being opened or given up.
    Busy,
    /// The bucket does not answer.
    Late,
}

impl fmt::Display for GiveUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GiveUpError::NotOwned => "this node does not own it",
            GiveUpError::NoNode => "no running node has this name",
            GiveUpError::OwnName => "this is the node itself",
            GiveUpError::Busy => "it is being opened or given up",
            GiveUpError::Late => "the bucket does not answer",
        })
    }
}

impl GiveUpError {
    /// Returns the code that the caller gets.
    pub fn abort_code(self) -> AbortCode {
        match self {
            GiveUpError::NotOwned => AbortCode::UAENODEV,
            GiveUpError::NoNode => AbortCode::UAENOENT,
            GiveUpError::OwnName => AbortCode::UAEINVAL,
            GiveUpError::Busy => AbortCode::UAEBUSY,
            GiveUpError::Late => AbortCode::UAETIMEDOUT,
        }
    }
}

impl AdminServer {
    /// Sets the cluster; to be called once, on a node.
    pub fn set_cluster(&self, cluster: Box<dyn Cluster>) {
        // A process is a node of one cluster; a second one is ignored.
        let _ = self.cluster.set(cluster);
    }

    /// GiveUpPartition (opcode 550).
    pub(crate) fn give_up_partition(
        &self,
        caller: &Caller,
        request: GiveUpPartitionRequest,
    ) -> Result<GiveUpPartitionReply, AbortCode> {
        let name = request.to.to_string();
        let what = format!("GiveUpPartition {} `{}`", request.partition, name.escape_debug());
        self.administer(caller, &what)?;
        let cluster = self.cluster.get().ok_or(AbortCode::UAEOPNOTSUPP)?;
        let owned = Owned::from_index(request.partition).ok_or(AbortCode::UAENODEV)?;
        let to: NodeName = name.parse().map_err(|_| AbortCode::UAEINVAL)?;
        match cluster.give_up(owned, &to) {
            Ok(()) => {
                tracing::info!(%owned, %to, "given up by command");
                Ok(GiveUpPartitionReply)
            }
            Err(error) => {
                tracing::warn!(%owned, %to, %error, "not given up");
                Err(error.abort_code())
            }
        }
    }

    /// RemoveNode (opcode 551).
    pub(crate) fn remove_node(
        &self,
        caller: &Caller,
        request: RemoveNodeRequest,
    ) -> Result<RemoveNodeReply, AbortCode> {
        let name = request.node.to_string();
        self.administer(caller, &format!("RemoveNode `{}`", name.escape_debug()))?;
        let cluster = self.cluster.get().ok_or(AbortCode::UAEOPNOTSUPP)?;
        let node: NodeName = name.parse().map_err(|_| AbortCode::UAEINVAL)?;
        match cluster.remove(&node) {
            Ok(()) => {
                tracing::info!(%node, "removed from the cluster by command");
                Ok(RemoveNodeReply)
            }
            Err(error) => {
                tracing::warn!(%node, %error, "not removed from the cluster");
                Err(error.abort_code())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{anonymous, known, server};
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// Node `a`, which owns partition 2 and the databases. The other node is `b`.
    #[derive(Clone, Default)]
    struct Node {
        given_up: Arc<Mutex<Vec<(u32, String)>>>,
        removed: Arc<Mutex<Vec<String>>>,
    }

    impl Cluster for Node {
        fn give_up(&self, what: Owned, to: &NodeName) -> Result<(), GiveUpError> {
            match (what.index(), to.as_str()) {
                (owned @ (2 | u32::MAX), "b") => {
                    self.given_up.lock().push((owned, to.to_string()));
                    Ok(())
                }
                (2, "a") => Err(GiveUpError::OwnName),
                (2, "late") => Err(GiveUpError::Late),
                (2, "busy") => Err(GiveUpError::Busy),
                (2, _) => Err(GiveUpError::NoNode),
                _ => Err(GiveUpError::NotOwned),
            }
        }

        fn remove(&self, node: &NodeName) -> Result<(), RemoveNodeError> {
            match node.as_str() {
                "dead" => {
                    self.removed.lock().push(node.to_string());
                    Ok(())
                }
                "a" => Err(RemoveNodeError::Member),
                "owner" => Err(RemoveNodeError::Owner),
                "late" => Err(RemoveNodeError::Late),
                _ => Err(RemoveNodeError::Unknown),
            }
        }
    }

    #[test]
    fn superusers_remove_nodes() {
        let (server, node) = (server(), Node::default());
        let ask = |caller: &Caller, node: &str| {
            server.remove_node(caller, RemoveNodeRequest { node: node.into() }).map(drop)
        };
        let admin = known("admin");
        assert_eq!(ask(&admin, "dead"), Err(AbortCode::UAEOPNOTSUPP), "it is no node");
        server.set_cluster(Box::new(node.clone()));
        for caller in [known("alice"), anonymous()] {
            assert_eq!(ask(&caller, "dead"), Err(AbortCode::UAEACCES));
        }
        for (name, code) in [
            ("a", AbortCode::UAEBUSY),
            ("owner", AbortCode::UAENOTEMPTY),
            ("late", AbortCode::UAETIMEDOUT),
            ("b", AbortCode::UAENOENT),
            ("A b", AbortCode::UAEINVAL),
            ("", AbortCode::UAEINVAL),
        ] {
            assert_eq!(ask(&admin, name), Err(code), "{name:?}");
        }
        assert!(node.removed.lock().is_empty());
        assert_eq!(ask(&admin, "dead"), Ok(()));
        assert_eq!(*node.removed.lock(), ["dead"]);
    }

    #[test]
    fn superusers_move_partitions_of_a_node() {
        let (server, node) = (server(), Node::default());
        let ask = |caller: &Caller, partition, to: &str| {
            server.give_up_partition(caller, GiveUpPartitionRequest { partition, to: to.into() }).map(drop)
        };
        let admin = known("admin");
        assert_eq!(ask(&admin, 2, "b"), Err(AbortCode::UAEOPNOTSUPP), "it is no node");
        server.set_cluster(Box::new(node.clone()));
        for caller in [known("alice"), anonymous()] {
            assert_eq!(ask(&caller, 2, "b"), Err(AbortCode::UAEACCES));
        }
        for (partition, to, code) in [
            (3, "b", AbortCode::UAENODEV),
            (256, "b", AbortCode::UAENODEV),
            (u32::MAX - 1, "b", AbortCode::UAENODEV),
            (2, "a", AbortCode::UAEINVAL),
            (2, "A b", AbortCode::UAEINVAL),
            (2, "", AbortCode::UAEINVAL),
            (2, "c", AbortCode::UAENOENT),
            (2, "busy", AbortCode::UAEBUSY),
            (2, "late", AbortCode::UAETIMEDOUT),
        ] {
            assert_eq!(ask(&admin, partition, to), Err(code), "{partition} {to:?}");
        }
        assert!(node.given_up.lock().is_empty());
        assert_eq!(ask(&admin, 2, "b"), Ok(()));
        assert_eq!(ask(&admin, u32::MAX, "b"), Ok(()), "the databases");
        assert_eq!(*node.given_up.lock(), [(2, "b".to_owned()), (u32::MAX, "b".to_owned())]);
    }
}
