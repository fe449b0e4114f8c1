//! OpenAFS's volume location database, vldb.DB0.
//!
//! Behind a header with the table of servers and four hash tables lie entries of 148 bytes, and blocks
//! of 8 KiB with the addresses of servers that registered themselves. All entries are read in the order
//! of the file; the hash tables are not needed. Facts from OpenAFS 1.8 `vlserver/vlserver.p.h` and
//! `vlserver/vlutils.c`.

use crate::ubik::{DatabaseError, Image, damaged};
use std::collections::HashSet;
use std::net::Ipv4Addr;

const SERVERS: usize = 255;
/// Ten words of counts, the servers, the hash tables, and the address of the first block of addresses.
const HEADER_BYTES: usize = 4 * (10 + SERVERS + 4 * 8191 + 1);
const SERVERS_AT: usize = 40;
const BLOCKS_AT: usize = HEADER_BYTES - 4;
const ENTRY_BYTES: usize = 148;
const NAME_BYTES: usize = 65;
const SITES: usize = 13;
const BLOCK_BYTES: usize = 8192;
const REGISTERED_BYTES: usize = 128;
const REGISTERED_ADDRESSES: usize = 15;
/// The layout of entries is the same in both; 4 has blocks of addresses.
const VERSIONS: std::ops::RangeInclusive<u32> = 3..=4;

const FREE: u32 = 1;
const DELETED: u32 = 2;
const BLOCK: u32 = 8;
/// A place without a site (BADSERVERID).
const NO_SERVER: u8 = 255;

/// A server in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VldbServer {
    /// Known by one address.
    Address(Ipv4Addr),
    /// Registered itself.
    Registered {
        /// Its UUID as 16 bytes in the usual order.
        uuid: [u8; 16],
        /// Counts registrations.
        uniquifier: i32,
        /// Its addresses.
        addresses: Vec<Ipv4Addr>,
    },
}

/// A place of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VldbSite {
    /// Index in the table of servers.
    pub server: u8,
    /// Partition, 0 for /vicepa.
    pub partition: u8,
    /// VLSF_*.
    pub flags: u8,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VldbEntry {
    /// Name without suffix.
    pub name: Vec<u8>,
    /// Ids of the read-write, read-only and backup volume; 0 for none.
    pub ids: [u32; 3],
    /// The release clone.
    pub clone: u32,
    /// VLF_* and VLOP_*.
    pub flags: u32,
    /// When it was locked; 0 if not.
    pub locked: u32,
    /// Its places.
    pub sites: Vec<VldbSite>,
}

/// The database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vldb {
    /// Where the search for new volume ids begins.
    pub max_volume: u32,
    /// The servers by number.
    pub servers: Vec<(u8, VldbServer)>,
    /// The volumes in the order of the file.
    pub entries: Vec<VldbEntry>,
}

impl Vldb {
    /// Reads a whole database file.
    ///
    /// # Errors
    /// Where the file is not what it should be.
    pub fn parse(file: &[u8]) -> Result<Vldb, DatabaseError> {
        let image = Image::open(file)?;
        if !VERSIONS.contains(&image.word(0)?) || image.word(4)? as usize != HEADER_BYTES {
            return Err(damaged(0, format!("version 3 or 4 with a header of {HEADER_BYTES} bytes")));
        }
        let mut vldb = Vldb { max_volume: image.word(24)?, servers: servers(image)?, entries: Vec::new() };
        let (mut at, end) = (HEADER_BYTES, image.end(12)?);
        let mut seen = (HashSet::new(), HashSet::new());
        while at < end {
            let flags = image.word(at + 12)?;
            if flags & BLOCK != 0 {
                at += BLOCK_BYTES;
                continue;
            }
            if flags & (FREE | DELETED) == 0 {
                let entry = entry(image, at)?;
                // A volume that is read-only only may have one id in both places.
                let ids: HashSet<u32> = entry.ids.into_iter().filter(|id| *id != 0).collect();
                if !seen.0.insert(entry.name.clone()) || !ids.iter().all(|id| seen.1.insert(*id)) {
                    return Err(damaged(at, "no second entry with the same name or volume id"));
                }
                vldb.entries.push(entry);
            }
            at += ENTRY_BYTES;
        }
        Ok(vldb)
    }
}

fn servers(image: Image<'_>) -> Result<Vec<(u8, VldbServer)>, DatabaseError> {
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        let at = SERVERS_AT + 4 * number;
        let server = match image.bytes::<4>(at)? {
            [0, 0, 0, 0] => continue,
            [0xff, block, high, low] => {
                let index = usize::from(u16::from_be_bytes([high, low]));
                registered(image, at, block.into(), index)?
            }
            address => VldbServer::Address(address.into()),
        };
        servers.push((number as u8, server));
    }
    Ok(servers)
}

/// The server at a place of a block of addresses; `at` is where it is named.
fn registered(image: Image<'_>, at: usize, block: usize, index: usize) -> Result<VldbServer, DatabaseError> {
    let first = image.word(BLOCKS_AT)? as usize;
    if first == 0 || block >= 4 || index == 0 || index >= BLOCK_BYTES / REGISTERED_BYTES {
        return Err(damaged(at, "an address, or a place in a block of addresses"));
    }
    let block = image.word(first + 16 + 4 * block)? as usize;
    let place = block + index * REGISTERED_BYTES;
    let mut addresses = Vec::new();
    for number in 0..REGISTERED_ADDRESSES {
        match image.bytes::<4>(place + 20 + 4 * number)? {
            [0, 0, 0, 0] => {}
            address => addresses.push(address.into()),
        }
    }
    let uniquifier = image.signed(place + 16)?;
    Ok(VldbServer::Registered { uuid: image.bytes(place)?, uniquifier, addresses })
}

