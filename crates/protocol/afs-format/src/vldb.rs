//! OpenAFS's volume location database, vldb.DB0.
//!
//! The file has a header with the table of servers and four hash tables, followed by entries of 148 bytes,
//! and blocks of 8 KiB with the addresses of servers that registered themselves. All entries are read in file
//! order; the hash tables are not needed. Sources: OpenAFS 1.8 `vlserver/vlserver.p.h` and
//! `vlserver/vlutils.c`.

use crate::ubik::{DatabaseError, Fate, Image, Oddity, damaged};
use base::VolumeName;
use std::collections::{HashMap, HashSet};
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
/// Supported versions. The layout of entries is the same in both; version 4 adds blocks of addresses.
const VERSIONS: std::ops::RangeInclusive<u32> = 3..=4;

const FREE: u32 = 1;
const DELETED: u32 = 2;
const BLOCK: u32 = 8;
/// VLF_* and VLOP_*: the existing volumes, and the operation that the entry is locked for.
const KNOWN_FLAGS: u32 = 0x7000 | 0x1f0;
/// Maximum number of blocks of addresses (VL_MAX_ADDREXTBLKS).
const ADDRESS_BLOCKS: usize = 4;
/// Marks an unused site (BADSERVERID).
const NO_SERVER: u8 = 255;

/// A server in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VldbServer {
    /// A server known by one address.
    Address(Ipv4Addr),
    /// A server that registered itself.
    Registered {
        /// UUID in the canonical byte order.
        uuid: [u8; 16],
        /// Counts registrations.
        uniquifier: i32,
        /// Addresses of the server.
        addresses: Vec<Ipv4Addr>,
    },
}

/// A site of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VldbSite {
    /// Index in the table of servers.
    pub server: u8,
    /// Partition index; 0 is /vicepa.
    pub partition: u8,
    /// VLSF_* flags.
    pub flags: u8,
}

/// The entry of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VldbEntry {
    /// Offset in the file, in bytes.
    pub offset: usize,
    /// Volume name without suffix.
    pub name: Vec<u8>,
    /// Ids of the read-write, read-only and backup volume; 0 for none.
    pub ids: [u32; 3],
    /// Id of the release clone.
    pub clone: u32,
    /// VLF_* and VLOP_* flags.
    pub flags: u32,
    /// Time at which it was locked; 0 if it is not locked.
    pub locked: u32,
    /// Sites of the volume.
    pub sites: Vec<VldbSite>,
}

impl VldbEntry {
    /// Returns the name and id for messages.
    pub fn shown(&self) -> String {
        format!("volume `{}` ({})", base::text::escape(&self.name), self.ids[0])
    }

    fn is_copy_of(&self, other: &VldbEntry) -> bool {
        *self == VldbEntry { offset: self.offset, ..other.clone() }
    }
}

/// Contents of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vldb {
    /// Where the search for new volume ids starts.
    pub max_volume: u32,
    /// Servers by number.
    pub servers: Vec<(u8, VldbServer)>,
    /// Entries in file order.
    pub entries: Vec<VldbEntry>,
    /// Oddities in file order. If any of them is [`Fate::Refused`], nothing may be imported.
    pub oddities: Vec<Oddity>,
}

impl Vldb {
    /// Parses a whole database file.
    ///
    /// # Errors
    /// The file does not start with the header of a location database. Faults after the header are in
    /// `oddities`.
    pub fn parse(file: &[u8]) -> Result<Vldb, DatabaseError> {
        let image = Image::open(file)?;
        if !VERSIONS.contains(&image.word(0)?) || image.word(4)? as usize != HEADER_BYTES {
            return Err(damaged(0, format!("version 3 or 4 with a header of {HEADER_BYTES} bytes")));
        }
        let end = image.end(12)?;
        let mut reading = Reading::new(image);
        reading.vldb.max_volume = image.word(24)?;
        reading.servers()?;
        reading.blocks(end)?;
        let mut vldb = reading.vldb;
        vldb.oddities.extend(image.behind(end));
        vldb.oddities.sort_by_key(|oddity| oddity.offset);
        Ok(vldb)
    }
}

