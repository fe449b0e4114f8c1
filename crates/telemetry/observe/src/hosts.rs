//! Figures of each host, combined from those of its users and its connections.

use crate::recorder::Snapshot;
use crate::sheet::Sheet;
use crate::tables::Table;
use events::Figures;
use events::catalogue::{Class, HostFigures, PeerFigures, UsageFigures};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Returns the hosts, the most active first. `peers` has ports and addresses as labels; its common row is
/// added to that of the hosts.
pub(crate) fn sheet(snapshot: &Snapshot, peers: &Sheet<PeerFigures>) -> Sheet<HostFigures> {
    let mut hosts: BTreeMap<IpAddr, HostFigures> = BTreeMap::new();
    let mut others = of_usage(snapshot.clients.others());
    for (client, usage) in snapshot.clients.rows() {
        hosts.entry(client.host).or_default().add(&of_usage(usage));
    }
    for peer in &peers.rows {
        let address = peer.labels.get(1).and_then(|label| label.parse::<SocketAddr>().ok());
        let row = match address {
            Some(address) => hosts.entry(address.ip()).or_default(),
            None => &mut others,
        };
        row.connections += peer.figures.connections;
        row.opened += peer.figures.opened;
    }
    let mut sheet = Sheet::new(Table::Hosts.labels());
    for (host, row) in hosts {
        sheet.push([host.to_string()], row);
    }
    sheet.bound(others);
    sheet
}

fn of_usage(usage: &UsageFigures) -> HostFigures {
    HostFigures {
        calls: usage.calls,
        classes: usage.classes,
        failed: usage.failed,
        data_calls: usage.classes[Class::Fetch as usize] + usage.classes[Class::Store as usize],
        data: usage.data,
        data_time: usage.data_time,
        data_longest: usage.data_longest.clone(),
        ..HostFigures::default()
    }
}
