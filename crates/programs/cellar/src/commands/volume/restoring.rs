//! `cellar volume restore`: creates volumes from dump files, or restores dumps over volumes.

use super::files::Transferred;
use super::{first_partition, following, preflight};
use crate::commands::Context;
use afs_idl::vl::SITES;
use afs_idl::vol::{self, VolintInfo};
use anyhow::{Context as _, Result, anyhow, bail};
use base::{AbortCode, PartitionId, UnixTime, VolumeName};
use cell_client::describe::failed;
use cell_client::location::{Located, Site};
use cell_client::{CellClient, Interface};
use clap::{Args, ValueEnum};
use indicatif::{HumanBytes, HumanCount};
use jobs::{Job, Operation, Outlook, PartitionSpace, Place, Stage};
use openafs_import::dump::contents::Contents;
use serde::Serialize;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

/// Suffix of a read-only volume's name.
const ENDING: &str = ".readonly";

/// Create a volume from a dump file, or restore a dump over a volume.
#[derive(Args)]
pub struct RestoreVolume {
    /// Dump file.
    file: PathBuf,
    /// Name of the volume to create or overwrite, without `.readonly`.
    name: VolumeName,
    /// File server; by default the volume's own, or for a new volume the one in this machine's
    /// configuration, or else the first database server.
    #[arg(long)]
    on: Option<Ipv4Addr>,
    /// Partition, like `a`; by default the volume's own, or for a new volume the server's first.
    #[arg(long)]
    partition: Option<PartitionId>,
    /// What to do if a volume of this name exists.
    #[arg(long, value_enum, default_value_t = Overwrite::Abort, value_name = "HOW")]
    overwrite: Overwrite,
    /// Leave the volume offline.
    #[arg(long)]
    offline: bool,
    /// Create a read-only volume without a read-write volume, or restore over such a volume on all its sites.
    #[arg(long)]
    readonly: bool,
    /// Additional site of the new read-only volume, copied from the first one: an address, optionally with a
    /// partition, like `192.0.2.3/b`. May be repeated.
    #[arg(long, value_name = "SITE", requires = "readonly", conflicts_with = "offline")]
    also_on: Vec<Spot>,
    /// Check the dump and show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
    /// Hand the job to this machine's Cellar server, which must be able to read the file, and return
    /// immediately.
    #[arg(long, conflicts_with = "dry_run")]
    detach: bool,
}

/// What to do with an existing volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Overwrite {
    /// Fail and leave the volume unchanged.
    Abort,
    /// Replace all contents of the volume.
    Full,
    /// Apply an incremental dump to the volume.
    Incremental,
}

/// A server and optionally a partition of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    server: Ipv4Addr,
    partition: Option<PartitionId>,
}

/// Parses a site: an address, optionally with a partition, like `192.0.2.3/b`.
pub(in crate::commands) fn parse_site(text: &str) -> Result<(Ipv4Addr, Option<PartitionId>), String> {
    text.parse().map(|Spot { server, partition }| (server, partition))
}

impl FromStr for Spot {
    type Err = String;

    fn from_str(text: &str) -> Result<Spot, String> {
        let (server, partition) =
            text.split_once('/').map_or((text, None), |(left, right)| (left, Some(right)));
        let wrong =
            || format!("`{text}` is not a site; give an address, or address and partition, like 192.0.2.3/b");
        let partition = partition.map(str::parse).transpose().map_err(|_| wrong())?;
        Ok(Spot { server: server.parse().map_err(|_| wrong())?, partition })
    }
}

/// What would be done.
#[derive(Serialize)]
struct Plan {
    #[serde(flatten)]
    done: Transferred,
    #[serde(flatten)]
    outlook: Outlook,
}

/// The volume to restore over.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Over {
    /// Number that identifies its entry.
    family: u32,
    /// Number of the volume itself.
    volume: u32,
    place: Place,
    /// Other sites of a read-only volume, which are updated from `place`.
    others: Vec<Place>,
}