/// A position in a block of addresses: the block, and the index in it.
type Place = (usize, usize);

struct Reading<'a> {
    image: Image<'a>,
    vldb: Vldb,
    /// Server numbers that refer to the same server as an earlier number.
    aliases: HashMap<u8, u8>,
    /// Positions in blocks of addresses to which a server number refers.
    named: HashSet<Place>,
    /// Entries by name and by volume id.
    names: HashMap<Vec<u8>, usize>,
    ids: HashMap<u32, usize>,
}

impl<'a> Reading<'a> {
    fn new(image: Image<'a>) -> Reading<'a> {
        let (aliases, named) = (HashMap::new(), HashSet::new());
        Reading { image, vldb: Vldb::default(), aliases, named, names: HashMap::new(), ids: HashMap::new() }
    }

    fn note(&mut self, address: usize, fate: Fate, what: String) {
        self.vldb.oddities.push(Oddity::at(address, fate, what));
    }

    fn servers(&mut self) -> Result<(), DatabaseError> {
        let mut words: HashMap<[u8; 4], u8> = HashMap::new();
        for number in 0..SERVERS {
            let (at, number) = (SERVERS_AT + 4 * number, number as u8);
            let word = self.image.bytes::<4>(at)?;
            if word == [0; 4] {
                continue;
            }
            if let Some(&first) = words.get(&word) {
                self.aliases.insert(number, first);
                let what = format!("server number {number} repeats number {first}, which its sites get");
                self.note(at, Fate::Repaired, what);
                continue;
            }
            words.insert(word, number);
            match self.server(at, word) {
                Ok(server) => self.add_server(at, number, server),
                Err(error) => self.vldb.oddities.push(Oddity::refused(&error)),
            }
        }
        Ok(())
    }

    fn server(&mut self, at: usize, word: [u8; 4]) -> Result<VldbServer, DatabaseError> {
        let [0xff, block, high, low] = word else { return Ok(VldbServer::Address(word.into())) };
        let place = (usize::from(block), usize::from(u16::from_be_bytes([high, low])));
        self.named.insert(place);
        registered(self.image, at, place)
    }

    fn add_server(&mut self, at: usize, number: u8, server: VldbServer) {
        let twin = self.vldb.servers.iter().find(|(_, other)| has_common(other, &server));
        if let Some(&(other, _)) = twin {
            let what = format!("server number {number} has an address or UUID of number {other}");
            self.note(at, Fate::Kept, what);
        }
        self.vldb.servers.push((number, server));
    }

    /// Reads the entries and blocks of addresses, from the end of the header to the end of the database.
    fn blocks(&mut self, end: usize) -> Result<(), DatabaseError> {
        let mut at = HEADER_BYTES;
        let known = self.address_blocks()?;
        while at < end {
            let is_whole = at + ENTRY_BYTES <= end;
            let flags = if is_whole { self.image.word(at + 12)? } else { 0 };
            if !is_whole {
                let what = format!("an entry that ends behind the end of the database, byte {}", end + 64);
                self.note(at, Fate::Refused, what);
            } else if flags & BLOCK != 0 {
                if !known.contains(&at) {
                    self.note(at, Fate::LeftOut, "a block of addresses that the header does not list".into());
                }
                at += BLOCK_BYTES;
                continue;
            } else if flags & (FREE | DELETED) == 0 {
                self.entry(at);
            } else if flags & FREE == 0 {
                let name = entry(self.image, at).map_or_else(|_| "an entry".into(), |entry| entry.shown());
                self.note(at, Fate::LeftOut, format!("{name} is marked as deleted"));
            }
            at += ENTRY_BYTES;
        }
        Ok(())
    }

    /// Returns the blocks of addresses; reports the servers in them that have no number.
    fn address_blocks(&mut self) -> Result<HashSet<usize>, DatabaseError> {
        let first = self.image.word(BLOCKS_AT)? as usize;
        let mut blocks = HashSet::new();
        for number in (0..ADDRESS_BLOCKS).filter(|_| first != 0) {
            let block = match self.image.word(first + 16 + 4 * number) {
                Ok(block) => block as usize,
                Err(error) => {
                    self.vldb.oddities.push(Oddity::refused(&error));
                    break;
                }
            };
            if block == 0 {
                continue;
            }
            blocks.insert(block);
            for index in 1..BLOCK_BYTES / REGISTERED_BYTES {
                let place = block + index * REGISTERED_BYTES;
                let is_used = self
                    .image
                    .bytes::<REGISTERED_BYTES>(place)
                    .is_ok_and(|bytes| bytes != [0; REGISTERED_BYTES]);
                if is_used && !self.named.contains(&(number, index)) {
                    let addresses =
                        read_registered(self.image, place).map(|found| shown(&found)).unwrap_or_default();
                    self.note(
                        place,
                        Fate::LeftOut,
                        format!("a registered server{addresses} that no server number names"),
                    );
                }
            }
        }
        Ok(blocks)
    }

    fn entry(&mut self, at: usize) {
        let mut entry = match entry(self.image, at) {
            Ok(entry) => entry,
            Err(error) => return self.vldb.oddities.push(Oddity::refused(&error)),
        };
        let shown = entry.shown();
        let ids: HashSet<u32> = entry.ids.into_iter().filter(|id| *id != 0).collect();
        let odd = self.check(at, &mut entry);
        let earlier = self.names.get(&entry.name).or_else(|| ids.iter().find_map(|id| self.ids.get(id)));
        if let Some(earlier) = earlier.map(|index| &self.vldb.entries[*index]) {
            let (other, offset) = (earlier.shown(), earlier.offset);
            return if entry.is_copy_of(earlier) {
                self.note(at, Fate::LeftOut, format!("{shown} is a copy of the entry at byte {offset}"));
            } else {
                let what = format!("{shown} has the name or a volume id of {other} at byte {offset}");
                self.note(at, Fate::Refused, what);
            };
        }
        for (fate, what) in odd {
            self.note(at, fate, format!("{shown}: {what}"));
        }
        let index = self.vldb.entries.len();
        self.names.insert(entry.name.clone(), index);
        self.ids.extend(ids.into_iter().map(|id| (id, index)));
        self.vldb.entries.push(entry);
    }

    /// Returns what is odd in an entry; repairs what can be repaired.
    fn check(&self, at: usize, entry: &mut VldbEntry) -> Vec<(Fate, String)> {
        let mut found = Vec::new();
        let name = std::str::from_utf8(&entry.name).ok().and_then(|name| name.parse::<VolumeName>().ok());
        if name.is_none() {
            found.push((Fate::Refused, "not a volume name that can be served".into()));
        }
        if entry.ids[0] == 0 {
            found.push((Fate::Refused, "no read-write volume id".into()));
        }
        let [read_write, read_only, backup] = entry.ids;
        if backup != 0 && (backup == read_write || backup == read_only) {
            found.push((Fate::Refused, format!("the backup volume has the id {backup} of another one")));
        }
        let unknown = entry.flags & !KNOWN_FLAGS;
        if unknown != 0 {
            entry.flags &= KNOWN_FLAGS;
            found.push((Fate::LeftOut, format!("flags {unknown:#x}, which have no meaning")));
        }
        if let Ok(places) = self.image.bytes::<SITES>(at + 44 + NAME_BYTES) {
            let hidden = places.iter().skip(entry.sites.len()).filter(|server| **server != NO_SERVER).count();
            if hidden != 0 {
                found.push((Fate::LeftOut, format!("{hidden} sites behind an empty place")));
            }
        }
        self.check_sites(entry, &mut found);
        found
    }

    fn check_sites(&self, entry: &mut VldbEntry, found: &mut Vec<(Fate, String)>) {
        let mut sites: Vec<VldbSite> = Vec::new();
        for mut site in std::mem::take(&mut entry.sites) {
            site.server = self.aliases.get(&site.server).copied().unwrap_or(site.server);
            if !self.vldb.servers.iter().any(|(number, _)| *number == site.server) {
                let server = site.server;
                found
                    .push((Fate::Refused, format!("a site on server number {server}, which has no address")));
            }
            let location = |site: &VldbSite| (site.server, site.partition, site.flags & SITE_KINDS);
            if sites.iter().any(|other| location(other) == location(&site)) {
                let (server, partition) = (site.server, site.partition);
                let what = format!("a second site on server number {server}, partition number {partition}");
                found.push((Fate::LeftOut, what));
            } else {
                sites.push(site);
            }
        }
        entry.sites = sites;
    }
}

/// Kind of volume at a site: read-only, read-write or backup (VLSF_ROVOL, VLSF_RWVOL, VLSF_BACKVOL). A
/// partition may have several kinds.
const SITE_KINDS: u8 = 2 | 4 | 8;

/// Returns whether two servers have an address or the UUID in common.
fn has_common(one: &VldbServer, two: &VldbServer) -> bool {
    let addresses = |server: &VldbServer| match server {
        VldbServer::Address(address) => vec![*address],
        VldbServer::Registered { addresses, .. } => addresses.clone(),
    };
    let uuid = |server: &VldbServer| match server {
        VldbServer::Registered { uuid, .. } => Some(*uuid),
        VldbServer::Address(_) => None,
    };
    let (first, second) = (addresses(one), addresses(two));
    first.iter().any(|address| second.contains(address)) || uuid(one).is_some() && uuid(one) == uuid(two)
}

fn shown(server: &VldbServer) -> String {
    let VldbServer::Registered { addresses, .. } = server else { return String::new() };
    let addresses: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
    format!(" {}", addresses.join(" "))
}

/// Returns the server at a position in a block of addresses; `at` is where it is referred to.
fn registered(image: Image<'_>, at: usize, (block, index): Place) -> Result<VldbServer, DatabaseError> {
    let first = image.word(BLOCKS_AT)? as usize;
    if first == 0 || block >= ADDRESS_BLOCKS || index == 0 || index >= BLOCK_BYTES / REGISTERED_BYTES {
        return Err(damaged(at, "an address, or a place in a block of addresses"));
    }
    let block = image.word(first + 16 + 4 * block)? as usize;
    read_registered(image, block + index * REGISTERED_BYTES)
}

fn read_registered(image: Image<'_>, place: usize) -> Result<VldbServer, DatabaseError> {
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
    let offset = at + crate::ubik::HEADER_BYTES;
    Ok(VldbEntry { offset, name, ids, clone: word(6)?, flags: word(3)?, locked: word(5)?, sites })
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

    /// Creates a database with a server by address, a registered one, a volume on both, and a free entry.
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
        // As created by `vos restore -readonly`.
        put(&mut file, volume, &[536_870_912, 536_870_912, 0, 0x2000]);
        assert_eq!(Vldb::parse(&file).unwrap().entries[0].ids, [536_870_912, 536_870_912, 0]);
        let at = crate::ubik::HEADER_BYTES;
        file.copy_within(at + volume..at + free, at + free);
        file[at + free + 44] = b'R';
        let found = Vldb::parse(&file).unwrap();
        assert_eq!(found.entries.len(), 1);
        let wanted = format!(
            "byte {}: volume `Root.cell` (536870912) has the name or a volume id of volume `root.cell` \
             (536870912) at byte {}: refused",
            at + free,
            at + volume
        );
        assert_eq!(oddities(&file), [wanted]);
    }

