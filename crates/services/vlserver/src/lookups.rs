//! Queries for entries: single ones, and lists.

use crate::query::{self, ListForm};
use crate::service::VlService;
use crate::wire::{WireEntry, abort_code};
use afs_idl::ReplyWriter;
use afs_idl::vl::{self, ListByAttributes};
use base::{AbortCode, Caller, VolumeId};
use vldb::{NamePattern, VolumeQuery, volume_type};
use xdr::XdrString;

impl VlService {
    /// GetEntryByID: returns the entry of a volume id.
    pub(crate) fn get_entry_by_id(
        &self,
        _: &Caller,
        r: vl::GetEntryByIDRequest,
    ) -> Result<vl::GetEntryByIDReply, AbortCode> {
        let entry = self.by_id(vl::GET_ENTRY_BY_ID, r.volume_id, r.volume_type)?;
        Ok(vl::GetEntryByIDReply { entry })
    }

    /// GetEntryByIDN: returns the entry of a volume id.
    pub(crate) fn get_entry_by_idn(
        &self,
        _: &Caller,
        r: vl::GetEntryByIDNRequest,
    ) -> Result<vl::GetEntryByIDNReply, AbortCode> {
        let entry = self.by_id(vl::GET_ENTRY_BY_IDN, r.volume_id, r.volume_type)?;
        Ok(vl::GetEntryByIDNReply { entry })
    }

    /// GetEntryByIDU: returns the entry of a volume id.
    pub(crate) fn get_entry_by_idu(
        &self,
        _: &Caller,
        r: vl::GetEntryByIDURequest,
    ) -> Result<vl::GetEntryByIDUReply, AbortCode> {
        let entry = self.by_id(vl::GET_ENTRY_BY_IDU, r.volume_id, r.volume_type)?;
        Ok(vl::GetEntryByIDUReply { entry })
    }

    /// GetEntryByNameO: returns the entry of a volume name.
    pub(crate) fn get_entry_by_name_o(
        &self,
        _: &Caller,
        r: vl::GetEntryByNameORequest,
    ) -> Result<vl::GetEntryByNameOReply, AbortCode> {
        let entry = self.by_name(vl::GET_ENTRY_BY_NAME_O, &r.volume_name)?;
        Ok(vl::GetEntryByNameOReply { entry })
    }

    /// GetEntryByNameN: returns the entry of a volume name.
    pub(crate) fn get_entry_by_name_n(
        &self,
        _: &Caller,
        r: vl::GetEntryByNameNRequest,
    ) -> Result<vl::GetEntryByNameNReply, AbortCode> {
        let entry = self.by_name(vl::GET_ENTRY_BY_NAME_N, &r.volume_name)?;
        Ok(vl::GetEntryByNameNReply { entry })
    }

    /// GetEntryByNameU: returns the entry of a volume name.
    pub(crate) fn get_entry_by_name_u(
        &self,
        _: &Caller,
        r: vl::GetEntryByNameURequest,
    ) -> Result<vl::GetEntryByNameUReply, AbortCode> {
        let entry = self.by_name(vl::GET_ENTRY_BY_NAME_U, &r.volume_name)?;
        Ok(vl::GetEntryByNameUReply { entry })
    }

    /// ListEntry: returns the next entry.
    pub(crate) fn list_entry(
        &self,
        caller: &Caller,
        r: vl::ListEntryRequest,
    ) -> Result<vl::ListEntryReply, AbortCode> {
        let (count, next_index, entry) = self.next(caller, vl::LIST_ENTRY, r.previous_index)?;
        Ok(vl::ListEntryReply { count, next_index, entry })
    }

    /// ListEntryN: returns the next entry.
    pub(crate) fn list_entry_n(
        &self,
        caller: &Caller,
        r: vl::ListEntryNRequest,
    ) -> Result<vl::ListEntryNReply, AbortCode> {
        let (count, next_index, entry) = self.next(caller, vl::LIST_ENTRY_N, r.previous_index)?;
        Ok(vl::ListEntryNReply { count, next_index, entry })
    }

    /// ListEntryU: returns the next entry.
    pub(crate) fn list_entry_u(
        &self,
        caller: &Caller,
        r: vl::ListEntryURequest,
    ) -> Result<vl::ListEntryUReply, AbortCode> {
        let (count, next_index, entry) = self.next(caller, vl::LIST_ENTRY_U, r.previous_index)?;
        Ok(vl::ListEntryUReply { count, next_index, entry })
    }

    /// ListAttributes: lists entries.
    pub(crate) fn list_attributes(
        &self,
        caller: &Caller,
        r: vl::ListAttributesRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LIST_ATTRIBUTES);
        self.attributes::<vl::VldbEntry>(of, &r.attributes, ListForm::Counted, reply)
    }

    /// ListAttributesN: lists entries.
    pub(crate) fn list_attributes_n(
        &self,
        caller: &Caller,
        r: vl::ListAttributesNRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LIST_ATTRIBUTES_N);
        self.attributes::<vl::NVldbEntry>(of, &r.attributes, ListForm::Counted, reply)
    }

    /// ListAttributesU: lists entries.
    pub(crate) fn list_attributes_u(
        &self,
        caller: &Caller,
        r: vl::ListAttributesURequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LIST_ATTRIBUTES_U);
        self.attributes::<vl::UVldbEntry>(of, &r.attributes, ListForm::Counted, reply)
    }

    /// LinkedList: lists entries as a linked list.
    pub(crate) fn linked_list(
        &self,
        caller: &Caller,
        r: vl::LinkedListRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LINKED_LIST);
        self.attributes::<vl::VldbEntry>(of, &r.attributes, ListForm::Chained, reply)
    }

    /// LinkedListN: lists entries as a linked list.
    pub(crate) fn linked_list_n(
        &self,
        caller: &Caller,
        r: vl::LinkedListNRequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LINKED_LIST_N);
        self.attributes::<vl::NVldbEntry>(of, &r.attributes, ListForm::Chained, reply)
    }

    /// LinkedListU: lists entries as a linked list.
    pub(crate) fn linked_list_u(
        &self,
        caller: &Caller,
        r: vl::LinkedListURequest,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), AbortCode> {
        let of = (caller, vl::LINKED_LIST_U);
        self.attributes::<vl::UVldbEntry>(of, &r.attributes, ListForm::Chained, reply)
    }

    /// ListAttributesN2: lists entries, also by patterns of names. Patterns are for superusers, since the server
    /// has to examine every entry.
    pub(crate) fn list_attributes_n2(
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
}
