//! One method for each call of the interface.

use crate::conflicts::{self, Neighbours, Registration};
use crate::query::{self, ListForm};
use crate::statistics::Statistics;
use crate::wire::{WireEntry, abort_code, address_word, from_n, from_old, header, update};
use afs_idl::ReplyWriter;
use afs_idl::vl::{self, ListByAttributes, VLCallBack};
use base::{AbortCode, Access, Caller, LocalAuthority, UnixTime, VolumeId};
use std::net::Ipv4Addr;
use std::sync::Arc;
use vldb::{LocationError, Locations, NamePattern, NewLocation, Server, VolumeQuery, volume_type};
use xdr::XdrString;

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> UnixTime + Send + Sync>;

/// The address that requests removal of the other one in ChangeAddr.
const NO_ADDRESS: u32 = u32::MAX;

/// Settings of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Callers that may list entries and read statistics (`-restricted_query`). Single entries and addresses,
    /// which cache managers need, are available to everyone.
    pub queries: Access,
}

/// The volume location service.
pub struct VlService {
    locations: Arc<Locations>,
    authority: Arc<dyn LocalAuthority>,
    settings: Settings,
    clock: Clock,
    statistics: Statistics,
    neighbours: Option<Arc<dyn Neighbours>>,
}

impl VlService {
    /// Serves `locations`; `authority` decides which callers may change them.
    pub fn new(
        locations: Arc<Locations>,
        authority: Arc<dyn LocalAuthority>,
        settings: Settings,
        clock: Clock,
    ) -> VlService {
        let statistics = Statistics::new(clock());
        VlService { locations, authority, settings, clock, statistics, neighbours: None }
    }

    /// Makes the service probe the cell's file servers before a registration takes addresses from one of
    /// them.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: Arc<dyn Neighbours>) -> VlService {
        self.neighbours = Some(neighbours);
        self
    }

    /// Rejects a registration that would take addresses from a running server.
    fn check_registration(&self, new: &Registration<'_>) -> Result<(), LocationError> {
        let Some(neighbours) = &self.neighbours else { return Ok(()) };
        conflicts::check(&**neighbours, &self.locations.servers(), new)
            .inspect_err(|error| tracing::error!(peer = %new.caller, "registration refused: {error}"))
    }

    /// Handles a call that is open to everyone.
    fn ask<T>(
        &self,
        opcode: u32,
        ask: impl FnOnce(&Locations) -> Result<T, LocationError>,
    ) -> Result<T, AbortCode> {
        self.statistics.count(opcode, || ask(&self.locations).map_err(|error| abort_code(&error)))
    }

    /// Handles a call that lists entries, which may be restricted.
    fn list<T>(
        &self,
        caller: &Caller,
        opcode: u32,
        ask: impl FnOnce(&Locations) -> Result<T, LocationError>,
    ) -> Result<T, AbortCode> {
        self.statistics.count(opcode, || {
            self.check_query(caller)?;
            ask(&self.locations).map_err(|error| abort_code(&error))
        })
    }

    /// Handles a call that changes something: for superusers only, and recorded in the audit log.
    fn change<T>(
        &self,
        caller: &Caller,
        opcode: u32,
        make: impl FnOnce(&Locations) -> Result<T, LocationError>,
    ) -> Result<T, AbortCode> {
        let outcome = self.statistics.count(opcode, || {
            self.check_superuser(caller)?;
            make(&self.locations).map_err(|error| abort_code(&error))
        });
        let what = vl::procedure_name(opcode);
        let code = outcome.as_ref().err().map_or(0, |code| code.0);
        tracing::info!(target: "audit", what, code, identity = %caller.identity, peer = %caller.peer);
        outcome
    }

    fn check_superuser(&self, caller: &Caller) -> Result<(), AbortCode> {
        if self.authority.is_superuser(caller) { Ok(()) } else { Err(AbortCode::VL_PERM) }
    }

    fn by_id<E: WireEntry>(&self, opcode: u32, id: u32, kind: i32) -> Result<E, AbortCode> {
        self.ask(opcode, |locations| {
            let location = locations.find(&VolumeQuery::Id(VolumeId(id)), volume_type(kind)?)?;
            Ok(query::wire(locations, &location))
        })
    }

    fn by_name<E: WireEntry>(&self, opcode: u32, name: &XdrString) -> Result<E, AbortCode> {
        self.ask(opcode, |locations| {
            let location = locations.find(&VolumeQuery::parse(name.as_bytes())?, None)?;
            Ok(query::wire(locations, &location))
        })
    }

    fn next<E: WireEntry>(
        &self,
        caller: &Caller,
        opcode: u32,
        previous: i32,
    ) -> Result<(i32, i32, E), AbortCode> {
        self.list(caller, opcode, |locations| query::next(locations, previous))
    }

    fn attributes<E: WireEntry>(
        &self,
        (caller, opcode): (&Caller, u32),
        attributes: &ListByAttributes,
        form: ListForm,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        self.statistics.count(opcode, || {
            self.check_query(caller)?;
            query::write_list::<E>(&self.locations, attributes, form, reply)
        })
    }

    /// Rejects callers that may not list entries.
    fn check_query(&self, caller: &Caller) -> Result<(), AbortCode> {
        let allowed = self.settings.queries.allows(caller, &*self.authority);
        if allowed { Ok(()) } else { Err(AbortCode::VL_PERM) }
    }

    fn create(
        &self,
        caller: &Caller,
        opcode: u32,
        new: Result<NewLocation, LocationError>,
    ) -> Result<(), AbortCode> {
        self.change(caller, opcode, |locations| locations.create(&new?).map(drop))
    }

    fn replace(
        &self,
        caller: &Caller,
        opcode: u32,
        (id, kind, release): (u32, i32, i32),
        new: Result<NewLocation, LocationError>,
    ) -> Result<(), AbortCode> {
        self.change(caller, opcode, |locations| {
            locations.replace(VolumeId(id), volume_type(kind)?, &new?, release)
        })
    }
}

