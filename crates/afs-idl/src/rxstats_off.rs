//! A service 409 that counts nothing, for servers whose statistics are had in other ways.
//!
//! Tools ask it whether counting is on before they ask for numbers. Its answers are those of an
//! OpenAFS server on which counting was never switched on.

use crate::rxstats::{
    QueryPeerRPCStatsReply, QueryPeerRPCStatsRequest, QueryProcessRPCStatsReply, QueryProcessRPCStatsRequest,
    QueryRPCStatsVersionReply, QueryRPCStatsVersionRequest, RetrievePeerRPCStatsReply,
    RetrievePeerRPCStatsRequest, RetrieveProcessRPCStatsReply, RetrieveProcessRPCStatsRequest, Server,
};
use base::{AbortCode, Caller};

/// Version of the counters' layout (RX_STATS_RETRIEVAL_VERSION).
const VERSION: u32 = 1;

/// The service. Switching counting on or clearing it answers RXGEN_OPCODE.
#[derive(Clone, Copy, Debug, Default)]
pub struct RpcStatisticsOff;

impl Server for RpcStatisticsOff {
    fn retrieve_process_rpc_stats(
        &self,
        _caller: &Caller,
        _request: RetrieveProcessRPCStatsRequest,
    ) -> Result<RetrieveProcessRPCStatsReply, AbortCode> {
        Ok(RetrieveProcessRPCStatsReply { server_version: VERSION, ..Default::default() })
    }

    fn retrieve_peer_rpc_stats(
        &self,
        _caller: &Caller,
        _request: RetrievePeerRPCStatsRequest,
    ) -> Result<RetrievePeerRPCStatsReply, AbortCode> {
        Ok(RetrievePeerRPCStatsReply { server_version: VERSION, ..Default::default() })
    }

    fn query_process_rpc_stats(
        &self,
        _caller: &Caller,
        _request: QueryProcessRPCStatsRequest,
    ) -> Result<QueryProcessRPCStatsReply, AbortCode> {
        Ok(QueryProcessRPCStatsReply { is_on: 0 })
    }

    fn query_peer_rpc_stats(
        &self,
        _caller: &Caller,
        _request: QueryPeerRPCStatsRequest,
    ) -> Result<QueryPeerRPCStatsReply, AbortCode> {
        Ok(QueryPeerRPCStatsReply { is_on: 0 })
    }

    fn query_rpc_stats_version(
        &self,
        _caller: &Caller,
        _request: QueryRPCStatsVersionRequest,
    ) -> Result<QueryRPCStatsVersionReply, AbortCode> {
        Ok(QueryRPCStatsVersionReply { version: VERSION })
    }
}
