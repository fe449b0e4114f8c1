//! The cell's keys, from KeyFileExt, KeyFile and rxkad.keytab.

use super::security::SecuritySettings;
use crate::files::{Exposure, read_secret};
use afs_format::keyfile::{KeyType, parse_des, parse_extended};
use afs_format::keytab;
use anyhow::{Context, Result, bail};
use base::UnixTime;
use bosserver::{KeyList, KeyVersion, key_checksum};
use rx_security::{KeySet, ServiceKey};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Encryption type of single DES keys.
const DES: i32 = 1;

/// Locations of keys. A named file must exist unless `may_lack` is set, as for OpenAFS's default paths.
#[derive(Clone, Debug, Default)]
pub struct KeyFiles {
    /// Path of KeyFileExt.
    pub extended: Option<PathBuf>,
    /// Path of KeyFile, with single DES keys.
    pub des: Option<PathBuf>,
    /// Path of rxkad.keytab.
    pub keytab: Option<PathBuf>,
    /// Whether missing files are skipped.
    pub may_lack: bool,
    /// What to do with a file that other users can access.
    pub exposure: Exposure,
}

/// Detects changes of the files: for each file its length, its last change of contents or mode in nanoseconds
/// and its inode, if it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStamp([Option<(u64, i64, u64)>; 3]);

impl KeyFiles {
    /// Returns the present state of the files.
    pub fn stamp(&self) -> KeyStamp {
        KeyStamp([&self.des, &self.extended, &self.keytab].map(|path| {
            let found = path.as_ref()?.metadata().ok()?;
            Some((found.len(), found.ctime() * 1_000_000_000 + found.ctime_nsec(), found.ino()))
        }))
    }
}

/// Keys found in the files.
#[derive(Debug)]
pub struct Keys {
    /// All keys.
    pub set: KeySet,
    /// Single DES keys, as shown by `bos listkeys`.
    pub des: KeyList,
    /// Problems found, for the log.
    pub warnings: Vec<String>,
}

/// Loads the rxkad keys of permitted types. Other keys, and keys of unsupported types, are skipped with a
/// warning.
///
/// # Errors
/// If a file cannot be read, or no key is left.
pub fn load(files: &KeyFiles, security: &SecuritySettings) -> Result<Keys> {
    let mut keys = load_all(files)?;
    let refused = keys.set.remove_unless(|enctype| security.allows(enctype));
    let refused: Vec<String> = refused
        .into_iter()
        .map(|(kvno, enctype)| {
            let name = enctype.name();
            format!(
                "key version {kvno} ({name}) is not used: the encryption type is broken; replace the key, \
                or allow it with `weak_enctypes = [\"{name}\"]` in [security]"
            )
        })
        .collect();
    match (keys.set.is_empty(), refused.as_slice()) {
        (true, [first, ..]) => bail!("the cell has no usable key: {first}"),
        _ => keys.warnings.extend(refused),
    }
    Ok(keys)
}

/// Loads every rxkad key, including broken types, for clients of cells that have no others. Keys of
/// unsupported types are skipped with a warning.
///
/// # Errors
/// If a file cannot be read, or there is no key.
pub fn load_all(files: &KeyFiles) -> Result<Keys> {
    type Add = fn(&mut Keys, &Path, &[u8]) -> Result<()>;
    let sources: [(&Option<PathBuf>, Add); 3] =
        [(&files.des, add_des), (&files.extended, add_extended), (&files.keytab, add_keytab)];
    let mut keys = Keys { set: KeySet::new(), des: KeyList::default(), warnings: Vec::new() };
    let mut names = Vec::new();
    for (path, add) in sources {
        let Some(path) = path.as_ref().filter(|path| !files.may_lack || path.exists()) else { continue };
        let shown = || format!("in {}", path.display());
        let (bytes, mending) = read_secret(path, files.exposure).with_context(shown)?;
        keys.warnings.extend(mending.map(|mending| mending.to_string()));
        add(&mut keys, path, &bytes).with_context(shown)?;
        names.push(path.display().to_string());
    }
    match (keys.set.is_empty(), names.as_slice()) {
        (false, _) => Ok(keys),
        (true, []) => bail!(
            "the cell has no key: neither KeyFileExt nor rxkad.keytab exists; `asetkey add rxkad_krb5 ...` \
            creates the first"
        ),
        (true, names) => bail!("there is no rxkad key in {}", names.join(" and ")),
    }
}

