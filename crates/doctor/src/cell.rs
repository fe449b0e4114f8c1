//! The location database of a cell beside the volumes of its file servers.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

/// Kinds of volumes by their place in the ids of an entry.
const SUFFIXES: [&str; 3] = ["", ".readonly", ".backup"];

/// A transaction that was used within so many seconds is an operation in progress.
pub const IN_PROGRESS_SECONDS: u32 = 600;

/// What was seen of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// All entries of the location database.
    pub entries: Vec<Entry>,
    /// The file servers that told what they have, or did not answer.
    pub servers: Vec<FileServer>,
}

/// An entry of the location database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The read-write volume's name.
    pub name: String,
    /// Numbers of the read-write, read-only and backup volumes; 0 for none.
    pub ids: [u32; 3],
    /// Which of them exist.
    pub exists: [bool; 3],
    /// Where they are.
    pub sites: Vec<Site>,
    /// Whether the entry was locked at both looks.
    pub is_locked: bool,
}

/// A site of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Any address of the server.
    pub server: Ipv4Addr,
    /// The partition's letters.
    pub partition: String,
    /// Whether it has the read-write volume.
    pub is_read_write: bool,
    /// Whether it was added and never released to.
    pub is_empty: bool,
}

/// A file server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileServer {
    /// Its addresses; the first is shown.
    pub addresses: Vec<Ipv4Addr>,
    /// Why its volume server does not answer.
    pub failure: Option<String>,
    /// Volumes on all partitions.
    pub volumes: Vec<Header>,
    /// Open transactions.
    pub transactions: Vec<Transaction>,
}

/// A volume on a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Its number.
    pub id: u32,
    /// The number of its read-write volume.
    pub parent: u32,
    /// Its name; `None` if it is in use and cannot be read.
    pub name: Option<String>,
    /// The partition's letters.
    pub partition: String,
}

/// An open transaction of a volume server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Its number.
    pub id: i32,
    /// The volume's number.
    pub volume: u32,
    /// The partition's letters.
    pub partition: String,
    /// Seconds since it was last used.
    pub idle_seconds: u32,
}

/// A volume that a server has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) server: &'a FileServer,
    pub(crate) header: &'a Header,
}

/// A volume that an entry says is somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) entry: &'a Entry,
    /// The place in [`Entry::ids`].
    pub(crate) kind: usize,
    pub(crate) site: &'a Site,
}

/// A cell with what is searched for in it.
pub(crate) struct Index<'a> {
    cell: &'a Cell,
    /// Entries, and the place in their ids, by volume.
    entries: HashMap<u32, (&'a Entry, usize)>,
    /// Servers by address.
    servers: HashMap<Ipv4Addr, &'a FileServer>,
    /// What servers have: first address, partition, volume.
    held: HashSet<(Ipv4Addr, &'a str, u32)>,
    /// A place of each volume that servers have.
    somewhere: HashMap<u32, Held<'a>>,
    /// Volumes that an operation in progress has.
    used: HashSet<u32>,
}

impl FileServer {
    /// The address that is shown.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.addresses.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED)
    }
}

impl Entry {
    /// The name that the header of a volume has.
    pub(crate) fn name_of(&self, kind: usize) -> String {
        format!("{}{}", self.name, SUFFIXES[kind])
    }
}

impl Held<'_> {
    /// Whether the volume's entry says that it is there.
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

    /// The entry that has this volume, and as what.
    pub(crate) fn entry_of(&self, volume: u32) -> Option<(&'a Entry, usize)> {
        self.entries.get(&volume).copied()
    }

    /// All volumes of servers.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = Held<'a>> {
        let held = |server: &'a FileServer| server.volumes.iter().map(move |header| Held { server, header });
        self.cell.servers.iter().flat_map(held)
    }

    /// All volumes that entries say are somewhere.
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

    /// The server with this address.
    pub(crate) fn server(&self, address: Ipv4Addr) -> Option<&'a FileServer> {
        self.servers.get(&address).copied()
    }

    /// Whether a server has what an entry says; `None` if it did not tell.
    pub(crate) fn is_held(&self, wanted: &Wanted<'a>) -> Option<bool> {
        let server = self.server(wanted.site.server).filter(|server| server.failure.is_none())?;
        let id = wanted.entry.ids[wanted.kind];
        Some(self.held.contains(&(server.address(), &wanted.site.partition[..], id)))
    }

    /// A place where the volume is.
    pub(crate) fn find(&self, volume: u32) -> Option<Held<'a>> {
        self.somewhere.get(&volume).copied()
    }

    /// Whether an operation in progress has one of these volumes.
    pub(crate) fn is_used(&self, volumes: &[u32]) -> bool {
        volumes.iter().any(|volume| self.used.contains(volume))
    }
}