/// Returns the volume to restore over; `None` if no volume has this name.
fn over(cell: &CellClient, request: &RestoreVolume) -> Result<Option<Over>> {
    let name = request.name.as_str();
    let name_bytes_max = VolumeName::LENGTH_BYTES_MAX - ENDING.len();
    if request.readonly && name.len() > name_bytes_max {
        bail!(
            "{name}{ENDING} is too long; the name of a read-only volume has at most {name_bytes_max} bytes"
        );
    }
    let Some(located) = cell.find_newest(name)? else {
        if request.overwrite == Overwrite::Incremental {
            bail!(
                "there is no volume {name} to apply changes to; first restore the dump that they are \
                based on"
            );
        }
        return Ok(None);
    };
    let read_write = located.sites.iter().find(|site| site.is_read_write);
    if let (Some(site), true) = (read_write, request.readonly) {
        bail!(
            "the read-write volume {} is on {} {}; its read-only volumes show what it has when it is \
            released",
            located.name,
            site.server,
            site.partition
        );
    }
    if request.overwrite == Overwrite::Abort {
        bail!(
            "a volume {name} exists already; --overwrite full replaces its contents, --overwrite \
            incremental applies a dump of changes to it"
        );
    }
    if located.name != name {
        bail!("{name} belongs to the volume {}; use that name", located.name);
    }
    let site = if request.readonly { first_site(&located, request)? } else { located.read_write_site()? };
    let is_elsewhere = request.on.is_some_and(|on| on != site.server)
        || request.partition.is_some_and(|partition| partition != site.partition);
    if is_elsewhere {
        bail!("{name} is on {} {}; omit --on and --partition", site.server, site.partition);
    }
    let others =
        located.sites.iter().filter(|other| request.readonly && *other != site).map(place_of).collect();
    let volume = located.ids[usize::from(request.readonly)].0;
    Ok(Some(Over { family: located.read_write().0, volume, place: place_of(site), others }))
}

fn place_of(site: &Site) -> Place {
    Place { server: site.server, partition: site.partition.index() as i32 }
}

/// Returns the site of a read-only volume that receives the file: the named one, or the first.
fn first_site<'a>(located: &'a Located, request: &RestoreVolume) -> Result<&'a Site> {
    let name = &located.name;
    if !request.also_on.is_empty() {
        bail!("{name} already has its sites; omit --also-on");
    }
    if request.offline && located.sites.len() > 1 {
        bail!("{name} has several sites, one of which cannot be out of service alone; omit --offline");
    }
    let is_named = |site: &&Site| request.on == Some(site.server);
    let site = located.sites.iter().find(is_named).or(located.sites.first());
    site.with_context(|| format!("the volume {name} has no site"))
}

/// Fails if a dump does not fit a volume's contents, judging by their dates.
fn check_fits(contents: &Contents, path: &Path, volume: &VolintInfo) -> Result<()> {
    let (path, name) = (path.display(), &volume.name);
    if !contents.is_incremental() {
        bail!("{path}: it is a full dump; --overwrite full replaces the contents of {name} with it");
    }
    let (has, dumped) = (UnixTime(volume.update_date), contents.volume.updated);
    // A restore over a volume dates all of it, and its copy, at the time of the restore.
    let is_as_restored = volume.update_date == volume.copy_date;
    if has > dumped && !is_as_restored {
        let time = |at: UnixTime| jiff::Timestamp::from_second(at.0.into()).unwrap_or_default();
        bail!(
            "{path}: it does not follow the contents of {name}, which were changed at {}, after the last \
            change in the dump, at {}",
            time(has),
            time(dumped)
        );
    }
    Ok(())
}