    fn oddities(file: &[u8]) -> Vec<String> {
        Vldb::parse(file).unwrap().oddities.iter().map(Oddity::to_string).collect()
    }

    /// Returns a file in which the free entry is replaced by a copy of the volume's entry, modified by
    /// `change`.
    fn with_second(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut file = sample();
        let at = crate::ubik::HEADER_BYTES + HEADER_BYTES + BLOCK_BYTES;
        file.copy_within(at..at + ENTRY_BYTES, at + ENTRY_BYTES);
        change(&mut file[at + ENTRY_BYTES..]);
        file
    }

    #[test]
    fn a_sound_file_has_no_oddities() {
        assert_eq!(oddities(&sample()), Vec::<String>::new());
    }

    #[test]
    fn a_copied_entry_is_named_and_left_out() {
        let (first, second) = (140_376, 140_524);
        let found = oddities(&with_second(|_| {}));
        let what = format!("volume `root.cell` (536870912) is a copy of the entry at byte {first}: left out");
        assert_eq!(found, [format!("byte {second}: {what}")]);
    }

    #[test]
    fn a_repeated_server_word_is_named_and_its_sites_moved() {
        let mut file = with_second(|entry| {
            entry[..4].copy_from_slice(&7u32.to_be_bytes());
            entry[4..8].fill(0);
            entry[44] = b'R';
            entry[44 + NAME_BYTES] = 2;
        });
        put(&mut file, SERVERS_AT + 8, &[0x0a63_0001]);
        assert_eq!(
            oddities(&file),
            ["byte 112: server number 2 repeats number 0, which its sites get: repaired"]
        );
        let vldb = Vldb::parse(&file).unwrap();
        assert_eq!((vldb.servers.len(), vldb.entries[1].sites[0].server), (2, 0));
    }

