use super::*;
use crate::rows::{Row, Sums};
use crate::totals::Totals;
use crate::{CallResult, ListedHost, RecordedCall};
use base::HostUuid;
use proptest::prelude::*;
use std::fmt::Write;
use std::net::SocketAddr;
use store::Codec;

fn vnode(kind: FileKind) -> Vnode {
    let status = VnodeStatus {
        vnode: VnodeId(3),
        unique: 9,
        kind,
        mode: 0o4755,
        owner: UserId(-204),
        group: -1,
        links: 2,
        length: 1 << 40,
        data_version: 7,
        client_modified: UnixTime(1),
        server_modified: UnixTime(u32::MAX),
        author: UserId(32766),
        parent: VnodeId(1),
        parent_unique: 1,
    };
    let acl = (kind == FileKind::Directory).then(|| Arc::new(Acl::administrators()));
    Vnode { status, chunk_shift: 18, acl }
}

fn counters() -> Counters {
    Counters {
        used_kib: 1 << 33,
        file_count: 2,
        directory_count: 3,
        next_unique: 4,
        next_file: 6,
        next_directory: 7,
        updated: UnixTime(7),
        update_counter: 8,
        accessed: UnixTime(9),
        day_use: 10,
        day_use_date: UnixTime(11),
        week_use: [1, 2, 3, 4, 5, 6, 7],
        changes: 1 << 40,
        version_max: 1 << 41,
        unfolded: Unfolded::new([(VnodeId(1), Totals { bytes: 1 << 40, kib: 2, files: 3, directories: 4 })]),
    }
}

fn header() -> StoredHeader {
    let c = counters();
    StoredHeader {
        group: 5,
        read_view: ReadView::up_to(6),
        header: VolumeHeader {
            id: VolumeId(536_870_912),
            name: "root.cell.readonly".parse().unwrap(),
            kind: VolumeType::ReadOnly,
            parent: VolumeId(1),
            clone: VolumeId(2),
            backup: VolumeId(3),
            restored_from: VolumeId(4),
            owner: -1,
            account: 77,
            in_service: true,
            blessed: false,
            destroy_me: 0xd3,
            quota_max_kib: 5000,
            quota_min_kib: 1,
            created: UnixTime(1),
            accessed: c.accessed,
            updated: c.updated,
            expires: UnixTime(2),
            backed_up: UnixTime(3),
            copied: UnixTime(4),
            file_count: c.file_count,
            directory_count: c.directory_count,
            used_kib: c.used_kib,
            next_unique: c.next_unique,
            update_counter: c.update_counter,
            day_use: c.day_use,
            day_use_date: c.day_use_date,
            week_use: c.week_use,
            offline_message: "being moved".into(),
            message_of_the_day: b"\xe4".to_vec(),
            compression: None,
            deduplicates: false,
            snapshot: None,
            stands_for: None,
            unseen: None,
            dated: UnixTime(0),
            restored_at: None,
        },
    }
}

fn row() -> Row {
    let address = ChunkAddress { segment: 1, offset: 2, stored_bytes: 3 };
    Row { digest: std::array::from_fn(|at| at as u8), address, length: 9, count: 1 << 40 }
}

