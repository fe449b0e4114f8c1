//! `cellar volume snapshot`.

use super::{Context, volume};
use crate::output::Row;
use afs_idl::ClientConnection;
use afs_idl::cellar::{self, SnapshotInfo, SnapshotPolicy};
use anyhow::{Context as _, Result, bail};
use base::{AbortCode, SnapshotName, VolumeId};
use cell_client::describe::describe;
use cell_client::location::{Located, Site};
use cell_client::network::now;
use cell_client::{CellClient, Interface};
use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use serde::Serialize;
use std::str::FromStr;
use std::sync::Arc;

/// Manage named snapshots of a volume.
#[derive(Subcommand)]
pub enum Snapshot {
    /// Create a snapshot: a read-only volume with the present contents of VOLUME. It takes no space until
    /// VOLUME changes.
    Create(Create),
    /// List the snapshots of a volume, oldest first.
    List(List),
    /// Remove a snapshot.
    Remove(Remove),
    /// Restore the contents of VOLUME from a snapshot. Later changes are lost unless another snapshot has
    /// them; all snapshots are kept.
    Rollback(Rollback),
    /// Show or set the number of automatic snapshots that the server keeps.
    Policy(Policy),
    /// Create a mount point for a snapshot.
    Mount(Mount),
}

/// Create a snapshot.
#[derive(Args)]
pub struct Create {
    /// Name or number of the read-write volume.
    volume: String,
    /// Name of the snapshot, like `before-upgrade`.
    name: SnapshotName,
    /// Remove the snapshot automatically after this time, like `30d`, `12h` or `2w`.
    #[arg(long, value_name = "TIME")]
    expires: Option<Span>,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// List the snapshots of a volume.
#[derive(Args)]
pub struct List {
    /// Name or number of the volume.
    volume: String,
    /// Show the space that removing each snapshot would free; this scans the whole volume.
    #[arg(long)]
    space: bool,
}

/// A snapshot of a volume.
#[derive(Args)]
pub struct Which {
    /// Name or number of the volume.
    volume: String,
    /// Name of the snapshot.
    name: SnapshotName,
}

/// Remove a snapshot.
#[derive(Args)]
pub struct Remove {
    #[command(flatten)]
    which: Which,
    /// Show what would be removed and the space that would be freed, without removing anything.
    #[arg(long)]
    dry_run: bool,
}

/// Restore the contents of a volume from a snapshot.
#[derive(Args)]
pub struct Rollback {
    #[command(flatten)]
    which: Which,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// Show or set the policy for automatic snapshots. When any count is given, those left out are set to 0.
#[derive(Args)]
pub struct Policy {
    /// Name or number of the read-write volume.
    volume: String,
    /// Keep one snapshot for each of the last N hours with changes.
    #[arg(long, value_name = "N")]
    hourly: Option<u16>,
    /// Keep one snapshot for each of the last N days with changes.
    #[arg(long, value_name = "N")]
    daily: Option<u16>,
    /// Keep one snapshot for each of the last N weeks with changes.
    #[arg(long, value_name = "N")]
    weekly: Option<u16>,
    /// Keep one snapshot for each of the last N months with changes.
    #[arg(long, value_name = "N")]
    monthly: Option<u16>,
    /// Stop creating and removing snapshots automatically; existing ones stay.
    #[arg(long, conflicts_with_all = ["hourly", "daily", "weekly", "monthly"])]
    none: bool,
    /// Show what would be set without setting it.
    #[arg(long)]
    dry_run: bool,
}

/// Create a mount point for a snapshot.
#[derive(Args)]
pub struct Mount {
    /// VOLUME/PATH of the mount point.
    place: String,
    #[command(flatten)]
    which: Which,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// A duration like `30d`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(u32);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong = || format!("`{text}` is not a duration like 90m, 12h, 30d or 2w");
        let unit = text.chars().last().ok_or_else(wrong)?;
        let seconds: u32 = match unit {
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return Err(wrong()),
        };
        let count: u32 = text.strip_suffix(unit).unwrap_or_default().parse().map_err(|_| wrong())?;
        count.checked_mul(seconds).filter(|&span| span > 0).map(Span).ok_or_else(wrong)
    }
}

#[derive(Serialize)]
struct SnapshotView {
    name: String,
    made: u32,
    expires: Option<u32>,
    kept_as: Vec<&'static str>,
    volume: u32,
    volume_name: String,
    used_kib: u64,
    files: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gives_back_bytes: Option<u64>,
}

fn time(seconds: u32) -> String {
    jiff::Timestamp::from_second(seconds.into())
        .map_or_else(|_| seconds.to_string(), |at| at.strftime("%F %T").to_string())
}

impl Row for SnapshotView {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "CREATED (UTC)", "EXPIRES", "KEPT AS", "VOLUME", "ID", "USED", "FILES", "FREES"];