    #[test]
    fn every_odd_part_of_an_entry_is_named() {
        let mut file = with_second(|entry| {
            entry[..4].copy_from_slice(&7u32.to_be_bytes());
            entry[4..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 7]);
            entry[12..16].copy_from_slice(&0x0001_3000u32.to_be_bytes());
            entry[44] = b'!';
            entry[44 + NAME_BYTES..][..5].copy_from_slice(&[0, 0, 9, NO_SERVER, 1]);
            entry[44 + NAME_BYTES + SITES..][..3].copy_from_slice(&[0, 0, 0]);
            entry[44 + NAME_BYTES + 2 * SITES..][..2].copy_from_slice(&[4, 4]);
        });
        file.extend_from_slice(b"more");
        let wanted = [
            "not a volume name that can be served: refused",
            "the backup volume has the id 7 of another one: refused",
            "flags 0x10000, which have no meaning: left out",
            "1 sites behind an empty place: left out",
            "a second site on server number 0, partition number 0: left out",
            "a site on server number 9, which has no address: refused",
        ];
        let mut wanted: Vec<String> =
            wanted.iter().map(|what| format!("byte 140524: volume `!oot.cell` (7): {what}")).collect();
        wanted.push("byte 140672: 4 bytes behind the end of the database: left out".into());
        assert_eq!(oddities(&file), wanted);
    }

    #[test]
    fn servers_without_a_number_and_stray_blocks_are_named() {
        let mut file = sample();
        put(&mut file, HEADER_BYTES + 2 * REGISTERED_BYTES, &[1, 2, 3, 5, 7, 0x0a63_0009]);
        let place = crate::ubik::HEADER_BYTES + HEADER_BYTES + 2 * REGISTERED_BYTES;
        let wanted =
            format!("byte {place}: a registered server 10.99.0.9 that no server number names: left out");
        assert_eq!(oddities(&file), [wanted]);
        put(&mut file, SERVERS_AT + 8, &[0xff00_0002, 0xff00_0063, 0x0a63_0003]);
        let found = oddities(&file);
        assert_eq!(found[0], "byte 116: expected an address, or a place in a block of addresses: refused");
        assert_eq!(found[1], "byte 120: server number 4 has an address or UUID of number 1: kept");
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
