//! Calls: dispatch on the server, stubs on the client.

use super::words;
use crate::{
    CallStream, ClientConnection, MemoryConnection, MemoryStream, fs, pr, rxstats,
    rxstats_off::RpcStatisticsOff, vol,
};
use base::{AbortCode, CallContext, Caller, Identity, SecurityLevel};
use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use xdr::Encode;

/// A server with a few procedures of two services.
struct Sample;

fn fid(unique: u32) -> fs::Fid {
    fs::Fid { volume: 1, vnode: 2, unique }
}

impl fs::Server for Sample {
    fn fetch_status(
        &self,
        _caller: &CallContext<'_>,
        request: fs::FetchStatusRequest,
    ) -> Result<fs::FetchStatusReply, AbortCode> {
        match request.fid.unique {
            0 => Err(AbortCode::VNOVNODE),
            unique => Ok(fs::FetchStatusReply {
                status: fs::FetchStatus { author: unique, ..Default::default() },
                ..Default::default()
            }),
        }
    }

    fn give_up_all_call_backs(
        &self,
        _caller: &CallContext<'_>,
        _request: fs::GiveUpAllCallBacksRequest,
    ) -> Result<fs::GiveUpAllCallBacksReply, AbortCode> {
        Ok(fs::GiveUpAllCallBacksReply)
    }

    fn fetch_data64(
        &self,
        _caller: &CallContext<'_>,
        request: fs::FetchData64Request,
        stream: &mut dyn CallStream,
    ) -> Result<fs::FetchData64Reply, AbortCode> {
        stream.write(xdr::to_vec(&(request.length as u64)).into())?;
        stream.write(vec![b'd'; request.length as usize].into())?;
        Ok(fs::FetchData64Reply::default())
    }

    fn store_data64(
        &self,
        _caller: &CallContext<'_>,
        request: fs::StoreData64Request,
        stream: &mut dyn CallStream,
    ) -> Result<fs::StoreData64Reply, AbortCode> {
        let mut sum = 0;
        let mut left = request.length as usize;
        while left > 0 {
            let chunk = stream.read_chunk(left)?;
            if chunk.is_empty() {
                return Err(AbortCode::RX_EOF);
            }
            left -= chunk.len();
            sum += chunk.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        }
        let new_status = fs::FetchStatus { length: sum, ..Default::default() };
        Ok(fs::StoreData64Reply { new_status, ..Default::default() })
    }
}

fn caller() -> Caller {
    Caller {
        identity: Identity::Anonymous,
        level: SecurityLevel::Clear,
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 7001)),
        local: IpAddr::from(Ipv4Addr::LOCALHOST),
        connection: base::Connection::new(),
    }
}

/// Returns the result of `dispatch` for a request in pieces of `piece_bytes`.
fn dispatch(
    opcode: u32,
    request: &impl Encode,
    data: &[u8],
    piece_bytes: usize,
) -> Result<Vec<u8>, AbortCode> {
    let mut wire = xdr::to_vec(&opcode);
    request.encode(&mut wire);
    wire.extend_from_slice(data);
    let mut stream = MemoryStream::new(&wire, piece_bytes);
    fs::dispatch(&Sample, &CallContext::new(&caller()), &mut stream).map(|()| stream.outgoing)
}

#[test]
fn a_call_is_answered_however_it_is_cut() {
    for piece_bytes in [1, 3, 4, 7, 1000] {
        let reply = dispatch(fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: fid(9) }, &[], piece_bytes);
        let reply: fs::FetchStatusReply = xdr::from_slice(&reply.unwrap()).unwrap();
        assert_eq!(reply.status.author, 9);
    }
    assert_eq!(dispatch(fs::GIVE_UP_ALL_CALL_BACKS, &fs::GiveUpAllCallBacksRequest, &[], 4), Ok(vec![]));
}

