//! Settings of a volume: its quota, and how its data is stored, which only Cellar servers support.

use super::quota;
use crate::commands::Context;
use afs_idl::cellar::{
    self, GetVolumeDeduplicationRequest, GetVolumePolicyReply, GetVolumePolicyRequest,
    PurgeVolumeCacheRequest, SetVolumeDeduplicationRequest, SetVolumePolicyRequest,
};
use anyhow::Result;
use base::AbortCode;
use cell_client::describe::failed;
use cell_client::{CellClient, Interface};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::net::Ipv4Addr;
use store::Codec;

/// Change the settings of a volume.
#[derive(Args)]
#[group(id = "changes", required = true, multiple = true, args = ["quota", "compression", "deduplication"])]
pub struct Set {
    /// Name or number of the volume.
    volume: String,
    /// Maximum size: KiB, or a number with K, M, G or T, like 2G; 0 is unlimited.
    #[arg(long, value_parser = quota::parse)]
    quota: Option<i32>,
    /// Compression of new file data: raw, lz4, zstd:1 to zstd:19, or `default` for the server's setting.
    #[arg(long, value_name = "POLICY", value_parser = parse)]
    compression: Option<Compression>,
    /// Whether new file data shares chunks of equal contents with other files on the partition. Existing
    /// sharing is kept.
    #[arg(long, value_enum)]
    deduplication: Option<Switch>,
    /// Show what would be set without setting it.
    #[arg(long)]
    dry_run: bool,
}

/// Drop a volume from the server's in-memory caches.
#[derive(Args)]
pub struct Forget {
    /// Name or number of the volume.
    volume: String,
    /// Show what would be done without doing it.
    #[arg(long)]
    dry_run: bool,
}

/// On or off.
#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    /// Store chunks of equal contents once.
    On,
    /// Store separate chunks for each file.
    Off,
}

impl Switch {
    fn is_on(self) -> bool {
        matches!(self, Switch::On)
    }
}

/// A compression policy; `None` is the server's.
#[derive(Clone, Copy)]
struct Compression(Option<Codec>);

fn parse(text: &str) -> Result<Compression, String> {
    match text {
        "default" => Ok(Compression(None)),
        text => match text.parse() {
            Ok(codec) => Ok(Compression(Some(codec))),
            Err(error) => Err(format!("{error}, and `default`")),
        },
    }
}

/// The settings afterwards.
#[derive(Serialize)]
struct Changed {
    volume: String,
    quota_kib: Option<i32>,
    compression: Option<String>,
    deduplication: Option<bool>,
    is_done: bool,
}

/// Number of entries dropped from the caches; zero in a dry run.
#[derive(Serialize)]
struct Forgotten {
    volume: String,
    status: u64,
    directories: u64,
    chunks: u64,
    is_done: bool,
}

/// Parses a compression policy into a codec's name, empty for the server's setting.
pub(in crate::commands) fn parse_compression(text: &str) -> Result<String, String> {
    Ok(parse(text)?.0.map(|codec| codec.to_string()).unwrap_or_default())
}

/// Settings to change; `None` leaves one as it is.
#[derive(Default)]
pub(in crate::commands) struct Settings<'a> {
    pub(in crate::commands) quota_kib: Option<i32>,
    /// As from [`parse_compression`].
    pub(in crate::commands) compression: Option<&'a str>,
    pub(in crate::commands) deduplication: Option<bool>,
}

/// Changes settings of a read-write volume.
pub(in crate::commands) fn change_settings(
    cell: &CellClient,
    volume: &str,
    settings: &Settings<'_>,
) -> Result<()> {
    let compression = match settings.compression {
        Some("") => Some(Compression(None)),
        Some(text) => Some(parse(text).map_err(anyhow::Error::msg)?),
        None => None,
    };
    let switch = |is_on| if is_on { Switch::On } else { Switch::Off };
    let (quota, deduplication) = (settings.quota_kib, settings.deduplication.map(switch));
    change(cell, &Set { volume: volume.into(), quota, compression, deduplication, dry_run: false }).map(drop)
}