impl vl::Server for VlService {
    fn probe_server(&self, _: &Caller, _: vl::ProbeServerRequest) -> Result<vl::ProbeServerReply, AbortCode> {
        self.ask(vl::PROBE_SERVER, |_| Ok(vl::ProbeServerReply))
    }

    fn create_entry(
        &self,
        caller: &Caller,
        r: vl::CreateEntryRequest,
    ) -> Result<vl::CreateEntryReply, AbortCode> {
        self.create(caller, vl::CREATE_ENTRY, from_old(r.new_entry))?;
        Ok(vl::CreateEntryReply)
    }

    fn create_entry_n(
        &self,
        caller: &Caller,
        r: vl::CreateEntryNRequest,
    ) -> Result<vl::CreateEntryNReply, AbortCode> {
        self.create(caller, vl::CREATE_ENTRY_N, from_n(r.new_entry))?;
        Ok(vl::CreateEntryNReply)
    }

    fn replace_entry(
        &self,
        caller: &Caller,
        r: vl::ReplaceEntryRequest,
    ) -> Result<vl::ReplaceEntryReply, AbortCode> {
        let place = (r.volume_id, r.volume_type, r.release_type);
        self.replace(caller, vl::REPLACE_ENTRY, place, from_old(r.new_entry))?;
        Ok(vl::ReplaceEntryReply)
    }

    fn replace_entry_n(
        &self,
        caller: &Caller,
        r: vl::ReplaceEntryNRequest,
    ) -> Result<vl::ReplaceEntryNReply, AbortCode> {
        let place = (r.volume_id, r.volume_type, r.release_type);
        self.replace(caller, vl::REPLACE_ENTRY_N, place, from_n(r.new_entry))?;
        Ok(vl::ReplaceEntryNReply)
    }

    fn delete_entry(
        &self,
        caller: &Caller,
        r: vl::DeleteEntryRequest,
    ) -> Result<vl::DeleteEntryReply, AbortCode> {
        self.change(caller, vl::DELETE_ENTRY, |locations| {
            locations.delete(VolumeId(r.volume_id), volume_type(r.volume_type)?)
        })?;
        Ok(vl::DeleteEntryReply)
    }

    fn get_entry_by_id(
        &self,
        _: &Caller,
        r: vl::GetEntryByIDRequest,
    ) -> Result<vl::GetEntryByIDReply, AbortCode> {
        let entry = self.by_id(vl::GET_ENTRY_BY_ID, r.volume_id, r.volume_type)?;
        Ok(vl::GetEntryByIDReply { entry })
    }