fn changed(path: &Path) -> UnixTime {
    let modified = path.metadata().ok().and_then(|metadata| metadata.modified().ok());
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    UnixTime(u32::try_from(since.as_secs()).unwrap_or(0))
}

fn add_des(keys: &mut Keys, path: &Path, bytes: &[u8]) -> Result<()> {
    for key in parse_des(bytes)? {
        insert_des(keys, path, key.kvno, key.secret.expose());
    }
    keys.des.changed = changed(path);
    Ok(())
}

fn add_extended(keys: &mut Keys, path: &Path, bytes: &[u8]) -> Result<()> {
    for key in parse_extended(bytes)? {
        let bytes = key.secret.expose();
        match key.key_type {
            KeyType::RxkadKerberos5 => insert(keys, path, key.kvno, key.subtype as i32, bytes),
            KeyType::Rxkad => insert_des(keys, path, key.kvno, bytes),
            KeyType::Rxgk | KeyType::Other(_) => {}
        }
    }
    Ok(())
}

fn add_keytab(keys: &mut Keys, path: &Path, bytes: &[u8]) -> Result<()> {
    for entry in keytab::parse(bytes)? {
        if entry.components.first().is_some_and(|first| first == "afs") {
            insert(keys, path, entry.kvno, entry.enctype, entry.secret.expose());
        }
    }
    Ok(())
}

fn insert_des(keys: &mut Keys, path: &Path, kvno: u32, bytes: &[u8]) {
    insert(keys, path, kvno, DES, bytes);
    if let Ok(bytes) = <&[u8; 8]>::try_from(bytes) {
        keys.des.keys.retain(|known| known.version != kvno);
        keys.des.keys.push(KeyVersion { version: kvno, checksum: key_checksum(bytes) });
        keys.des.keys.sort_by_key(|known| known.version);
    }
}