    fn cells(&self) -> Vec<String> {
        let kept = if self.kept_as.is_empty() { "manual".into() } else { self.kept_as.join(", ") };
        vec![
            self.name.clone(),
            time(self.made),
            self.expires.map_or_else(|| "-".into(), time),
            kept,
            self.volume_name.clone(),
            self.volume.to_string(),
            HumanBytes(self.used_kib << 10).to_string(),
            self.files.to_string(),
            self.gives_back_bytes.map_or_else(|| "-".into(), |bytes| HumanBytes(bytes).to_string()),
        ]
    }
}

impl SnapshotView {
    fn new(info: &SnapshotInfo) -> SnapshotView {
        let names = ["hour", "day", "week", "month"];
        let kept_as = (0..).zip(names).filter(|(bit, _)| info.kept & 1 << bit != 0).map(|(_, name)| name);
        SnapshotView {
            name: info.name.to_string(),
            made: info.made,
            expires: (info.expires > 0).then_some(info.expires),
            kept_as: kept_as.collect(),
            volume: info.volume,
            volume_name: info.volume_name.to_string(),
            used_kib: info.used_kib,
            files: info.files,
            gives_back_bytes: None,
        }
    }
}

/// A volume and the server that has its snapshots.
pub struct Target {
    /// The name given on the command line.
    name: String,
    id: VolumeId,
    server: Arc<dyn ClientConnection>,
    site: Site,
}

impl Target {
    /// Locates a volume for reading its snapshots.
    pub fn find(cell: &CellClient, volume: &str) -> Result<Target> {
        Target::new(cell, volume, &volume::locate_to_read(cell, volume)?)
    }

    /// Locates a volume for changing its snapshots, with an entry that is not out of date.
    fn to_change(cell: &CellClient, volume: &str) -> Result<Target> {
        Target::new(cell, volume, &cell.locate_newest(volume)?)
    }

    fn new(cell: &CellClient, volume: &str, located: &Located) -> Result<Target> {
        let site = located.read_write_site()?.clone();
        let server = cell.connection(site.server, Interface::Cellar);
        Ok(Target { name: volume.into(), id: located.read_write(), server, site })
    }

    /// Explains an abort code and suggests a remedy.
    fn explain(&self, doing: &str, code: AbortCode) -> anyhow::Error {
        let (volume, server) = (&self.name, self.site.server);
        let why = match code {
            AbortCode::RX_INVALID_OPERATION | AbortCode::RXGEN_OPCODE => {
                format!("{server} is not a Cellar server of this version; only Cellar has snapshots")
            }
            AbortCode::UAEEXIST => {
                "a snapshot with this name exists; choose another name or remove it first".into()
            }
            AbortCode::UAENOENT => match self.names() {
                Some(names) if names.is_empty() => format!("{volume} has no snapshots"),
                Some(names) => format!("there is no such snapshot; {volume} has {}", names.join(", ")),
                None => "there is no such snapshot".into(),
            },
            AbortCode::UAEROFS => format!("{volume} is not a read-write volume"),
            AbortCode::UAEXDEV => {
                format!("{volume} was moved to another partition since; mount the snapshot and copy from it")
            }
            AbortCode::VOLSERVOLBUSY => {
                format!(
                    "a volume transaction is using {volume}; try again when `vos status {server}` shows \
                    none"
                )
            }
            other => describe(other),
        };
        anyhow::anyhow!("cannot {doing}: {why}")
    }