#[test]
fn records_are_read_as_they_were_written() {
    for kind in [FileKind::File, FileKind::Directory, FileKind::SymbolicLink] {
        assert_eq!(get_vnode(VnodeId(3), &put_vnode(&vnode(kind))), Some(vnode(kind)));
    }
    assert_eq!(get_counters(&put_counters(&counters())), Some(counters()));
    assert_eq!(get_header(&put_header(&header()), &counters()), Some(header()));
    let mut parked = header();
    parked.header.stands_for = Some(VolumeId(7));
    assert_eq!(get_header(&put_header(&parked), &counters()), Some(parked));
    for codec in [Codec::Raw, Codec::Lz4, Codec::Zstd(1), Codec::Zstd(19)] {
        let mut stored = header();
        stored.header.compression = Some(codec);
        assert_eq!(get_header(&put_header(&stored), &counters()), Some(stored));
    }
    let target = EntryTarget { vnode: VnodeId(4), unique: 5 };
    let entry = Entry { target, slot: 65_000, sequence: 1 << 60 };
    assert_eq!(get_entry(&put_entry(&entry)), Some(entry));
    let address = ChunkAddress { segment: 1, offset: 2, stored_bytes: 3 };
    let data = Bytes::from_static(b"data");
    let shared = Extent::Shared { row: RowKey([7; 16]), length: 9 };
    let chunk = Extent::Chunk { address, length: 9 };
    for extent in [chunk, Extent::Inline(data.clone()), Extent::Sealed(data), shared] {
        assert_eq!(get_extent(&put_extent(&extent)), Some(extent));
    }
    let row = row();
    assert_eq!(get_row(&put_row(&row)), Some(row));
    assert_eq!(ROW_BYTES, crate::keys::row(RowKey([7; 16])).len() + put_row(&row).len());
    let sums = Sums { rows: 1, shared: 2, names: 3, stored_bytes: 4, named_bytes: 1 << 60 };
    assert_eq!(get_sums(&put_sums(&sums)), Some(sums));
    let mut stored = header();
    stored.header.deduplicates = true;
    stored.header.compression = Some(Codec::Raw);
    assert_eq!(get_header(&put_header(&stored), &counters()), Some(stored));
    let file = Job::File { group: 8, vnode: VnodeId(2), unique: 3, epoch: 0 };
    let ended = Job::File { group: 8, vnode: VnodeId(2), unique: 3, epoch: 5 };
    for job in [Job::Group { group: 1 << 40 }, Job::Versions { group: 7, epoch: 9 }, file, ended] {
        assert_eq!(get_job(&put_job(&job)), Some(job));
    }
}

#[test]
fn listed_hosts_are_read_as_they_were_written() {
    let address: SocketAddr = "10.0.0.1:7001".parse().unwrap();
    let key = crate::keys::listed_host(address);
    assert_eq!(key, b"hosts/\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x01\x1b\x59");
    for uuid in [Some(HostUuid([7; 16])), None] {
        let host = ListedHost { address, uuid };
        let value = put_listed_host(&host);
        assert_eq!(value, [&[1], &uuid.unwrap_or_default().0[..]].concat());
        assert_eq!(get_listed_host(&key, &value), Some(host));
        let (short, long) = (&value[..16], [&value[..], &[0]].concat());
        for bad in [short, &long, &[], &[2; 17]] {
            assert_eq!(get_listed_host(&key, bad), None, "{bad:?}");
        }
        assert_eq!(get_listed_host(&key[1..], &value), None);
    }
}

#[test]
fn locks_are_read_as_they_were_written() {
    for count in [-1, 1, i32::MAX] {
        assert_eq!(get_lock(&put_lock(count)), Some(count));
    }
    let value = put_lock(2);
    assert_eq!(value, [1, 0, 0, 0, 2]);
    for bad in [&value[..4], &[&value[..], &[0]].concat(), &[], &[2, 0, 0, 0, 1], &put_lock(0), &put_lock(-2)]
    {
        assert_eq!(get_lock(bad), None, "{bad:?}");
    }
}

fn recorded(result: &CallResult) -> RecordedCall {
    RecordedCall { volume: VolumeId(7), user: UserId(-5), result: *result }
}

fn recorded_calls() -> Vec<RecordedCall> {
    let status = |number| VnodeStatus { vnode: VnodeId(number), ..vnode(FileKind::File).status };
    let renamed = |replaced| CallResult::Renamed {
        moved: status(2),
        moved_changed: true,
        old_directory: status(1),
        new_directory: status(3),
        replaced,
    };
    let results = [
        CallResult::Created { status: status(2), directory: status(1) },
        CallResult::Removed { target: status(2), directory: status(1) },
        renamed(None),
        renamed(Some(status(4))),
        CallResult::Stored(status(2)),
        CallResult::Locked,
    ];
    results.iter().map(recorded).collect()
}