/// Describes what would be done.
fn preflight(
    request: &RestoreVolume,
    contents: &Contents,
    volume: Option<&VolintInfo>,
    (at, further): (Place, &[Place]),
) -> String {
    let (file, name) = (request.file.display(), &request.name);
    let kind = if request.readonly { "read-only " } else { "" };
    let kept = contents.left_out() as u64;
    let (changed, kept) = (HumanCount(contents.nodes.len() as u64 - kept), HumanCount(kept));
    let what = match volume {
        None => format!("make a new {kind}volume {name} on {at} of {file}, {changed} files and directories"),
        Some(_) if request.overwrite == Overwrite::Incremental => format!(
            "apply {file} to {name} on {at}: {changed} files and directories change or come, {kept} stay as \
            they are, others go"
        ),
        Some(volume) => {
            let files = HumanCount(u64::try_from(volume.file_count).unwrap_or(0));
            format!(
                "replace what {name} on {at} has, {files} files and directories, by {file}, {changed} files \
                and directories"
            )
        }
    };
    let offline = if request.offline { ", and leave it out of service" } else { "" };
    let further: Vec<String> = further.iter().map(Place::to_string).collect();
    let further = if further.is_empty() {
        String::new()
    } else {
        format!(", and send it from there to {}", further.join(" and "))
    };
    format!("would {what}{offline}{further}")
}

/// Reads the dump to its end and compares it with the volume to restore over.
fn check(
    cell: &CellClient,
    request: &RestoreVolume,
    over: Option<&Over>,
) -> Result<(Contents, Option<VolintInfo>)> {
    let path = &request.file;
    let is_incremental = request.overwrite == Overwrite::Incremental;
    let contents = if is_incremental { Contents::read(path)? } else { Contents::read_all(path)? };
    let Some(&Over { volume: volume_id, place, .. }) = over else { return Ok((contents, None)) };
    let server = cell.connection(place.server, Interface::Volumes);
    let asked = vol::ListOneVolumeRequest { partition: place.partition, volume_id };
    let reply =
        vol::list_one_volume(&*server, &asked).map_err(failed(format!("examine {}", request.name)))?;
    let volume = reply.entries.into_iter().next();
    let volume = volume.with_context(|| format!("{place} reports nothing about the volume {volume_id}"))?;
    if is_incremental {
        check_fits(&contents, path, &volume)?;
    }
    Ok((contents, Some(volume)))
}

/// Returns the place for a new volume.
fn place_of_new(context: &Context, cell: &CellClient, request: &RestoreVolume) -> Result<Place> {
    let server = request.on.unwrap_or_else(|| context.default_server(cell));
    place_on(cell, Spot { server, partition: request.partition })
}

fn place_on(cell: &CellClient, Spot { server, partition }: Spot) -> Result<Place> {
    let partition = match partition {
        Some(partition) => partition,
        None => first_partition(&*cell.connection(server, Interface::Volumes))
            .with_context(|| format!("on {server}"))?,
    };
    Ok(Place { server, partition: partition.index() as i32 })
}

/// Returns the places for additional sites of a new read-only volume.
fn further_places(cell: &CellClient, request: &RestoreVolume, first: Place) -> Result<Vec<Place>> {
    if request.also_on.len() >= SITES {
        bail!("a volume has at most {SITES} sites");
    }
    let mut servers = vec![first.server];
    for spot in &request.also_on {
        if servers.contains(&spot.server) {
            bail!("{} would have two sites of one volume", spot.server);
        }
        servers.push(spot.server);
    }
    request.also_on.iter().map(|spot| place_on(cell, *spot)).collect()
}