fn insert(keys: &mut Keys, path: &Path, kvno: u32, enctype: i32, bytes: &[u8]) {
    match ServiceKey::new(enctype, bytes) {
        Ok(key) => keys.set.insert(kvno, key),
        Err(error) => {
            keys.warnings.push(format!("{}: key version {kvno} is left out: {error}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_format::keyfile::{DesKey, Secret, TypedKey, write_des, write_extended};
    use rx_security::{Enctype, KeySource};

    fn extended(path: &Path) -> KeyFiles {
        KeyFiles { extended: Some(path.into()), ..KeyFiles::default() }
    }

    fn kerberos(kvno: u32, subtype: u32) -> TypedKey {
        TypedKey { key_type: KeyType::RxkadKerberos5, kvno, subtype, secret: Secret::new(&[7; 32]) }
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("KeyFileExt");
        crate::files::replace(&path, &write_extended(&[kerberos(3, 18)])).unwrap();
        let files = extended(&path);
        let before = files.stamp();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_ne!(files.stamp(), before, "a change of mode is seen");
        let refused = format!("{:#}", load_all(&files).unwrap_err());
        assert!(refused.contains("(mode 644): run `chmod 600 "), "{refused}");
        let allowed = load_all(&KeyFiles { exposure: Exposure::Allowed, ..files }).unwrap();
        assert!(!allowed.set.is_empty() && allowed.warnings[0].contains("(mode 644)"));
    }

    #[test]
    fn keys_are_read_and_an_empty_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("KeyFileExt");
        crate::files::replace(&path, &write_extended(&[kerberos(3, 18), kerberos(4, 99)])).unwrap();
        let keys = load_all(&extended(&path)).unwrap();
        assert_eq!(keys.set.versions().map(|(kvno, _)| kvno).collect::<Vec<_>>(), [3]);
        assert!(keys.warnings[0].contains("key version 4") && keys.warnings[0].contains("type 99"));
        crate::files::replace(&path, &write_extended(&[])).unwrap();
        assert!(load_all(&extended(&path)).unwrap_err().to_string().contains("no rxkad key"));
        crate::files::replace(&path, &[1, 2, 3]).unwrap();
        assert!(format!("{:#}", load_all(&extended(&path)).unwrap_err()).contains("KeyFileExt"));
        assert!(load_all(&KeyFiles::default()).is_err());
    }

    #[test]
    fn a_file_that_may_be_missing_is_left_out_and_changes_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("KeyFileExt");
        crate::files::replace(&path, &write_extended(&[kerberos(3, 18)])).unwrap();
        let named = KeyFiles { des: Some(folder.path().join("KeyFile")), ..extended(&path) };
        assert!(format!("{:#}", load_all(&named).unwrap_err()).contains("KeyFile: cannot read"));
        let files = KeyFiles { may_lack: true, ..named };
        assert_eq!(load_all(&files).unwrap().set.len(), 1);
        let stamp = files.stamp();
        assert_eq!(files.stamp(), stamp);
        crate::files::replace(&folder.path().join("KeyFile"), &[0; 4]).unwrap();
        assert_ne!(files.stamp(), stamp);
    }

    #[test]
    fn single_des_keys_are_used_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("KeyFile"), folder.path().join("KeyFileExt"));
        let key =
            |kvno| DesKey { kvno, secret: Secret::new(&[0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1]) };
        crate::files::replace(&path, &write_des(&[key(7), key(2)]).unwrap()).unwrap();
        let old = TypedKey { key_type: KeyType::Rxkad, kvno: 5, subtype: 0, secret: key(5).secret };
        crate::files::replace(&other, &write_extended(&[old, kerberos(9, 18)])).unwrap();
        let files = KeyFiles { des: Some(path.clone()), ..extended(&other) };
        let keys = load_all(&files).unwrap();
        let versions: Vec<u32> = keys.des.keys.iter().map(|key| key.version).collect();
        assert_eq!(versions, [2, 5, 7]);
        assert!(keys.des.keys.iter().all(|key| key.checksum == 0x948a_43f9));
        assert!(keys.set.key(7, Enctype::DesCbcCrc).is_some() && keys.set.len() == 4);
        assert_eq!(keys.set.preferred().unwrap().0, 9, "tools make tickets with the strongest");
        assert!(keys.des.changed.0 > 0);
        crate::files::replace(&path, &[0, 0, 0, 1]).unwrap();
        assert!(format!("{:#}", load_all(&files).unwrap_err()).contains("cut off"));
    }

    #[test]
    fn weak_keys_are_used_only_if_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("KeyFileExt");
        let weak = |kvno, subtype, bytes: &[u8]| TypedKey {
            key_type: KeyType::RxkadKerberos5,
            kvno,
            subtype,
            secret: Secret::new(bytes),
        };
        let all = [weak(1, 1, &[7; 8]), weak(2, 16, &[7; 24]), weak(3, 23, &[7; 16]), kerberos(4, 18)];
        crate::files::replace(&path, &write_extended(&all)).unwrap();
        let (files, default) = (extended(&path), SecuritySettings::default());
        let versions = |security: &SecuritySettings| {
            let mut versions: Vec<u32> =
                load(&files, security).unwrap().set.versions().map(|(kvno, _)| kvno).collect();
            versions.sort_unstable();
            versions
        };
        assert_eq!(versions(&default), [4]);
        let warnings = load(&files, &default).unwrap().warnings.join("\n");
        for words in ["version 1 (des-cbc-crc)", "version 2 (des3-cbc-sha1)", "version 3 (arcfour-hmac)"] {
            assert!(warnings.contains(words), "{warnings}");
        }
        let allowing = |enctype| SecuritySettings { weak_enctypes: vec![enctype], ..default.clone() };
        assert_eq!(versions(&allowing(Enctype::DesCbcMd5)), [1, 4], "single DES is one type");
        assert_eq!(versions(&allowing(Enctype::Rc4Hmac)), [3, 4]);
        crate::files::replace(&path, &write_extended(&all[..2])).unwrap();
        let refusal = load(&files, &default).unwrap_err().to_string();
        assert!(refusal.contains("no usable key") && refusal.contains("weak_enctypes"), "{refusal}");
    }
}