#[test]
fn failures_have_their_codes() {
    let nothing = fs::GiveUpAllCallBacksRequest;
    let refused = dispatch(fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: fid(0) }, &[], 100);
    assert_eq!(refused, Err(AbortCode::VNOVNODE));
    assert_eq!(dispatch(9999, &nothing, &[], 100), Err(AbortCode::RXGEN_OPCODE), "unknown");
    assert_eq!(dispatch(fs::GET_ROOT_VOLUME, &nothing, &[], 100), Err(AbortCode::RXGEN_OPCODE), "not served");
    let cut = dispatch(fs::FETCH_STATUS, &nothing, &[0; 11], 100);
    assert_eq!(cut, Err(AbortCode::RXGEN_SS_UNMARSHAL));
    let mut empty = MemoryStream::default();
    assert_eq!(
        fs::dispatch(&Sample, &CallContext::new(&caller()), &mut empty),
        Err(AbortCode::RXGEN_SS_UNMARSHAL),
        "no opcode"
    );
}

/// A server with a method for each procedure, which fails with the sum of this number and its opcode.
struct Complete(i32);

macro_rules! methods {
    ($($method:ident $request:ident $reply:ident $opcode:ident;)*) => {
        impl Complete {
            $(fn $method(&self, _: &Caller, _: rxstats::$request) -> Result<rxstats::$reply, AbortCode> {
                Err(AbortCode(self.0 + rxstats::$opcode as i32))
            })*
        }
    };
}

methods! {
    retrieve_process_rpc_stats RetrieveProcessRPCStatsRequest RetrieveProcessRPCStatsReply RETRIEVE_PROCESS_RPC_STATS;
    retrieve_peer_rpc_stats RetrievePeerRPCStatsRequest RetrievePeerRPCStatsReply RETRIEVE_PEER_RPC_STATS;
    query_process_rpc_stats QueryProcessRPCStatsRequest QueryProcessRPCStatsReply QUERY_PROCESS_RPC_STATS;
    query_peer_rpc_stats QueryPeerRPCStatsRequest QueryPeerRPCStatsReply QUERY_PEER_RPC_STATS;
    enable_process_rpc_stats EnableProcessRPCStatsRequest EnableProcessRPCStatsReply ENABLE_PROCESS_RPC_STATS;
    enable_peer_rpc_stats EnablePeerRPCStatsRequest EnablePeerRPCStatsReply ENABLE_PEER_RPC_STATS;
    disable_process_rpc_stats DisableProcessRPCStatsRequest DisableProcessRPCStatsReply DISABLE_PROCESS_RPC_STATS;
    disable_peer_rpc_stats DisablePeerRPCStatsRequest DisablePeerRPCStatsReply DISABLE_PEER_RPC_STATS;
    query_rpc_stats_version QueryRPCStatsVersionRequest QueryRPCStatsVersionReply QUERY_RPC_STATS_VERSION;
    clear_process_rpc_stats ClearProcessRPCStatsRequest ClearProcessRPCStatsReply CLEAR_PROCESS_RPC_STATS;
    clear_peer_rpc_stats ClearPeerRPCStatsRequest ClearPeerRPCStatsReply CLEAR_PEER_RPC_STATS;
}

rxstats::impl_server!(Complete);

#[test]
fn own_methods_of_a_type_serve_its_calls() {
    for &(opcode, name) in rxstats::PROCEDURES {
        // No request has more arguments.
        let mut stream = MemoryStream::new(&words(&[opcode, 0]), 100);
        let outcome = rxstats::dispatch(&Complete(1000), &CallContext::new(&caller()), &mut stream);
        assert_eq!(outcome, Err(AbortCode(1000 + opcode as i32)), "{name}");
    }
}

#[test]
fn a_claim_that_is_not_kept_is_refused() {
    struct Nobody;
    impl pr::Server for Nobody {}
    impl vol::Server for Nobody {}
    for claim in [u32::MAX, pr::LOOKUP_MAX as u32, 2] {
        let mut stream = MemoryStream::new(&words(&[pr::NAME_TO_ID, claim, 97, 0]), 100);
        let outcome = pr::dispatch(&Nobody, &CallContext::new(&caller()), &mut stream);
        assert_eq!(outcome, Err(AbortCode::RXGEN_SS_UNMARSHAL), "{claim} names");
    }
    for claim in [u32::MAX, pr::LOOKUP_MAX as u32, 2] {
        let mut stream = MemoryStream::new(&words(&[pr::NAME_TO_ID, claim, 97, 0]), 100);
        let outcome = pr::dispatch(&Nobody, &CallContext::new(&caller()), &mut stream);
        assert_eq!(outcome, Err(AbortCode::RXGEN_SS_UNMARSHAL), "{claim} names");
    }
    let mut stream = MemoryStream::new(&words(&[vol::PARTITION_INFO, 4097]), 100);
    assert_eq!(
        vol::dispatch(&Nobody, &CallContext::new(&caller()), &mut stream),
        Err(AbortCode::RXGEN_SS_UNMARSHAL)
    );
}