    /// Fails unless the caller may change snapshots.
    fn check_right(&self, cell: &CellClient, doing: &str) -> Result<()> {
        cell.check_administers(self.site.server).map_err(|code| self.explain(doing, code))
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.list().ok()?.iter().map(|info| info.name.to_string()).collect())
    }

    fn list(&self) -> Result<Vec<SnapshotInfo>, AbortCode> {
        let mut all = Vec::new();
        loop {
            let request = cellar::ListSnapshotsRequest { volume: self.id.0, skip: all.len() as u32 };
            let found = cellar::list_snapshots(&*self.server, &request)?.snapshots;
            if found.is_empty() {
                return Ok(all);
            }
            all.extend(found);
        }
    }

    fn find_snapshot(&self, name: &SnapshotName, doing: &str) -> Result<SnapshotInfo> {
        let all = self.list().map_err(|code| self.explain(doing, code))?;
        let found = all.into_iter().find(|info| info.name.as_str() == Some(name.as_str()));
        found.ok_or_else(|| self.explain(doing, AbortCode::UAENOENT))
    }

    /// Returns the bytes that removing a snapshot frees.
    fn space_of(&self, info: &SnapshotInfo, doing: &str) -> Result<u64> {
        let request = cellar::GetSnapshotSpaceRequest { volume: self.id.0, name: info.name.clone() };
        let space =
            cellar::get_snapshot_space(&*self.server, &request).map_err(|code| self.explain(doing, code))?;
        Ok(space.record_bytes + space.chunk_bytes)
    }

    fn policy(&self) -> Result<SnapshotPolicy> {
        let request = cellar::GetSnapshotPolicyRequest { volume: self.id.0 };
        let reply = cellar::get_snapshot_policy(&*self.server, &request);
        let failed = |code| self.explain(&format!("read the policy of {}", self.name), code);
        reply.map(|reply| reply.policy).map_err(failed)
    }

    fn set_policy(&self, policy: SnapshotPolicy) -> Result<()> {
        let request = cellar::SetSnapshotPolicyRequest { volume: self.id.0, policy };
        let set = cellar::set_snapshot_policy(&*self.server, &request);
        set.map(drop).map_err(|code| self.explain(&format!("set the policy of {}", self.name), code))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let request = cellar::RemoveSnapshotRequest { volume: self.id.0, name: name.into() };
        cellar::remove_snapshot(&*self.server, &request)
            .map_err(|code| self.explain(&format!("remove the snapshot {name}"), code))?;
        Ok(())
    }
}

/// Runs the command.
pub fn run(context: &Context, command: &Snapshot) -> Result<()> {
    let cell = context.client()?;
    match command {
        Snapshot::Create(create) if create.dry_run => preflight(context, &cell, create),
        Snapshot::Create(create) => {
            let made = make(&cell, create)?;
            let sentence = format!("{} is volume {} {}", create.name, made.volume_name, made.volume);
            context.format.done(&SnapshotView::new(&made), sentence)
        }
        Snapshot::List(list) => show(context, &cell, list),
        Snapshot::Remove(Remove { which, dry_run: true }) => preview_removal(context, &cell, which),
        Snapshot::Remove(Remove { which: Which { volume, name }, .. }) => {
            Target::to_change(&cell, volume)?.remove(name.as_str())?;
            context.format.done(&true, format!("the snapshot {name} of {volume} is removed"))
        }
        Snapshot::Rollback(rollback) => roll_back(context, &cell, rollback),
        Snapshot::Policy(policy) => keep(context, &cell, policy),
        Snapshot::Mount(Mount { place, which, dry_run }) => {
            let target = Target::find(&cell, &which.volume)?;
            let info = target.find_snapshot(&which.name, &format!("mount the snapshot {}", which.name))?;
            let name = info.volume_name.to_string();
            if *dry_run {
                return volume::foretell_mount_point(context, &cell, place, &name);
            }
            volume::make_mount_point(&cell, place, &name, false)?;
            context.format.done(&true, format!("{place} now points to {name}"))
        }
    }
}

