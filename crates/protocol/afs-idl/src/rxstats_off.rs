//! The statistics service (409) with counting switched off, for servers that provide statistics in other
//! ways.
//!
//! Tools check whether counting is on before they request numbers. The replies are those of an OpenAFS server
//! on which counting was never switched on.

use crate::rxstats::{
    QueryPeerRPCStatsReply, QueryPeerRPCStatsRequest, QueryProcessRPCStatsReply, QueryProcessRPCStatsRequest,
    QueryRPCStatsVersionReply, QueryRPCStatsVersionRequest, RetrievePeerRPCStatsReply,
    RetrievePeerRPCStatsRequest, RetrieveProcessRPCStatsReply, RetrieveProcessRPCStatsRequest, Server,
};
use base::{AbortCode, CallContext};

/// Version of the layout of the counters (RX_STATS_RETRIEVAL_VERSION).
const VERSION: u32 = 1;

/// The statistics service. Switching counting on and clearing counters fail with RXGEN_OPCODE.
#[derive(Clone, Copy, Debug, Default)]
pub struct RpcStatisticsOff;

impl Server for RpcStatisticsOff {
    fn retrieve_process_rpc_stats(
        &self,
        _caller: &CallContext<'_>,
        _request: RetrieveProcessRPCStatsRequest,
    ) -> Result<RetrieveProcessRPCStatsReply, AbortCode> {
        Ok(RetrieveProcessRPCStatsReply { server_version: VERSION, ..Default::default() })
    }

    fn retrieve_peer_rpc_stats(
        &self,
        _caller: &CallContext<'_>,
        _request: RetrievePeerRPCStatsRequest,
    ) -> Result<RetrievePeerRPCStatsReply, AbortCode> {
        Ok(RetrievePeerRPCStatsReply { server_version: VERSION, ..Default::default() })
    }

    fn query_process_rpc_stats(
        &self,
        _caller: &CallContext<'_>,
        _request: QueryProcessRPCStatsRequest,
    ) -> Result<QueryProcessRPCStatsReply, AbortCode> {
        Ok(QueryProcessRPCStatsReply { is_on: 0 })
    }

    fn query_peer_rpc_stats(
        &self,
        _caller: &CallContext<'_>,
        _request: QueryPeerRPCStatsRequest,
    ) -> Result<QueryPeerRPCStatsReply, AbortCode> {
        Ok(QueryPeerRPCStatsReply { is_on: 0 })
    }

    fn query_rpc_stats_version(
        &self,
        _caller: &CallContext<'_>,
        _request: QueryRPCStatsVersionRequest,
    ) -> Result<QueryRPCStatsVersionReply, AbortCode> {
        Ok(QueryRPCStatsVersionReply { version: VERSION })
    }
}
