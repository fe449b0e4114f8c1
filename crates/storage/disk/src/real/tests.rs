use super::*;
use crate::DIRECT_ALIGNMENT;

#[test]
fn written_data_is_read_up_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = RealDisk.create(&folder.path().join("a")).unwrap();
    // More pieces than one system call accepts.
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
fn appends_follow_earlier_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let (one, other) = (RealDisk.create(&path).unwrap(), RealDisk.open(&path).unwrap());
    one.write_all_at(&mut [IoSlice::new(b"ab")], 0).unwrap();
    assert_eq!(other.append(b"00").unwrap(), 2);
    one.write_all_at(&mut [IoSlice::new(b"cde")], 2).unwrap();
    assert_eq!(other.append(b"0").unwrap(), 1);
    let mut found = [0; 6];
    one.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"abcde0");
}

#[test]
fn other_users_can_read_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    RealDisk.create_dir(&path("folder")).unwrap();
    RealDisk.create(&path("file")).unwrap();
    let _lock = RealDisk.lock(&path("lock")).unwrap();
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["folder", "file", "lock"].map(mode), [0o700, 0o600, 0o600]);
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

#[test]
fn privileged_blocks_count_neither_as_free_nor_in_the_total() {
    let mut facts = statvfs("/").unwrap();
    (facts.f_frsize, facts.f_blocks, facts.f_bfree, facts.f_bavail) = (4096, 1000, 600, 550);
    assert_eq!(space_of(&facts), Space { total_bytes: 950 * 4096, free_bytes: 550 * 4096 });
    // With a quota, a file system may report more available than free blocks.
    facts.f_bavail = 700;
    assert_eq!(space_of(&facts), Space { total_bytes: 1000 * 4096, free_bytes: 700 * 4096 });
}

/// Returns an aligned slice, wherever the allocator put the vector.
fn aligned(memory: &mut Vec<u8>, length: usize) -> &mut [u8] {
    memory.resize(length + DIRECT_ALIGNMENT, 0);
    let start = memory.as_ptr().align_offset(DIRECT_ALIGNMENT);
    &mut memory[start..start + length]
}

#[test]
fn direct_and_cached_writes_are_both_read() {
    // On a file system without direct I/O, such as one in memory, the contents are the same.
    for folder in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
        let file = RealDisk.create(&folder.path().join("a")).unwrap();
        let mut memory = Vec::new();
        let block = aligned(&mut memory, 2 * DIRECT_ALIGNMENT);
        block.fill(7);
        file.write_all_at(&mut [IoSlice::new(b"before")], 0).unwrap();
        let (one, other) = block.split_at(DIRECT_ALIGNMENT);
        let mut pieces = [IoSlice::new(one), IoSlice::new(other)];
        file.write_all_direct_at(&mut pieces, DIRECT_ALIGNMENT as u64).unwrap();
        // None of these three is aligned.
        file.write_all_direct_at(&mut [IoSlice::new(&block[1..])], 3 * DIRECT_ALIGNMENT as u64).unwrap();
        file.write_all_direct_at(&mut [IoSlice::new(&block[..100])], 8 * DIRECT_ALIGNMENT as u64).unwrap();
        file.write_all_direct_at(&mut [IoSlice::new(&block[..DIRECT_ALIGNMENT])], 9).unwrap();
        file.sync_data().unwrap();
        let mut back = vec![0; 8 * DIRECT_ALIGNMENT + 100];
        file.read_exact_at(&mut back, 0).unwrap();
        let mut expected = b"before".to_vec();
        expected.resize(8 * DIRECT_ALIGNMENT + 100, 0);
        expected[DIRECT_ALIGNMENT..][..4 * DIRECT_ALIGNMENT - 1].fill(7);
        expected[8 * DIRECT_ALIGNMENT..].fill(7);
        expected[9..][..DIRECT_ALIGNMENT].fill(7);
        assert_eq!(back, expected);
        assert_eq!(file.length().unwrap(), back.len() as u64);

        // Direct reads return the same, up to the end in the middle of a block and not beyond.
        let mut memory = Vec::new();
        let blocks = aligned(&mut memory, 9 * DIRECT_ALIGNMENT);
        file.read_exact_direct_at(blocks, back.len(), 0).unwrap();
        assert_eq!(blocks[..back.len()], back);
        let (second, length) = (DIRECT_ALIGNMENT as u64, back.len() - DIRECT_ALIGNMENT);
        file.read_exact_direct_at(blocks, length, second).unwrap();
        assert_eq!(blocks[..length], back[DIRECT_ALIGNMENT..]);
        let beyond = file.read_exact_direct_at(blocks, length + 1, second).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        // Nothing is aligned, and the read succeeds nevertheless.
        file.read_exact_direct_at(&mut blocks[1..], 100, 3).unwrap();
        assert_eq!(blocks[1..101], back[3..103]);
    }
}

#[test]
fn a_file_that_refused_to_be_written_past_the_cache_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file =
        fs::File::options().read(true).write(true).create_new(true).open(folder.path().join("a")).unwrap();
    let file = RealFile { file, direct: OnceLock::new(), is_refused: AtomicBool::new(true) };
    let mut memory = Vec::new();
    let block = aligned(&mut memory, DIRECT_ALIGNMENT);
    assert_eq!(file.write_direct_at(&[IoSlice::new(block)], 0).unwrap(), DIRECT_ALIGNMENT);
    assert!(!file.goes_past_cache());
}

#[test]
fn dropped_pages_leave_the_system_cache() {
    // Not on a file system in memory, which has no device.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    fs::create_dir(folder.path().join("more")).unwrap();
    let path = folder.path().join("a");
    fs::write(&path, vec![7; 100_000]).unwrap();
    let file = fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    let mut buffer = vec![0; 4096];
    let mut is_cached = || {
        let pieces = &mut [io::IoSliceMut::new(&mut buffer)];
        match rustix::io::preadv2(&file, pieces, 8192, rustix::io::ReadWriteFlags::NOWAIT) {
            Ok(count) => Some(count > 0),
            Err(Errno::AGAIN) => Some(false),
            // Some file systems do not report it.
            Err(Errno::OPNOTSUPP) => None,
            Err(error) => panic!("{error}"),
        }
    };
    assert_ne!(is_cached(), Some(false), "just written");
    forget_cached(folder.path()).unwrap();
    assert_ne!(is_cached(), Some(true));
    assert_eq!(fs::read(&path).unwrap(), vec![7; 100_000]);
    assert!(forget_cached(&folder.path().join("none")).is_err());
}