fn make(cell: &CellClient, create: &Create) -> Result<SnapshotInfo> {
    let (target, name) = (Target::to_change(cell, &create.volume)?, create.name.as_str());
    let expires = create.expires.map_or(0, |Span(span)| now().0.saturating_add(span));
    let request = cellar::CreateSnapshotRequest { volume: target.id.0, name: name.into(), expires };
    let made = cellar::create_snapshot(&*target.server, &request)
        .map_err(|code| target.explain(&format!("make the snapshot {name} of {}", target.name), code))?;
    Ok(made.snapshot)
}

/// A snapshot that would be created.
#[derive(Serialize)]
struct Preview<'a> {
    volume: &'a str,
    name: &'a str,
    expires: Option<u32>,
    is_done: bool,
}

fn preflight(context: &Context, cell: &CellClient, create: &Create) -> Result<()> {
    let (target, name) = (Target::to_change(cell, &create.volume)?, create.name.as_str());
    let doing = format!("make the snapshot {name} of {}", target.name);
    target.check_right(cell, &doing)?;
    let all = target.list().map_err(|code| target.explain(&doing, code))?;
    if all.iter().any(|info| info.name.as_str() == Some(name)) {
        return Err(target.explain(&doing, AbortCode::UAEEXIST));
    }
    let expires = create.expires.map(|Span(span)| now().0.saturating_add(span));
    let until = expires.map_or_else(String::new, |at| format!(", which expires at {} UTC", time(at)));
    let reported = Preview { volume: &target.name, name, expires, is_done: false };
    context.format.done(&reported, format!("would make the snapshot {name} of {}{until}", target.name))
}

fn show(context: &Context, cell: &CellClient, list: &List) -> Result<()> {
    let target = Target::find(cell, &list.volume)?;
    let doing = format!("list the snapshots of {}", target.name);
    let all = target.list().map_err(|code| target.explain(&doing, code))?;
    let mut rows: Vec<SnapshotView> = all.iter().map(SnapshotView::new).collect();
    for (row, info) in rows.iter_mut().zip(&all).filter(|_| list.space) {
        row.gives_back_bytes = Some(target.space_of(info, &doing)?);
    }
    context.format.rows(&rows)
}

/// Shows what removing a snapshot would do.
fn preview_removal(context: &Context, cell: &CellClient, Which { volume, name }: &Which) -> Result<()> {
    let (target, doing) = (Target::find(cell, volume)?, format!("remove the snapshot {name}"));
    target.check_right(cell, &doing)?;
    let info = target.find_snapshot(name, &doing)?;
    let bytes = target.space_of(&info, &doing)?;
    let shown = SnapshotView { gives_back_bytes: Some(bytes), ..SnapshotView::new(&info) };
    let (made, bytes) = (time(info.made), HumanBytes(bytes));
    let sentence =
        format!("the snapshot {name} of {volume}, created {made} UTC, would be removed; that frees {bytes}");
    context.format.done(&shown, sentence)
}

#[derive(Serialize)]
struct RolledBack {
    volume: String,
    snapshot: String,
    made: u32,
    is_done: bool,
    newer_snapshots: Vec<String>,
}

