//! Checks that the files a server leaves on disk are private to its user.

use crate::support::place::Place;
use crate::support::process::Process;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Returns the files and directories below a directory that other users can access, with their modes.
fn open_to_others(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            found.push((path.clone(), mode));
        }
        if path.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

#[test]
fn a_servers_files_are_for_its_own_user_alone() {
    let place = Place::new(
        "[metrics]\nport = 0\n[web]\nport = 0\n[audit.trail]\nfile = \"state/audit\"\nevents = [\"all\"]\n",
    );
    let mut process = Process::start(place);
    process.run(&["volume", "create", "home", "--acl", "system:anyuser=rl"]);
    let local = process.path("text");
    std::fs::write(&local, "text").unwrap();
    process.run(&["cp", local.to_str().unwrap(), "cell:home/text"]);
    process.run(&["volume", "backup", "home"]);
    // The log of the first run is kept.
    process.kill();
    process.restart();
    for name in ["state", "vicepa"] {
        assert_eq!(open_to_others(&process.path(name)), [], "{name}");
    }
    assert!(process.path("state/log/CellarLog.old").exists() && process.path("state/audit").exists());
    let dump = process.path("dump");
    process.run(&["volume", "dump", "home", dump.to_str().unwrap()]);
    assert_eq!(dump.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // A key file that others can read prevents the next start.
    process.kill();
    let key = process.path("KeyFileExt");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let refused = process.output(&["serve"]);
    let reported = String::from_utf8(refused.stderr).unwrap();
    let command = format!("chmod 600 {}", key.display());
    assert!(!refused.status.success() && reported.contains(&command), "{reported}");
}
