//! The directory of a server: its configuration, key and partition; the program's commands with that
//! configuration, and connections to the services.

use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use afs_idl::ClientConnection;
use cell_client::network::{AfsNetwork, local_authentication};
use cell_client::{CellClient, Interface};
use cellar::commands::volume::{self, Create};
use cellar_config::Settings;
use load::files::{Fid, volume_root};
use load::station::{FILE_SERVICE, Station};
use rx_security::ClientSecurity;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use tempfile::TempDir;

/// Returns a loopback address that is unlikely to be in use, because the ports are AFS's fixed ones.
pub(crate) fn address() -> Ipv4Addr {
    addresses()[0]
}

/// Returns several consecutive addresses.
pub(crate) fn addresses() -> [Ipv4Addr; 4] {
    let [a, b, c, _] = rand::random::<[u8; 4]>();
    [0, 1, 2, 3].map(|n| Ipv4Addr::new(127, a | 128, b, c.clamp(2, 240) + n))
}

/// The program under test, logging only errors. `CELLAR_PROGRAM` names another program: profiles for the
/// documentation use the program as installed, which has function names.
pub(crate) fn cellar(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CELLAR_PROGRAM").unwrap_or(env!("CARGO_BIN_EXE_cellar").into());
    let mut command = Command::new(program);
    command.args(arguments).env("CELLAR_LOG", "warn");
    command
}

/// Returns the output of a command, which must succeed.
pub(crate) fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a key of the cell.
pub(crate) fn key(kvno: u32, byte: u8) -> TypedKey {
    TypedKey { key_type: KeyType::RxkadKerberos5, kvno, subtype: 18, secret: Secret::new(&[byte; 32]) }
}

/// The directory of a server, running or not.
pub(crate) struct Place {
    pub(crate) address: Ipv4Addr,
    pub(crate) config: PathBuf,
    // Removes the directory when dropped, if it is temporary.
    _temporary: Option<TempDir>,
}

impl Place {
    /// A server that is a whole cell, with `more` at the end of the configuration: first partitions, then
    /// sections.
    pub(crate) fn new(more: &str) -> Place {
        let (folder, address) = (tempfile::tempdir().unwrap(), address());
        let text = configuration("t.example", address, "", "") + more;
        let config = write(folder.path(), 7, &text);
        Place { address, config, _temporary: Some(folder) }
    }

    /// One server of the named cell, with a key of the given bytes; one of the servers has the databases.
    pub(crate) fn member(
        folder: &Path,
        cell: &str,
        key_byte: u8,
        address: Ipv4Addr,
        database: Ipv4Addr,
    ) -> Place {
        std::fs::create_dir_all(folder).unwrap();
        let databases = format!("database_servers = [\"{database}\"]\n");
        let roles = if address == database { "" } else { "roles = [\"fs\", \"vol\", \"bos\"]\n" };
        let config = write(folder, key_byte, &configuration(cell, address, &databases, roles));
        Place { address, config, _temporary: None }
    }

    /// A node of a cluster in the cell of [`Place::member`], with these lines in its configuration; it has no local partition.
    pub(crate) fn node(folder: &Path, address: Ipv4Addr, database: Ipv4Addr, lines: &str) -> Place {
        let place = Place::member(folder, "t.example", 7, address, database);
        let text = std::fs::read_to_string(&place.config).unwrap();
        std::fs::write(&place.config, text.replace("[partitions]\na = \"vicepa\"\n", lines)).unwrap();
        place
    }

    /// Appends to the configuration.
    pub(crate) fn configure(&self, more: &str) {
        let text = std::fs::read_to_string(&self.config).unwrap();
        std::fs::write(&self.config, text + more).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.config.parent().unwrap()
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::new(cellar_config::file::load(&self.config).unwrap())
    }