#[test]
fn results_of_calls_are_read_as_they_were_written() {
    for call in recorded_calls() {
        let value = put_recorded_call(&call);
        assert_eq!(get_recorded_call(&value), Some(call));
        for length in 0..value.len() {
            assert_eq!(get_recorded_call(&value[..length]), None, "{length} of {call:?}");
        }
        assert_eq!(get_recorded_call(&[&value[..], &[0]].concat()), None, "{call:?}");
        for kind in [0, 6, 255] {
            let mut other = value.clone();
            other[9] = kind;
            assert_eq!(get_recorded_call(&other), None, "{kind}");
        }
    }
    let stored = put_recorded_call(&recorded(&CallResult::Stored(vnode(FileKind::File).status)));
    let begin = [1, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xfb, 4, 0, 0, 0, 3, 0, 0, 0, 9, 1, 9, 0xed];
    assert_eq!((stored.len(), &stored[..begin.len()]), (69, &begin[..]));
}

#[test]
fn deleted_results_are_read_as_they_were_written() {
    let value = put_deleted_results(258);
    assert_eq!(value, [1, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(get_deleted_results(&value), Some(258));
    for bad in [&value[..8], &[&value[..], &[0]].concat(), &[], &[2; 9]] {
        assert_eq!(get_deleted_results(bad), None, "{bad:?}");
    }
}

#[test]
fn version_1_records_stay_readable() {
    let golden = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    assert_eq!(
        golden(&put_vnode(&vnode(FileKind::Directory))),
        "01021209edffffff34ffffffff0000000200000100000000000000000000000007000000090000000\
         1ffffffff00007ffe00000001000000010100ffffff340000007f"
            .replace(' ', "")
    );
    let target = EntryTarget { vnode: VnodeId(4), unique: 5 };
    let entry = Entry { target, slot: 13, sequence: 6 };
    assert_eq!(golden(&put_entry(&entry)), "010000000400000005000d0000000000000006");
    let address = ChunkAddress { segment: 1, offset: 2, stored_bytes: 3 };
    let extent = Extent::Chunk { address, length: 9 };
    assert_eq!(
        golden(&put_extent(&extent)),
        "01000000000900000000000000010000000000000002000000 03".replace(' ', "")
    );
    assert_eq!(golden(&put_extent(&Extent::Inline(Bytes::from_static(b"ab")))), "01016162");
    assert_eq!(golden(&put_extent(&Extent::Sealed(Bytes::from_static(b"ab")))), "01026162");
    let shared = Extent::Shared { row: RowKey::of(&row().digest), length: 9 };
    let half = "000102030405060708090a0b0c0d0e0f";
    assert_eq!(golden(&put_extent(&shared)), format!("010300000009{half}"));
    let digest = format!("{half}101112131415161718191a1b1c1d1e1f");
    let place = "0000000000000001000000000000000200000003";
    assert_eq!(golden(&put_row(&row())), format!("010400000009{place}{digest}0000010000000000"));
    let sums = Sums { rows: 1, shared: 2, names: 3, stored_bytes: 4, named_bytes: 5 };
    let five = "00000000000000010000000000000002000000000000000300000000000000040000000000000005";
    assert_eq!(golden(&put_sums(&sums)), format!("01{five}"));
    let totals = Totals { bytes: 1 << 40, kib: 2, files: 3, directories: 4 };
    let four = "0000010000000000000000000000000200000000000000030000000000000004";
    assert_eq!(golden(&put_totals(&totals)), format!("01{four}"));
    assert_eq!(get_totals(&put_totals(&totals)), Some(totals));
    let oldest = "0100000002000000000000000000000002000000000000000300000004000000060000000700000007\
               00000008000000090000000a0000000b00000001000000020000000300000004000000050000000600000007";
    let old = format!("{oldest}00000100000000000000020000000000");
    assert_eq!(golden(&put_counters(&counters())), format!("{old}0100000001{four}"));
    let uncounted = Counters { unfolded: None, ..counters() };
    assert_eq!(golden(&put_counters(&uncounted)), old, "as before there were totals");
    assert_eq!(get_counters(&put_counters(&uncounted)), Some(uncounted));
    let none = Counters { unfolded: Unfolded::new([]), ..counters() };
    assert_eq!(golden(&put_counters(&none)), format!("{old}00"));
    assert_eq!(get_counters(&put_counters(&none)), Some(none));
    let bytes = put_counters(&uncounted);
    let before_snapshots = get_counters(&bytes[..oldest.len() / 2]);
    let (changes, version_max) = (counters().update_counter.into(), UNKNOWN_VERSION_MAX);
    assert_eq!(before_snapshots, Some(Counters { changes, version_max, ..uncounted }));
}

#[test]
fn a_header_may_be_shorter_or_longer() {
    let old = put_header(&header());
    let read = |more: &[u8]| get_header(&[&old[..], more].concat(), &counters());
    // A header of the first version ends here.
    assert_eq!(read(&[]), Some(header()));
    // Tag 1, two bytes: Zstandard at level 9.
    let zstd = read(&[1, 2, 2, 9]).unwrap();
    assert_eq!(zstd.header.compression, Some(Codec::Zstd(9)));
    assert_eq!(put_header(&zstd), [&old[..], &[1, 2, 2, 9]].concat());
    assert_eq!(read(&[200, 1, 7, 1, 2, 2, 9]), Some(zstd));
    // Tag 2, no bytes.
    let deduplicates = read(&[2, 0]).unwrap();
    assert!(deduplicates.header.deduplicates);
    assert_eq!(put_header(&deduplicates), [&old[..], &[2, 0]].concat());
    // Tag 5, eight bytes: the number of changes at the last restore.
    let restored = read(&[5, 8, 0, 0, 0, 0, 0, 0, 1, 2]).unwrap();
    assert_eq!(restored.header.restored_at, Some(258));
    assert_eq!(put_header(&restored), [&old[..], &[5, 8, 0, 0, 0, 0, 0, 0, 1, 2]].concat());
    for unknown in
        [&[2, 1, 1][..], &[1, 2, 9, 9], &[1, 1, 2], &[1, 2, 2, 20], &[1, 2, 2, 0xff], &[1, 2, 1, 1]]
    {
        assert_eq!(read(unknown), Some(header()), "{unknown:?}");
    }
    for cut_off in [&[1][..], &[1, 2], &[1, 2, 2], &[200, 3, 1, 2]] {
        assert_eq!(read(cut_off), None, "{cut_off:?}");
    }
}

#[test]
fn more_directories_than_may_be_kept_apart_are_damage() {
    let mut value = put_counters(&Counters { unfolded: None, ..counters() });
    value.push(17);
    value.extend([0; 17 * 36]);
    assert_eq!(get_counters(&value), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
        let value = [&[VERSION][..], &bytes].concat();
        let _ = get_vnode(VnodeId(1), &value);
        let _ = get_entry(&value);
        let row = get_row(&value);
        let address = row.map(|row| Some(row.address));
        let address = address.or_else(|| get_extent(&value).map(|extent| extent.address()));
        prop_assert_eq!(extent_address(&value), address);
        let shared = match get_extent(&value) {
            Some(Extent::Shared { row, .. }) => Some(row),
            _ => None,
        };
        prop_assert_eq!(shared_row(&value), shared);
        let _ = get_sums(&value);
        let _ = get_listed_host(&bytes, &value);
        let _ = get_recorded_call(&value);
        let _ = get_deleted_results(&value);
        let _ = get_counters(&value);
        let _ = get_header(&value, &counters());
        let _ = get_job(&value);
    }

    #[test]
    fn a_damaged_header_is_read_without_panic(at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let mut value = put_header(&header());
        let at = at % value.len();
        value[at] = byte;
        value.truncate(cut % (value.len() + 1));
        let _ = get_header(&value, &counters());
    }
}
