//! Accuracy of counters.

use crate::world::{World, root};
use afs_idl::MemoryStream;
use afs_idl::fs::{self, Server, statistics64_index as place};
use base::AbortCode;
use fileserver::Operation;

/// Returns a world after two failed and three successful FetchStatus, and a store and a fetch of 1000 bytes.
fn used() -> (World, crate::world::Client) {
    let world = World::new();
    let bob = world.client("bob", 2);
    let file = world.create(&bob, root(), "file").unwrap();
    for _ in 0..3 {
        world.status(&bob, file).unwrap();
    }
    for _ in 0..2 {
        world.status(&bob, fs::Fid { vnode: 77, ..root() }).unwrap_err();
    }
    world.write(&bob, file, &[1; 1_000]).unwrap();
    world.read(&bob, file).unwrap();
    (world, bob)
}

#[test]
fn statistics_count_calls_and_bytes() {
    let (world, bob) = used();
    let count = world.server.operation_count(Operation::FetchStatus);
    assert_eq!((count.calls, count.successes), (5, 3));
    let statistics =
        world.serve(|call| call.get_statistics(&bob.call(), fs::GetStatisticsRequest)).unwrap().statistics;
    assert_eq!((statistics.total_fetches, statistics.fetch_datas, statistics.fetched_bytes), (6, 1, 1_000));
    // The set-up of the world includes one StoreACL.
    assert_eq!((statistics.total_stores, statistics.store_datas, statistics.stored_bytes), (2, 1, 1_000));
    assert_eq!((statistics.workstations, statistics.active_workstations), (2, 2));
    assert_eq!((statistics.process_size, statistics.start_time), (4_711, 1_700_000_000));
    assert_eq!(&statistics.disks[0].name[..9], b"/vicepa\0\0");
    assert_eq!((statistics.disks[0].total_blocks, statistics.disks[1].total_blocks), (1 << 30, -1));
    let request = fs::GetStatistics64Request { version: 16 };
    let wide = world.serve(|call| call.get_statistics64(&bob.call(), request)).unwrap().statistics;
    assert_eq!(
        (wide[place::TOTAL_FETCHES], wide[place::STORED_BYTES], wide[place::WORKSTATIONS]),
        (6, 1_000, 2)
    );
    let wrong =
        world.serve(|call| call.get_statistics64(&bob.call(), fs::GetStatistics64Request { version: 5 }));
    assert_eq!(wrong, Err(AbortCode::UAEINVAL));
}

#[test]
fn calls_are_counted_under_the_operation_of_the_interface() {
    let (world, bob) = used();
    for (opcode, name) in fs::PROCEDURES {
        let Some(operation) = Operation::of(*opcode) else { continue };
        let before = world.server.operation_count(operation).calls;
        // No FID, name or data: most calls fail, but all are counted.
        let request = [&opcode.to_be_bytes()[..], &[0; 400]].concat();
        let mut stream = MemoryStream::new(&request, 500);
        let result = world.serve(|call| fs::dispatch(call, &bob.call(), &mut stream));
        assert_ne!(result, Err(AbortCode::RXGEN_SS_UNMARSHAL), "{name}");
        assert_eq!(world.server.operation_count(operation).calls, before + 1, "{name}: {result:?}");
    }
}

#[test]
fn extended_statistics_have_the_layout_of_the_tools() {
    let (world, bob) = used();
    let collection = |collection| {
        world.serve(|call| {
            call.get_x_stats(&bob.call(), fs::GetXStatsRequest { client_version: 2, collection })
        })
    };
    let version =
        world.serve(|call| call.x_stats_version(&bob.call(), fs::XStatsVersionRequest)).unwrap().version;
    assert_eq!((version, collection(0).unwrap().data.len()), (2, 0));
    let performance = collection(1).unwrap();
    assert_eq!((performance.server_version, performance.data.len(), performance.data[0]), (2, 98, 1));
    let full = collection(2).unwrap().data;
    assert_eq!((full.len(), full[0], full[98], full[99]), (666, 2, 1_700_000_000, 0));
    // numOps and numSuccesses of FetchStatus, the third record of 18 words.
    let fetch_status = &full[102 + 2 * 18..];
    assert_eq!(fetch_status[..2], [5, 3]);
    // The minimum of a call that never succeeded has its initial value.
    let rename = &full[102 + 8 * 18..];
    assert_eq!((rename[0], rename[10]), (0, 999_999));
    // Fetched data: number of transfers, minimum and maximum size, and one of at most 1 KiB.
    let fetched = &full[102 + 28 * 18..][..30];
    assert_eq!((fetched[0], fetched[1], fetched[19], fetched[20]), (1, 1, 1_000, 1_000));
    assert_eq!(fetched[21..24], [0, 1, 0]);
    let callbacks = collection(3).unwrap().data;
    assert_eq!(callbacks.len(), 16);
    // AddCallBacks, nFEs, nCBs: only the file was promised, repeatedly.
    assert!(callbacks[3] >= 5);
    assert_eq!(callbacks[6..8], [1, 1]);
    assert_eq!(collection(4), Err(AbortCode(1)));
}

#[test]
fn time_has_microseconds() {
    let world = World::new();
    let bob = world.client("bob", 2);
    world.clock.advance(7);
    let time = world.serve(|call| call.get_time(&bob.call(), fs::GetTimeRequest)).unwrap();
    assert_eq!((time.seconds, time.microseconds), (1_700_000_007, 0));
}
