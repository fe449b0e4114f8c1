//! File servers and their addresses, and the state of this server.

use crate::conflicts::{self, Registration};
use crate::query;
use crate::service::VlService;
use crate::wire::{address_word, header};
use afs_idl::vl::{self, VLCallBack};
use base::{AbortCode, Caller};
use std::net::Ipv4Addr;
use vldb::{LocationError, Locations, Server};

/// The address that requests removal of the other one in ChangeAddr.
const NO_ADDRESS: u32 = u32::MAX;

impl VlService {
    /// GetAddrs: lists the file servers, each by an address or a number.
    pub(crate) fn get_addrs(
        &self,
        _: &Caller,
        _: vl::GetAddrsRequest,
    ) -> Result<vl::GetAddrsReply, AbortCode> {
        let words = |locations: &Locations| -> Vec<u32> {
            locations.servers().iter().map(|(number, server)| address_word(number, server)).collect()
        };
        let addresses = self.ask(vl::GET_ADDRS, |locations| Ok(words(locations)))?;
        let entry_count = addresses.len() as i32;
        Ok(vl::GetAddrsReply { spare3: VLCallBack::default(), entry_count, addresses })
    }

    /// GetAddrsU: returns the addresses of a file server.
    pub(crate) fn get_addrs_u(
        &self,
        _: &Caller,
        r: vl::GetAddrsURequest,
    ) -> Result<vl::GetAddrsUReply, AbortCode> {
        self.ask(vl::GET_ADDRS_U, |locations| {
            let servers = locations.servers();
            let Server::Registered { uuid, uniquifier, addresses } = query::server(&servers, &r.attributes)?
            else {
                return Err(LocationError::NoEntry);
            };
            Ok(vl::GetAddrsUReply {
                uuid: *uuid,
                uniquifier: *uniquifier,
                entry_count: addresses.len() as i32,
                addresses: addresses.iter().map(|address| address.to_bits()).collect(),
            })
        })
    }

    /// ChangeAddr: changes or removes an address of a file server.
    pub(crate) fn change_addr(
        &self,
        caller: &Caller,
        r: vl::ChangeAddrRequest,
    ) -> Result<vl::ChangeAddrReply, AbortCode> {
        let (old, new) = match r.old_address {
            NO_ADDRESS => (r.new_address, None),
            old => (old, Some(Ipv4Addr::from_bits(r.new_address)).filter(|new| !new.is_unspecified())),
        };
        self.change(caller, vl::CHANGE_ADDR, |locations| {
            locations.change_address(Ipv4Addr::from_bits(old), new)
        })?;
        Ok(vl::ChangeAddrReply)
    }

    /// RegisterAddrs: sets the addresses of a file server.
    pub(crate) fn register_addrs(
        &self,
        caller: &Caller,
        r: vl::RegisterAddrsRequest,
    ) -> Result<vl::RegisterAddrsReply, AbortCode> {
        let addresses: Vec<_> = r.addresses.iter().map(|&address| Ipv4Addr::from_bits(address)).collect();
        self.change(caller, vl::REGISTER_ADDRS, |locations| {
            let new = Registration { uuid: r.uuid, addresses: &addresses, caller: caller.peer.ip() };
            self.check_registration(&new)?;
            locations.register(r.uuid, &addresses)
        })?;
        Ok(vl::RegisterAddrsReply)
    }

    /// ProbeServer: does nothing.
    pub(crate) fn probe_server(
        &self,
        _: &Caller,
        _: vl::ProbeServerRequest,
    ) -> Result<vl::ProbeServerReply, AbortCode> {
        self.ask(vl::PROBE_SERVER, |_| Ok(vl::ProbeServerReply))
    }

    /// GetStats: returns counts of calls, and the header of the database.
    pub(crate) fn get_stats(
        &self,
        caller: &Caller,
        _: vl::GetStatsRequest,
    ) -> Result<vl::GetStatsReply, AbortCode> {
        let header = self.list(caller, vl::GET_STATS, |locations| Ok(header(&locations.totals())))?;
        Ok(vl::GetStatsReply { stats: self.statistics.wire(), header })
    }

    /// Rejects a registration that would take addresses from a running server.
    fn check_registration(&self, new: &Registration<'_>) -> Result<(), LocationError> {
        let Some(neighbours) = &self.neighbours else { return Ok(()) };
        conflicts::check(&**neighbours, &self.locations.servers(), new)
            .inspect_err(|error| tracing::error!(peer = %new.caller, "registration refused: {error}"))
    }
}