    fn get_entry_by_idn(
        &self,
        _: &Caller,
        r: vl::GetEntryByIDNRequest,
    ) -> Result<vl::GetEntryByIDNReply, AbortCode> {
        let entry = self.by_id(vl::GET_ENTRY_BY_IDN, r.volume_id, r.volume_type)?;
        Ok(vl::GetEntryByIDNReply { entry })
    }

    fn get_entry_by_idu(
        &self,
        _: &Caller,
        r: vl::GetEntryByIDURequest,
    ) -> Result<vl::GetEntryByIDUReply, AbortCode> {
        let entry = self.by_id(vl::GET_ENTRY_BY_IDU, r.volume_id, r.volume_type)?;
        Ok(vl::GetEntryByIDUReply { entry })
    }

    fn get_entry_by_name_o(
        &self,
        _: &Caller,
        r: vl::GetEntryByNameORequest,
    ) -> Result<vl::GetEntryByNameOReply, AbortCode> {
        let entry = self.by_name(vl::GET_ENTRY_BY_NAME_O, &r.volume_name)?;
        Ok(vl::GetEntryByNameOReply { entry })
    }

    fn get_entry_by_name_n(
        &self,
        _: &Caller,
        r: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let entry = self.by_name(vl::GET_ENTRY_BY_NAME_N, &r.volume_name)?;
        Ok(vl::GetEntryByNameNReply { entry })
    }

    fn get_entry_by_name_u(
        &self,
        _: &Caller,
        r: vl::GetEntryByNameURequest,
    ) -> Result<vl::GetEntryByNameUReply, AbortCode> {
        let entry = self.by_name(vl::GET_ENTRY_BY_NAME_U, &r.volume_name)?;
        Ok(vl::GetEntryByNameUReply { entry })
    }

    fn get_new_volume_id(
        &self,
        caller: &Caller,
        r: vl::GetNewVolumeIdRequest,
    ) -> Result<vl::GetNewVolumeIdReply, AbortCode> {
        let id = self.change(caller, vl::GET_NEW_VOLUME_ID, |locations| locations.new_ids(r.bump_count))?;
        Ok(vl::GetNewVolumeIdReply { new_volume_id: id.0 })
    }

    fn update_entry(
        &self,
        caller: &Caller,
        r: vl::UpdateEntryRequest,
    ) -> Result<vl::UpdateEntryReply, AbortCode> {
        self.change(caller, vl::UPDATE_ENTRY, |locations| {
            let query = VolumeQuery::Id(VolumeId(r.volume_id));
            locations.update(&query, volume_type(r.volume_type)?, &update(&r.update)?, r.release_type)
        })?;
        Ok(vl::UpdateEntryReply)
    }

    fn update_entry_by_name(
        &self,
        caller: &Caller,
        r: vl::UpdateEntryByNameRequest,
    ) -> Result<vl::UpdateEntryByNameReply, AbortCode> {
        self.change(caller, vl::UPDATE_ENTRY_BY_NAME, |locations| {
            let query = VolumeQuery::parse(r.volume_name.as_bytes())?;
            locations.update(&query, None, &update(&r.update)?, r.release_type)
        })?;
        Ok(vl::UpdateEntryByNameReply)
    }

    fn set_lock(&self, caller: &Caller, r: vl::SetLockRequest) -> Result<vl::SetLockReply, AbortCode> {
        self.change(caller, vl::SET_LOCK, |locations| {
            locations.lock(VolumeId(r.volume_id), volume_type(r.volume_type)?, r.operation, (self.clock)())
        })?;
        Ok(vl::SetLockReply)
    }

    fn release_lock(
        &self,
        caller: &Caller,
        r: vl::ReleaseLockRequest,
    ) -> Result<vl::ReleaseLockReply, AbortCode> {
        self.change(caller, vl::RELEASE_LOCK, |locations| {
            locations.unlock(VolumeId(r.volume_id), volume_type(r.volume_type)?, r.release_type)
        })?;
        Ok(vl::ReleaseLockReply)
    }

    fn list_entry(&self, caller: &Caller, r: vl::ListEntryRequest) -> Result<vl::ListEntryReply, AbortCode> {
        let (count, next_index, entry) = self.next(caller, vl::LIST_ENTRY, r.previous_index)?;
        Ok(vl::ListEntryReply { count, next_index, entry })
    }

