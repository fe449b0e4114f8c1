//! `[web]`: the server's web page.

use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Default TCP port.
pub const PORT: u16 = 9798;

/// The `[web]` section of `cellar.toml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebSection {
    port: Option<u16>,
    address: Option<IpAddr>,
    key_file: Option<PathBuf>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    tls_proxies: Vec<IpAddr>,
    pub(super) probe_history: Option<PathBuf>,
}

/// Address of the web page, and access to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSettings {
    /// Address to listen on.
    pub address: SocketAddr,
    /// File with the key that makes and checks sign-in codes.
    pub key_path: PathBuf,
    /// Host names of the page, in addition to addresses and `localhost`.
    pub names: Vec<String>,
    /// TLS proxies whose headers about their clients are trusted.
    pub tls_proxies: Vec<IpAddr>,
}

impl WebSettings {
    /// Resolves a section; relative paths are relative to `folder`.
    pub(super) fn new(section: WebSection, folder: &Path, state: &Path) -> WebSettings {
        let address = section.address.unwrap_or(Ipv4Addr::LOCALHOST.into());
        WebSettings {
            address: SocketAddr::new(address, section.port.unwrap_or(PORT)),
            key_path: section.key_file.map_or_else(|| state.join("web.key"), |path| folder.join(path)),
            names: section.names,
            tls_proxies: section.tls_proxies,
        }
    }

    /// Returns the URL of the page on the same machine.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        format!("http://{address}/")
    }
}
