//! Sizes of directories, and the rights to see them.

use crate::world::{HOME, RELEASED, World, root};
use base::{AbortCode, Fid, VnodeId};
use volume::Totals;

fn totals(bytes: u64, kib: u64, files: u64, directories: u64) -> Totals {
    Totals { bytes, kib, files, directories }
}

#[test]
fn lookup_rights_show_the_totals_below() {
    let world = World::new();
    let (bob, carol, admin) = (world.client("bob", 2), world.client("carol", 3), world.client("admin", 4));
    let open = world.make_dir(&bob, root(), "open").unwrap();
    let closed = world.make_dir(&bob, open, "closed").unwrap();
    world.set_acl(&bob, closed, "1\n0\nstaff\t127\n").unwrap();
    let file = world.create(&bob, closed, "file").unwrap();
    world.write(&bob, file, &[7; 1500]).unwrap();
    let ask =
        |client: &crate::world::Client, fid| world.server.directory_totals(&client.call(), Fid::from(fid));
    for client in [&bob, &carol, &admin, &world.client("", 5)] {
        assert_eq!(ask(client, open), Ok(totals(1500, 6, 1, 1)));
        assert_eq!(ask(client, root()), Ok(totals(1500, 8, 1, 2)));
    }
    assert_eq!(ask(&carol, closed), Err(AbortCode::UAEACCES));
    assert_eq!((ask(&bob, closed), ask(&admin, closed)), (Ok(totals(1500, 4, 1, 0)), ask(&bob, closed)));
    assert_eq!(ask(&bob, file), Err(AbortCode::UAENOTDIR));
    let gone = Fid { volume: HOME, vnode: VnodeId(99), unique: 99 };
    assert_eq!(world.server.directory_totals(&bob.call(), gone), Err(AbortCode::VNOVNODE));
    assert_eq!(ask(&admin, Fid::root(RELEASED).into()), Ok(totals(0, 2, 0, 0)));
}

#[test]
fn directories_in_a_directory_come_in_order_and_in_parts() {
    let world = World::new();
    let (bob, carol) = (world.client("bob", 2), world.client("carol", 3));
    for name in ["d", "b", "a", "c"] {
        let made = world.make_dir(&bob, root(), name).unwrap();
        if name == "c" {
            world.set_acl(&bob, made, "1\n0\nstaff\t127\n").unwrap();
        }
    }
    world.create(&bob, root(), "bfile").unwrap();
    let list = |after: &[u8], most| {
        let (found, is_more) =
            world.server.subdirectories(&carol.call(), Fid::from(root()), after, most).unwrap();
        let shown = found.into_iter().map(|one| (String::from_utf8(one.name).unwrap(), one.totals.is_ok()));
        (shown.collect::<Vec<_>>(), is_more)
    };
    let row = |name: &str, is_notified| (name.to_owned(), is_notified);
    assert_eq!(list(b"", 2), (vec![row("a", true), row("b", true)], true));
    assert_eq!(list(b"b", 2), (vec![row("c", false), row("d", true)], false));
    assert_eq!(list(b"d", 2), (vec![], false));
    assert_eq!(list(b"", 9).0.len(), 4);
    world.set_acl(&bob, root(), "1\n0\nstaff\t127\n").unwrap();
    let closed = world.server.subdirectories(&carol.call(), Fid::from(root()), b"", 2);
    assert_eq!(closed, Err(AbortCode::UAEACCES));
}