/// Creates a volume from a file, or restores the file over a volume.
pub(super) fn restore(context: &Context, request: &RestoreVolume) -> Result<()> {
    let cell = context.client()?;
    let (path, name) = (&request.file, request.name.to_string());
    let shown = || format!("cannot read {}", path.display());
    let bytes = File::open(path).and_then(|file| file.metadata()).with_context(shown)?.len();
    // The job may be resumed by a process with another working directory.
    let whole = path.canonicalize().with_context(shown)?;
    let whole = whole.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    let over = over(&cell, request)?;
    let (place, further) = if let Some(over) = &over {
        (over.place, over.others.clone())
    } else {
        let place = place_of_new(context, &cell, request)?;
        (place, further_places(&cell, request, place)?)
    };
    let (volume, family) = over.as_ref().map_or((0, 0), |over| (over.volume, over.family));
    let (server, file) = (place.server, path.display().to_string());
    let mut done = Transferred { volume, name, server, file, bytes, seconds: 0.0, is_done: false };
    let operation = operation(request, whole, over.is_some(), (place, further.clone()));
    let make = |id| Job::new(id, operation.clone(), family, &done.name, place);
    // OpenAFS's servers overwrite a volume while they read the dump, so the dump is checked here first.
    let checked = over.as_ref().map(|over| check(&cell, request, Some(over))).transpose()?;
    if request.dry_run {
        let job = make(0);
        let outlook = outlook(&cell, &job, bytes)?;
        let (contents, volume) = checked.map_or_else(|| check(&cell, request, None), Ok)?;
        let text = preflight(request, &contents, volume.as_ref(), (place, &further));
        let text = format!("{text}\n{}", preflight::lines(&job, &outlook).join("\n"));
        return context.format.done(&Plan { done, outlook }, text);
    }
    let kept = following::journal_for(context, request.detach)?;
    let (mut job, claim) = kept.journal.begin(make)?;
    if request.detach {
        drop(claim);
        return following::report_detached(context, &job);
    }
    let start = Instant::now();
    let end = following::carry_on(context, &cell, &kept.journal, &mut job)?;
    drop(claim);
    if job.stage() != Stage::Done {
        return following::report(context, &job, end).map_err(|error| {
            let is_dump_refused = job.abort_code() == Some(AbortCode::VOLSERREAD_DUMPERROR);
            match is_dump_refused.then(|| flaw(&cell, &make(0), path, bytes)).flatten() {
                Some(flaw) => anyhow!("{error:#}; {flaw}"),
                None => error,
            }
        });
    }
    done.volume = job.restored();
    done.seconds = start.elapsed().as_secs_f64();
    done.is_done = true;
    let text = format!("{} is volume {} on {place}: {}", done.name, done.volume, done.rate());
    context.format.done(&done, text)
}

/// Runs the preflight checks and adds warnings about free space.
fn outlook(cell: &CellClient, job: &Job, bytes: u64) -> Result<Outlook> {
    let mut outlook = preflight::ask(cell, job)?;
    let short: Vec<String> = short_of_room(&outlook.partitions, bytes).collect();
    outlook.cautions.extend(short);
    Ok(outlook)
}

/// Describes the places that lack free space for a dump of this size, uncompressed.
fn short_of_room(rooms: &[PartitionSpace], bytes: u64) -> impl Iterator<Item = String> {
    let is_short = move |room: &&PartitionSpace| room.free_kib.saturating_mul(1024) < bytes;
    rooms.iter().filter(is_short).map(move |room| {
        let (free, needed) = (HumanBytes(room.free_kib.saturating_mul(1024)), HumanBytes(bytes));
        format!("{} has {free} free, and the dump {needed}", room.place)
    })
}

fn operation(
    request: &RestoreVolume,
    file: &str,
    is_over: bool,
    (to, also): (Place, Vec<Place>),
) -> Operation {
    let (file, offline, readonly) = (file.into(), request.offline, request.readonly);
    if is_over {
        let changes = request.overwrite == Overwrite::Incremental;
        return Operation::Overwrite(jobs::Overwrite { file, changes, offline, readonly });
    }
    Operation::Restore(jobs::Restore { file, name: request.name.to_string(), to, offline, readonly, also })
}

