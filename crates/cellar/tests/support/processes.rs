//! Servers as processes of their own, which can be killed.

use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is waited for comes long before this, on a machine that is not broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Addresses of loopback that nobody else is likely to use: the ports are AFS's.
pub(crate) fn addresses() -> [Ipv4Addr; 4] {
    let [a, b, c, _] = rand::random::<[u8; 4]>();
    [0, 1, 2, 3].map(|n| Ipv4Addr::new(127, a | 128, b, c.clamp(2, 240) + n))
}

pub(crate) fn cellar(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
    command.args(arguments).env("CELLAR_LOG", "warn");
    command
}

pub(crate) fn run(arguments: &[&str]) -> String {
    let output = cellar(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A server process in a folder of its own.
pub(crate) struct Server {
    pub(crate) address: Ipv4Addr,
    pub(crate) config: PathBuf,
    child: Child,
}

impl Server {
    pub(crate) fn start(folder: &Path, cell: &str, key: u8, address: Ipv4Addr, database: Ipv4Addr) -> Server {
        std::fs::create_dir_all(folder.join("vicepa")).unwrap();
        let secret = Secret::new(&[key; 32]);
        let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: 18, secret };
        std::fs::write(folder.join("KeyFileExt"), &*write_extended(&[key])).unwrap();
        let roles = if address == database { "" } else { "roles = [\"fs\", \"vol\", \"bos\"]\n" };
        let text = format!(
            "[cell]\nname = \"{cell}\"\nkeyfile = \"KeyFileExt\"\ndatabase_servers = [\"{database}\"]\n\
             [server]\nbind = [\"{address}\"]\nannounce = [\"{address}\"]\n{roles}[partitions]\na = \"vicepa\"\n"
        );
        let config = folder.join("cellar.toml");
        std::fs::write(&config, text).unwrap();
        let child = Server::spawn(&config);
        let mut server = Server { address, config, child };
        server.wait();
        server
    }

    fn spawn(config: &Path) -> Child {
        let mut command = cellar(&["serve", "--config", config.to_str().unwrap()]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn wait(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let on = self.address.to_string();
            let arguments = ["volume", "list", "--on", &on, "--config", self.config.to_str().unwrap()];
            if cellar(&arguments).output().unwrap().status.success() {
                return;
            }
            assert!(Instant::now() < until, "{on} does not serve");
            assert!(self.child.try_wait().unwrap().is_none(), "{on} has ended");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = Server::spawn(&self.config);
        self.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
