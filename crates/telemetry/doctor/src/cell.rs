//! The location database of a cell, compared with the volumes of its file servers.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

/// Suffixes of volume names, indexed by the volume's position in the ids of an entry.
pub(crate) const SUFFIXES: [&str; 3] = ["", ".readonly", ".backup"];

/// A transaction used within this many seconds belongs to an operation in progress.
pub const IN_PROGRESS_SECONDS: u32 = 600;

/// Observed state of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// All entries of the location database.
    pub entries: Vec<Entry>,
    /// The file servers, including those that did not answer.
    pub servers: Vec<FileServer>,
}

/// An entry of the location database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Name of the read-write volume.
    pub name: String,
    /// Ids of the read-write, read-only and backup volumes; 0 for none.
    pub ids: [u32; 3],
    /// Whether each of these volumes exists.
    pub exists: [bool; 3],
    /// Sites of the entry.
    pub sites: Vec<Site>,
    /// Whether the entry was locked in both samples.
    pub is_locked: bool,
}

/// A site of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Any address of the server.
    pub server: Ipv4Addr,
    /// Letters of the partition.
    pub partition: String,
    /// Whether the site has the read-write volume.
    pub is_read_write: bool,
    /// Whether the site was added and no release has reached it yet.
    pub is_empty: bool,
}

/// A file server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileServer {
    /// Addresses of the server; the first one is displayed.
    pub addresses: Vec<Ipv4Addr>,
    /// Why its volume server does not answer, if so.
    pub failure: Option<String>,
    /// Letters of the partitions that it serves.
    pub partitions: Vec<String>,
    /// Volumes on all partitions.
    pub volumes: Vec<Header>,
    /// Open transactions.
    pub transactions: Vec<Transaction>,
}

/// A volume on a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Volume id.
    pub id: u32,
    /// Id of its read-write volume.
    pub parent: u32,
    /// Name of the volume; `None` if it is in use and cannot be read.
    pub name: Option<String>,
    /// Letters of the partition.
    pub partition: String,
    /// Whether it is a clone: a read-only or backup volume.
    pub is_clone: bool,
}

/// An open transaction of a volume server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Transaction number.
    pub id: i32,
    /// Volume id.
    pub volume: u32,
    /// Letters of the partition.
    pub partition: String,
    /// Seconds since it was last used.
    pub idle_seconds: u32,
}

/// A volume found on a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) server: &'a FileServer,
    pub(crate) header: &'a Header,
}

/// A volume expected at a site according to its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) entry: &'a Entry,
    /// Index in [`Entry::ids`].
    pub(crate) kind: usize,
    pub(crate) site: &'a Site,
}

/// A cell with lookup tables.
pub(crate) struct Index<'a> {
    cell: &'a Cell,
    /// Entry of each volume, with the volume's index in its ids.
    entries: HashMap<u32, (&'a Entry, usize)>,
    /// Servers by address.
    servers: HashMap<Ipv4Addr, &'a FileServer>,
    /// Volumes that servers have: first address, partition, volume.
    held: HashSet<(Ipv4Addr, &'a str, u32)>,
    /// One location of each volume that servers have.
    somewhere: HashMap<u32, Held<'a>>,
    /// Volumes used by an operation in progress.
    used: HashSet<u32>,
}

impl FileServer {
    /// Returns the address to display.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.addresses.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED)
    }
}

impl Entry {
    /// Returns the name in the header of a volume of this kind.
    pub(crate) fn name_of(&self, kind: usize) -> String {
        format!("{}{}", self.name, SUFFIXES[kind])
    }
}

impl Held<'_> {
    /// Whether the entry has a site at the volume's location.
    pub(crate) fn is_at_site(&self, entry: &Entry, kind: usize) -> bool {
        entry.sites.iter().any(|site| {
            self.server.addresses.contains(&site.server)
                && site.partition == self.header.partition
                && site.is_read_write == (kind != 1)
        })
    }
}

impl<'a> Index<'a> {
    pub(crate) fn new(cell: &'a Cell) -> Index<'a> {
        let mut index = Index {
            cell,
            entries: HashMap::new(),
            servers: HashMap::new(),
            held: HashSet::new(),
            somewhere: HashMap::new(),
            used: HashSet::new(),
        };
        for entry in &cell.entries {
            for (kind, id) in entry.ids.into_iter().enumerate().filter(|(_, id)| *id != 0) {
                index.entries.insert(id, (entry, kind));
            }
        }
        for server in &cell.servers {
            for address in &server.addresses {
                index.servers.insert(*address, server);
            }
            for header in &server.volumes {
                index.held.insert((server.address(), &header.partition, header.id));
                index.somewhere.insert(header.id, Held { server, header });
            }
            let working = server.transactions.iter().filter(|it| it.idle_seconds < IN_PROGRESS_SECONDS);
            index.used.extend(working.map(|transaction| transaction.volume));
        }
        index
    }

    /// Returns the entry of this volume, and the volume's index in its ids.
    pub(crate) fn entry_of(&self, volume: u32) -> Option<(&'a Entry, usize)> {
        self.entries.get(&volume).copied()
    }

    /// Returns all volumes on servers.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = Held<'a>> {
        let held = |server: &'a FileServer| server.volumes.iter().map(move |header| Held { server, header });
        self.cell.servers.iter().flat_map(held)
    }

    /// Returns all volumes expected at sites.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Wanted<'a>> {
        self.cell.entries.iter().flat_map(|entry| {
            entry.sites.iter().flat_map(move |site| {
                let kinds: &[usize] = if site.is_read_write { &[0, 2] } else { &[1] };
                let is_wanted =
                    move |kind: &usize| entry.exists[*kind] && entry.ids[*kind] != 0 && !site.is_empty;
                kinds.iter().copied().filter(is_wanted).map(move |kind| Wanted { entry, kind, site })
            })
        })
    }

    /// Returns the server with this address.
    pub(crate) fn server(&self, address: Ipv4Addr) -> Option<&'a FileServer> {
        self.servers.get(&address).copied()
    }

    /// Whether a server has the expected volume; `None` if it did not answer.
    pub(crate) fn is_held(&self, wanted: &Wanted<'a>) -> Option<bool> {
        let server = self.server(wanted.site.server).filter(|server| server.failure.is_none())?;
        let id = wanted.entry.ids[wanted.kind];
        Some(self.held.contains(&(server.address(), &wanted.site.partition[..], id)))
    }

    /// Returns a location of the volume.
    pub(crate) fn find(&self, volume: u32) -> Option<Held<'a>> {
        self.somewhere.get(&volume).copied()
    }

    /// Whether an operation in progress uses one of these volumes.
    pub(crate) fn is_used(&self, volumes: &[u32]) -> bool {
        volumes.iter().any(|volume| self.used.contains(volume))
    }
}
