//! What the histories of calls between nodes do. If they reached less, they would exercise less than they are for.

use crate::inputs;
use afs_idl::cluster::refusal::{HELD, NO_LEASE, NOT_OWNER, OF_RX, OTHER_EPOCH};
use base::AbortCode;
use corpus::services::cluster_outcomes;

const MALFORMED: i32 = AbortCode::RXGEN_SS_UNMARSHAL.0;
const VNOVOL: i32 = AbortCode::VNOVOL.0;
const DENIED: i32 = AbortCode::UAEACCES.0;
const RESTARTING: i32 = OF_RX + AbortCode::VRESTARTING.0;

fn outcomes(file: &str) -> Vec<i32> {
    let input = inputs::of("serve_cluster").into_iter().find(|input| input.file == file);
    cluster_outcomes(&input.expect("an input").data)
}

#[test]
fn a_node_may_pass_on_what_clients_may_do() {
    assert_eq!(outcomes("files"), [vec![0; 10], vec![DENIED; 7]].concat());
    assert_eq!(outcomes("placed"), [0; 7]);
}

#[test]
fn a_node_cannot_name_what_is_not_in_the_partition() {
    let exdev = AbortCode::UAEXDEV.0;
    let expected = [0, VNOVOL, VNOVOL, exdev, exdev, MALFORMED, VNOVOL, VNOVOL, VNOVOL, VNOVOL, NOT_OWNER];
    assert_eq!(outcomes("foreign_fids"), expected);
}

#[test]
fn a_node_cannot_name_objects_that_are_not_offered_or_sound() {
    let eio = AbortCode::UAEIO.0;
    let stores: Vec<i32> = outcomes("placed_wrongly").into_iter().skip(1).filter(|code| *code != 0).collect();
    let last = [AbortCode::RXGEN_SS_UNMARSHAL.0, AbortCode::UAEFBIG.0];
    let expected = [eio, eio, MALFORMED, MALFORMED, RESTARTING, eio, MALFORMED, eio];
    assert_eq!(stores, [&expected[..], &last].concat());
}

#[test]
fn only_the_present_membership_is_that_of_a_node() {
    let no = NO_LEASE;
    assert_eq!(
        outcomes("memberships"),
        [0, no, no, no, no, no, 0, no, no, 0],
        "a lease is relied on for 2 s"
    );
    assert_eq!(
        outcomes("epochs"),
        [0, OTHER_EPOCH, OTHER_EPOCH, HELD, 0, NOT_OWNER, OTHER_EPOCH, 0],
        "nothing waits for weeks"
    );
}

#[test]
fn strangers_are_refused_whatever_they_ask_for() {
    let codes = [AbortCode::RXKADNOAUTH.0, DENIED, AbortCode::RXKADLEVELFAIL.0, NO_LEASE];
    assert_eq!(outcomes("strangers"), codes.map(|code| [code; 8]).concat());
}

#[test]
fn volumes_and_clients_are_reached() {
    let volumes = outcomes("volumes");
    assert_eq!(volumes[..10], [0; 10]);
    assert!(volumes[10..].iter().all(|code| *code != 0), "{volumes:?}");
    let expected = [0, MALFORMED, MALFORMED, MALFORMED, VNOVOL, 0, 0, 0, VNOVOL, 0, VNOVOL, 0];
    assert_eq!(outcomes("clients"), expected);
}
