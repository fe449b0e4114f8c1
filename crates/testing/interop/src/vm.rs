//! The Linux kernel's AFS client, in an emulated guest.

use crate::cell::{Cell, Output, tools};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Address of a guest with `--net tap`, unless the options name another one.
pub const GUEST: &str = "10.99.77.2";

/// A guest that is connected to a cell's network.
pub struct Guest<'a> {
    cell: &'a Cell,
    arguments: Vec<String>,
    log: PathBuf,
}

/// A guest that runs in the background of a test.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl<'a> Guest<'a> {
    /// Returns a guest whose kafs is configured for the cell; it fails after `seconds`.
    pub fn new(cell: &'a Cell, name: &str, seconds: u32) -> Guest<'a> {
        let arguments = ["--netns", cell.name, "--server", cell.address, "--timeout", &seconds.to_string()]
            .map(String::from)
            .to_vec();
        Guest { cell, arguments, log: cell.path().join(format!("guest-{name}.log")) }
    }

    /// A guest with OpenAFS's kernel client, which mounts the cell below `/afs`. It has the address [`GUEST`], which hosts
    /// reach through the cell's own host, the cell's host names, and the cell's key in `/rxkad.keytab`.
    pub fn libafs(cell: &'a Cell, name: &str, seconds: u32) -> Guest<'a> {
        let file = |file: &str, guest: &str| format!("{}:{guest}", cell.path().join(file).display());
        let options = ["--client", "libafs", "--hostroot", "--net", "tap", "--guest-ip", GUEST];
        Guest::new(cell, name, seconds).with(&options).with(&[
            "--file",
            &file("rxkad.keytab", "/rxkad.keytab"),
            "--file",
            &file("hosts", "/etc/hosts"),
        ])
    }

    /// Adds options for the `kafs-vm` tool.
    #[must_use]
    pub fn with(mut self, options: &[&str]) -> Guest<'a> {
        self.arguments.extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    /// Mounts `volume` read-write on `directory`.
    #[must_use]
    pub fn mount(self, volume: &str, directory: &str) -> Guest<'a> {
        self.with(&["--mount", &format!("%{volume}:{directory}")])
    }

    /// Boots the guest and starts the script in it.
    pub fn start(self, script: &Path) -> Result<Running> {
        let log = std::fs::File::create(&self.log)?;
        let child = Command::new(tools().join("kafs-vm"))
            .args(&self.arguments)
            .arg("--script")
            .arg(script)
            .current_dir(self.cell.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Running { child, log: self.log })
    }

    /// Boots the guest, runs the script and waits until it ends.
    pub fn run(self, script: &Path) -> Result<Output> {
        self.start(script)?.finish()
    }
}

impl Running {
    /// Returns the guest's output so far.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Whether the guest is still running.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until the guest ends.
    pub fn finish(mut self) -> Result<Output> {
        let status = self.child.wait()?;
        Ok(Output { status: status.code().unwrap_or(-1), text: self.printed() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // The tool stops its guest on SIGTERM.
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
            let _ = self.child.wait();
        }
    }
}