/// Applies the settings to a read-write volume.
pub(super) fn set(context: &Context, cell: &CellClient, set: &Set) -> Result<()> {
    let (changed, sentence) = if set.dry_run { preflight(cell, set)? } else { change(cell, set)? };
    context.format.done(&changed, sentence)
}

impl Set {
    /// Returns whether any setting is one that OpenAFS's servers do not have.
    fn sets_policy(&self) -> bool {
        self.compression.is_some() || self.deduplication.is_some()
    }
}

/// Describes a failure to set the policy.
fn refused(set: &Set, server: Ipv4Addr) -> impl FnOnce(AbortCode) -> anyhow::Error + use<> {
    failed(format!("set the policy of {} on {server} (only Cellar's servers have policies)", set.volume))
}

/// Describes a failure to set the quota.
fn refused_quota(set: &Set, server: Ipv4Addr) -> impl FnOnce(AbortCode) -> anyhow::Error + use<> {
    failed(format!("set the quota of {} on {server}", set.volume))
}

fn change(cell: &CellClient, set: &Set) -> Result<(Changed, String)> {
    let located = cell.locate_newest(&set.volume)?;
    let (site, id) = (located.read_write_site()?, located.read_write().0);
    let server = cell.connection(site.server, Interface::Cellar);
    if let Some(compression) = set.compression {
        let text = compression.0.map(|codec| codec.to_string()).unwrap_or_default();
        let request = SetVolumePolicyRequest { volume: id, compression: text.as_str().into() };
        cellar::set_volume_policy(&*server, &request).map_err(refused(set, site.server))?;
    }
    if let Some(switch) = set.deduplication {
        let request = SetVolumeDeduplicationRequest { volume: id, enabled: switch.is_on().into() };
        cellar::set_volume_deduplication(&*server, &request).map_err(refused(set, site.server))?;
    }
    if let Some(kib) = set.quota {
        quota::set(cell, (site.server, site.partition), id, kib).map_err(refused_quota(set, site.server))?;
    }
    let changed = Changed {
        quota_kib: set.quota.or_else(|| quota::get(cell, site.server, id).ok()),
        compression: effective(cell, site.server, id),
        deduplication: deduplicates(cell, site.server, id),
        volume: located.name,
        is_done: true,
    };
    let sentence = sentence(set, &changed);
    Ok((changed, sentence))
}

/// Predicts the settings; those not named stay as they are.
fn preflight(cell: &CellClient, set: &Set) -> Result<(Changed, String)> {
    let located = cell.locate_newest(&set.volume)?;
    let (site, id) = (located.read_write_site()?, located.read_write().0);
    let mut compression = None;
    if set.sets_policy() {
        cell.check_administers(site.server).map_err(refused(set, site.server))?;
        let server = cell.connection(site.server, Interface::Cellar);
        let present = cellar::get_volume_policy(&*server, &GetVolumePolicyRequest { volume: id })
            .map_err(refused(set, site.server))?;
        compression = Some(match set.compression {
            Some(Compression(Some(codec))) => codec.to_string(),
            Some(Compression(None)) => "default".into(),
            None => effective_of(&present),
        });
    }
    if set.quota.is_some() {
        quota::check(cell, (site.server, site.partition), id).map_err(refused_quota(set, site.server))?;
    }
    let deduplication = set.deduplication.map(Switch::is_on).or_else(|| deduplicates(cell, site.server, id));
    let (volume, quota_kib) = (located.name, set.quota);
    let changed = Changed { volume, quota_kib, compression, deduplication, is_done: false };
    let sentence = sentence(set, &changed);
    Ok((changed, sentence))
}

/// Describes the settings.
fn sentence(set: &Set, changed: &Changed) -> String {
    let (has, when, is) =
        if changed.is_done { ("has", "now", "is") } else { ("would have", "then", "would be") };
    let quota = set.quota.map(|kib| format!("{has} {}", quota::in_words(kib)));
    let policy = set.sets_policy().then(|| {
        let compression = changed.compression.as_deref().unwrap_or("-");
        let deduplication = changed.deduplication.map_or("-", on_or_off);
        format!("data written from {when} on {is} stored with {compression}, deduplication {deduplication}")
    });
    let said: Vec<String> = quota.into_iter().chain(policy).collect();
    format!("{}: {}", changed.volume, said.join("; "))
}

