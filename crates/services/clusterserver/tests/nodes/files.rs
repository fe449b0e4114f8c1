//! Clients use files of a volume that another node owns.

use crate::world::{Client, World, root};
use afs_idl::{CallStream, ClientConnection, StreamSource, fs};
use base::AbortCode;
use bytes::Bytes;
use xdr::Decode;

pub(crate) fn make(
    connection: &dyn ClientConnection,
    directory: fs::Fid,
    name: &str,
) -> Result<fs::Fid, AbortCode> {
    let request = fs::CreateFileRequest { directory, name: name.into(), status: fs::StoreStatus::default() };
    fs::create_file(connection, &request).map(|reply| reply.fid)
}

pub(crate) fn store(
    connection: &dyn ClientConnection,
    fid: fs::Fid,
    data: &[u8],
) -> Result<fs::FetchStatus, AbortCode> {
    let length = data.len() as u64;
    let status = fs::StoreStatus::default();
    let request = fs::StoreData64Request { fid, status, position: 0, length, file_length: length };
    let send = |stream: &mut dyn CallStream| {
        data.chunks(100_000).try_for_each(|piece| stream.write(Bytes::copy_from_slice(piece)))
    };
    fs::store_data64(connection, &request, send).map(|reply| reply.new_status)
}

/// Returns the data of a whole file of at most `length` bytes.
pub(crate) fn fetch(
    connection: &dyn ClientConnection,
    fid: fs::Fid,
    length: i64,
) -> Result<Vec<u8>, AbortCode> {
    let (data, reply) = fetch_range(connection, fid, 0, length)?;
    assert_eq!(u64::from(reply.status.length), data.len() as u64);
    Ok(data)
}

/// Returns a part of a file's data, and the results.
pub(crate) fn fetch_range(
    connection: &dyn ClientConnection,
    fid: fs::Fid,
    position: i64,
    length: i64,
) -> Result<(Vec<u8>, fs::FetchData64Reply), AbortCode> {
    let mut data = Vec::new();
    let receive = |stream: &mut dyn CallStream| {
        let mut word = [0; 8];
        let mut filled = 0;
        while filled < word.len() {
            match stream.read(&mut word[filled..])? {
                0 => return Err(AbortCode::RXGEN_CC_UNMARSHAL),
                got => filled += got,
            }
        }
        let mut left = u64::from_be_bytes(word) as usize;
        while left > 0 {
            let piece = stream.read_chunk(left)?;
            if piece.is_empty() {
                return Err(AbortCode::RXGEN_CC_UNMARSHAL);
            }
            left -= piece.len();
            data.extend_from_slice(&piece);
        }
        Ok(())
    };
    let reply = fs::fetch_data64(connection, &fs::FetchData64Request { fid, position, length }, receive)?;
    Ok((data, reply))
}

fn status(connection: &dyn ClientConnection, fid: fs::Fid) -> Result<fs::FetchStatus, AbortCode> {
    fs::fetch_status(connection, &fs::FetchStatusRequest { fid }).map(|reply| reply.status)
}

/// A node answers for a volume of another one as that one itself does: status, directories, data in both directions,
/// locks, errors.
#[test]
fn every_node_serves_every_volume() {
    let world = World::new();
    let (ann, bob) = (Client::start(11), Client::start(12));
    let (front, owner) = (ann.to(&world.nodes[0]), bob.to(&world.nodes[1]));
    let made =
        fs::MakeDirRequest { directory: root(1), name: "d".into(), status: fs::StoreStatus::default() };
    let directory = fs::make_dir(&*front, &made).unwrap().fid;
    assert_eq!(directory.volume, root(1).volume);
    let file = make(&*front, directory, "f").unwrap();
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(store(&*front, file, &data).unwrap().length, 3_000_000);
    assert_eq!(fetch(&*owner, file, 5_000_000).unwrap(), data, "at the owner");
    assert_eq!(fetch(&*front, file, 5_000_000).unwrap(), data, "at the front");
    assert_eq!(status(&*front, file).unwrap(), status(&*owner, file).unwrap());
    // Errors are those of the owner.
    assert_eq!(make(&*front, directory, "f"), Err(AbortCode::UAEEXIST));
    assert_eq!(status(&*front, fs::Fid { vnode: 4711, ..file }), Err(AbortCode::VNOVNODE));
    assert_eq!(status(&*front, fs::Fid { volume: 1, ..file }), Err(AbortCode::VNOVOL), "nobody has it");
    // Locks are the owner's.
    let lock = fs::SetLockRequest { fid: file, lock_type: fs::lock_type::WRITE };
    fs::set_lock(&*front, &lock).unwrap();
    assert_eq!(fs::set_lock(&*owner, &lock), Err(AbortCode::UAEAGAIN));
    fs::release_lock(&*front, &fs::ReleaseLockRequest { fid: file }).unwrap();
    fs::set_lock(&*owner, &lock).unwrap();
    let counters = world.nodes[0].front.counters();
    assert_eq!((counters.forwarded, counters.refused, counters.unknown), (9, 0, 0), "{counters:?}");
    // Data outside of a bucket comes in twelve answers.
    assert_eq!(world.nodes[1].service.counters().executed, 9 + 11);
    assert_eq!(world.nodes[1].front.counters().forwarded, 0, "an owner forwards nothing");
}

