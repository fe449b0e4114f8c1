//! A program without partitions in buckets is no node: these types have no values.

#![allow(clippy::unused_self, reason = "the functions are those of a node")]

use super::Handovers;
use crate::authority::Authority;
use crate::buckets::{Keeper, Keeping, refusal};
use crate::environment::{Callbacks, Way};
use crate::observed::Observatory;
use adminserver::{AdminServer, GiveUpError, RemoveNodeError};
use afs_idl::{CallStream, ClientConnection};
use anyhow::{Result, bail};
use audit::Trail;
use base::{AbortCode, CallContext, HostUuid, PartitionId, VolumeId};
use cellar_config::Settings;
use cluster_proto::{NodeName, Owned};
use events::catalogue::{ClusterFigures, NodeFigures, TakeoverFigures};
use fileserver::{Answer, FileServer};
use observe::Sheet;
use rx::{PeerReport, Server};
use rx_security::KeyRing;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;
use vlserver::ubik::Standing;
use volserver::{OtherOwners, VolumeServer};
use volume::{Pending, Volumes};

enum Nothing {}

/// See the type of this name with the feature `bucket`.
pub(crate) struct Node {
    nothing: Nothing,
    pub(crate) way: Way,
}

impl Node {
    pub(crate) fn start(settings: &Settings) -> Result<Option<Arc<Node>>> {
        match (&settings.cluster, refusal(settings)) {
            (Some(_), Some(refusal)) => bail!(refusal),
            _ => Ok(None),
        }
    }

    pub(crate) fn name(&self) -> &NodeName {
        match self.nothing {}
    }

    pub(crate) fn owns(&self, _: Owned) -> bool {
        match self.nothing {}
    }

    pub(crate) fn is_removed(&self, _: PartitionId) -> bool {
        match self.nothing {}
    }

    pub(crate) fn is_elsewhere(&self, _: PartitionId) -> bool {
        match self.nothing {}
    }

    pub(crate) fn live(&self, _: &NodeName) -> Result<u64, GiveUpError> {
        match self.nothing {}
    }

    pub(crate) fn remove(&self, _: &NodeName) -> Result<(), RemoveNodeError> {
        match self.nothing {}
    }

    pub(crate) fn cluster(&self, _: Option<&Calls>) -> Sheet<ClusterFigures> {
        match self.nothing {}
    }

    pub(crate) fn nodes(&self, _: Option<&Calls>, _: &[PeerReport]) -> Sheet<NodeFigures> {
        match self.nothing {}
    }

    pub(crate) fn takeovers(&self) -> Sheet<TakeoverFigures> {
        match self.nothing {}
    }

    pub(crate) fn handovers(&self) -> &Handovers {
        match self.nothing {}
    }

    pub(crate) fn drain(&self, _: Owned, _: &NodeName) -> bool {
        match self.nothing {}
    }

    pub(crate) fn begin_addresses(
        &self,
        _: &Settings,
        _: &Arc<AtomicBool>,
        _: &[Arc<Server>],
    ) -> Result<Option<JoinHandle<()>>> {
        match self.nothing {}
    }

    pub(crate) fn begin_isolation(
        self: &Arc<Self>,
        _: &Arc<Peers>,
        _: &Settings,
        _: &Arc<AtomicBool>,
    ) -> Result<Option<JoinHandle<()>>> {
        match self.nothing {}
    }

    pub(crate) fn withdraw(&self) {
        match self.nothing {}
    }

    pub(crate) fn leave(&self) {
        match self.nothing {}
    }

    pub(crate) fn begin_audit(&self, _: Option<&Arc<Trail>>, _: &Arc<AtomicBool>) -> Option<JoinHandle<()>> {
        match self.nothing {}
    }

    pub(crate) fn end_audit(&self) {
        match self.nothing {}
    }

    pub(crate) fn registered(&self) -> Option<Vec<Ipv4Addr>> {
        match self.nothing {}
    }
}

/// See the function of this name with the feature `bucket`.
#[expect(clippy::unnecessary_wraps, reason = "the function with the feature fails")]
pub(crate) fn with_listed_partitions(settings: &Arc<Settings>, _: &AtomicBool) -> Result<Arc<Settings>> {
    Ok(Arc::clone(settings))
}

