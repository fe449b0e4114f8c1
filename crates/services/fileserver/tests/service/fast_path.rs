//! The fast path.

use crate::world::{Client, World, root};
use afs_idl::fs::{self, Server};
use fileserver::Operation;
use xdr::Encode;

#[test]
fn the_answer_is_that_of_the_long_way_and_promises_as_much() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    let file = world.create(&bob, root(), "file").unwrap();
    assert_eq!(world.try_status(&carol, file), None, "nobody has asked carol who she is");
    for fid in [file, root()] {
        let expected = world.status(&carol, fid).unwrap();
        let counted = world.server.operation_count(Operation::FetchStatus).calls;
        let answer = world.try_status(&carol, fid).unwrap();
        assert_eq!((answer.status, answer.sync), (expected.status, expected.sync));
        assert_eq!(answer.call_back.expiration_time, expected.call_back.expiration_time);
        assert_eq!(world.server.operation_count(Operation::FetchStatus).calls, counted + 1);
    }
    world.serve(|call| call.give_up_all_call_backs(&carol.call(), fs::GiveUpAllCallBacksRequest)).unwrap();
    let promises = world.server.callback_counters().promises_made;
    world.try_status(&carol, file).unwrap();
    assert_eq!(world.server.callback_counters().promises_made, promises + 1);
}

#[test]
fn concurrent_callers_are_all_answered() {
    let world = World::new();
    let clients = [world.client("bob", 2), world.client("carol", 3)];
    let file = world.create(&clients[0], root(), "file").unwrap();
    for client in &clients {
        world.status(client, file).unwrap();
    }
    std::thread::scope(|scope| {
        for client in &clients {
            let world = &world;
            scope.spawn(move || {
                assert!((0..20_000).all(|_| world.try_status(client, file).is_some()));
            });
        }
    });
}

#[test]
fn whatever_is_not_simply_well_goes_the_long_way() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    let file = world.create(&bob, root(), "secret").unwrap();
    world.status(&carol, file).unwrap();
    assert!(world.try_status(&carol, file).is_some());
    for missing in
        [fs::Fid { vnode: 77, ..file }, fs::Fid { unique: 77, ..file }, fs::Fid { volume: 77, ..file }]
    {
        assert_eq!(world.try_status(&carol, missing), None);
        assert!(world.status(&carol, missing).is_err());
    }
    world.set_acl(&bob, root(), "1\n0\nsystem:anyuser\t8\n").unwrap();
    assert_eq!(world.try_status(&carol, file), None, "she may not read any more");
    let mut request = xdr::to_vec(&fs::FETCH_STATUS);
    fs::FetchStatusRequest { fid: root() }.encode(&mut request);
    for bad in [&request[..request.len() - 1], &[&request[..], b"x"].concat(), &request[4..], &[]] {
        assert_eq!(world.server.try_answer(&bob.call(), bad), None);
    }
}

#[test]
fn looking_ahead_for_a_crowd_changes_nothing() {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "file").unwrap();
    let crowd: Vec<Client> = (0..60).map(|number| world.client("carol", 3 + (number % 40) as u8)).collect();
    let reported: Vec<_> = crowd.iter().map(|client| world.status(client, file).unwrap()).collect();
    let stranger = world.client("dave", 99);
    let mut request = xdr::to_vec(&fs::FETCH_STATUS);
    fs::FetchStatusRequest { fid: file }.encode(&mut request);
    let mut missing = xdr::to_vec(&fs::FETCH_STATUS);
    fs::FetchStatusRequest { fid: fs::Fid { volume: 77, ..file } }.encode(&mut missing);
    let mut requests: Vec<_> = crowd.iter().map(|client| (&client.caller, &request[..])).collect();
    requests.push((&stranger.caller, &request));
    for bad in [&missing[..], &request[..request.len() - 1], &request[4..], &[]] {
        requests.push((&bob.caller, bad));
    }
    let counts = || {
        let counters = world.server.callback_counters();
        (world.server.operation_count(Operation::FetchStatus).calls, counters.promises_made)
    };
    let (before, _) = (counts(), world.heard());
    world.server.prefetch(&requests);
    assert_eq!((counts(), world.heard()), (before, Vec::new()));
    for (client, reported) in crowd.iter().zip(reported) {
        let answer = world.try_status(client, file).unwrap();
        assert_eq!((answer.status, answer.sync), (reported.status, reported.sync));
    }
    assert_eq!(world.try_status(&stranger, file), None, "nobody has asked dave who he is");
}

fn bulk(world: &World, client: &Client, fids: &[fs::Fid]) -> fs::InlineBulkStatusReply {
    let request = fs::InlineBulkStatusRequest { fids: fids.to_vec() };
    world.serve(|call| call.inline_bulk_status(&client.call(), request)).unwrap()
}

#[test]
fn the_fast_path_for_many_equals_the_normal_path() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    let directory = world.make_dir(&bob, root(), "d").unwrap();
    let mut fids = vec![root(), directory];
    fids.extend((0..20).map(|number| {
        let parent = if number % 3 == 0 { root() } else { directory };
        world.create(&bob, parent, &format!("f{number}")).unwrap()
    }));
    assert_eq!(world.try_statuses(&carol, &fids), None, "nobody has asked carol who she is");
    let expected = bulk(&world, &carol, &fids);
    let counted = world.server.operation_count(Operation::BulkStatus).calls;
    let answer = world.try_statuses(&carol, &fids).unwrap();
    assert!((&answer.statuses, answer.sync) == (&expected.statuses, expected.sync));
    assert!(answer.call_backs.iter().all(|promise| promise.expiration_time > 0));
    assert_eq!(world.server.operation_count(Operation::BulkStatus).calls, counted + 1);
    world.serve(|call| call.give_up_all_call_backs(&carol.call(), fs::GiveUpAllCallBacksRequest)).unwrap();
    let promises = world.server.callback_counters().promises;
    world.try_statuses(&carol, &fids).unwrap();
    assert_eq!(world.server.callback_counters().promises, promises + fids.len() as u64);
}

#[test]
fn many_of_which_one_is_not_simply_well_go_the_long_way() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    let hidden = world.make_dir(&bob, root(), "hidden").unwrap();
    let (file, secret) =
        (world.create(&bob, root(), "file").unwrap(), world.create(&bob, hidden, "secret").unwrap());
    world.set_acl(&bob, hidden, "1\n0\nsystem:anyuser\t8\n").unwrap();
    let all = [root(), file, hidden, secret];
    bulk(&world, &bob, &all);
    bulk(&world, &carol, &all);
    assert!(world.try_statuses(&carol, &all[..3]).is_some());
    let refused = [
        secret,
        fs::Fid { vnode: 77, ..file },
        fs::Fid { unique: 77, ..file },
        fs::Fid { volume: 77, ..file },
        fs::Fid { vnode: 0, ..file },
    ];
    for refused in refused {
        assert_eq!(world.try_statuses(&carol, &[root(), refused, file]), None, "{refused:?}");
        assert_ne!(bulk(&world, &carol, &[root(), refused, file]).statuses[1].error_code, 0);
    }
    assert_eq!(world.try_statuses(&carol, &[]), None);
}
