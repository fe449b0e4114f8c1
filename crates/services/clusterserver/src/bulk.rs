//! Statuses of files in volumes of several owners: one call for each volume, and one reply.

use afs_idl::fs;
use base::{AbortCode, VolumeId};
use bytes::Bytes;
use std::collections::BTreeMap;
use xdr::{Decode, Encode};

/// Answers BulkStatus or InlineBulkStatus, whose messages are the same, by a call for each volume. Its error is that
/// of the first call that fails.
pub(crate) fn join(
    request: &[u8],
    mut answer: impl FnMut(VolumeId, Bytes) -> Result<Vec<u8>, AbortCode>,
) -> Result<Vec<u8>, AbortCode> {
    let (opcode, fids) = parse(request)?;
    let mut of_volume: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, fid) in fids.iter().enumerate() {
        of_volume.entry(fid.volume).or_default().push(index);
    }
    let mut joined = fs::InlineBulkStatusReply {
        statuses: vec![fs::FetchStatus::default(); fids.len()],
        call_backs: vec![fs::CallBack::default(); fids.len()],
        sync: fs::VolSync::default(),
    };
    for (volume, places) in of_volume {
        let mut message = xdr::to_vec(&opcode);
        let some = places.iter().map(|place| fids[*place]).collect();
        fs::InlineBulkStatusRequest { fids: some }.encode(&mut message);
        let reply = answer(VolumeId(volume), message.into())?;
        let reply: fs::InlineBulkStatusReply =
            xdr::from_slice(&reply).map_err(|_| AbortCode::RXGEN_CC_UNMARSHAL)?;
        if reply.statuses.len() != places.len() || reply.call_backs.len() != places.len() {
            return Err(AbortCode::RXGEN_CC_UNMARSHAL);
        }
        for (place, (status, call_back)) in places.iter().zip(reply.statuses.iter().zip(reply.call_backs)) {
            joined.statuses[*place] = *status;
            joined.call_backs[*place] = call_back;
        }
        if places.contains(&0) {
            joined.sync = reply.sync;
        }
    }
    Ok(xdr::to_vec(&joined))
}

fn parse(request: &[u8]) -> Result<(u32, Vec<fs::Fid>), AbortCode> {
    let mut source = xdr::SliceSource::new(request);
    let opcode = u32::decode(&mut source);
    let fids = fs::InlineBulkStatusRequest::decode(&mut source).map(|request| request.fids);
    opcode.and_then(|opcode| Ok((opcode, fids?))).map_err(|_| AbortCode::RXGEN_SS_UNMARSHAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with the vnode as the length.
    fn reply(request: &[u8]) -> fs::InlineBulkStatusReply {
        let (opcode, fids) = parse(request).unwrap();
        assert_eq!(opcode, fs::INLINE_BULK_STATUS);
        let status = |fid: &fs::Fid| fs::FetchStatus { length: fid.vnode, ..Default::default() };
        fs::InlineBulkStatusReply {
            statuses: fids.iter().map(status).collect(),
            call_backs: vec![fs::CallBack::default(); fids.len()],
            sync: fs::VolSync { spare1: fids[0].volume, ..Default::default() },
        }
    }

    fn request(fids: &[(u32, u32)]) -> Vec<u8> {
        let fids = fids.iter().map(|&(volume, vnode)| fs::Fid { volume, vnode, unique: 1 }).collect();
        let request = fs::InlineBulkStatusRequest { fids };
        [xdr::to_vec(&fs::INLINE_BULK_STATUS), xdr::to_vec(&request)].concat()
    }

    #[test]
    fn replies_are_in_the_order_of_the_request() {
        let asked = request(&[(9, 1), (7, 2), (9, 3), (8, 4), (7, 5)]);
        let mut volumes = Vec::new();
        let joined = join(&asked, |volume, request| {
            volumes.push(volume.0);
            Ok(xdr::to_vec(&reply(&request)))
        });
        let joined: fs::InlineBulkStatusReply = xdr::from_slice(&joined.unwrap()).unwrap();
        let lengths: Vec<u32> = joined.statuses.iter().map(|status| status.length).collect();
        assert_eq!((lengths, joined.call_backs.len()), (vec![1, 2, 3, 4, 5], 5));
        assert_eq!((volumes, joined.sync.spare1), (vec![7, 8, 9], 9), "the times of the first file's volume");
    }

    #[test]
    fn errors_and_other_lists_fail_the_call() {
        let asked = request(&[(9, 1), (7, 2)]);
        assert_eq!(join(&asked, |_, _| Err(AbortCode::VNOVOL)), Err(AbortCode::VNOVOL));
        let short = |_, _| Ok(xdr::to_vec(&reply(&request(&[(9, 1), (9, 2)]))));
        assert_eq!(join(&asked, short), Err(AbortCode::RXGEN_CC_UNMARSHAL));
        assert_eq!(join(&asked, |_, _| Ok(vec![1])), Err(AbortCode::RXGEN_CC_UNMARSHAL));
        assert_eq!(join(&asked[..9], |_, _| unreachable!()), Err(AbortCode::RXGEN_SS_UNMARSHAL));
    }
}
