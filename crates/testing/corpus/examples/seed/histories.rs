//! Histories of calls to whole services.

use crate::{Seed, seed};
use afs_idl::{bozo, fs, pr, vl, vol};
use base::HostUuid;
use corpus::frames::push;
use corpus::services::{ROOT, Who};
use xdr::{Encode, XdrString};

const ID: u32 = 536_870_912;

type Name = fn(u32) -> Option<&'static str>;

/// A sequence of calls.
#[derive(Default)]
struct History(Vec<u8>);

impl History {
    fn call(mut self, who: Who, opcode: u32, request: &dyn Fn(&mut Vec<u8>), data: &[u8]) -> History {
        let mut frame = vec![who as u8];
        opcode.encode(&mut frame);
        request(&mut frame);
        frame.extend_from_slice(data);
        push(&mut self.0, &frame);
        self
    }

    fn ask(self, opcode: u32, request: &impl Encode) -> History {
        self.call(Who::Admin, opcode, &|out| request.encode(out), &[])
    }
}

fn text(text: &str) -> XdrString {
    XdrString(text.as_bytes().to_vec())
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = vec![
        seed("serve_fs", "names", names().0),
        seed("serve_fs", "data", data().0),
        seed("serve_fs", "questions", questions().0),
        seed("serve_pr", "entries", entries().0),
        seed("serve_vl", "locations", locations().0),
        seed("serve_vol", "create_and_remove", volumes().0),
        seed("serve_bozo", "status_and_users", overseer().0),
    ];
    // Every request with arguments that consist of zeros, ones or twos.
    let services: [(&str, Name); 5] = [
        ("serve_bozo", bozo::procedure_name),
        ("serve_fs", fs::procedure_name),
        ("serve_pr", pr::procedure_name),
        ("serve_vl", vl::procedure_name),
        ("serve_vol", vol::procedure_name),
    ];
    for (target, name) in services {
        let opcodes: Vec<u32> = (0..70_000).filter(|opcode| name(*opcode).is_some()).collect();
        for (number, word) in [0u8, 1, 2].into_iter().enumerate() {
            let arguments = [0, 0, 0, word].repeat(40);
            let all = opcodes.iter().fold(History::default(), |history, opcode| {
                history.call(Who::Admin, *opcode, &|out| out.extend_from_slice(&arguments), &[])
            });
            seeds.push(seed(target, format!("all_{number}"), all.0));
        }
    }
    seeds
}

/// Builds a FID in the volume; the first file has vnode 2.
fn fid(vnode: u32, unique: u32) -> fs::Fid {
    fs::Fid { volume: ROOT.volume.0, vnode, unique }
}

fn root() -> fs::Fid {
    ROOT.into()
}

fn names() -> History {
    let (directory, status) =
        (root(), fs::StoreStatus { mask: 8, unix_mode_bits: 0o644, ..Default::default() });
    History::default()
        .ask(fs::CREATE_FILE, &fs::CreateFileRequest { directory, name: text("file"), status })
        .ask(fs::MAKE_DIR, &fs::MakeDirRequest { directory, name: text("directory"), status })
        .ask(
            fs::SYMLINK,
            &fs::SymlinkRequest { directory, name: text("s"), contents: text("#root.cell."), status },
        )
        .ask(fs::LINK, &fs::LinkRequest { directory, name: text("link"), existing: fid(2, 2) })
        .ask(
            fs::RENAME,
            &fs::RenameRequest {
                old_directory: directory,
                old_name: text("file"),
                new_directory: fid(3, 3),
                new_name: text("moved"),
            },
        )
        .ask(fs::LOOKUP, &fs::LookupRequest { directory, name: text("s") })
        .ask(fs::FETCH_DATA, &fs::FetchDataRequest { fid: directory, position: 0, length: 4096 })
        .ask(fs::REMOVE_FILE, &fs::RemoveFileRequest { directory, name: text("link") })
        .ask(fs::REMOVE_DIR, &fs::RemoveDirRequest { directory, name: text("directory") })
}

fn data() -> History {
    let (directory, status) = (root(), fs::StoreStatus::default());
    let file = fid(2, 2);
    let store = fs::StoreData64Request { fid: file, status, position: 0, length: 5000, file_length: 5000 };
    let far = fs::StoreData64Request { position: 1 << 40, length: 3, file_length: 1 << 41, ..store };
    History::default()
        .ask(fs::CREATE_FILE, &fs::CreateFileRequest { directory, name: text("file"), status })
        .call(Who::Alice, fs::STORE_DATA64, &|out| store.encode(out), &[7; 5000])
        .call(Who::Alice, fs::STORE_DATA64, &|out| far.encode(out), b"end")
        .ask(fs::FETCH_DATA64, &fs::FetchData64Request { fid: file, position: 4000, length: 1 << 50 })
        .ask(fs::FETCH_DATA, &fs::FetchDataRequest { fid: file, position: -1, length: -1 })
        .ask(fs::STORE_STATUS, &fs::StoreStatusRequest { fid: file, status })
        .ask(fs::SET_LOCK, &fs::SetLockRequest { fid: file, lock_type: 1 })
        .ask(fs::EXTEND_LOCK, &fs::ExtendLockRequest { fid: file })
        .ask(fs::RELEASE_LOCK, &fs::ReleaseLockRequest { fid: file })
}