/// Explains why a server reports that a dump is damaged. OpenAFS's servers also report this for a full
/// partition.
fn flaw(cell: &CellClient, job: &Job, path: &Path, bytes: u64) -> Option<String> {
    match job.operation() {
        Operation::Overwrite(jobs::Overwrite { changes: true, .. }) => {
            Some(format!("the dump is sound, but names files that {} does not have", job.name))
        }
        Operation::Overwrite(_) => Some(format!("the dump is sound, so {} may be full", job.from)),
        _ => Contents::read_all(path).err().map(|flaw| format!("{flaw:#}")).or_else(|| {
            let rooms = preflight::ask(cell, job).ok()?.partitions;
            short_of_room(&rooms, bytes).next().map(|short| format!("the dump is sound, but {short}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_client::fakes::behind;

    fn request(name: &str, overwrite: Overwrite) -> RestoreVolume {
        RestoreVolume {
            file: "dump".into(),
            name: name.parse().unwrap(),
            on: None,
            partition: None,
            overwrite,
            offline: false,
            readonly: false,
            also_on: Vec::new(),
            dry_run: true,
            detach: false,
        }
    }

    #[test]
    fn overwriting_a_volume_needs_the_option_and_the_sync_site() {
        let (fakes, _) = behind::cell();
        let cell = fakes.cell(3);
        let refusal = |request: &RestoreVolume| over(&cell, request).unwrap_err().to_string();
        let exists = refusal(&request("new", Overwrite::Abort));
        assert!(
            ["exists", "--overwrite full", "--overwrite incremental"]
                .iter()
                .all(|word| exists.contains(word))
        );
        for how in [Overwrite::Full, Overwrite::Incremental] {
            let over = over(&cell, &request("moved", how)).unwrap().unwrap();
            assert_eq!(over.place.server, behind::NEW);
        }
        let old = RestoreVolume { on: Some(behind::OLD), ..request("moved", Overwrite::Full) };
        assert!(refusal(&old).contains("10.0.1.2"));
        assert_eq!(over(&cell, &request("none", Overwrite::Abort)).unwrap(), None);
        assert_eq!(over(&cell, &request("none", Overwrite::Full)).unwrap(), None);
        assert!(refusal(&request("none", Overwrite::Incremental)).contains("no volume none"));
    }

    #[test]
    fn a_read_only_volume_is_overwritten_only_if_it_is_the_only_one() {
        let (fakes, _) = behind::cell();
        let cell = fakes.cell(3);
        let read_only = |name, how| RestoreVolume { readonly: true, ..request(name, how) };
        let refusal = |request: &RestoreVolume| over(&cell, request).unwrap_err().to_string();
        for how in [Overwrite::Abort, Overwrite::Full, Overwrite::Incremental] {
            let refused = refusal(&read_only("moved", how));
            assert!(refused.contains("the read-write volume moved is on 10.0.1.2 /vicepa"), "{refused}");
        }
        assert_eq!(over(&cell, &read_only("none", Overwrite::Abort)).unwrap(), None);
        assert!(refusal(&read_only("copies", Overwrite::Abort)).contains("exists already"));
        let place = Place { server: behind::NEW, partition: 0 };
        let found = over(&cell, &read_only("copies", Overwrite::Full)).unwrap();
        let (family, volume) = (behind::COPIES[0], behind::COPIES[1]);
        assert_eq!(found, Some(Over { family, volume, place, others: Vec::new() }));
        let elsewhere = RestoreVolume { on: Some(behind::OLD), ..read_only("copies", Overwrite::Full) };
        assert!(refusal(&elsewhere).contains("omit --on"));
        assert!(refusal(&request("copies", Overwrite::Full)).contains("no read-write site"));
        let elsewhere = Place { server: behind::OLD, partition: 0 };
        let both = over(&cell, &read_only("twice", Overwrite::Full)).unwrap().unwrap();
        assert_eq!((both.place, both.others), (place, vec![elsewhere]));
        let named = RestoreVolume { on: Some(behind::OLD), ..read_only("twice", Overwrite::Full) };
        let both = over(&cell, &named).unwrap().unwrap();
        assert_eq!((both.place, both.others), (elsewhere, vec![place]));
        let offline = RestoreVolume { offline: true, ..read_only("twice", Overwrite::Full) };
        assert!(refusal(&offline).contains("omit --offline"));
        let more = RestoreVolume {
            also_on: vec!["192.0.2.9".parse().unwrap()],
            ..read_only("twice", Overwrite::Full)
        };
        assert!(refusal(&more).contains("omit --also-on"));
        let long = refusal(&read_only("a-name-of-23-characters", Overwrite::Abort));
        assert!(long.contains("at most 22 bytes"), "{long}");
    }

    #[test]
    fn further_sites_are_on_servers_of_their_own() {
        let (fakes, _) = behind::cell();
        let cell = fakes.cell(3);
        let first = Place { server: behind::NEW, partition: 0 };
        let places = |sites: &[&str]| {
            let also_on = sites.iter().map(|site| site.parse().unwrap()).collect();
            further_places(&cell, &RestoreVolume { also_on, ..request("new", Overwrite::Abort) }, first)
        };
        let shown = |places: Vec<Place>| places.iter().map(Place::to_string).collect::<Vec<_>>();
        let reported = shown(places(&["192.0.2.9/b", "192.0.2.8/c"]).unwrap());
        assert_eq!(reported, ["192.0.2.9 /vicepb", "192.0.2.8 /vicepc"]);
        assert!(places(&["10.0.1.2/b"]).unwrap_err().to_string().contains("two sites"));
        assert!(places(&["192.0.2.9/a", "192.0.2.9/b"]).unwrap_err().to_string().contains("two sites"));
        assert!(places(&["192.0.2.9/a"; SITES]).unwrap_err().to_string().contains("at most 13"));
        for wrong in ["", "host", "192.0.2.9/", "192.0.2.9/1", "192.0.2.9:b"] {
            assert!(wrong.parse::<Spot>().unwrap_err().contains("192.0.2.3/b"), "{wrong}");
        }
    }

    #[test]
    fn changes_are_refused_by_a_volume_that_was_changed_after_them() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/afs-format/testdata/dump");
        let golden = |name: &str| folder.join(name);
        let (full, changes) = (golden("full"), golden("incremental"));
        let [whole, part] = [&full, &changes].map(|path| Contents::read(path).unwrap());
        let volume = |update_date| VolintInfo {
            name: "data".into(),
            update_date,
            file_count: 7,
            ..VolintInfo::default()
        };
        let refused = check_fits(&whole, &full, &volume(0)).unwrap_err().to_string();
        assert!(refused.contains("--overwrite full"), "{refused}");
        let last = part.volume.updated.0;
        check_fits(&part, &changes, &volume(last)).unwrap();
        let refused = check_fits(&part, &changes, &volume(last + 1)).unwrap_err().to_string();
        assert!(refused.contains("does not follow the contents of data"), "{refused}");
        let restored = VolintInfo { copy_date: last + 1, ..volume(last + 1) };
        check_fits(&part, &changes, &restored).unwrap();
        let at = Place { server: behind::NEW, partition: 0 };
        let preview =
            |how, volume: Option<&VolintInfo>| preflight(&request("data", how), &part, volume, (at, &[at]));
        assert!(preview(Overwrite::Abort, None).ends_with(", and send it from there to 10.0.1.2 /vicepa"));
        assert!(
            preview(Overwrite::Abort, None).starts_with("would make a new volume data on 10.0.1.2 /vicepa")
        );
        assert!(preview(Overwrite::Full, Some(&volume(0))).starts_with("would replace what data on"));
        let applied = preview(Overwrite::Incremental, Some(&volume(0)));
        assert!(applied.starts_with("would apply dump to data on") && part.left_out() > 0, "{applied}");
    }
}
