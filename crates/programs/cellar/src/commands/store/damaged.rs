//! `cellar store damaged`: the scrubber findings of a running server, and other copies of the affected
//! volumes.

use super::online::server_partitions;
use crate::commands::context::{Connect, Context};
use crate::output::{Format, Row};
use afs_idl::cellar::{self, DamagedPlace, GetDamagedPlacesReply, GetDamagedPlacesRequest};
use anyhow::{Result, bail};
use base::{PartitionId, VolumeId};
use cell_client::describe::failed;
use cell_client::location::{Located, Site};
use cell_client::{CellClient, Interface};
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Show damage found by a running server's scrubber.
#[derive(Args)]
pub struct Damaged {
    /// File server to query; defaults to the one in this machine's configuration, or else the first database
    /// server.
    #[arg(long, value_name = "ADDRESS")]
    on: Option<Ipv4Addr>,
    /// Configuration of the server; OpenAFS's in /etc/openafs/server by default.
    #[arg(long, env = "CELLAR_CONFIG")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A damaged place.
#[derive(Serialize)]
#[allow(
    clippy::struct_field_names,
    reason = "the field is what the server calls it: the file's name on its disk"
)]
struct Place {
    partition: String,
    volume: String,
    file: String,
    offset: u64,
    length: u32,
    found: String,
    last_seen: String,
    what: String,
    place: String,
    /// Other copies of the volume.
    elsewhere: Vec<String>,
}

impl Row for Place {
    const COLUMNS: &'static [&'static str] =
        &["PARTITION", "VOLUME", "FILE", "BYTES", "FOUND", "WHAT", "PLACE", "OTHER COPIES"];

    fn cells(&self) -> Vec<String> {
        let bytes = match self.length {
            0 => "metadata".to_owned(),
            length => format!("{}-{}", self.offset, self.offset + u64::from(length) - 1),
        };
        let elsewhere = match &self.elsewhere[..] {
            [] => "none; snapshots share the data".to_owned(),
            copies => copies.join(", "),
        };
        let (volume, file, found) = (self.volume.clone(), self.file.clone(), self.found.clone());
        vec![
            self.partition.clone(),
            volume,
            file,
            bytes,
            found,
            self.what.clone(),
            self.place.clone(),
            elsewhere,
        ]
    }
}

/// Runs the command: exit status 1 if anything is damaged.
pub(super) fn run(asked: &Damaged) -> Result<()> {
    let context = Context::new(&Connect::to_the_cell(asked.config.clone(), asked.json));
    let client = context.client()?;
    let on = asked.on.unwrap_or_else(|| context.default_server(&client));
    let mut asking = Asking { client: &client, on, known: BTreeMap::new() };
    let mut all = Vec::new();
    for id in server_partitions(&client, on)? {
        let (scrubbed, places) = asking.damaged(id)?;
        print_progress(id, &scrubbed);
        all.extend(places);
    }
    if all.is_empty() && !asked.json {
        return crate::output::line("no known damage");
    }
    (if asked.json { Format::Json } else { Format::Text }).rows(&all)?;
    if all.is_empty() { Ok(()) } else { bail!("{} damaged places", all.len()) }
}

/// Prints the scrubber's progress to standard error.
fn print_progress(id: PartitionId, scrubbed: &GetDamagedPlacesReply) {
    let last = match scrubbed.finished {
        0 => "no full pass yet".to_owned(),
        at => format!("{} full passes, the last until {}", scrubbed.passes, time(at)),
    };
    let now = if scrubbed.running == 0 { "read then" } else { "read so far in the current one" };
    let (records, chunks) = (HumanCount(scrubbed.records), HumanCount(scrubbed.chunks));
    eprintln!("{id}: {last}; {now}: {records} records, {chunks} chunks, {}", HumanBytes(scrubbed.bytes));
}

/// The server to query, and cached location entries.
struct Asking<'a> {
    client: &'a CellClient,
    on: Ipv4Addr,
    known: BTreeMap<u32, Option<Located>>,
}

impl Asking<'_> {
    fn damaged(&mut self, id: PartitionId) -> Result<(GetDamagedPlacesReply, Vec<Place>)> {
        let connection = self.client.connection(self.on, Interface::Cellar);
        let mut all = Vec::new();
        loop {
            let from = u32::try_from(all.len()).unwrap_or(u32::MAX);
            let request = GetDamagedPlacesRequest { partition: id.index(), from };
            let mut reply = cellar::get_damaged_places(&*connection, &request)
                .map_err(failed(format!("read the damage on {id} from {}", self.on)))?;
            let places = std::mem::take(&mut reply.places);
            for place in &places {
                all.push(self.shown(id, place)?);
            }
            if places.len() < cellar::DAMAGES_MAX {
                return Ok((reply, all));
            }
        }
    }

    fn shown(&mut self, id: PartitionId, place: &DamagedPlace) -> Result<Place> {
        let on = self.on;
        let located = self.located(place.volume)?;
        let (volume, file) = match place.volume {
            0 => (String::new(), String::new()),
            number => (
                located.map_or_else(|| number.to_string(), |located| format!("{number} {}", located.name)),
                format!("{}.{}", place.vnode, place.unique),
            ),
        };
        Ok(Place {
            partition: id.to_string(),
            elsewhere: located.map_or_else(Vec::new, |located| elsewhere(located, on, id)),
            volume,
            file,
            offset: place.offset,
            length: place.length,
            found: time(place.first_seen),
            last_seen: time(place.last_seen),
            what: place.what.to_string(),
            place: place.place.to_string(),
        })
    }

    fn located(&mut self, volume: u32) -> Result<Option<&Located>> {
        if volume != 0 && !self.known.contains_key(&volume) {
            let found = self.client.find_volume(&VolumeId(volume).to_string())?;
            self.known.insert(volume, found);
        }
        Ok(self.known.get(&volume).and_then(Option::as_ref))
    }
}

/// Copies of a volume with their own data: a read-only site on the partition of the read-write volume shares
/// it.
fn elsewhere(located: &Located, on: Ipv4Addr, partition: PartitionId) -> Vec<String> {
    let is_other = |site: &&Site| site.server != on || site.partition != partition;
    let reported = |site: &Site| {
        let kind = if site.is_read_write { "read-write" } else { "read-only" };
        format!("{} {} ({kind})", site.server, site.partition)
    };
    located.sites.iter().filter(is_other).map(reported).collect()
}

fn time(seconds: u32) -> String {
    Timestamp::from_second(seconds.into()).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharers_of_the_bytes_are_no_other_copy() {
        let site = |last: u8, index, is_read_write| Site {
            server: [10, 0, 0, last].into(),
            partition: PartitionId::from_index(index).unwrap(),
            is_read_write,
        };
        let sites = vec![site(1, 0, true), site(1, 0, false), site(1, 1, false), site(2, 0, false)];
        let located = Located { name: "home".into(), ids: [1, 2, 3].map(VolumeId), sites };
        let reported = |last: u8, index| {
            elsewhere(&located, [10, 0, 0, last].into(), PartitionId::from_index(index).unwrap())
        };
        assert_eq!(reported(1, 0), ["10.0.0.1 /vicepb (read-only)", "10.0.0.2 /vicepa (read-only)"]);
        assert_eq!(reported(2, 0)[0], "10.0.0.1 /vicepa (read-write)");
        assert_eq!(reported(2, 0).len(), 3);
    }
}
