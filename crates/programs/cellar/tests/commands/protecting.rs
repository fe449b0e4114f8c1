//! Required protection of calls, over the wire: levels by class of caller, and permitted destinations of
//! volumes.

use crate::support::cell::Cell;
use crate::support::place::Place;
use afs_idl::{ClientConnection, pr, vol};
use base::{AbortCode, SecurityLevel};
use cell_client::Network;
use cell_client::network::{AfsNetwork, local_authentication_at};
use std::sync::Arc;

const PROTECTION: (u16, u16) = (73, 7002);
const VOLUMES: (u16, u16) = (4, 7005);

/// Connects with the cell's key at this level, or without a ticket for `None`.
fn connect(
    place: &Place,
    level: Option<SecurityLevel>,
    (service, port): (u16, u16),
) -> (AfsNetwork, Arc<dyn ClientConnection>) {
    let security = level.map(|level| local_authentication_at(&place.settings().keys, level).unwrap());
    let network = AfsNetwork::start(security).unwrap();
    let connection = network.connect((place.address, port).into(), service);
    (network, connection)
}

fn list_partitions(place: &Place, level: Option<SecurityLevel>) -> Result<(), AbortCode> {
    let (_network, connection) = connect(place, level, VOLUMES);
    vol::x_list_partitions(&*connection, &vol::XListPartitionsRequest).map(drop)
}

fn list_max(place: &Place, level: Option<SecurityLevel>) -> Result<(), AbortCode> {
    let (_network, connection) = connect(place, level, PROTECTION);
    pr::list_max(&*connection, &pr::ListMaxRequest).map(drop)
}

const LEVELS: [SecurityLevel; 3] =
    [SecurityLevel::Clear, SecurityLevel::Authenticated, SecurityLevel::Encrypted];

#[test]
fn levels_are_demanded_by_service_and_class() {
    let cell =
        Cell::start("[security.levels.vol]\ncell = \"crypt\"\n[security.levels.pt]\nanonymous = false\n");
    let refused = Err(AbortCode::RXKADLEVELFAIL);
    assert_eq!(LEVELS.map(|level| list_partitions(&cell, Some(level))), [refused, refused, Ok(())]);
    assert_eq!(list_max(&cell, Some(SecurityLevel::Encrypted)), Ok(()));
    assert_eq!(list_max(&cell, None), Err(AbortCode::RXKADNOAUTH));
}

/// OpenAFS's `vos` uses level clear by default; `pts -localauth` always encrypts.
#[test]
fn default_protection_refuses_no_tools_calls() {
    let (cell, refused) = (Cell::start(""), Err(AbortCode::RXKADLEVELFAIL));
    assert_eq!(LEVELS.map(|level| list_partitions(&cell, Some(level))), [Ok(()); 3]);
    assert_eq!(LEVELS.map(|level| list_max(&cell, Some(level))), [refused, Ok(()), Ok(())]);
    assert_eq!(list_max(&cell, None), Ok(()));
}

#[test]
fn volumes_are_sent_to_file_servers_of_the_cell_only() {
    let cell = Cell::start("");
    let volume = cell.volume("v").volume;
    let (_network, connection) = connect(&cell, Some(SecurityLevel::Encrypted), VOLUMES);
    let open = vol::TransCreateRequest { volume_id: volume, partition: 0, flags: vol::attach_mode::BUSY };
    let transaction = vol::trans_create(&*connection, &open).unwrap().transaction;
    let own = u32::from(cell.address);
    for (host, port, outcome) in [
        (own, 7000, AbortCode(13)),
        (own ^ 1, 7005, AbortCode(13)),
        // That server has no such transaction.
        (own, 7005, AbortCode(2)),
    ] {
        let request = vol::ForwardRequest {
            transaction,
            from_date: 0,
            destination: vol::DestServer { host, port, security_index: 2 },
            destination_transaction: 4711,
            cookie: vol::RestoreCookie { name: "v".into(), ..Default::default() },
        };
        assert_eq!(vol::forward(&*connection, &request).err(), Some(outcome), "{host:#x}:{port}");
    }
}
