//! Requirements of tests, and checks whether the machine meets them.

use crate::cell::tools;
use anyhow::ensure;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A requirement that a machine may not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Root, network namespaces and OpenAFS's packages.
    Netns,
    /// /dev/fuse and afsd.fuse.
    Fuse,
    /// QEMU, and everything needed to boot a Debian kernel.
    Emulation,
    /// OpenAFS's module for the guest's kernel, built from Debian's packages.
    Libafs,
    /// The kernel of [`BACKPORTS`], from Debian's archive.
    Backports,
    /// Wireshark's command-line program.
    Tshark,
    /// bpftrace, and a kernel that allows it to attach.
    Bpftrace,
    /// strace, used to kill a program at a particular system call.
    Strace,
    /// The programs of systemd's journal; systemd need not be the machine's init.
    Journald,
    /// Loop devices, and ext4 with a way to trigger errors.
    Loop,
    /// SeaweedFS, a server of S3 buckets.
    Seaweed,
    /// Tools that make and check Debian packages, and a root to install them in, which systemd boots.
    Packages,
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Means::Netns => "netns",
            Means::Fuse => "fuse",
            Means::Emulation => "emulation",
            Means::Libafs => "libafs",
            Means::Backports => "backports",
            Means::Tshark => "tshark",
            Means::Bpftrace => "bpftrace",
            Means::Strace => "strace",
            Means::Journald => "journald",
            Means::Loop => "loop",
            Means::Seaweed => "seaweed",
            Means::Packages => "packages",
        })
    }
}

impl Means {
    /// Whether the user chose to skip tests with this requirement.
    pub fn is_skipped(self) -> bool {
        let list = std::env::var("CELLAR_TEST_SKIP").unwrap_or_default();
        list.split([',', ' ']).any(|word| word == self.to_string())
    }

    /// Returns a description of what is missing, if anything.
    pub fn check(self) -> Result<(), String> {
        let paths: &[&str] = match self {
            Means::Netns => &["/usr/sbin/bosserver", "/usr/bin/vos", "/usr/bin/rxdebug", "/usr/bin/nsenter"],
            Means::Tshark => &["/usr/bin/tshark"],
            Means::Bpftrace => &["/usr/bin/bpftrace", "/sys/kernel/btf/vmlinux"],
            Means::Strace => &["/usr/bin/strace"],
            Means::Journald => &["/lib/systemd/systemd-journald", "/usr/bin/journalctl", "/etc/machine-id"],
            Means::Loop => &["/dev/loop-control", "/sys/fs/ext4", "/usr/sbin/mkfs.ext4", "/usr/bin/findmnt"],
            Means::Seaweed => &["/usr/local/bin/weed"],
            Means::Packages => &[
                "/usr/bin/mmdebstrap",
                "/usr/bin/systemd-nspawn",
                "/usr/bin/dpkg-shlibdeps",
                "/usr/bin/lintian",
                "/usr/bin/objcopy",
                "/usr/bin/docker-compose",
                "/usr/lib/python3/dist-packages/kubernetes",
            ],
            Means::Libafs => &["/usr/sbin/afsd", "/usr/bin/aklog", "/usr/bin/pagsh.openafs", "/usr/bin/make"],
            Means::Backports => &["/usr/bin/apt-get"],
            Means::Fuse => &["/dev/fuse", "/usr/sbin/afsd.fuse"],
            Means::Emulation => {
                &["/usr/bin/qemu-system-x86_64", "/bin/busybox", "/usr/bin/gcc", "/usr/sbin/kimpersonate"]
            }
        };
        if !is_root() {
            return Err("must be root".into());
        }
        match paths.iter().find(|path| !exists(path)) {
            Some(path) => Err(format!("{path} is missing; `make deps` installs it")),
            None => Ok(()),
        }
    }

    /// Downloads what a test needs in advance, since tests have no access to the machine's network.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn prepare(self) -> Result<(), String> {
        match self {
            Means::Emulation => {
                static KERNEL: OnceLock<Result<(), String>> = OnceLock::new();
                KERNEL.get_or_init(|| fetch(&[])).clone()
            }
            Means::Libafs => {
                static MODULE: OnceLock<Result<(), String>> = OnceLock::new();
                MODULE.get_or_init(|| fetch(&["--client", "libafs"])).clone()
            }
            Means::Backports => {
                static KERNEL: OnceLock<Result<(), String>> = OnceLock::new();
                KERNEL.get_or_init(|| fetch(&["--kernel", BACKPORTS])).clone()
            }
            Means::Packages => debian_root().map(drop).map_err(|error| format!("{error:#}")),
            _ => Ok(()),
        }
    }
}

/// Returns the path of a tar file with a minimal Debian root that has systemd and the libraries that Cellar's
/// package depends on. Downloads its packages if it is not cached.
///
/// # Errors
/// If it cannot be made.
pub fn debian_root() -> anyhow::Result<PathBuf> {
    let output = Command::new(tools().join("debian-root")).stdin(Stdio::null()).output()?;
    let (printed, failure) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "debian-root: {failure}");
    Ok(PathBuf::from(printed.trim()))
}

/// Debian suite with the newest kernel that guests boot.
pub const BACKPORTS: &str = "trixie-backports";

/// Downloads a kernel for guests, and builds OpenAFS's module for it with `--client libafs`, unless they are cached.
///
/// # Errors
/// A description of the failure.
fn fetch(options: &[&str]) -> Result<(), String> {
    let mut command = Command::new(tools().join("kafs-vm"));
    let output = command.arg("--fetch").args(options).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("kafs-vm: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let options = options.join(" ");
    if output.status.success() { Ok(()) } else { Err(format!("kafs-vm --fetch {options}: {printed}")) }
}

/// Whether the file exists, in /bin, /usr/bin, /sbin or /usr/sbin if not at its own path.
fn exists(path: &str) -> bool {
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    Path::new(path).exists()
        || ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
            .iter()
            .any(|folder| Path::new(folder).join(name).exists())
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("Uid:\t0\t")))
}
