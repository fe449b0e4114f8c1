//! `cellar cp` with hostile trees, whose owner tries to overwrite or read other files of the user who copies
//! them.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use support::cell::Cell;
use tempfile::TempDir;

const VOLUME: &str = "tree";

/// The cell, and the home directory of the user who copies.
struct Scene {
    cell: Cell,
    home: TempDir,
}

impl Scene {
    fn start() -> Scene {
        let cell = Cell::start("");
        cell.volume(VOLUME);
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("keys")).unwrap();
        fs::write(home.path().join("keys/authorized"), "mine").unwrap();
        Scene { cell, home }
    }

    fn home(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Recreates the directory `name` of the volume with what `make` puts into a local one.
    fn publish(&self, name: &str, make: impl FnOnce(&Path)) {
        let local = tempfile::tempdir().unwrap();
        make(local.path());
        self.copy(&format!("{}/", local.path().display()), &format!("cell:{VOLUME}/{name}"));
    }

    fn copy(&self, from: &str, to: &str) {
        self.cell.run(&["cp", from, to]);
    }

    /// Copies from the cell into the directory `out` of the home.
    fn download(&self, name: &str) {
        let to = self.home("out");
        self.copy(&format!("cell:{VOLUME}/{name}/"), to.to_str().unwrap());
    }

    fn refusal(&self, from: &str, to: &Path) -> String {
        let output = self.cell.output(&["cp", from, to.to_str().unwrap()]);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    fn check_keys(&self) {
        let names: Vec<_> = fs::read_dir(self.home("keys")).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(names.len(), 1);
        assert_eq!(fs::read_to_string(self.home("keys/authorized")).unwrap(), "mine");
    }
}

#[test]
fn a_link_of_an_earlier_download_is_not_written_through() {
    let scene = Scene::start();
    let keys = scene.home("keys");
    scene.publish("one", |local| {
        symlink(keys.join("authorized"), local.join("file")).unwrap();
        symlink(&keys, local.join("folder")).unwrap();
        symlink(keys.join("new"), local.join("dangling")).unwrap();
    });
    scene.publish("two", |local| {
        fs::write(local.join("file"), "theirs").unwrap();
        fs::write(local.join("dangling"), "theirs").unwrap();
        fs::create_dir(local.join("folder")).unwrap();
        fs::write(local.join("folder/authorized"), "theirs").unwrap();
    });
    for name in ["one", "two", "one", "two"] {
        // A link never replaces a directory.
        if name == "one" && scene.home("out/folder").is_dir() {
            fs::remove_dir_all(scene.home("out/folder")).unwrap();
        }
        scene.download(name);
        scene.check_keys();
    }
    for name in ["file", "dangling", "folder/authorized"] {
        assert_eq!(fs::read_to_string(scene.home("out").join(name)).unwrap(), "theirs", "{name}");
        assert!(fs::symlink_metadata(scene.home("out").join(name)).unwrap().is_file(), "{name}");
    }
}

#[test]
fn a_target_that_a_download_made_a_link_is_not_followed() {
    let scene = Scene::start();
    let keys = scene.home("keys");
    scene.publish("", |local| symlink(&keys, local.join("work")).unwrap());
    scene.copy(&format!("cell:{VOLUME}/work"), scene.home("work").to_str().unwrap());
    assert!(fs::symlink_metadata(scene.home("work")).unwrap().is_symlink());
    // The owner of the tree replaces it with a directory.
    scene.publish("other", |local| fs::write(local.join("authorized"), "theirs").unwrap());
    for from in ["other/", "other/authorized"] {
        let told = scene.refusal(&format!("cell:{VOLUME}/{from}"), &scene.home("work"));
        assert!(told.contains("is a symbolic link, which is not followed"), "{told}");
    }
    scene.check_keys();
}

#[test]
fn downloads_get_no_set_id_bits_and_honour_the_umask() {
    let scene = Scene::start();
    scene.publish("modes", |local| {
        for (name, mode) in [("set-id", 0o6755), ("open", 0o666), ("private", 0o600)] {
            fs::write(local.join(name), name).unwrap();
            fs::set_permissions(local.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    });
    scene.download("modes");
    let umask = openafs_import::umask::current();
    for (name, mode) in [("set-id", 0o755), ("open", 0o666), ("private", 0o600)] {
        let metadata = fs::metadata(scene.home("out").join(name)).unwrap();
        assert_eq!(metadata.mode() & 0o7777, mode & !umask, "{name}");
    }
}

#[test]
fn uploads_do_not_follow_links_out_of_the_tree() {
    let scene = Scene::start();
    let secret = scene.home("keys");
    scene.publish("up", |local| {
        symlink(secret.join("authorized"), local.join("file")).unwrap();
        symlink(&secret, local.join("folder")).unwrap();
    });
    scene.download("up");
    assert_eq!(fs::read_link(scene.home("out/file")).unwrap(), secret.join("authorized"));
    assert_eq!(fs::read_link(scene.home("out/folder")).unwrap(), secret);
    // A link named by the user is followed.
    symlink(&secret, scene.home("named")).unwrap();
    scene.copy(scene.home("named").to_str().unwrap(), &format!("cell:{VOLUME}/named"));
    let stored =
        scene.cell.run(&["cp", &format!("cell:{VOLUME}/named/"), scene.home("back").to_str().unwrap()]);
    assert!(stored.contains("1 files"), "{stored}");
}
