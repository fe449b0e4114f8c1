//! A damaged chunk shared by several files: the scrubber finds it, `cellar store damaged` names every file
//! and the location of another copy, and the metrics show the savings of sharing.

use crate::support::cell::Cell;
use crate::support::place::Place;
use crate::support::soon;
use afs_idl::vl;
use anyhow::Result;
use base::{PartitionId, UnixTime, UserId, VolumeId, VolumeType};
use bytes::Bytes;
use cell_client::{CellClient, Interface};
use cellar_server::FaultInjection;
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use store::{Partition, PartitionConfig};
use volume::{Actor, NewVolume, PartitionHandle, SetStatus, Space, StoreRequest, VolumeOptions, Volumes};

const VOLUME: u32 = 536_870_912;
const LENGTH: u32 = 100_000;

/// Creates two files with the same noise in a volume with deduplication, then changes a byte of the chunk.
fn fill_and_damage(vicepa: &Path) -> Result<Vec<String>> {
    let config = PartitionConfig { families: &cellar_server::FAMILIES, ..PartitionConfig::default() };
    let partition = Partition::open(vicepa, &config)?;
    let id = PartitionId::from_index(0).unwrap();
    let space = Arc::new(|| Space { total_kib: 1 << 40, free_kib: 1 << 40 });
    let handle = PartitionHandle { id, meta: partition.meta(), chunks: partition.chunks(), space };
    let volumes = Volumes::open(vec![handle], VolumeOptions::default())?;
    let new = NewVolume {
        id: VolumeId(VOLUME),
        name: "home".parse().unwrap(),
        kind: VolumeType::ReadWrite,
        parent: VolumeId(0),
        quota_max_kib: 0,
        with_root: true,
        in_service: true,
        destroy_me: 0,
        now: UnixTime(1),
    };
    let volume = volumes.create(id, &new)?;
    volume.update_header(|header| header.deduplicates = true)?;
    let (actor, set) = (
        Actor { user: UserId(1), privileged: true, in_transaction: false, call: None, now: UnixTime(2) },
        SetStatus::default(),
    );
    let noise = |n: u32| (n.wrapping_mul(0x9e37_79b9) >> 13 ^ n.wrapping_mul(0x85eb_ca6b) >> 21) as u8;
    let mut files = Vec::new();
    for name in ["one", "two"] {
        let fid = volume.create_file(&actor, volume.root(), name.as_bytes(), &set)?.status.fid(new.id);
        let mut data = (0..LENGTH).map(noise).collect::<Bytes>();
        let request = StoreRequest { offset: 0, length: LENGTH.into(), file_length: LENGTH.into(), set };
        volume.store(&actor, fid, &request, &mut |most: usize| Ok(data.split_to(data.len().min(most))))?;
        files.push(format!("{}.{}", fid.vnode.0, fid.unique));
    }
    drop((volume, volumes, partition));
    let segments = fs::read_dir(vicepa.join("cellar/segments"))?;
    let segment = segments.map(|entry| entry.unwrap().path()).max().unwrap();
    let mut bytes = fs::read(&segment)?;
    bytes[5000] ^= 1;
    fs::write(&segment, bytes)?;
    Ok(files)
}

/// Registers the volume here, with a read-only copy on the same partition and one elsewhere.
fn register(client: &CellClient, here: Ipv4Addr) {
    let mut entry = vl::NVldbEntry {
        name: "home".into(),
        server_count: 3,
        volume_id: [VOLUME, VOLUME + 1, VOLUME + 2],
        flags: vl::entry_flags::READ_WRITE_EXISTS | vl::entry_flags::READ_ONLY_EXISTS,
        ..vl::NVldbEntry::default()
    };
    let elsewhere = Ipv4Addr::new(192, 0, 2, 7);
    let (rw, ro) = (vl::site_flags::READ_WRITE, vl::site_flags::READ_ONLY);
    for (at, (server, partition, flags)) in
        [(here, 0, rw), (here, 0, ro), (elsewhere, 1, ro)].into_iter().enumerate()
    {
        entry.server_number[at] = server.into();
        entry.server_partition[at] = partition;
        entry.server_flags[at] = flags;
    }
    let request = vl::CreateEntryNRequest { new_entry: entry };
    client.database(Interface::Locations, |vl| vl::create_entry_n(vl, &request)).unwrap();
}

/// Returns a figure of the partition.
fn figure(metrics: &str, name: &str) -> u64 {
    let name = format!("cellar_partition_{name}{{");
    let line = metrics.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("no {name}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn damage_is_listed_with_other_copies() -> Result<()> {
    let place = Place::new("[metrics]\nport = 0\n");
    let files = fill_and_damage(&place.path("vicepa"))?;
    let cell = Cell::start_at(place, &FaultInjection::default());
    register(&cell.client(), cell.address);

    let found = soon("something is found", || {
        let output = cell.output(&["store", "damaged", "--json"]);
        let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(i32::from(!found.is_empty())), "{output:?}");
        (!found.is_empty()).then_some(found)
    });
    let reported: Vec<&str> = found.iter().map(|row| row["file"].as_str().unwrap()).collect();
    assert_eq!(reported, files, "both files that share the chunk");
    for row in &found {
        assert_eq!((&row["offset"], &row["length"]), (&0.into(), &LENGTH.into()));
        assert_eq!(
            (&row["partition"], &row["volume"]),
            (&"/vicepa".into(), &format!("{VOLUME} home").into())
        );
        assert_eq!(row["elsewhere"], serde_json::json!(["192.0.2.7 /vicepb (read-only)"]));
    }
    let table = cell.output(&["store", "damaged"]);
    let (out, error) = (String::from_utf8(table.stdout)?, String::from_utf8(table.stderr)?);
    assert!(out.contains("0-99999") && out.contains("192.0.2.7 /vicepb (read-only)"), "{out}");
    assert!(error.contains("/vicepa: ") && error.contains("2 damaged places"), "{error}");

    let metrics = cell.get("/metrics");
    assert_eq!(figure(&metrics, "damaged"), 2);
    assert_eq!(figure(&metrics, "deduplicated_chunks"), 1);
    assert_eq!(figure(&metrics, "deduplicated_names"), 2);
    let (stored, saved) =
        (figure(&metrics, "deduplicated_bytes"), figure(&metrics, "deduplication_saved_bytes"));
    assert!(stored >= LENGTH.into() && stored == saved, "{stored} stored, {saved} saved");
    assert_eq!(figure(&metrics, "deduplication_table_bytes"), 98);
    assert!(figure(&metrics, "deduplication_memory_bytes") > 0);
    assert!(figure(&metrics, "scrubbed_bytes_total") > LENGTH.into());
    Ok(())
}
