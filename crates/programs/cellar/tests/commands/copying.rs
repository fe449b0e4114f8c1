//! `cellar cp`: trees come back as they were, failures are reported, and hostile trees, whose owner tries to overwrite
//! or read other files of the user who copies them, do no harm.

use crate::support::cell::Cell;
use crate::support::place::Place;
use crate::support::process::Process;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};
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
        let reported = scene.refusal(&format!("cell:{VOLUME}/{from}"), &scene.home("work"));
        assert!(reported.contains("is a symbolic link, which is not followed"), "{reported}");
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

/// Makes a tree with what copies must preserve: empty files, deep folders, names that are not UTF-8, links.
fn make_tree(root: &Path) {
    let odd = OsStr::from_bytes(b"odd \xff\\ name");
    let mut deep = root.to_owned();
    for level in 0..20 {
        deep.push(format!("level {level}"));
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("file"), format!("at {level}")).unwrap();
    }
    fs::create_dir(root.join(odd)).unwrap();
    for number in 0..300 {
        fs::write(root.join(odd).join(format!("file{number}")), vec![7; number * 10]).unwrap();
    }
    fs::write(root.join(odd).join(odd), "odd").unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("large"), vec![1; 700_000]).unwrap();
    symlink(odd, root.join("link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let old = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
    for name in ["large", "empty", "level 0"] {
        File::open(root.join(name)).unwrap().set_times(old).unwrap();
    }
}

/// Returns what a tree has: path, kind, mode of files, contents, and the modification times of files and folders.
fn contents(root: &Path) -> Vec<(PathBuf, u32, u32, Vec<u8>, i64)> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let (path, metadata) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            let kind = metadata.mode() & 0o170_000;
            let data = match kind {
                0o040_000 => Vec::new(),
                0o120_000 => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                _ => fs::read(&path).unwrap(),
            };
            let mode = if metadata.is_file() { metadata.mode() & 0o777 } else { 0 };
            let modified = if metadata.is_symlink() { 0 } else { metadata.mtime() };
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.push((path.strip_prefix(root).unwrap().to_owned(), kind, mode, data, modified));
        }
    }
    found.sort();
    found
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let scene = Scene::start();
    let (local, back) = (scene.home("tree"), scene.home("back"));
    fs::create_dir(&local).unwrap();
    make_tree(&local);
    let from = format!("{}/", local.display());
    let reported = scene.cell.run(&["cp", &from, &format!("cell:{VOLUME}/tree")]);
    // Its own directory, the twenty levels, and two more.
    assert!(reported.starts_with("322 files, 23 directories, 2 links, "), "{reported}");
    let reported = scene.cell.run(&["cp", &format!("cell:{VOLUME}/tree"), back.to_str().unwrap()]);
    assert!(reported.starts_with("322 files, 23 directories, 2 links, "), "{reported}");
    assert!(contents(&local) == contents(&back), "the copy differs");
    // Over itself, with a single thread: everything exists, and the directories keep their attributes.
    scene.cell.run(&["cp", "--jobs", "1", &from, &format!("cell:{VOLUME}/tree")]);
    fs::remove_dir_all(&back).unwrap();
    scene.cell.run(&["cp", "--jobs", "1", &format!("cell:{VOLUME}/tree"), back.to_str().unwrap()]);
    let files = |root: &Path| {
        let mut all = contents(root);
        all.retain(|(_, kind, ..)| *kind != 0o040_000);
        all
    };
    assert!(files(&local) == files(&back), "the second copy differs");
}

#[test]
fn a_failure_is_reported_and_the_rest_is_copied() {
    let scene = Scene::start();
    let local = scene.home("tree");
    scene.publish("", |local| fs::create_dir_all(local.join("c/below")).unwrap());
    fs::create_dir(&local).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        fs::write(local.join(name), name).unwrap();
    }
    let copy = |more: &[&str]| {
        let from = format!("{}/", local.display());
        let target = format!("cell:{VOLUME}/");
        let mut arguments = vec!["cp", "--json", "--jobs", "1", &from, &target];
        arguments.extend(more);
        let output = scene.cell.output(&arguments);
        assert_eq!(output.status.code(), Some(1));
        let reported = String::from_utf8(output.stderr).unwrap();
        let path = local.join("c");
        assert!(
            reported.contains(&format!("{}: it is a directory in the cell", path.display())),
            "{reported}"
        );
        assert!(reported.contains("1 could not be copied"), "{reported}");
        let reported: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&reported["failed"], &reported["failures"][0]["path"]),
            (&1.into(), &path.to_str().into())
        );
        reported["files"].as_u64().unwrap()
    };
    assert_eq!(copy(&[]), 4);
    assert_eq!(copy(&["--stop-on-error"]), 2, "a and b");
    // The other way.
    fs::remove_file(local.join("c")).unwrap();
    fs::remove_file(local.join("a")).unwrap();
    fs::create_dir(local.join("a")).unwrap();
    let reported = scene.refusal(&format!("cell:{VOLUME}/"), &local);
    assert!(reported.contains(&format!("{}: ", local.join("a").display())), "{reported}");
    assert_eq!(fs::read_to_string(local.join("e")).unwrap(), "e");
    assert!(local.join("c/below").is_dir());
}

#[test]
fn a_full_quota_leaves_no_empty_files() {
    let scene = Scene::start();
    scene.cell.run(&["volume", "set", VOLUME, "--quota", "64K"]);
    let local = scene.home("tree");
    fs::create_dir(&local).unwrap();
    // Stores may exceed the quota by 1 MiB.
    for number in 0..20 {
        fs::write(local.join(format!("file{number}")), vec![b'x'; 200_000]).unwrap();
    }
    let from = format!("{}/", local.display());
    let output = scene.cell.output(&["cp", &from, &format!("cell:{VOLUME}/tree")]);
    let reported = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("the volume's quota is used up"), "{reported}");
    scene.download("tree");
    let copied: Vec<_> =
        fs::read_dir(scene.home("out")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!((1..20).contains(&copied.len()), "{copied:?}");
    assert!(copied.iter().all(|path| fs::metadata(path).unwrap().len() == 200_000), "{copied:?}");
    assert_eq!(reported.matches("/file").count(), 20 - copied.len(), "{reported}");
}

#[test]
fn a_server_that_is_killed_and_restarted_loses_nothing() {
    let mut server = Process::start(Place::new(""));
    server.volume(VOLUME);
    let home = tempfile::tempdir().unwrap();
    let (local, back) = (home.path().join("tree"), home.path().join("back"));
    for folder in 0..10 {
        fs::create_dir_all(local.join(format!("{folder}"))).unwrap();
        for file in 0..200 {
            fs::write(local.join(format!("{folder}/{file}")), format!("{folder}/{file}")).unwrap();
        }
    }
    let from = format!("{}/", local.display());
    let mut copy = server.command(&["cp", &from, &format!("cell:{VOLUME}/tree"), "--jobs", "8"]);
    let child = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // In the middle of it.
    crate::support::soon("some files are there", || {
        let listed = server.output(&["du", &format!("cell:{VOLUME}/tree"), "--json"]);
        listed.status.success().then_some(())
    });
    server.kill();
    server.restart();
    let output = child.wait_with_output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{reported}");
    server.run(&["cp", &format!("cell:{VOLUME}/tree"), back.to_str().unwrap()]);
    let (wanted, found) = (contents(&local), contents(&back));
    let differing = wanted.iter().zip(&found).find(|(wanted, found)| wanted != found);
    assert!(wanted == found, "{} of {}: {differing:?}", found.len(), wanted.len());
}
