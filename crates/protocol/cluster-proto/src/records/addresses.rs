//! The addresses at which clients call a cluster, whichever of its nodes live.

use super::text::{Reader, RecordError, Writer};
use crate::names::{NameError, PartitionName, join};
use base::limits::SERVER_ADDRESSES_MAX;
use std::net::Ipv4Addr;
use thiserror::Error;

/// Greatest number of service addresses: the location database has no room for more.
pub const SERVICE_ADDRESSES_MAX: usize = SERVER_ADDRESSES_MAX;

const KIND: &str = "cellar service addresses";

/// Folder of the list, and of the owners of the addresses.
const FOLDER: &str = "addresses";

/// Addresses that no cluster can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ServiceAddressError {
    /// Too many.
    #[error("{0} service addresses; a file server has at most {SERVICE_ADDRESSES_MAX}")]
    Many(usize),
    /// An address that is named more than once.
    #[error("the service address {0} is named more than once")]
    Repeated(Ipv4Addr),
    /// An address that no machine can have.
    #[error("{0} cannot be a service address: it is loopback, multicast, broadcast or unspecified")]
    Special(Ipv4Addr),
}

/// The object `FOLDER/addresses/list`. An empty list is one that has been emptied: the nodes' own addresses are used, as
/// without the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAddresses(Vec<Ipv4Addr>);

impl ServiceAddresses {
    /// Returns the list of these addresses. Their order does not matter.
    ///
    /// # Errors
    /// If they are too many, one of them cannot be a machine's, or is named more than once.
    pub fn new(mut addresses: Vec<Ipv4Addr>) -> Result<ServiceAddresses, ServiceAddressError> {
        addresses.sort_unstable();
        if let Some(same) = addresses.windows(2).find(|two| two[0] == two[1]) {
            return Err(ServiceAddressError::Repeated(same[0]));
        }
        if addresses.len() > SERVICE_ADDRESSES_MAX {
            return Err(ServiceAddressError::Many(addresses.len()));
        }
        match addresses.iter().find(|address| is_special(**address)) {
            Some(special) => Err(ServiceAddressError::Special(*special)),
            None => Ok(ServiceAddresses(addresses)),
        }
    }

    /// Returns the addresses, in order and each once.
    pub fn addresses(&self) -> &[Ipv4Addr] {
        &self.0
    }

    /// Returns the name of the object of a cluster in a folder.
    pub fn object(folder: &str) -> String {
        join(folder, &format!("{FOLDER}/list"))
    }

    /// Returns the object's contents.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(KIND);
        writer.field("addresses", self.0.len());
        for address in &self.0 {
            writer.field("address", address);
        }
        writer.finish()
    }

    /// Parses the object.
    ///
    /// # Errors
    /// Any contents other than those that [`encode`](ServiceAddresses::encode) returns.
    pub fn decode(bytes: &[u8]) -> Result<ServiceAddresses, RecordError> {
        let mut reader = Reader::open(KIND, bytes)?;
        let count: usize = reader.parse("addresses")?;
        if count > SERVICE_ADDRESSES_MAX {
            return Err(RecordError::Field("addresses"));
        }
        let addresses = (0..count).map(|_| reader.parse("address")).collect::<Result<_, _>>()?;
        let list = ServiceAddresses::new(addresses).map_err(|_| RecordError::Field("address"))?;
        // One form only: what differs elsewhere (order, further lines) was not written by a program.
        if list.encode() == bytes { Ok(list) } else { Err(RecordError::Field("address")) }
    }
}

/// Returns the place of a service address of the cluster in a folder: its owner's object is there.
///
/// # Errors
/// If the folder's name is too long.
pub fn service_address_place(folder: &str, address: Ipv4Addr) -> Result<PartitionName, NameError> {
    join(folder, &format!("{FOLDER}/{address}")).parse()
}

fn is_special(address: Ipv4Addr) -> bool {
    address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast()
}
