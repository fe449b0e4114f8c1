use super::*;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use tempfile::TempDir;

type Begin = fn(&Arc<Folder>, &OsStr, u32) -> io::Result<Fresh>;

/// The two ways in which a file exists before it has its name.
const WAYS: [Begin; 2] = [Folder::begin, Folder::begin_named];

/// A folder to write to, and a victim next to it.
struct Scene {
    root: TempDir,
    folder: Arc<Folder>,
}

impl Scene {
    fn new() -> Scene {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("tree")).unwrap();
        fs::create_dir(root.path().join("victim")).unwrap();
        fs::write(root.path().join("victim/file"), "mine").unwrap();
        let folder = Arc::new(Folder::open(&root.path().join("tree")).unwrap());
        Scene { root, folder }
    }

    fn victim(&self) -> PathBuf {
        self.root.path().join("victim")
    }

    fn tree(&self, name: &str) -> PathBuf {
        self.root.path().join("tree").join(name)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.write_as(Folder::begin, name, text)
    }

    fn write_as(&self, begin: Begin, name: &str, text: &str) -> io::Result<()> {
        let mut fresh = begin(&self.folder, name.as_ref(), 0o644)?;
        fresh.file().write_all(text.as_bytes())?;
        fresh.keep()
    }

    fn check_victim(&self) {
        assert_eq!(fs::read_to_string(self.victim().join("file")).unwrap(), "mine");
        assert_eq!(fs::read_dir(self.victim()).unwrap().count(), 1);
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused_everywhere() {
    let scene = Scene::new();
    for name in ["", ".", "..", "a/b", "/etc", "../victim", "a\0b"] {
        let name = OsStr::new(name);
        let folder = &scene.folder;
        let refused = [
            folder.enter(name).err(),
            folder.enter_or_make(name).err(),
            folder.make(name).err(),
            folder.status(name).err(),
            folder.read(name).err(),
            folder.read_link(name).err(),
            folder.begin(name, 0o600).err(),
            folder.begin_named(name, 0o600).err(),
            folder.make_link(name, OsStr::new("x")).err(),
            folder.make_hard_link(name, folder, OsStr::new("x")).err(),
        ];
        for error in refused {
            let error = error.unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
            assert!(error.to_string().contains("cannot be a file's name"), "{error}");
        }
    }
    for path in ["../victim", "/", "a/../..", "./a"] {
        let refused = scene.folder.descend(Path::new(path)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
    }
    assert_eq!(scene.folder.names().unwrap(), [""; 0]);
}

#[test]
fn a_link_is_replaced_and_never_followed() {
    let scene = Scene::new();
    symlink(scene.victim().join("file"), scene.tree("file")).unwrap();
    symlink(scene.victim(), scene.tree("folder")).unwrap();
    assert!(scene.folder.read("file".as_ref()).is_err());
    assert!(scene.folder.enter("folder".as_ref()).is_err());
    scene.write("file", "theirs").unwrap();
    let (made, is_new) = scene.folder.enter_or_make("folder".as_ref()).unwrap();
    assert!(is_new);
    let mut fresh = Arc::new(made).begin("file".as_ref(), 0o600).unwrap();
    fresh.file().write_all(b"theirs").unwrap();
    fresh.keep().unwrap();
    scene.check_victim();
    assert_eq!(fs::read_to_string(scene.tree("file")).unwrap(), "theirs");
    assert!(fs::symlink_metadata(scene.tree("folder")).unwrap().is_dir());
}

#[test]
fn a_hard_link_to_another_file_is_replaced() {
    let scene = Scene::new();
    for begin in WAYS {
        let _ = fs::remove_file(scene.tree("file"));
        fs::hard_link(scene.victim().join("file"), scene.tree("file")).unwrap();
        scene.write_as(begin, "file", "theirs").unwrap();
        scene.check_victim();
        assert_eq!(fs::read_to_string(scene.tree("file")).unwrap(), "theirs");
        assert_eq!(scene.folder.names().unwrap(), ["file"]);
    }
}

type Descend = fn(&Folder, &Path) -> io::Result<Folder>;

#[test]
fn no_link_is_followed_on_the_way_down() {
    let scene = Scene::new();
    fs::create_dir_all(scene.tree("a/b")).unwrap();
    symlink(scene.root.path(), scene.tree("a/out")).unwrap();
    symlink("b", scene.tree("a/in")).unwrap();
    for descend in [Folder::descend as Descend, Folder::descend_by_steps] {
        let descend = |path: &str| descend(&scene.folder, Path::new(path));
        assert_eq!(descend("a/b").unwrap().path(), scene.tree("a/b"));
        assert_eq!(descend("").unwrap().names().unwrap(), ["a"]);
        assert!(descend("a/out/victim").is_err() && descend("a/out").is_err() && descend("a/in").is_err());
        assert_eq!(descend("a/c").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn discarded_files_leave_nothing() {
    let scene = Scene::new();
    fs::create_dir(scene.tree("folder")).unwrap();
    for begin in WAYS {
        let mut fresh = begin(&scene.folder, "file".as_ref(), 0o644).unwrap();
        fresh.file().write_all(b"half").unwrap();
        drop(fresh);
        assert!(scene.write_as(begin, "folder", "x").is_err());
        assert!(scene.folder.make_link("folder".as_ref(), "x".as_ref()).is_err());
        assert_eq!(scene.folder.names().unwrap(), ["folder"]);
    }
}

#[test]
fn a_file_without_a_name_is_not_in_its_folder() {
    let scene = Scene::new();
    let mut fresh = scene.folder.begin("file".as_ref(), 0o644).unwrap();
    if fresh.temporary.is_some() {
        // This file system has none.
        return;
    }
    fresh.file().write_all(b"half").unwrap();
    // A process that is killed here removes nothing.
    assert_eq!(scene.folder.names().unwrap(), [""; 0]);
    fresh.keep().unwrap();
    assert_eq!(scene.folder.names().unwrap(), ["file"]);
    assert_eq!(fs::read_to_string(scene.tree("file")).unwrap(), "half");
}

#[test]
fn a_file_gets_permission_bits_only() {
    let scene = Scene::new();
    for (begin, name) in WAYS.into_iter().zip(["file", "other"]) {
        begin(&scene.folder, name.as_ref(), 0o7700).unwrap().keep().unwrap();
        assert_eq!(fs::metadata(scene.tree(name)).unwrap().mode() & 0o7777, 0o700);
    }
}

#[test]
fn pipes_are_not_waited_for() {
    let scene = Scene::new();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, scene.tree("pipe"), FileType::Fifo, mode, 0).unwrap();
    assert!(scene.folder.read("pipe".as_ref()).unwrap_err().to_string().contains("not a regular file"));
}

#[test]
fn a_link_named_by_the_user_needs_a_slash() {
    let scene = Scene::new();
    symlink(scene.victim(), scene.tree("link")).unwrap();
    assert!(Folder::open(&scene.tree("link")).is_err());
    assert_eq!(Folder::open(&scene.tree("link/")).unwrap().names().unwrap(), ["file"]);
    assert!(Folder::open(&scene.tree("link/.")).is_ok());
}

/// Returns the owner of an entry; of a link, not of its target.
fn owner(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().uid()
}

#[test]
fn files_of_root_are_given_to_the_owner_of_the_folder() {
    const OWNER: u32 = 4711;
    const OTHER: u32 = 4712;
    let scene = Scene::new();
    let chown = |path: &Path, owner| std::os::unix::fs::chown(path, Some(owner), Some(owner));
    // Only root can change the owner.
    if chown(&scene.tree(""), OWNER).is_err() {
        return;
    }
    for name in ["below", "others"] {
        fs::create_dir(scene.tree(name)).unwrap();
        fs::write(scene.tree(name).join("file"), "data").unwrap();
    }
    chown(&scene.tree("others"), OTHER).unwrap();
    symlink(scene.victim(), scene.tree("link")).unwrap();
    fs::hard_link(scene.victim().join("file"), scene.tree("hard")).unwrap();
    scene.folder.give_all_to_owner().unwrap();
    let owners =
        ["below", "below/file", "others", "others/file", "link", "hard"].map(|name| owner(&scene.tree(name)));
    assert_eq!(owners, [OWNER, OWNER, OTHER, OTHER, 0, 0]);
    assert_eq!([owner(&scene.victim()), owner(&scene.victim().join("file"))], [0, 0]);
    assert!(scene.folder.give_to_owner(OsStr::new("../victim")).is_err());
    assert!(scene.folder.give_to_owner(OsStr::new("none")).is_err());
}