#[test]
fn data_stands_behind_a_request_and_before_a_reply() {
    for piece_bytes in [1, 5, 56, 1000] {
        let request = fs::StoreData64Request { fid: fid(1), length: 6, ..Default::default() };
        let reply = dispatch(fs::STORE_DATA64, &request, &[1, 2, 3, 4, 5, 6], piece_bytes).unwrap();
        let reply: fs::StoreData64Reply = xdr::from_slice(&reply).unwrap();
        assert_eq!(reply.new_status.length, 21);
    }
    let request = fs::StoreData64Request { fid: fid(1), length: 6, ..Default::default() };
    assert_eq!(dispatch(fs::STORE_DATA64, &request, &[1], 100), Err(AbortCode::RX_EOF));
    let request = fs::FetchData64Request { fid: fid(1), position: 0, length: 5 };
    let reply = dispatch(fs::FETCH_DATA64, &request, &[], 100).unwrap();
    assert_eq!(reply[..13], *b"\0\0\0\0\0\0\0\x05ddddd");
    assert_eq!(reply.len(), 13 + 4 * (21 + 3 + 6));
}

/// Returns a connection to a [`Sample`] within the process.
fn direct() -> MemoryConnection {
    MemoryConnection::new(caller().peer, 100, |stream| {
        fs::dispatch(&Sample, &CallContext::new(&caller()), stream)
    })
}

#[test]
fn stubs_talk_to_servers() {
    let connection: Arc<dyn ClientConnection> = Arc::new(direct());
    let reply = fs::fetch_status(&*connection, &fs::FetchStatusRequest { fid: fid(9) });
    assert_eq!(reply.map(|reply| reply.status.author), Ok(9));
    let refused = fs::fetch_status(&*connection, &fs::FetchStatusRequest { fid: fid(0) });
    assert_eq!(refused, Err(AbortCode::VNOVNODE));
    let reply = fs::get_root_volume(&*connection, &fs::GetRootVolumeRequest);
    assert_eq!(reply, Err(AbortCode::RXGEN_OPCODE));
}

#[test]
fn stubs_carry_data_both_ways() {
    let request = fs::StoreData64Request { fid: fid(1), length: 3, ..Default::default() };
    let reply = fs::store_data64(&direct(), &request, |call| call.write(Bytes::from_static(&[1, 2, 3])));
    assert_eq!(reply.map(|reply| reply.new_status.length), Ok(6));
    let request = fs::FetchData64Request { fid: fid(1), position: 0, length: 30 };
    let mut got = Vec::new();
    let reply = fs::fetch_data64(&direct(), &request, |call| {
        while got.len() < 8 + 30 {
            got.extend_from_slice(&call.read_chunk(38 - got.len())?);
        }
        Ok(())
    });
    assert_eq!(reply, Ok(fs::FetchData64Reply::default()));
    assert_eq!(got[8..], [b'd'; 30]);
}

#[test]
fn procedures_have_names() {
    assert_eq!(fs::procedure_name(65536), Some("InlineBulkStatus"));
    assert_eq!(vol::procedure_name(105), Some("Clone"));
    assert_eq!(vol::procedure_name(65536), Some("ConvertROtoRWvolume"));
    assert_eq!(fs::procedure_name(1), None);
    assert_eq!((fs::OLD_STORE_ACL, fs::STORE_ACL), (134, 164));
}

#[test]
fn statistics_that_are_off_say_so() {
    let mut stream = MemoryStream::new(&words(&[rxstats::QUERY_PROCESS_RPC_STATS]), 100);
    rxstats::dispatch(&RpcStatisticsOff, &CallContext::new(&caller()), &mut stream).unwrap();
    assert_eq!(stream.outgoing, [0; 4]);
    let mut stream = MemoryStream::new(&words(&[rxstats::RETRIEVE_PEER_RPC_STATS, 1]), 100);
    rxstats::dispatch(&RpcStatisticsOff, &CallContext::new(&caller()), &mut stream).unwrap();
    assert_eq!(stream.outgoing, words(&[1, 0, 0, 0, 0]));
}
