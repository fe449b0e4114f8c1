//! `cellar import`: a damaged database is rejected with the location of the damage, and nothing of it is
//! imported; resuming a partly imported partition has the same result as importing it in one run.

use crate::support::place::{Place, printed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use walkdir::WalkDir;

fn import(place: &Place, kind: &str, path: &Path, options: &[&str]) -> Command {
    let mut command = place.command(&["import", kind, "--json"]);
    command.arg(path).args(options);
    command
}

fn import_well(place: &Place, kind: &str, path: &Path, options: &[&str]) -> Value {
    serde_json::from_str(&printed(&mut import(place, kind, path, options))).unwrap()
}

/// Returns a database file: Ubik's header, followed by these words at these addresses.
fn database(bytes: usize, words: &[(usize, &[u32])]) -> Vec<u8> {
    let mut file = vec![0; 64 + bytes];
    file[..8].copy_from_slice(&[0, 0x35, 0x45, 0x45, 0, 0, 0, 64]);
    for (address, words) in words {
        for (place, word) in (64 + address..).step_by(4).zip(*words) {
            file[place..place + 4].copy_from_slice(&word.to_be_bytes());
        }
    }
    file
}

/// A database with one user.
pub(crate) fn prdb() -> Vec<u8> {
    let header = 65_600;
    let mut file = database(
        header + 192,
        &[(0, &[0, header as u32, 0, header as u32 + 192, -300i32 as u32, 1001]), (header, &[0x80, 1001])],
    );
    file[64 + header + 128..][..3].copy_from_slice(b"ann");
    file
}

/// A database with one volume on one server.
fn vldb() -> Vec<u8> {
    let header = 132_120;
    let end = header as u32 + 148;
    let mut file = database(
        header + 148,
        &[
            (0, &[4, header as u32, 0, end, 0, 0, 0x2000_0010]),
            (40, &[0x0a63_0001]),
            (header, &[536_870_912, 0, 0, 0x1000]),
        ],
    );
    let name = 64 + header + 44;
    file[name..name + 4].copy_from_slice(b"root");
    let sites = name + 65;
    file[sites..sites + 13].fill(255);
    (file[sites], file[sites + 13], file[sites + 26]) = (0, 0, 4);
    file
}

#[test]
fn a_damaged_database_is_refused_with_its_offset() {
    for (kind, whole) in [("prdb", prdb()), ("vldb", vldb())] {
        let place = Place::new("");
        let file = place.path(&format!("{kind}.DB0"));
        let with = |at: usize, byte: u8| {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            damaged
        };
        let entry = whole.len() - if kind == "prdb" { 192 } else { 148 };
        for (damaged, at) in [
            (Vec::new(), "byte 0: "),
            (whole[..40].to_vec(), "byte 40: "),
            (with(0, 1), "byte 0: "),
            (with(7, 65), "byte 6: "),
            (with(64, 9), "byte 64: "),
            // The database's recorded end is beyond the end of the file.
            (whole[..whole.len() - 1].to_vec(), "byte 76: "),
            (with(entry + if kind == "prdb" { 128 } else { 44 }, 0), "expected "),
        ] {
            std::fs::write(&file, damaged).unwrap();
            for options in [&["--dry-run"][..], &[]] {
                let refused = import(&place, kind, &file, options).output().unwrap();
                let reported = String::from_utf8(refused.stderr).unwrap();
                assert!(!refused.status.success() && refused.stdout.is_empty(), "{kind} {at}");
                assert!(reported.contains(at) && reported.contains(".DB0"), "{kind} {at}: {reported}");
            }
        }
        std::fs::write(&file, &whole).unwrap();
        let counted = if kind == "prdb" { "users" } else { "volumes" };
        for (options, dry_run) in [(&["--dry-run"][..], true), (&[], false)] {
            let reported = import_well(&place, kind, &file, options);
            assert_eq!(
                (reported[counted].as_u64(), reported["dry_run"].as_bool()),
                (Some(1), Some(dry_run)),
                "{reported}"
            );
        }
        let again = import(&place, kind, &file, &[]).output().unwrap();
        assert!(!again.status.success(), "there is something to lose now");
    }
}

/// Returns the file with a copy of its last block appended.
fn with_copy(whole: &[u8], bytes: usize) -> Vec<u8> {
    let mut file = [whole, &whole[whole.len() - bytes..]].concat();
    let end = (file.len() - 64) as u32;
    file[64 + 12..64 + 16].copy_from_slice(&end.to_be_bytes());
    file
}

#[test]
fn a_dry_run_names_omissions_like_a_real_one() {
    let mut prdb = with_copy(&prdb(), 192);
    for entry in [64 + 65_600, 64 + 65_600 + 192] {
        prdb[entry + 36..entry + 40].copy_from_slice(&(-300i32).to_be_bytes());
        prdb[entry + 103] = 1;
    }
    for (kind, file, left_out, tool) in [
        (
            "prdb",
            prdb,
            &[
                "`ann` (1001) is a copy of the entry at byte 65664",
                "the list of `ann` (1001) has -300, which",
            ][..],
            "prdb_check",
        ),
        (
            "vldb",
            with_copy(&vldb(), 148),
            &["volume `root` (536870912) is a copy of the entry at byte 132184"],
            "vldb_check",
        ),
    ] {
        let place = Place::new("");
        let path = place.path(&format!("{kind}.DB0"));
        std::fs::write(&path, file).unwrap();
        let text = printed(place.command(&["import", kind, "--dry-run"]).arg(&path));
        assert!(text.contains(&format!("; {} left out", left_out.len())) || text.contains(", "), "{text}");
        assert!(text.contains(tool), "{text}");
        let dry = import_well(&place, kind, &path, &["--dry-run"]);
        let real = import_well(&place, kind, &path, &[]);
        assert_eq!(dry["oddities"], real["oddities"]);
        let found: Vec<&str> = dry["oddities"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|odd| odd["fate"] == "left out")
            .map(|odd| odd["what"].as_str().unwrap())
            .collect();
        assert_eq!(found.len(), left_out.len(), "{dry}");
        for (found, wanted) in found.iter().zip(left_out) {
            assert!(found.starts_with(wanted) && text.contains(found), "{found}\n{text}");
        }
    }
}

#[test]
fn reserved_volume_numbers_are_refused_in_a_dry_run_too() {
    let place = Place::new("");
    let copy = vicepa(place.folder());
    reserve(&copy);
    for options in [&["--dry-run"][..], &[]] {
        let refused = import(&place, "vicep", &copy, options).output().unwrap();
        let reported: Value = serde_json::from_slice(&refused.stdout).unwrap();
        let odd = reported.as_array().unwrap().iter().find(|row| row["id"] == u32::MAX).unwrap();
        assert_eq!(odd["outcome"], "damaged", "{reported}");
        assert!(odd["problems"][0]["what"].as_str().unwrap().contains("4294901760"), "{reported}");
        assert!(!refused.status.success());
    }
}

/// Gives the read-only volume the number 4294967295.
fn reserve(partition: &Path) {
    let folder = partition.join("AFSIDat/+/++++U/special");
    let header = partition.join("V0536870913.vol");
    let mut bytes = std::fs::read(&header).unwrap();
    bytes[8..12].fill(0xff);
    std::fs::remove_file(header).unwrap();
    std::fs::write(partition.join("V4294967295.vol"), bytes).unwrap();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        // A volume's information: its magic number and the volume's number.
        if bytes.starts_with(&0x78a1_b2c5_u32.to_le_bytes()) && bytes[8..12] == 536_870_913_u32.to_le_bytes()
        {
            bytes[8..12].fill(0xff);
            std::fs::write(path, bytes).unwrap();
        }
    }
}

/// Returns a copy of a partition made by OpenAFS: the volume `home` with a read-only and a backup clone.
fn vicepa(folder: &Path) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/afs-format/testdata/vicepa");
    let copy = folder.join("copy");
    for entry in WalkDir::new(&from) {
        let entry = entry.unwrap();
        let to = copy.join(entry.path().strip_prefix(&from).unwrap());
        if entry.file_type().is_dir() {
            std::fs::create_dir(to).unwrap();
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
    copy
}

fn outcomes(reported: &Value) -> Vec<(&str, &str)> {
    let all = reported.as_array().unwrap().iter();
    all.map(|row| (row["name"].as_str().unwrap(), row["outcome"].as_str().unwrap())).collect()
}

#[test]
fn clones_share_data_of_an_interrupted_run() {
    let place = Place::new("");
    let copy = vicepa(place.folder());
    let first = import_well(&place, "vicep", &copy, &["--volume", "home"]);
    assert_eq!(outcomes(&first), [("home", "imported")]);
    let rest = import_well(&place, "vicep", &copy, &[]);
    let shared = [("home", "present"), ("home.readonly", "shared"), ("home.backup", "shared")];
    assert_eq!(outcomes(&rest), shared);
}
