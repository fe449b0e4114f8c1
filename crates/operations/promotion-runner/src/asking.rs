//! Queries the present state of cells from their location and volume servers, without changing anything.

use super::cells::{Cells, place_of, read_only_sites};
use super::volumes::{Step, Volumes};
use afs_idl::vl::{NVldbEntry, site_flags};
use afs_idl::vol::volume_state;
use jobs::Place;
use parking_lot::Mutex;
use promote::{CellRecord, Home, PromotionError, Record};
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Server and partition.
    pub place: Place,
    /// Difference from the intended state; `None` if clients can read the version there.
    pub trouble: Option<String>,
}

/// Queries all cells of a record, `parallel` at a time.
pub fn ask(cells: &Cells<'_>, record: &Record, parallel: usize) -> BTreeMap<String, Vec<Found>> {
    let left = Mutex::new(record.cells.iter());
    let found = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..parallel.min(record.cells.len()) {
            scope.spawn(|| {
                loop {
                    let next = left.lock().next();
                    let Some((name, known)) = next else { break };
                    let of_cell = ask_cell(cells, name, known);
                    found.lock().insert(name.clone(), of_cell);
                }
            });
        }
    });
    found.into_inner()
}

fn ask_cell(cells: &Cells<'_>, name: &str, known: &CellRecord) -> Vec<Found> {
    let Some(home) = &known.home else { return Vec::new() };
    let found = |trouble: &dyn Fn(Place) -> Option<String>| {
        home.sites.iter().map(|&place| Found { place, trouble: trouble(place) }).collect()
    };
    let (client, entry) = match cells.client(name).and_then(|client| Ok((client, cells.entry(name)?))) {
        Ok((client, Some(entry))) => (client, entry),
        Ok((_, None)) => return found(&|_| Some("the volume has no entry".into())),
        Err(trouble) => return found(&|_| Some(words(trouble.clone()))),
    };
    let volumes = Volumes { cell: &client, stop: cells.stop() };
    let verified = known.holds.get(&known.in_use()).map(|held| date(volumes, held.place, held.volume));
    let verified = verified.and_then(Result::ok).flatten();
    found(&|place| site_trouble(volumes, home, known, &entry, place, verified))
}

/// Returns the date of the last change to a volume's contents; `None` if it does not exist.
fn date(volumes: Volumes<'_>, place: Place, volume: u32) -> Step<Option<u32>> {
    Ok(volumes.look(place, volume)?.map(|info| info.update_date))
}

/// Returns what is wrong at a site. `verified` is the date of the volume that was compared with the manifest;
/// copies have the same date.
fn site_trouble(
    volumes: Volumes<'_>,
    home: &Home,
    known: &CellRecord,
    entry: &NVldbEntry,
    place: Place,
    verified: Option<u32>,
) -> Option<String> {
    let info = match volumes.look(place, home.read_only) {
        Ok(Some(info)) => info,
        Ok(None) => return Some("has no such volume".into()),
        Err(trouble) => return Some(words(trouble)),
    };
    let site = read_only_sites(entry).into_iter().find(|&site| place_of(entry, site) == place);
    let is_unused = |site: usize| entry.server_flags[site] & site_flags::DO_NOT_USE != 0;
    if info.status == volume_state::BUSY {
        Some("is in use by another operation".into())
    } else if info.in_use == 0 {
        Some("is out of service".into())
    } else if site.is_none() {
        Some("is no longer in the entry".into())
    } else if known.lacking.contains(&place) || site.is_some_and(is_unused) {
        Some("does not have the version yet".into())
    } else if verified.is_some_and(|verified| verified != info.update_date) {
        Some("does not serve the verified contents".into())
    } else {
        None
    }
}

fn words(trouble: PromotionError) -> String {
    match trouble {
        PromotionError::Passing(why) | PromotionError::Lasting(why) | PromotionError::Changed(why) => why,
    }
}