fn questions() -> History {
    let access_list = b"1\n0\nalice\t127\n\0".to_vec();
    History::default()
        .ask(fs::FETCH_STATUS, &fs::FetchStatusRequest { fid: root() })
        .ask(fs::INLINE_BULK_STATUS, &fs::InlineBulkStatusRequest { fids: vec![root(), fid(9, 9)] })
        .ask(fs::BULK_STATUS, &fs::BulkStatusRequest { fids: vec![root(), root()] })
        .ask(fs::STORE_ACL, &fs::StoreACLRequest { fid: root(), access_list })
        .ask(fs::FETCH_ACL, &fs::FetchACLRequest { fid: root() })
        .ask(fs::GET_VOLUME_STATUS, &fs::GetVolumeStatusRequest { volume_id: ROOT.volume.0 })
        .ask(
            fs::GIVE_UP_CALL_BACKS,
            &fs::GiveUpCallBacksRequest { fids: vec![root()], call_backs: Vec::new() },
        )
        .ask(fs::GET_X_STATS, &fs::GetXStatsRequest { client_version: 1, collection: 2 })
        .ask(fs::FLUSH_CPS, &fs::FlushCPSRequest { users: vec![100], addresses: vec![1], spare1: 0 })
        .ask(fs::GIVE_UP_ALL_CALL_BACKS, &fs::GiveUpAllCallBacksRequest)
}

fn entries() -> History {
    History::default()
        .ask(pr::NEW_ENTRY, &pr::NewEntryRequest { name: text("bob"), flag: 0, owner: 0 })
        .ask(pr::I_NEW_ENTRY, &pr::INewEntryRequest { name: text("alice:x"), id: -400, owner: 100 })
        .ask(pr::ADD_TO_GROUP, &pr::AddToGroupRequest { user: 100, group: -300 })
        .ask(pr::ADD_TO_GROUP, &pr::AddToGroupRequest { user: -400, group: -300 })
        .ask(pr::NAME_TO_ID, &pr::NameToIDRequest { names: vec![text("alice"), text("nobody")] })
        .ask(pr::ID_TO_NAME, &pr::IDToNameRequest { ids: vec![100, -300, 9] })
        .ask(pr::GET_CPS, &pr::GetCPSRequest { id: 100 })
        .ask(pr::LIST_ELEMENTS, &pr::ListElementsRequest { id: -300 })
        .ask(pr::IS_A_MEMBER_OF, &pr::IsAMemberOfRequest { user: 100, group: -300 })
        .ask(pr::LIST_OWNED, &pr::ListOwnedRequest { id: 100, last: 0 })
        .ask(pr::LIST_ENTRIES, &pr::ListEntriesRequest { flags: 3, start_index: 0 })
        .ask(
            pr::CHANGE_ENTRY,
            &pr::ChangeEntryRequest { id: -400, name: text("alice:y"), owner: 100, new_id: -401 },
        )
        .ask(pr::DELETE, &pr::DeleteRequest { id: 100 })
}

