//! Classifies calls by the first words of their requests, for scheduling in the queue of the workers.
//!
//! The announced amount of data is not trusted: a call is charged for the amount that it actually moves.

use crate::server::FileServer;
use afs_idl::{Length, Work, fs as rxafs};
use base::Caller;
use base::limits::BULK_FIDS_MAX;
use fair_queue::{Class, Demand, UNIT_BYTES, cost_of};

/// Maximum amount of data moved by small calls, for which an interactive user may be waiting.
const SMALL_BYTES_MAX: u64 = UNIT_BYTES;

/// Number of statuses that cost as much as a small call.
const STATUSES_PER_UNIT: u32 = 8;

impl FileServer {
    /// Classifies a call by `request`, its first packet. Clients that must first be identified or notified,
    /// and may not answer, are in a class of their own so that they do not delay others.
    pub fn demand(&self, caller: &Caller, request: &[u8]) -> Demand {
        let demand = demand_of(request);
        if self.hosts().must_be_talked_to(caller) {
            return Demand { class: Class::Stranger, ..demand };
        }
        demand
    }
}

fn demand_of(request: &[u8]) -> Demand {
    let word = |index: usize| word(request, index);
    match rxafs::work(word(0)) {
        Work::Read(length) => fetch(request, bytes(request, length)),
        Work::Write(length) => transfer(request, bytes(request, length)),
        Work::PerFid => {
            let statuses = word(1).min(BULK_FIDS_MAX as u32);
            Demand { volume: word(2), cost: 1 + statuses / STATUSES_PER_UNIT, ..Demand::SMALL }
        }
        Work::OnVolume => Demand { volume: word(1), ..Demand::SMALL },
        Work::Small => Demand::SMALL,
    }
}

/// Classifies a fetch. Directories always count as small: interactive users wait for them, they are never
/// long, and clients request them whole.
fn fetch(request: &[u8], bytes: u64) -> Demand {
    let vnode = word(request, 2);
    let is_directory = vnode % 2 == 1;
    if is_directory { Demand { volume: word(request, 1), ..Demand::SMALL } } else { transfer(request, bytes) }
}

fn transfer(request: &[u8], bytes: u64) -> Demand {
    let class = if bytes <= SMALL_BYTES_MAX { Class::Small } else { Class::Bulk };
    Demand { class, volume: word(request, 1), cost: cost_of(bytes) }
}

/// Returns the announced number of bytes. Negative ones are refused later.
fn bytes(request: &[u8], length: Length) -> u64 {
    let word = |index| u64::from(word(request, index));
    let first = word(length.word);
    if length.is_long { first << 32 | word(length.word + 1) } else { first }
}

/// Returns a word of the request, or 0 if it is too short.
fn word(request: &[u8], index: usize) -> u32 {
    let bytes = request.get(4 * index..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xdr::{Encode, to_vec};

    fn encoded(opcode: u32, request: &impl Encode) -> Vec<u8> {
        [opcode.to_be_bytes().to_vec(), to_vec(request)].concat()
    }

    fn fid(vnode: u32) -> rxafs::Fid {
        rxafs::Fid { volume: 536_870_915, vnode, unique: 9 }
    }

    fn read(vnode: u32, length: i64) -> Vec<u8> {
        encoded(
            rxafs::FETCH_DATA64,
            &rxafs::FetchData64Request { fid: fid(vnode), position: 7 << 40, length },
        )
    }

    fn write(length: u64) -> Vec<u8> {
        let request =
            rxafs::StoreData64Request { fid: fid(4), length, ..rxafs::StoreData64Request::default() };
        encoded(rxafs::STORE_DATA64, &request)
    }

    fn demand(class: Class, cost: u32) -> Demand {
        Demand { class, volume: 536_870_915, cost }
    }

    #[test]
    fn requests_demand_their_rights() {
        let (small, bulk) = (Class::Small, Class::Bulk);
        let old_read = rxafs::FetchDataRequest { fid: fid(4), position: 9, length: 1 << 20 };
        let old_write =
            rxafs::StoreDataRequest { fid: fid(4), length: 1 << 20, ..rxafs::StoreDataRequest::default() };
        let statuses = rxafs::InlineBulkStatusRequest { fids: vec![fid(1); 50] };
        let status = rxafs::FetchStatusRequest { fid: fid(4) };
        let name = rxafs::LookupRequest { directory: fid(1), ..rxafs::LookupRequest::default() };
        let create = rxafs::CreateFileRequest { directory: fid(1), ..rxafs::CreateFileRequest::default() };
        for (what, request, expected) in [
            ("4 KiB", read(4, 4096), demand(small, 1)),
            ("64 KiB", read(4, 65_536), demand(small, 2)),
            ("1 MiB", read(4, 1 << 20), demand(bulk, 17)),
            ("a directory", read(5, 1 << 20), demand(small, 1)),
            ("all there is", read(4, i64::MAX), demand(bulk, 4096)),
            ("less than nothing", read(4, -1), demand(bulk, 4096)),
            ("1 MiB, old call", encoded(rxafs::FETCH_DATA, &old_read), demand(bulk, 17)),
            ("4 KiB stored", write(4096), demand(small, 1)),
            ("20 MiB stored", write(20 << 20), demand(bulk, 321)),
            ("1 MiB stored, old call", encoded(rxafs::STORE_DATA, &old_write), demand(bulk, 17)),
            ("50 statuses", encoded(rxafs::INLINE_BULK_STATUS, &statuses), demand(small, 7)),
            ("a status", encoded(rxafs::FETCH_STATUS, &status), demand(small, 1)),
            ("a name", encoded(rxafs::LOOKUP, &name), demand(small, 1)),
            ("a new file", encoded(rxafs::CREATE_FILE, &create), demand(small, 1)),
            ("the time", rxafs::GET_TIME.to_be_bytes().to_vec(), Demand::SMALL),
            ("nothing", Vec::new(), Demand::SMALL),
        ] {
            assert_eq!(demand_of(&request), expected, "{what}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_ask_for_something_in_range(request in prop::collection::vec(any::<u8>(), 0..80), opcode in prop_oneof![130..165u32, 65_536..65_543u32]) {
            let request = [&opcode.to_be_bytes()[..], &request].concat();
            prop_assert!((1..=fair_queue::COST_MAX).contains(&demand_of(&request).cost));
        }
    }
}
