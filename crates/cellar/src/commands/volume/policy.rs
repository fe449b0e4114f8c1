//! How a volume's data is stored, which only Cellar's servers can be told.

use crate::client::describe::failed;
use crate::client::{CellClient, Interface};
use afs_idl::cellar::{self, GetVolumePolicyRequest, SetVolumePolicyRequest};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::net::Ipv4Addr;
use store::Codec;

/// A change of a volume's policy.
#[derive(Args)]
pub struct Set {
    /// Its name or number.
    volume: String,
    /// How file data is compressed that is written from now on: raw, lz4, zstd:1 to zstd:19, or `default`
    /// to follow the server's setting.
    #[arg(long, value_name = "POLICY", value_parser = parse)]
    compression: Compression,
}

/// A policy of its own, or the server's.
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

/// What was set.
#[derive(Serialize)]
pub(super) struct Changed {
    volume: String,
    compression: String,
}

/// Sets the policy of a read-write volume.
pub(super) fn set(cell: &CellClient, set: &Set) -> Result<(Changed, String)> {
    let located = cell.locate(&set.volume)?;
    let (site, id) = (located.read_write_site()?, located.read_write().0);
    let server = cell.connection(site.server, Interface::Cellar);
    let text = set.compression.0.map(|codec| codec.to_string()).unwrap_or_default();
    let request = SetVolumePolicyRequest { volume: id, compression: text.as_str().into() };
    cellar::set_volume_policy(&*server, &request).map_err(failed(format!(
        "set the policy of {} on {} (only Cellar's servers have policies)",
        set.volume, site.server
    )))?;
    let compression = effective(cell, site.server, id).unwrap_or(text);
    let sentence = format!("{}: what is written from now on is stored with {compression}", located.name);
    Ok((Changed { volume: located.name, compression }, sentence))
}

/// What applies to a volume; `None` if its server does not tell.
pub(super) fn effective(cell: &CellClient, server: Ipv4Addr, id: u32) -> Option<String> {
    let server = cell.connection(server, Interface::Cellar);
    let reply = cellar::get_volume_policy(&*server, &GetVolumePolicyRequest { volume: id }).ok()?;
    let own = if reply.compression.to_string().is_empty() { " (default)" } else { "" };
    Some(format!("{}{own}", reply.effective))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_refused_with_what_is_valid() {
        assert!(parse("default").unwrap().0.is_none());
        assert_eq!(parse("zstd:9").unwrap().0, Some(Codec::Zstd(9)));
        let text = parse("gzip").err().unwrap();
        assert!(text.contains("`gzip`") && text.contains("zstd:19") && text.contains("`default`"), "{text}");
    }
}
