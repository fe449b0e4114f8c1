//! BulkStatus and InlineBulkStatus.

use crate::world::{CREATED, World, root};
use afs_idl::fs::{self, Server};
use base::AbortCode;

fn missing() -> fs::Fid {
    fs::Fid { vnode: 77, ..root() }
}

#[test]
fn one_error_fails_the_bulk_call_but_stands_inline_in_the_other() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "file").unwrap();
    let fids = vec![file, missing(), root()];
    let plain =
        world.serve(|call| call.bulk_status(&bob.call(), fs::BulkStatusRequest { fids: fids.clone() }));
    assert_eq!(plain, Err(AbortCode::VNOVNODE));
    let reply = world
        .serve(|call| call.inline_bulk_status(&bob.call(), fs::InlineBulkStatusRequest { fids }))
        .unwrap();
    assert_eq!((reply.statuses.len(), reply.call_backs.len(), reply.sync.spare1), (3, 3, CREATED));
    let expected = fs::FetchStatus {
        interface_version: 1,
        error_code: AbortCode::VNOVNODE.0 as u32,
        ..fs::FetchStatus::default()
    };
    assert_eq!((reply.statuses[1], reply.call_backs[1]), (expected, fs::CallBack::default()));
    assert_eq!(reply.statuses[0], world.status(&bob, file).unwrap().status);
    assert_eq!((reply.statuses[2].file_type, reply.statuses[2].error_code), (2, 0));
    assert!(reply.call_backs[0].expiration_time > 0);
}

#[test]
fn inline_errors_are_translated_for_the_client() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "secret").unwrap();
    world.set_acl(&bob, root(), "1\n0\nsystem:anyuser\t8\n").unwrap();
    let error = |client: &crate::world::Client| {
        let request = fs::InlineBulkStatusRequest { fids: vec![file] };
        world.serve(|call| call.inline_bulk_status(&client.call(), request)).unwrap().statuses[0].error_code
            as i32
    };
    assert_eq!(error(&world.client("carol", 3)), AbortCode::UAEACCES.0);
    assert_eq!(error(&world.old_client("carol", 4)), 13);
}

#[test]
fn bulk_calls_are_about_one_to_fifty_files() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let empty = fs::InlineBulkStatusRequest { fids: Vec::new() };
    assert_eq!(
        world.serve(|call| call.inline_bulk_status(&bob.call(), empty.clone())),
        Err(AbortCode::UAEINVAL)
    );
    let empty = fs::BulkStatusRequest { fids: Vec::new() };
    assert_eq!(world.serve(|call| call.bulk_status(&bob.call(), empty)), Err(AbortCode::UAEINVAL));
    let request = |count| fs::InlineBulkStatusRequest { fids: vec![root(); count] };
    assert!(world.wire_call(&bob, fs::INLINE_BULK_STATUS, &request(50), &[]).is_ok());
    let too_many = world.wire_call(&bob, fs::INLINE_BULK_STATUS, &request(51), &[]);
    assert_eq!(too_many, Err(AbortCode::RXGEN_SS_UNMARSHAL));
}

#[test]
fn bulk_results_equal_single_results() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let (mut fids, mut files) = (vec![root(), missing()], 0);
    for number in 0..6 {
        let directory = world.make_dir(&bob, root(), &format!("d{number}")).unwrap();
        fids.push(directory);
        for _ in 0..3 {
            fids.push(world.create(&bob, directory, &format!("f{files}")).unwrap());
            files += 1;
        }
        if number % 3 == 0 {
            world.set_acl(&bob, directory, "1\n0\nsystem:anyuser\t8\n").unwrap();
        }
    }
    fids.push(fs::Fid { unique: 9_999, ..fids[3] });
    fids.push(fs::Fid { vnode: 0, ..root() });
    fids.push(fs::Fid { volume: 0, ..root() });
    fids.push(fs::Fid { volume: 4_711, ..root() });
    fids.push(fids[3]);
    for client in [&bob, &world.client("carol", 3)] {
        for some in [&fids[..], &fids[5..9], &fids[27..]] {
            let request = fs::InlineBulkStatusRequest { fids: some.to_vec() };
            let reply = world.serve(|call| call.inline_bulk_status(&client.call(), request)).unwrap();
            assert_eq!((reply.statuses.len(), reply.call_backs.len()), (some.len(), some.len()));
            for (fid, (reported, call_back)) in some.iter().zip(reply.statuses.iter().zip(&reply.call_backs))
            {
                match world.status(client, *fid) {
                    Ok(alone) => {
                        assert_eq!(*reported, alone.status, "{fid:?}");
                        assert!(call_back.expiration_time > 0);
                    }
                    Err(code) => {
                        assert_eq!(
                            (reported.error_code as i32, call_back.expiration_time),
                            (code.0, 0),
                            "{fid:?}"
                        );
                    }
                }
            }
        }
    }
}