fn roll_back(context: &Context, cell: &CellClient, rollback: &Rollback) -> Result<()> {
    let Which { volume, name } = &rollback.which;
    let target = Target::to_change(cell, volume)?;
    let doing = format!("roll {volume} back to {name}");
    let all = target.list().map_err(|code| target.explain(&doing, code))?;
    let at = all.iter().position(|info| info.name.as_str() == Some(name.as_str()));
    let at = at.ok_or_else(|| target.explain(&doing, AbortCode::UAENOENT))?;
    let newer_snapshots: Vec<String> = all[at + 1..].iter().map(|info| info.name.to_string()).collect();
    if rollback.dry_run {
        target.check_right(cell, &doing)?;
        if all[at].partition != target.site.partition.index() {
            return Err(target.explain(&doing, AbortCode::UAEXDEV));
        }
    } else {
        let request = cellar::RollBackVolumeRequest { volume: target.id.0, name: name.as_str().into() };
        cellar::roll_back_volume(&*target.server, &request).map_err(|code| target.explain(&doing, code))?;
    }
    let verb = if rollback.dry_run { "would be" } else { "is" };
    let made = all[at].made;
    let newer =
        if newer_snapshots.is_empty() { "no newer snapshot".into() } else { newer_snapshots.join(", ") };
    let sentence =
        format!("{volume} {verb} in its state of {} UTC; later states remain in: {newer}", time(made));
    let (volume, snapshot) = (volume.clone(), name.to_string());
    let done = RolledBack { volume, snapshot, made, is_done: !rollback.dry_run, newer_snapshots };
    context.format.done(&done, sentence)
}

#[derive(Serialize)]
struct Kept {
    volume: String,
    hourly: u32,
    daily: u32,
    weekly: u32,
    monthly: u32,
}

impl Row for Kept {
    const COLUMNS: &'static [&'static str] = &["VOLUME", "HOURLY", "DAILY", "WEEKLY", "MONTHLY"];

    fn cells(&self) -> Vec<String> {
        let counts = [self.hourly, self.daily, self.weekly, self.monthly].map(|count| count.to_string());
        [self.volume.clone()].into_iter().chain(counts).collect()
    }
}

/// The present policy and the new one.
#[derive(Serialize)]
struct Foreseen {
    present: Kept,
    wanted: Kept,
    is_done: bool,
}

impl Kept {
    fn new(volume: &str, policy: SnapshotPolicy) -> Kept {
        let SnapshotPolicy { hourly, daily, weekly, monthly } = policy;
        Kept { volume: volume.into(), hourly, daily, weekly, monthly }
    }

    /// Describes the change.
    fn describe(&self) -> String {
        let Kept { hourly, daily, weekly, monthly, .. } = self;
        match [hourly, daily, weekly, monthly] {
            [0, 0, 0, 0] => "none".into(),
            _ => format!("{hourly} hourly, {daily} daily, {weekly} weekly, {monthly} monthly"),
        }
    }
}

fn keep(context: &Context, cell: &CellClient, wanted: &Policy) -> Result<()> {
    let counts = [wanted.hourly, wanted.daily, wanted.weekly, wanted.monthly];
    let changes = wanted.none || counts.iter().any(Option::is_some);
    let find = if changes { Target::to_change } else { Target::find };
    let target = find(cell, &wanted.volume)?;
    let [hourly, daily, weekly, monthly] = counts.map(|count| count.unwrap_or(0).into());
    let policy = SnapshotPolicy { hourly, daily, weekly, monthly };
    let changing = format!("set the policy of {}", target.name);
    if changes && wanted.dry_run {
        target.check_right(cell, &changing)?;
        let (present, wanted) = (target.policy()?, policy);
        let [present, wanted] = [present, wanted].map(|policy| Kept::new(&target.name, policy));
        let (is, then) = (present.describe(), wanted.describe());
        let sentence = format!("{} would keep automatically: {then}; at present: {is}", target.name);
        return context.format.done(&Foreseen { present, wanted, is_done: false }, sentence);
    }
    if changes {
        target.set_policy(policy)?;
    }
    context.format.rows(&[Kept::new(&wanted.volume, target.policy()?)])
}

