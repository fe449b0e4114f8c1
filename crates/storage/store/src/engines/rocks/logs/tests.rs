use super::*;
use disk::{DiskStep, FaultyDisk, Garbling, HookedDisk};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const FOLDER: &str = "/meta";

fn path(number: u64) -> PathBuf {
    Path::new(FOLDER).join(format!("{number:06}.log"))
}

fn fresh() -> (FaultyDisk, Logs) {
    let disk = FaultyDisk::new(1, Garbling::default());
    disk.create_dir(Path::new(FOLDER)).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let logs = Logs::new(Arc::new(disk.clone()), Path::new(FOLDER));
    (disk, logs)
}

fn append(file: &dyn File, text: &str) {
    let end = file.length().unwrap();
    file.write_all_at(&mut [IoSlice::new(text.as_bytes())], end).unwrap();
}

/// Returns the contents of a log after a simulated crash.
fn left(disk: &FaultyDisk, number: u64) -> Option<String> {
    let file = disk.crash().open(&path(number)).ok()?;
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8(bytes).ok()
}

#[test]
fn a_sync_makes_names_and_contents_of_all_logs_durable() {
    let (disk, logs) = fresh();
    let first = disk.create(&path(4)).unwrap();
    append(&*first, "one");
    logs.sync(Some(1)).unwrap();
    assert_eq!(left(&disk, 4).unwrap(), "one");
    // The last writes to a log and the first ones to the next.
    append(&*first, " two");
    let second = disk.create(&path(9)).unwrap();
    append(&*second, "three");
    disk.create(&Path::new(FOLDER).join("000010.sst")).unwrap();
    logs.sync(Some(2)).unwrap();
    assert_eq!(left(&disk, 4).unwrap(), "one two");
    assert_eq!(left(&disk, 9).unwrap(), "three");
    disk.remove(&path(4)).unwrap();
    append(&*second, " four");
    logs.sync(Some(3)).unwrap();
    assert_eq!(left(&disk, 9).unwrap(), "three four");
    assert_eq!(logs.known.lock().logs.keys().collect::<Vec<_>>(), [&9]);
}

#[test]
fn an_unchanged_log_is_not_synced_again() {
    let (disk, _) = fresh();
    let syncs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&syncs);
    let count = move |step| _ = counted.fetch_add(u32::from(step == DiskStep::Sync), Relaxed);
    let logs = Logs::new(Arc::new(HookedDisk::new(Arc::new(disk.clone()), count)), Path::new(FOLDER));
    let files = [4, 9].map(|number| disk.create(&path(number)).unwrap());
    for file in &files {
        append(&**file, "one");
    }
    let synced = |layout| {
        let before = syncs.load(Relaxed);
        logs.sync(layout).unwrap();
        syncs.load(Relaxed) - before
    };
    assert_eq!(synced(Some(1)), 3, "both files and the folder");
    assert_eq!((synced(Some(1)), synced(Some(2)), synced(None)), (0, 0, 0));
    append(&*files[1], "two");
    assert_eq!(synced(Some(2)), 1);
}

#[test]
fn every_failure_of_a_sync_is_reported() {
    let mut failures = 0;
    for operation in 0..100 {
        let (disk, logs) = fresh();
        append(&*disk.create(&path(4)).unwrap(), "one");
        disk.fail_at(disk.operations() + operation, io::ErrorKind::ReadOnlyFilesystem);
        match logs.sync(Some(1)) {
            Ok(()) => assert_eq!(left(&disk, 4).unwrap(), "one"),
            Err(error) => {
                assert!(error.to_string().contains(FOLDER), "{error}");
                failures += 1;
            }
        }
    }
    assert!(failures >= 2, "{failures}");
}
