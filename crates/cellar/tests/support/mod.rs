//! What tests of whole cells share.

use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use anyhow::Result;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// An address of loopback that nobody else is likely to use: the ports are AFS's.
pub(crate) fn address() -> Ipv4Addr {
    let [_, a, b, c] = rand::random::<[u8; 4]>();
    Ipv4Addr::new(127, a | 128, b, c.clamp(2, 250))
}

/// Writes the configuration of a server that is a cell, with one partition, and `more` at the end.
pub(crate) fn configure(folder: &Path, address: Ipv4Addr, more: &str) -> Result<PathBuf> {
    std::fs::create_dir(folder.join("vicepa"))?;
    let secret = Secret::new(&[7; 32]);
    let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: 18, secret };
    std::fs::write(folder.join("KeyFileExt"), &*write_extended(&[key]))?;
    let text = format!(
        "[cell]\nname = \"t.example\"\nkeyfile = \"KeyFileExt\"\n[server]\nbind = [\"{address}\"]\n\
         announce = [\"{address}\"]\n[partitions]\na = \"vicepa\"\n{more}"
    );
    let config = folder.join("cellar.toml");
    std::fs::write(&config, text)?;
    Ok(config)
}
