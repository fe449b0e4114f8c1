use super::*;

#[test]
fn what_is_written_is_read_and_the_end_is_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = RealDisk.create(&folder.path().join("a")).unwrap();
    // More pieces than one system call takes.
    let bytes: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
    let mut pieces: Vec<IoSlice<'_>> = bytes.chunks(1).map(IoSlice::new).collect();
    file.write_all_at(&mut pieces, 5).unwrap();
    file.sync_data().unwrap();
    let mut back = vec![0; 3000];
    file.read_exact_at(&mut back, 5).unwrap();
    assert_eq!(back, bytes);
    assert_eq!(file.length().unwrap(), 3005);
    let past_the_end = file.read_exact_at(&mut back, 6).unwrap_err();
    assert_eq!(past_the_end.kind(), io::ErrorKind::UnexpectedEof);
    file.set_len(1).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.length().unwrap(), 1);
}

#[test]
fn names_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    RealDisk.create_dir(&path("d")).unwrap();
    RealDisk.create(&path("b")).unwrap();
    RealDisk.create(&path("a")).unwrap();
    assert_eq!(RealDisk.create(&path("a")).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    RealDisk.rename(&path("a"), &path("b")).unwrap();
    RealDisk.sync_dir(folder.path()).unwrap();
    assert_eq!(RealDisk.list(folder.path()).unwrap(), ["b", "d"]);
    RealDisk.remove(&path("b")).unwrap();
    assert!(!RealDisk.exists(&path("b")).unwrap());
    assert_eq!(RealDisk.open(&path("b")).err().unwrap().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_lock_is_exclusive_until_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("LOCK");
    let held = RealDisk.lock(&path).unwrap();
    assert_eq!(RealDisk.lock(&path).err().unwrap().kind(), io::ErrorKind::WouldBlock);
    drop(held);
    RealDisk.lock(&path).unwrap();
}

#[test]
fn a_file_system_has_a_size() {
    let space = RealDisk.space(Path::new("/")).unwrap();
    assert!(space.total_bytes > 0 && space.free_bytes <= space.total_bytes);
}