    fn list_entry_n(
        &self,
        caller: &Caller,
        r: vl::ListEntryNRequest,
    ) -> Result<vl::ListEntryNReply, AbortCode> {
        let (count, next_index, entry) = self.next(caller, vl::LIST_ENTRY_N, r.previous_index)?;
        Ok(vl::ListEntryNReply { count, next_index, entry })
    }

    fn list_entry_u(
        &self,
        caller: &Caller,
        r: vl::ListEntryURequest,
    ) -> Result<vl::ListEntryUReply, AbortCode> {
        let (count, next_index, entry) = self.next(caller, vl::LIST_ENTRY_U, r.previous_index)?;
        Ok(vl::ListEntryUReply { count, next_index, entry })
    }

    fn list_attributes(
        &self,
        caller: &Caller,
        r: vl::ListAttributesRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LIST_ATTRIBUTES);
        self.attributes::<vl::VldbEntry>(of, &r.attributes, ListForm::Counted, reply)
    }

    fn list_attributes_n(
        &self,
        caller: &Caller,
        r: vl::ListAttributesNRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LIST_ATTRIBUTES_N);
        self.attributes::<vl::NVldbEntry>(of, &r.attributes, ListForm::Counted, reply)
    }

    fn list_attributes_u(
        &self,
        caller: &Caller,
        r: vl::ListAttributesURequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LIST_ATTRIBUTES_U);
        self.attributes::<vl::UVldbEntry>(of, &r.attributes, ListForm::Counted, reply)
    }

    fn linked_list(
        &self,
        caller: &Caller,
        r: vl::LinkedListRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LINKED_LIST);
        self.attributes::<vl::VldbEntry>(of, &r.attributes, ListForm::Chained, reply)
    }

    fn linked_list_n(
        &self,
        caller: &Caller,
        r: vl::LinkedListNRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LINKED_LIST_N);
        self.attributes::<vl::NVldbEntry>(of, &r.attributes, ListForm::Chained, reply)
    }

    fn linked_list_u(
        &self,
        caller: &Caller,
        r: vl::LinkedListURequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LINKED_LIST_U);
        self.attributes::<vl::UVldbEntry>(of, &r.attributes, ListForm::Chained, reply)
    }

    /// Patterns are for superusers, since the server has to examine every entry.
    fn list_attributes_n2(
        &self,
        caller: &Caller,
        r: vl::ListAttributesN2Request,
    ) -> Result<vl::ListAttributesN2Reply, AbortCode> {
        let (entries, next_start_index) = self.statistics.count(vl::LIST_ATTRIBUTES_N2, || {
            let pattern = NamePattern::parse(r.volume_name.as_bytes());
            self.check_query(caller)?;
            if !matches!(pattern, Ok(None)) {
                self.check_superuser(caller)?;
            }
            pattern
                .and_then(|pattern| {
                    query::list_matching(&self.locations, &r.attributes, pattern.as_ref(), r.start_index)
                })
                .map_err(|error| abort_code(&error))
        })?;
        Ok(vl::ListAttributesN2Reply { entry_count: entries.len() as i32, entries, next_start_index })
    }

    fn get_stats(&self, caller: &Caller, _: vl::GetStatsRequest) -> Result<vl::GetStatsReply, AbortCode> {
        let header = self.list(caller, vl::GET_STATS, |locations| Ok(header(&locations.totals())))?;
        Ok(vl::GetStatsReply { stats: self.statistics.wire(), header })
    }

    fn get_addrs(&self, _: &Caller, _: vl::GetAddrsRequest) -> Result<vl::GetAddrsReply, AbortCode> {
        let words = |locations: &Locations| -> Vec<u32> {
            locations.servers().iter().map(|(number, server)| address_word(number, server)).collect()
        };
        let addresses = self.ask(vl::GET_ADDRS, |locations| Ok(words(locations)))?;
        let entry_count = addresses.len() as i32;
        Ok(vl::GetAddrsReply { spare3: VLCallBack::default(), entry_count, addresses })
    }

    fn get_addrs_u(&self, _: &Caller, r: vl::GetAddrsURequest) -> Result<vl::GetAddrsUReply, AbortCode> {
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

    fn change_addr(
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

    fn register_addrs(
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
}