fn entry(image: Image<'_>, at: usize) -> Result<VldbEntry, DatabaseError> {
    let word = |index: usize| image.word(at + 4 * index);
    let [servers, partitions, flags] = [0, 1, 2].map(|table| at + 44 + NAME_BYTES + table * SITES);
    let mut sites = Vec::new();
    for place in 0..SITES {
        let [server] = image.bytes::<1>(servers + place)?;
        if server == NO_SERVER {
            break;
        }
        let ([partition], [flags]) =
            (image.bytes::<1>(partitions + place)?, image.bytes::<1>(flags + place)?);
        sites.push(VldbSite { server, partition, flags });
    }
    let name = image.text::<NAME_BYTES>(at + 44)?;
    if name.is_empty() {
        return Err(damaged(at + 44, "a volume's name"));
    }
    let ids = [word(0)?, word(1)?, word(2)?];
    Ok(VldbEntry { name, ids, clone: word(6)?, flags: word(3)?, locked: word(5)?, sites })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(file: &mut [u8], address: usize, words: &[u32]) {
        for (index, word) in words.iter().enumerate() {
            let at = crate::ubik::HEADER_BYTES + address + 4 * index;
            file[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
    }

    /// A server by address, a registered one, a volume on both, a free entry.
    fn sample() -> Vec<u8> {
        let (volume, free) = (HEADER_BYTES + BLOCK_BYTES, HEADER_BYTES + BLOCK_BYTES + ENTRY_BYTES);
        let end = free + ENTRY_BYTES;
        let mut file = vec![0; crate::ubik::HEADER_BYTES + end];
        file[..8].copy_from_slice(&[0, 0x35, 0x45, 0x45, 0, 0, 0, 64]);
        put(&mut file, 0, &[4, HEADER_BYTES as u32, 0, end as u32, 0, 0, 0x2000_0010]);
        put(&mut file, SERVERS_AT, &[0x0a63_0001, 0xff00_0001]);
        put(&mut file, BLOCKS_AT, &[HEADER_BYTES as u32]);
        put(&mut file, HEADER_BYTES + 12, &[BLOCK, HEADER_BYTES as u32]);
        put(&mut file, HEADER_BYTES + REGISTERED_BYTES, &[1, 2, 3, 4, 7, 0x0a63_0002, 0x0a63_0003]);
        put(&mut file, volume, &[536_870_912, 536_870_913, 0, 0x3000, 0, 99, 5]);
        let name = crate::ubik::HEADER_BYTES + volume + 44;
        file[name..name + 9].copy_from_slice(b"root.cell");
        let sites = name + NAME_BYTES;
        file[sites..sites + SITES].fill(NO_SERVER);
        file[sites..sites + 2].copy_from_slice(&[0, 1]);
        file[sites + SITES..sites + SITES + 2].copy_from_slice(&[0, 2]);
        file[sites + 2 * SITES..sites + 2 * SITES + 2].copy_from_slice(&[4, 2]);
        put(&mut file, free + 12, &[FREE]);
        file
    }

    #[test]
    fn servers_and_volumes_are_read() {
        let vldb = Vldb::parse(&sample()).unwrap();
        let mut uuid = [0; 16];
        for (place, word) in [(3, 1), (7, 2), (11, 3), (15, 4)] {
            uuid[place] = word;
        }
        let addresses = vec![Ipv4Addr::new(10, 99, 0, 2), Ipv4Addr::new(10, 99, 0, 3)];
        let registered = VldbServer::Registered { uuid, uniquifier: 7, addresses };
        assert_eq!(vldb.servers, [(0, VldbServer::Address(Ipv4Addr::new(10, 99, 0, 1))), (1, registered)]);
        let [entry] = &vldb.entries[..] else { panic!("{vldb:?}") };
        assert_eq!((&entry.name[..], entry.ids), (&b"root.cell"[..], [536_870_912, 536_870_913, 0]));
        assert_eq!((entry.clone, entry.locked, entry.flags), (5, 99, 0x3000));
        assert_eq!(
            entry.sites,
            [VldbSite { server: 0, partition: 0, flags: 4 }, VldbSite { server: 1, partition: 2, flags: 2 }]
        );
    }

    #[test]
    fn an_entry_may_have_an_id_twice_and_two_entries_may_not() {
        let mut file = sample();
        let (volume, free) = (HEADER_BYTES + BLOCK_BYTES, HEADER_BYTES + BLOCK_BYTES + ENTRY_BYTES);
        // As `vos restore -readonly` makes it.
        put(&mut file, volume, &[536_870_912, 536_870_912, 0, 0x2000]);
        assert_eq!(Vldb::parse(&file).unwrap().entries[0].ids, [536_870_912, 536_870_912, 0]);
        let at = crate::ubik::HEADER_BYTES;
        file.copy_within(at + volume..at + free, at + free);
        file[at + free + 44] = b'R';
        assert!(Vldb::parse(&file).unwrap_err().to_string().contains("no second entry"));
    }

    #[test]
    fn an_end_behind_the_file_is_refused() {
        let mut file = sample();
        put(&mut file, 12, &[u32::MAX]);
        assert!(Vldb::parse(&file).unwrap_err().to_string().starts_with("byte 76: expected an end at"));
    }

    proptest! {
        #[test]
        fn damage_never_panics(at in 0usize..10_000, byte: u8, cut in 0usize..9_000) {
            let mut file = sample();
            let length = file.len();
            for place in [at.min(1500), length - 1 - at.min(length - 1)] {
                file[place] = byte;
            }
            let _ = Vldb::parse(&file);
            let _ = Vldb::parse(&file[..length - cut]);
        }
    }
}
