//! Records of hosts that may hold callback promises.

use super::{Fields, Record};
use crate::{ListedHost, keys};
use base::HostUuid;

/// Encodes a host; its address is in its key.
pub fn put_listed_host(host: &ListedHost) -> Vec<u8> {
    Record::new().bytes(&host.uuid.unwrap_or_default().0).0
}

/// Decodes the host with this key.
pub fn get_listed_host(key: &[u8], value: &[u8]) -> Option<ListedHost> {
    let address = keys::listed_host_of(key)?;
    let mut fields = Fields::open(value)?;
    let uuid = HostUuid(fields.array()?);
    fields.0.is_empty().then_some(ListedHost { address, uuid: (uuid != HostUuid::default()).then_some(uuid) })
}