    /// Returns the program with this configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = cellar(arguments);
        command.arg("--config").arg(&self.config).env("HOME", self.folder());
        command
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Returns the output of a command, which must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        printed(&mut self.command(arguments))
    }

    /// Returns the JSON output of a command.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Returns the rows that a command prints.
    pub(crate) fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        self.json(arguments).as_array().unwrap().clone()
    }

    /// Returns the rows of one of the server's tables. Options may follow the table's name.
    pub(crate) fn stat(&self, table: &str) -> Vec<Value> {
        let words: Vec<&str> = ["stat"].into_iter().chain(table.split(' ')).collect();
        self.rows(&words)
    }

    /// Returns the doctor's findings after an interval in seconds; there must be some.
    pub(crate) fn findings(&self, interval: &str) -> Vec<Value> {
        let output = self.output(&["doctor", "--interval", interval, "--json"]);
        let reported = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{reported}{}", String::from_utf8_lossy(&output.stderr));
        let reported: Value = serde_json::from_str(&reported).unwrap();
        reported["findings"].as_array().unwrap().clone()
    }

    /// Returns the finding of this problem, with an interval of one second.
    pub(crate) fn finding(&self, problem: &str) -> Value {
        let findings = self.findings("1");
        let found = findings.iter().find(|finding| finding["problem"] == problem);
        found.unwrap_or_else(|| panic!("no {problem} in {findings:#?}")).clone()
    }

    /// Returns the identity of an administrator with the cell's key.
    pub(crate) fn security(&self) -> Arc<dyn ClientSecurity> {
        local_authentication(&self.settings().keys).unwrap()
    }

    /// Returns a network with that identity.
    pub(crate) fn network(&self) -> AfsNetwork {
        AfsNetwork::start(Some(self.security())).unwrap()
    }

    /// Returns a client with that identity, of a cell whose databases are here.
    pub(crate) fn client(&self) -> CellClient {
        CellClient::new(Arc::new(self.network()), vec![self.address]).unwrap()
    }

    /// Creates a volume in which all callers may write, and returns its root.
    pub(crate) fn volume(&self, name: &str) -> Fid {
        self.volume_with(name, "rlidwk")
    }

    /// Creates a volume in which all callers have these rights, and returns its root.
    pub(crate) fn volume_with(&self, name: &str, rights: &str) -> Fid {
        let client = self.client();
        let create = Create::with_acl(name.parse().unwrap(), 0, &[&format!("system:anyuser={rights}")]);
        volume::create_volume(&client, &create).unwrap();
        self.root(name)
    }

    /// Returns the root directory of an existing volume.
    pub(crate) fn root(&self, volume: &str) -> Fid {
        volume_root(&*self.client().connection(self.address, Interface::Locations), volume).unwrap()
    }

    /// Returns the address of the file service.
    pub(crate) fn files_port(&self) -> SocketAddr {
        SocketAddr::from((self.address, 7000))
    }

    /// Returns an anonymous connection to the file service.
    pub(crate) fn connect(&self, station: &Station) -> Arc<dyn ClientConnection> {
        station.connect(self.files_port(), FILE_SERVICE, None)
    }
}

/// Returns the configuration without a test's additions.
fn configuration(cell: &str, address: Ipv4Addr, of_cell: &str, of_server: &str) -> String {
    format!(
        "[cell]\nname = \"{cell}\"\nkeyfile = \"KeyFileExt\"\n{of_cell}[server]\nbind = [\"{address}\"]\n\
         announce = [\"{address}\"]\n{of_server}[partitions]\na = \"vicepa\"\n"
    )
}

/// Writes a configuration with this text, and the files that it names.
fn write(folder: &Path, key_byte: u8, text: &str) -> PathBuf {
    std::fs::create_dir(folder.join("vicepa")).unwrap();
    cellar_config::files::replace(&folder.join("KeyFileExt"), &write_extended(&[key(1, key_byte)])).unwrap();
    let config = folder.join("cellar.toml");
    std::fs::write(&config, text).unwrap();
    config
}