fn locations() -> History {
    let mut new_entry = vl::NVldbEntry { name: text("root.cell"), server_count: 1, ..Default::default() };
    new_entry.server_number[0] = 0x0a00_0001;
    new_entry.server_flags[0] = 4;
    new_entry.volume_id = [ID, ID + 1, 0];
    let attributes = vl::ListByAttributes { mask: 1, server: 0x0a00_0001, ..Default::default() };
    let release_type = 7;
    History::default()
        .ask(
            vl::REGISTER_ADDRS,
            &vl::RegisterAddrsRequest { uuid: HostUuid([7; 16]), spare1: 0, addresses: vec![0x0a00_0001] },
        )
        .ask(vl::CREATE_ENTRY_N, &vl::CreateEntryNRequest { new_entry: new_entry.clone() })
        .ask(vl::GET_ENTRY_BY_NAME_U, &vl::GetEntryByNameURequest { volume_name: text("root.cell.readonly") })
        .ask(vl::GET_ENTRY_BY_IDN, &vl::GetEntryByIDNRequest { volume_id: ID, volume_type: -1 })
        .ask(vl::SET_LOCK, &vl::SetLockRequest { volume_id: ID, volume_type: 0, operation: 16 })
        .ask(
            vl::REPLACE_ENTRY_N,
            &vl::ReplaceEntryNRequest { volume_id: ID, volume_type: 0, new_entry, release_type },
        )
        .ask(vl::LIST_ATTRIBUTES_N, &vl::ListAttributesNRequest { attributes })
        .ask(
            vl::LIST_ATTRIBUTES_N2,
            &vl::ListAttributesN2Request { attributes, volume_name: text("root\\..*"), start_index: 0 },
        )
        .ask(vl::CHANGE_ADDR, &vl::ChangeAddrRequest { old_address: 0x0a00_0001, new_address: 0x0a00_0002 })
        .ask(vl::GET_NEW_VOLUME_ID, &vl::GetNewVolumeIdRequest { bump_count: 1 })
        .ask(vl::DELETE_ENTRY, &vl::DeleteEntryRequest { volume_id: ID, volume_type: 0 })
}

/// Transactions are numbered from 1.
fn volumes() -> History {
    let (transaction, partition, volume_id) = (1, 0, ID + 9);
    let info = vol::VolintInfo { max_quota: 7000, day_use: -1, flags: -1, ..Default::default() };
    let (name, volume_type) = (text("user.bob"), 0);
    let ids = vol::SetIdsTypesRequest { transaction: 2, name: text("renamed"), ..Default::default() };
    History::default()
        .ask(
            vol::CREATE_VOLUME,
            &vol::CreateVolumeRequest { partition, name, volume_type, parent_id: 0, volume_id },
        )
        .ask(vol::SET_INFO, &vol::SetInfoRequest { transaction, info })
        .ask(vol::SET_FLAGS, &vol::SetFlagsRequest { transaction, flags: 0 })
        .ask(vol::END_TRANS, &vol::EndTransRequest { transaction })
        .ask(vol::LIST_VOLUMES, &vol::ListVolumesRequest { partition, flags: 1 })
        .ask(vol::X_LIST_VOLUMES, &vol::XListVolumesRequest { partition, flags: 1 })
        .ask(
            vol::TRANS_CREATE,
            &vol::TransCreateRequest { volume_id, partition, flags: vol::attach_mode::OFFLINE },
        )
        .ask(vol::MONITOR, &vol::MonitorRequest)
        .ask(vol::SET_IDS_TYPES, &ids)
        .ask(vol::GET_NAME, &vol::GetNameRequest { transaction: 2 })
        .ask(vol::GET_STATUS, &vol::GetStatusRequest { transaction: 2 })
        .ask(vol::DELETE_VOLUME, &vol::DeleteVolumeRequest { transaction: 2 })
        .ask(vol::END_TRANS, &vol::EndTransRequest { transaction: 2 })
        .ask(vol::PARTITION_INFO64, &vol::PartitionInfo64Request { name: text("/vicepa") })
        .ask(vol::NUKE_VOLUME, &vol::NukeVolumeRequest { partition, volume_id: ROOT.volume.0 })
}

fn overseer() -> History {
    let instance = || text("fs");
    History::default()
        .ask(bozo::ENUMERATE_INSTANCE, &bozo::EnumerateInstanceRequest { index: 1 })
        .ask(bozo::GET_INSTANCE_INFO, &bozo::GetInstanceInfoRequest { instance: instance() })
        .ask(bozo::GET_INSTANCE_PARM, &bozo::GetInstanceParmRequest { instance: instance(), index: 1 })
        .ask(bozo::GET_STATUS, &bozo::GetStatusRequest { instance: instance() })
        .ask(bozo::SET_STATUS, &bozo::SetStatusRequest { instance: instance(), status: 0 })
        .ask(bozo::ADD_S_USER, &bozo::AddSUserRequest { name: text("alice.admin@OTHER.EXAMPLE") })
        .ask(bozo::LIST_S_USERS, &bozo::ListSUsersRequest { index: 1 })
        .ask(bozo::DELETE_S_USER, &bozo::DeleteSUserRequest { name: text("admin") })
        .ask(bozo::LIST_KEYS, &bozo::ListKeysRequest { index: 0 })
        .ask(bozo::GET_CELL_HOST, &bozo::GetCellHostRequest { index: 1 })
        .ask(bozo::GET_DATES, &bozo::GetDatesRequest { path: text("/usr/afs/bin/cellar") })
        .ask(bozo::GET_LOG, &bozo::GetLogRequest { name: text("FileLog") })
        .ask(bozo::GET_LOG, &bozo::GetLogRequest { name: text("VolserLog") })
}
