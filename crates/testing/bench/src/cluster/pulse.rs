//! A client that creates one file after another through one node.

use afs_idl::fs;
use anyhow::{Context, Result};
use interop::cell::{Cell, kill_tree, tools};
use load::files::{Fid, volume_root};
use load::station::{FILE_SERVICE, Station};
use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pause between two calls.
const PAUSE: Duration = Duration::from_millis(20);

/// Options of the client.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PulseOptions {
    /// The node's address
    #[arg(long)]
    address: IpAddr,
    /// The location server's address
    #[arg(long)]
    locations: IpAddr,
    /// A volume that anyone may write to
    #[arg(long)]
    volume: String,
}

/// Creates files in the root directory of the volume until it is killed. Prints a line for each acknowledged one: the time
/// of the acknowledgement in milliseconds since 1970, and the name. A failed call is repeated with another name.
pub(crate) fn pulse(options: &PulseOptions) -> Result<()> {
    let station = Station::start()?;
    let locations = station.connect(SocketAddr::new(options.locations, 7003), 52, None);
    let directory: Fid = volume_root(&*locations, &options.volume)?;
    let node = station.connect(SocketAddr::new(options.address, 7000), FILE_SERVICE, None);
    let mut out = std::io::stdout().lock();
    for attempt in 0_u64.. {
        let name = format!("pulse-{attempt}");
        let request = fs::CreateFileRequest {
            directory,
            name: name.as_str().into(),
            status: fs::StoreStatus::default(),
        };
        if fs::create_file(&*node, &request).is_ok() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
            writeln!(out, "{now} {name}")?;
            out.flush()?;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A running client; it ends when it is dropped.
pub(super) struct Pulse {
    child: Child,
    log: PathBuf,
}

/// An acknowledged file.
pub(super) struct Beat {
    pub(super) at: SystemTime,
    pub(super) name: String,
}

impl Pulse {
    /// Starts a client on `host` that uses the node with this address.
    pub(super) fn start(host: &Cell, address: &str, volume: &str) -> Result<Pulse> {
        let log = host.path().join(format!("pulse-{volume}.log"));
        let child = Command::new(tools().join("openafs-cell"))
            .arg("-d")
            .arg(host.path())
            .arg("run")
            .arg(std::env::current_exe()?)
            .args(["pulse", "--address", address, "--locations", host.address, "--volume", volume])
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .spawn()?;
        Ok(Pulse { child, log })
    }

    /// Returns the acknowledged files.
    pub(super) fn beats(&self) -> Result<Vec<Beat>> {
        let text = std::fs::read_to_string(&self.log)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let beat = |line: &str| {
            let (ms, name) = line.split_once(' ')?;
            let at = UNIX_EPOCH + Duration::from_millis(ms.parse().ok()?);
            Some(Beat { at, name: name.to_owned() })
        };
        whole.lines().map(|line| beat(line).with_context(|| format!("not a beat: {line}"))).collect()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        kill_tree(&mut self.child);
    }
}
