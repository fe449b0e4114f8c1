//! `[web]`: the page that the server shows of itself.

use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The port, if nothing else is said.
pub const PORT: u16 = 9798;

/// The section of `cellar.toml`.
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

/// Where the page is, and who may see all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSettings {
    /// Where it listens.
    pub address: SocketAddr,
    /// The file with the key by which codes to sign in are made and checked.
    pub key_path: PathBuf,
    /// Names that it is reached by, besides addresses and `localhost`.
    pub names: Vec<String>,
    /// Proxies with TLS, whose word about their clients is believed.
    pub tls_proxies: Vec<IpAddr>,
}

impl WebSettings {
    /// Of a section; relative paths are relative to `folder`.
    pub(super) fn new(section: WebSection, folder: &Path, state: &Path) -> WebSettings {
        let address = section.address.unwrap_or(Ipv4Addr::LOCALHOST.into());
        WebSettings {
            address: SocketAddr::new(address, section.port.unwrap_or(PORT)),
            key_path: section.key_file.map_or_else(|| state.join("web.key"), |path| folder.join(path)),
            names: section.names,
            tls_proxies: section.tls_proxies,
        }
    }

    /// The address to open in a browser on the same machine.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        format!("http://{address}/")
    }
}