/// See the type of this name with the feature `bucket`.
#[expect(dead_code, reason = "there is no node")]
pub(crate) struct RosterMeans {
    pub(crate) node: Arc<Node>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) observatory: Arc<Observatory>,
}

/// See the function of this name with the feature `bucket`.
pub(crate) fn follow(means: RosterMeans, _: Keeping, _: &Arc<AtomicBool>) -> Result<JoinHandle<()>> {
    let RosterMeans { node, .. } = means;
    match node.nothing {}
}

/// See the type of this name with the feature `bucket`.
pub(crate) struct Peers(Nothing);

impl Peers {
    pub(crate) fn new(node: &Arc<Node>, _: Arc<KeyRing>) -> Result<Arc<Peers>> {
        match node.nothing {}
    }

    pub(crate) fn source(&self) -> Option<Ipv4Addr> {
        match self.0 {}
    }

    pub(crate) fn connection(
        &self,
        _: SocketAddr,
        _: Duration,
        _: Arc<dyn ClientConnection>,
    ) -> Arc<dyn ClientConnection> {
        match self.0 {}
    }
}

/// See the type of this name with the feature `bucket`.
pub(crate) struct Databases(Nothing);

impl Databases {
    pub(crate) fn new(
        _: &Arc<Settings>,
        node: &Arc<Node>,
        _: &Arc<Authority>,
        _: HostUuid,
    ) -> Option<Arc<Databases>> {
        match node.nothing {}
    }

    pub(crate) fn set_calls(&self, _: &Arc<Calls>) {
        match self.0 {}
    }

    pub(crate) fn serve(&self, _: u16, _: &CallContext<'_>, _: &mut dyn CallStream) -> Result<(), AbortCode> {
        match self.0 {}
    }

    pub(crate) fn standing(&self, _: &CallContext<'_>) -> Standing {
        match self.0 {}
    }

    pub(crate) fn start(&self, _: &Arc<AtomicBool>) -> JoinHandle<()> {
        match self.0 {}
    }
}

/// See the type of this name with the feature `bucket`.
pub(crate) struct Calls(Nothing);

impl Calls {
    pub(crate) fn new(
        peers: &Peers,
        _: &Arc<Volumes>,
        _: &Arc<FileServer>,
        _: &Arc<Callbacks>,
        _: Option<&Arc<Databases>>,
    ) -> Calls {
        match peers.0 {}
    }

    pub(crate) fn serve(
        &self,
        _: &CallContext<'_>,
        _: &mut dyn CallStream,
        _: impl FnOnce(&mut dyn CallStream) -> Pending<Result<(), AbortCode>>,
    ) -> Pending<Result<(), AbortCode>> {
        match self.0 {}
    }

    pub(crate) fn set_volume_server(&self, _: &Arc<VolumeServer>) {
        match self.0 {}
    }

    pub(crate) fn set_admin_server(&self, _: &Arc<AdminServer>) {
        match self.0 {}
    }

    pub(crate) fn administer(
        &self,
        _: (u16, fn(u32) -> bool),
        _: &CallContext<'_>,
        _: &mut dyn CallStream,
        _: &dyn Fn(&mut dyn CallStream) -> Result<(), AbortCode>,
    ) -> Result<(), AbortCode> {
        match self.0 {}
    }

    pub(crate) fn dispatch(&self, _: &CallContext<'_>, _: &mut dyn CallStream) -> Result<(), AbortCode> {
        match self.0 {}
    }

    pub(crate) fn try_answer(&self, _: &CallContext<'_>, _: &[u8]) -> Option<Answer> {
        match self.0 {}
    }
}

impl OtherOwners for Calls {
    fn partitions(&self) -> Vec<PartitionId> {
        match self.0 {}
    }

    fn transaction_numbers(&self, _: PartitionId) -> Option<RangeInclusive<i32>> {
        match self.0 {}
    }

    fn prefix_beside(&self, _: PartitionId, _: PartitionId) -> Option<String> {
        match self.0 {}
    }

    fn address(&self) -> Option<SocketAddrV4> {
        match self.0 {}
    }

    fn has(&self, _: VolumeId, _: Duration) -> Option<bool> {
        match self.0 {}
    }

    fn volume_deleted(&self, _: VolumeId) {
        match self.0 {}
    }
}
