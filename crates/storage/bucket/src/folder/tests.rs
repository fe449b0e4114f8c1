use super::*;
use crate::probe::probe;
use futures::TryStreamExt;
use std::sync::Arc;
use std::thread;
use tokio::runtime::Builder;

fn run<T>(work: impl Future<Output = T>) -> T {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap().block_on(work)
}

fn version(meta: &ObjectMeta) -> UpdateVersion {
    UpdateVersion { e_tag: meta.e_tag.clone(), version: None }
}

fn put(contents: &'static str) -> PutPayload {
    contents.into()
}

async fn read(folder: &Folder, name: &Path) -> String {
    String::from_utf8(folder.get(name).await.unwrap().bytes().await.unwrap().to_vec()).unwrap()
}

fn mode(mode: PutMode) -> PutOptions {
    PutOptions { mode, ..PutOptions::default() }
}

#[test]
fn a_folder_passes_the_probe() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let report = run(probe(&folder, &Path::from("probe"))).unwrap();
    assert_eq!((report.times.len(), report.unclear), (12, 0));
    let left: Vec<_> = fs::read_dir(place.path().join("probe")).unwrap().collect();
    assert_eq!(left.len(), 0, "{left:?}");
}

#[test]
fn a_repeated_copy_leaves_nothing_else_behind() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    run(async {
        let (from, to) = (Path::from("from"), Path::from("to"));
        folder.put(&from, put("one")).await.unwrap();
        for _ in 0..3 {
            folder.copy(&from, &to).await.unwrap();
        }
        folder.delete(&from).await.unwrap();
        assert_eq!(read(&folder, &to).await, "one");
        folder.put(&from, put("two")).await.unwrap();
        folder.copy(&from, &to).await.unwrap();
        assert_eq!(read(&folder, &to).await, "two");
    });
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

#[test]
fn large_objects_are_created_once_and_whole() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let noise = |length: usize, seed: u8| -> Bytes {
        (0..length).map(|n| (n as u8).wrapping_mul(31) ^ (n >> 8) as u8 ^ seed).collect()
    };
    for (number, length) in [
        DIRECT_BYTES_MIN - 1,
        DIRECT_BYTES_MIN,
        DIRECT_BYTES_MIN + 1,
        DIRECT_BYTES_MIN + DIRECT_ALIGNMENT,
        3_000_007,
    ]
    .into_iter()
    .enumerate()
    {
        let name = Path::from(format!("p/{number}/large"));
        let contents = noise(length, 1);
        // In one piece, and in several of any alignment.
        let payloads = [
            PutPayload::from(contents.clone()),
            [contents.slice(..5000), contents.slice(5000..8193), contents.slice(8193..)]
                .into_iter()
                .collect(),
        ];
        for payload in payloads {
            run(async {
                let created = folder.put_opts(&name, payload, mode(PutMode::Create)).await.unwrap();
                assert_eq!(created.e_tag, folder.head(&name).await.unwrap().e_tag);
                assert_eq!(folder.get(&name).await.unwrap().bytes().await.unwrap(), contents);
                let other = PutPayload::from(noise(length, 2));
                let again = folder.put_opts(&name, other, mode(PutMode::Create)).await.unwrap_err();
                assert!(matches!(again, Error::AlreadyExists { .. }), "{again}");
                assert_eq!(folder.get(&name).await.unwrap().bytes().await.unwrap(), contents);
                let listed: Vec<_> = folder.list(None).try_collect().await.unwrap();
                assert_eq!(listed.len(), 1, "{listed:?}");
                folder.delete(&name).await.unwrap();
            });
            // Nothing of the attempts is left.
            let left = fs::read_dir(place.path().join(format!("p/{number}"))).map_or(0, Iterator::count);
            assert_eq!(left, 0);
        }
    }
}