/// Returns the numbers of hourly, daily, weekly and monthly snapshots of a policy.
pub(super) fn counts(policy: &SnapshotPolicy) -> [u32; 4] {
    let SnapshotPolicy { hourly, daily, weekly, monthly } = *policy;
    [hourly, daily, weekly, monthly]
}

/// Sets the numbers of hourly, daily, weekly and monthly snapshots that a volume's server keeps.
pub(super) fn set_policy(cell: &CellClient, volume: &str, counts: [u32; 4]) -> Result<()> {
    let [hourly, daily, weekly, monthly] = counts;
    Target::to_change(cell, volume)?.set_policy(SnapshotPolicy { hourly, daily, weekly, monthly })
}

/// Snapshots to be removed with their volume.
pub struct Doomed {
    /// The volume; `None` if it can have no snapshots.
    target: Option<Target>,
    /// Names of the snapshots.
    pub names: Vec<String>,
}

impl Doomed {
    /// Removes the snapshots.
    pub fn remove(&self) -> Result<()> {
        let Some(target) = &self.target else { return Ok(()) };
        let removed = self.names.iter().try_for_each(|name| target.remove(name));
        removed.context("the volume itself is not removed")
    }
}

/// Checks snapshots before their volume is removed: fails if there are any, unless `with_snapshots` asks for
/// their removal too.
pub fn doomed(cell: &CellClient, volume: &str, with_snapshots: bool) -> Result<Doomed> {
    let none = || Doomed { target: None, names: Vec::new() };
    // A volume without a read-write site can have no snapshots.
    let located = cell.locate_newest(volume)?;
    let Ok(target) = Target::new(cell, volume, &located) else { return Ok(none()) };
    let names = match target.list() {
        Ok(found) => found.iter().map(|info| info.name.to_string()).collect::<Vec<_>>(),
        // A foreign server, or one that does not answer: in that case nothing is removed anyway.
        Err(AbortCode::RX_INVALID_OPERATION | AbortCode::RXGEN_OPCODE | AbortCode::RX_CALL_DEAD) => {
            return Ok(none());
        }
        Err(code) => return Err(target.explain(&format!("list the snapshots of {volume}"), code)),
    };
    if !names.is_empty() && !with_snapshots {
        bail!("{volume} has snapshots: {}; remove them first, or give --snapshots", names.join(", "));
    }
    Ok(Doomed { target: Some(target), names })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_client::fakes::behind;

    #[test]
    fn snapshots_are_where_the_sync_site_says_that_the_volume_is() {
        let (fakes, _) = behind::cell();
        let cell = fakes.cell(3);
        let find = |find: fn(&CellClient, &str) -> Result<Target>| find(&cell, "moved").unwrap().site.server;
        assert_eq!(find(Target::to_change), behind::NEW);
        assert_eq!(find(Target::find), behind::NEW, "and looked at there");
        doomed(&cell, "moved", false).unwrap().remove().unwrap();
        let (volume, name) = ("moved".into(), "now".parse().unwrap());
        let create = Create { volume, name, expires: None, dry_run: false };
        make(&cell, &create).unwrap();
    }

    #[test]
    fn an_unlocatable_volume_is_not_reported_without_snapshots() {
        let (fakes, _) = behind::cell();
        let cell = fakes.cell(3);
        fakes.fail(cell_client::fakes::server(3), Some(AbortCode::RX_CALL_DEAD));
        assert!(doomed(&cell, "moved", false).is_err());
    }

    #[test]
    fn spans_are_counts_with_a_unit() {
        let parse = |text: &str| text.parse::<Span>().ok().map(|Span(seconds)| seconds);
        assert_eq!(["90m", "12h", "30d", "2w"].map(parse), [5400, 43_200, 2_592_000, 1_209_600].map(Some));
        for wrong in ["", "d", "30", "0d", "-1d", "1.5h", "9999999w", "3 d", "3ä"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
