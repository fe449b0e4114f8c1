//! Calls about whole volumes, quotas, and obsolete calls.

use crate::world::{HOME, QUOTA, RELEASED, World, root};
use afs_idl::fs::{self, Server};
use base::{AbortCode, CallContext};

fn set(mask: i32, max_quota: i32) -> fs::SetVolumeStatusRequest {
    fs::SetVolumeStatusRequest {
        volume_id: HOME.0,
        status: fs::StoreVolumeStatus { mask, min_quota: 0, max_quota },
        name: "".into(),
        offline_message: "".into(),
        message_of_the_day: "".into(),
    }
}

#[test]
fn everybody_sees_a_volume_and_administrators_change_it() {
    let world = World::new();
    let (admin, carol) = (world.client("admin", 9), world.client("carol", 3));
    let status = |volume_id| {
        world.serve(|call| call.get_volume_status(&carol.call(), fs::GetVolumeStatusRequest { volume_id }))
    };
    let reply = status(HOME.0).unwrap();
    assert_eq!((reply.status.volume_id, reply.status.parent_id), (HOME.0, HOME.0));
    assert_eq!((reply.status.volume_type, reply.status.max_quota), (1, QUOTA as i32));
    assert_eq!((reply.status.partition_blocks_max, reply.status.online), (1 << 30, 1));
    assert!(reply.name == "home");
    assert_eq!(status(RELEASED.0).unwrap().status.volume_type, 0);
    assert_eq!(status(0), Err(AbortCode::UAEINVAL));
    assert_eq!(status(4711), Err(AbortCode::VNOVOL));

    let change = |client: &crate::world::Client, request| {
        world.serve(|call| call.set_volume_status(&client.call(), request)).map(drop)
    };
    assert_eq!(change(&carol, set(2, 10)), Err(AbortCode::UAEACCES));
    assert_eq!(change(&admin, set(0, 10)), Ok(()));
    assert_eq!(status(HOME.0).unwrap().status.max_quota, QUOTA as i32);
    assert_eq!(change(&admin, set(2, 10)), Ok(()));
    assert_eq!(status(HOME.0).unwrap().status.max_quota, 10);
    let renamed = fs::SetVolumeStatusRequest { name: "users".into(), ..set(0, 0) };
    assert_eq!(change(&admin, renamed), Ok(()));
    assert!(status(HOME.0).unwrap().name == "users");
    let wrong = fs::SetVolumeStatusRequest { name: "12345".into(), ..set(0, 0) };
    assert_eq!(change(&admin, wrong), Err(AbortCode::UAEINVAL));
}

#[test]
fn nobody_gets_more_than_the_quota() {
    let world = World::new();
    let (admin, bob) = (world.client("admin", 9), world.client("bob", 2));
    world.serve(|call| call.set_volume_status(&admin.call(), set(2, 10))).unwrap();
    let file = world.create(&bob, root(), "file").unwrap();
    assert_eq!(world.write(&bob, file, &vec![0; 4 << 20]), Err(AbortCode::VOVERQUOTA));
    assert_eq!(world.status(&bob, file).unwrap().status.length, 0);
    world.serve(|call| call.set_volume_status(&admin.call(), set(2, 0))).unwrap();
    world.write(&bob, file, &vec![0; 4 << 20]).unwrap();
}

#[test]
fn calls_of_the_past_are_answered_as_always() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let caller = &bob.caller;
    let name = || fs::NGetVolumeInfoRequest { volume_name: "home".into() };
    assert_eq!(
        world.serve(|call| call.n_get_volume_info(&CallContext::new(caller), name())).err(),
        Some(AbortCode::VNOVOL)
    );
    let info = fs::GetVolumeInfoRequest { volume_name: "home".into() };
    assert_eq!(
        world.serve(|call| call.get_volume_info(&CallContext::new(caller), info)).err(),
        Some(AbortCode::VL_NOENT)
    );
    let token = fs::CheckTokenRequest::default();
    assert_eq!(
        world.serve(|call| call.check_token(&CallContext::new(caller), token)).err(),
        Some(AbortCode::UAECONNREFUSED)
    );
    let root_volume =
        world.serve(|call| call.get_root_volume(&CallContext::new(caller), fs::GetRootVolumeRequest));
    assert_eq!(root_volume.err(), Some(AbortCode::UAEOPNOTSUPP));
    let moved = fs::CallBackRxConnAddrRequest { address: 1 };
    assert_eq!(
        world.serve(|call| call.call_back_rx_conn_addr(&CallContext::new(caller), moved)).err(),
        Some(AbortCode::UAEPERM)
    );
    let link = fs::DFSSymlinkRequest::default();
    assert_eq!(
        world.serve(|call| call.dfs_symlink(&CallContext::new(caller), link)).err(),
        Some(AbortCode::UAEINVAL)
    );
    assert_eq!(world.wire_call(&bob, 12_345, &0u32, &[]), Err(AbortCode::RXGEN_OPCODE));
    assert_eq!(world.wire_call(&bob, fs::FETCH_STATUS, &0u32, &[]), Err(AbortCode::RXGEN_SS_UNMARSHAL));
}