#[test]
fn of_many_creations_of_a_large_object_one_succeeds() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let name = Path::from("p/large");
    run(async {
        folder.put(&Path::from("p/other"), put("for the folder")).await.unwrap();
        let create = |byte: u8| {
            let (folder, name) = (folder.clone(), name.clone());
            let payload = PutPayload::from(vec![byte; 2 * DIRECT_BYTES_MIN]);
            tokio::spawn(async move {
                folder.put_opts(&name, payload, mode(PutMode::Create)).await.is_ok().then_some(byte)
            })
        };
        let mut created = Vec::new();
        for attempt in (0..16).map(create).collect::<Vec<_>>() {
            created.extend(attempt.await.unwrap());
        }
        assert_eq!(created.len(), 1);
        let contents = folder.get(&name).await.unwrap().bytes().await.unwrap();
        assert_eq!(contents, vec![created[0]; 2 * DIRECT_BYTES_MIN]);
    });
}

#[test]
fn the_newest_version_is_read() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let name = Path::from("p/owner");
    run(async {
        folder.put_opts(&name, put("first"), mode(PutMode::Create)).await.unwrap();
        let first = folder.head(&name).await.unwrap();
        let update = mode(PutMode::Update(version(&first)));
        let second = folder.put_opts(&name, put("the second"), update.clone()).await.unwrap();
        let found = folder.head(&name).await.unwrap();
        assert_eq!((found.size, &found.e_tag), (10, &second.e_tag));
        assert_ne!(first.e_tag, second.e_tag);
        let again = folder.put_opts(&name, put("third"), update).await.unwrap_err();
        assert!(matches!(again, Error::Precondition { .. }), "{again}");
        assert_eq!(folder.get_range(&name, 4..100).await.unwrap(), "second");
        let ranges = folder.get_ranges(&name, &[0..3, 4..6]).await.unwrap();
        assert_eq!(ranges, ["the", "se"]);
        // Beyond the first version's end.
        assert_eq!(folder.get_range(&name, 8..10).await.unwrap(), "nd");
        let options = GetOptions { if_match: first.e_tag, ..GetOptions::default() };
        assert!(folder.get_opts(&name, options).await.is_err());
        folder.put(&name, put("whatever it is")).await.unwrap();
        assert_eq!(read(&folder, &name).await, "whatever it is");

        let listed: Vec<ObjectMeta> = folder.list(None).try_collect().await.unwrap();
        assert_eq!(listed.iter().map(|object| &object.location).collect::<Vec<_>>(), [&name]);
        let listed = folder.list_with_delimiter(Some(&Path::from("p"))).await.unwrap();
        assert_eq!((listed.objects.len(), listed.common_prefixes.len()), (1, 0));

        folder.delete(&name).await.unwrap();
        assert!(matches!(folder.get(&name).await, Err(Error::NotFound { .. })));
        folder.put_opts(&name, put("anew"), mode(PutMode::Create)).await.unwrap();
        assert_eq!(read(&folder, &name).await, "anew");
    });
}

/// A process that slept while the version it knows was replaced many times, and removed, must not win.
#[test]
fn a_sleeper_with_a_removed_version_loses() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    let name = Path::from("owner");
    run(async {
        folder.put_opts(&name, put("0"), mode(PutMode::Create)).await.unwrap();
        let first = folder.head(&name).await.unwrap();
        let mut known = vec![first.e_tag.clone()];
        for _ in 0..4 * OLDER_KEPT {
            let version = UpdateVersion { e_tag: known.last().unwrap().clone(), version: None };
            let put = folder.put_opts(&name, put("owned"), mode(PutMode::Update(version))).await.unwrap();
            known.push(put.e_tag);
        }
        let versions = folder.versions(&first).unwrap();
        let kept = numbers(&versions).unwrap();
        assert_eq!(kept, (3 * OLDER_KEPT..=4 * OLDER_KEPT).collect::<Vec<_>>());
        // Each passed the comparison long ago, and is about to create the next version.
        for (before, tag) in known.iter().enumerate().rev().skip(1) {
            let late = [Bytes::from_static(b"late")];
            let late = write_version(&versions, &name, (before as u64, tag.as_ref()), &late, None).unwrap();
            assert!(late.is_none(), "{before}");
        }
        // A version that another sleeper is about to remove again is not the one that was read.
        fs::write(version_path(&versions, 5), "late").unwrap();
        let late = write_version(&versions, &name, (5, known[5].as_ref()), &[], None).unwrap();
        assert!(late.is_none());
        fs::remove_file(version_path(&versions, 5)).unwrap();
        assert_eq!(numbers(&versions).unwrap(), kept);
        assert_eq!(read(&folder, &name).await, "owned");
    });
}