#[test]
fn calls_that_concern_no_volume_are_answered_here() {
    let world = World::new();
    let ann = Client::start(13);
    let front = ann.to(&world.nodes[0]);
    fs::get_time(&*front, &fs::GetTimeRequest).unwrap();
    fs::get_capabilities(&*front, &fs::GetCapabilitiesRequest).unwrap();
    status(&*front, root(0)).unwrap();
    assert_eq!(world.nodes[0].front.counters(), clusterserver::Counters::default());
    assert_eq!(world.nodes[1].service.counters(), clusterserver::Counters::default());
}

#[test]
fn a_list_of_files_may_have_several_owners() {
    let world = World::new();
    let ann = Client::start(14);
    let front = ann.to(&world.nodes[0]);
    let fids = [1, 0, 1].map(root).to_vec();
    let reply = fs::inline_bulk_status(&*front, &fs::InlineBulkStatusRequest { fids }).unwrap();
    let alone = [1, 0, 1].map(|index| status(&*front, root(index)).unwrap());
    assert_eq!(reply.statuses, alone);
    assert_eq!(reply.call_backs.len(), 3);
    assert_eq!(
        world.nodes[0].front.counters().forwarded,
        3,
        "the volume of the other node, and two statuses"
    );
}

/// A client hears of a change from the address that it has called, and from the owner's if its front is gone.
#[test]
fn promises_are_broken_through_the_front() {
    let mut world = World::new();
    let (ann, bob) = (Client::start(15), Client::start(16));
    let (front, owner) = (ann.to(&world.nodes[0]), bob.to(&world.nodes[1]));
    let file = make(&*owner, root(1), "f").unwrap();
    status(&*front, file).unwrap();
    store(&*owner, file, b"new").unwrap();
    assert_eq!(*ann.station.broken.lock(), [(file, world.nodes[0].files)], "ann hears it from her front");
    assert!(bob.station.broken.lock().is_empty(), "bob knows");
    status(&*front, file).unwrap();
    world.nodes[0].kill();
    store(&*owner, file, b"newer").unwrap();
    assert_eq!(ann.station.broken.lock()[1..], [(file, world.nodes[1].files)], "the owner tells her itself");
    let counters = world.nodes[1].service.counters();
    assert!(counters.sent_through >= 2 && counters.sent_directly == 1, "{counters:?}");
}

#[test]
fn promises_are_given_up_at_every_node() {
    let world = World::new();
    let (ann, bob) = (Client::start(17), Client::start(18));
    let (front, owner) = (ann.to(&world.nodes[0]), bob.to(&world.nodes[1]));
    let file = make(&*owner, root(1), "f").unwrap();
    status(&*front, file).unwrap();
    fs::give_up_all_call_backs(&*front, &fs::GiveUpAllCallBacksRequest).unwrap();
    store(&*owner, file, b"new").unwrap();
    assert!(ann.station.broken.lock().is_empty());
}

/// The reply of a procedure, read to the end of the stream: nothing follows it.
#[test]
fn a_forwarded_reply_has_nothing_more() {
    let world = World::new();
    let ann = Client::start(19);
    let mut call = ann.to(&world.nodes[0]).begin().unwrap();
    let request = [xdr::to_vec(&fs::FETCH_STATUS), xdr::to_vec(&fs::FetchStatusRequest { fid: root(1) })];
    call.write(request.concat().into()).unwrap();
    call.end_request().unwrap();
    fs::FetchStatusReply::decode(&mut StreamSource::new(&mut *call)).unwrap();
    assert_eq!(call.read_chunk(100).unwrap(), "");
    call.finish().unwrap();
}

/// A partition that it does not know may have been added to the cluster.
#[test]
fn a_node_with_an_outdated_list_calls_no_volume_absent() {
    let (world, client) = (World::new(), Client::start(63));
    let front = client.to(&world.nodes[0]);
    let file = make(&*front, root(1), "f").unwrap();
    world.table.outdated.lock().push(0);
    let absent = fs::Fid { volume: 2, ..file };
    assert_eq!(status(&*front, absent), Err(AbortCode::VRESTARTING));
    status(&*front, file).unwrap();
    world.table.outdated.lock().clear();
    assert_eq!(status(&*front, absent), Err(AbortCode::VNOVOL));
}