/// Drops a volume from the caches.
pub(super) fn forget(context: &Context, cell: &CellClient, forget: &Forget) -> Result<()> {
    let (forgotten, sentence) = empty_caches(cell, forget)?;
    context.format.done(&forgotten, sentence)
}

fn empty_caches(cell: &CellClient, forget: &Forget) -> Result<(Forgotten, String)> {
    let Forget { volume, dry_run } = forget;
    let located = cell.locate_newest(volume)?;
    let (site, id) = (located.read_write_site()?, located.read_write().0);
    let server = cell.connection(site.server, Interface::Cellar);
    let refused =
        || failed(format!("empty the caches of {} of {volume} (only on Cellar servers)", site.server));
    if *dry_run {
        cell.check_administers(site.server).map_err(refused())?;
        // Checks that the volume exists.
        cellar::get_volume_policy(&*server, &GetVolumePolicyRequest { volume: id }).map_err(refused())?;
        let sentence = format!("would remove everything of {volume} from the caches of {}", site.server);
        let (status, directories, chunks) = (0, 0, 0);
        let volume = located.name;
        return Ok((Forgotten { volume, status, directories, chunks, is_done: false }, sentence));
    }
    let reply =
        cellar::purge_volume_cache(&*server, &PurgeVolumeCacheRequest { volume: id }).map_err(refused())?;
    let sentence = format!(
        "{}: {} status entries, {} directories and {} chunks removed from the caches of {}",
        located.name, reply.status, reply.directories, reply.chunks, site.server
    );
    let (status, directories, chunks) = (reply.status, reply.directories, reply.chunks);
    Ok((Forgotten { volume: located.name, status, directories, chunks, is_done: true }, sentence))
}

/// Returns whether a volume shares chunks; `None` if its server does not report it.
pub(super) fn deduplicates(cell: &CellClient, server: Ipv4Addr, id: u32) -> Option<bool> {
    let server = cell.connection(server, Interface::Cellar);
    let request = GetVolumeDeduplicationRequest { volume: id };
    cellar::get_volume_deduplication(&*server, &request).ok().map(|reply| reply.enabled != 0)
}

/// Formats a switch.
pub(super) fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Returns the effective compression policy of a volume; `None` if its server does not report it.
pub(super) fn effective(cell: &CellClient, server: Ipv4Addr, id: u32) -> Option<String> {
    let server = cell.connection(server, Interface::Cellar);
    let reply = cellar::get_volume_policy(&*server, &GetVolumePolicyRequest { volume: id }).ok()?;
    Some(effective_of(&reply))
}

fn effective_of(reply: &GetVolumePolicyReply) -> String {
    let own = if reply.compression.to_string().is_empty() { " (default)" } else { "" };
    format!("{}{own}", reply.effective)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_client::fakes::behind;

    #[test]
    fn a_policy_is_set_where_the_sync_site_says_that_the_volume_is() {
        let (fakes, _) = behind::cell();
        let compression = Some(Compression(Some(Codec::Zstd(9))));
        let wanted =
            Set { volume: "moved".into(), quota: None, compression, deduplication: None, dry_run: false };
        change(&fakes.cell(3), &wanted).unwrap();
    }

    #[test]
    fn caches_are_flushed_at_the_sync_sites_location() {
        let (fakes, _) = behind::cell();
        let wanted = Forget { volume: "moved".into(), dry_run: false };
        empty_caches(&fakes.cell(3), &wanted).unwrap();
    }

    #[test]
    fn invalid_policies_are_refused_with_valid_ones() {
        assert!(parse("default").unwrap().0.is_none());
        assert_eq!(parse("zstd:9").unwrap().0, Some(Codec::Zstd(9)));
        let text = parse("gzip").err().unwrap();
        assert!(text.contains("`gzip`") && text.contains("zstd:19") && text.contains("`default`"), "{text}");
    }
}