/// Each of many processes adds one to a number; none is lost.
#[test]
fn no_replacement_is_lost() {
    let place = tempfile::tempdir().unwrap();
    let name = Path::from("count");
    let folder = || Folder::open(place.path()).unwrap();
    run(folder().put_opts(&name, put("0"), mode(PutMode::Create))).unwrap();
    let (racers, rounds) = (4, 25);
    let add = |folder: Arc<Folder>| {
        let name = name.clone();
        run(async move {
            let mut done = 0;
            while done < rounds {
                let found = folder.get(&name).await.unwrap();
                let known = version(&found.meta);
                let count: u32 = std::str::from_utf8(&found.bytes().await.unwrap()).unwrap().parse().unwrap();
                let next = (count + 1).to_string().into();
                match folder.put_opts(&name, next, mode(PutMode::Update(known))).await {
                    Ok(_) => done += 1,
                    Err(Error::Precondition { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    };
    thread::scope(|scope| {
        for _ in 0..racers {
            scope.spawn(|| add(Arc::new(folder())));
        }
    });
    assert_eq!(run(read(&folder(), &name)), (racers * rounds).to_string());
}

/// Commands run as root, and the server as the owner of the folder.
#[test]
fn files_of_root_belong_to_the_owner_of_the_folder() {
    const OWNER: u32 = 4711;
    let place = tempfile::tempdir().unwrap();
    // Only root can change the owner, and only what root creates is given away.
    if std::os::unix::fs::chown(place.path(), Some(OWNER), Some(OWNER)).is_err() {
        return;
    }
    let (folder, name) = (Folder::open(place.path()).unwrap(), Path::from("p/q/owner"));
    run(async {
        folder.put_opts(&name, put("first"), mode(PutMode::Create)).await.unwrap();
        // Until versions are removed.
        for _ in 0..2 * OLDER_KEPT {
            folder.put(&name, put("next")).await.unwrap();
            let present = folder.head(&name).await.unwrap();
            folder.put_opts(&name, put("next"), mode(PutMode::Update(version(&present)))).await.unwrap();
        }
        // The first one creates the folder.
        for large in ["p/r/large", "p/r/larger"] {
            let payload = PutPayload::from(vec![7; DIRECT_BYTES_MIN]);
            folder.put_opts(&Path::from(large), payload, mode(PutMode::Create)).await.unwrap();
        }
        folder.copy(&name, &Path::from("copies/copy")).await.unwrap();
        let mut upload = folder.put_multipart(&Path::from("parts/object")).await.unwrap();
        upload.put_part(put("part")).await.unwrap();
        upload.complete().await.unwrap();
    });
    let mut entries = owners(place.path());
    assert!(entries.len() > 2 * OLDER_KEPT as usize, "{entries:?}");
    entries.retain(|(_, owners)| *owners != (OWNER, OWNER));
    assert_eq!(entries, []);
}

/// Returns everything beneath a folder, and the user and the group that it belongs to.
fn owners(folder: &std::path::Path) -> Vec<(PathBuf, (u32, u32))> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let each = |entry: fs::DirEntry| {
        let status = entry.metadata().unwrap();
        let mut found = if status.is_dir() { owners(&entry.path()) } else { Vec::new() };
        found.push((entry.path(), (status.uid(), status.gid())));
        found
    };
    entries.flat_map(each).collect()
}
