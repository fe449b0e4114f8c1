//! The cell's keys from KeyFileExt and rxkad.keytab.

use afs_format::keyfile::{KeyType, parse_extended};
use afs_format::keytab;
use anyhow::{Context, Result, bail};
use base::UnixTime;
use rx_security::{KeySet, ServiceKey};
use std::path::Path;

/// Loads every rxkad key of both files. A key of a type that is not supported is left out with a
/// warning; no usable key at all is an error.
pub fn load(keyfile: Option<&Path>, keytab: Option<&Path>) -> Result<KeySet> {
    let mut keys = KeySet::new();
    if let Some(path) = keyfile {
        add_keyfile(&mut keys, path).with_context(|| format!("in {}", path.display()))?;
    }
    if let Some(path) = keytab {
        add_keytab(&mut keys, path).with_context(|| format!("in {}", path.display()))?;
    }
    if keys.is_empty() {
        let names: Vec<String> =
            [keyfile, keytab].iter().flatten().map(|path| path.display().to_string()).collect();
        match names.as_slice() {
            [] => bail!(
                "the cell has no key: neither KeyFileExt nor rxkad.keytab is there; `asetkey add rxkad_krb5 ...` makes the first"
            ),
            names => bail!("there is no rxkad key in {}", names.join(" and ")),
        }
    }
    Ok(keys)
}

/// When the file was last written; zero if there is none.
pub fn changed(path: Option<&Path>) -> UnixTime {
    let modified = path.and_then(|path| path.metadata().ok()).and_then(|metadata| metadata.modified().ok());
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    UnixTime(u32::try_from(since.as_secs()).unwrap_or(0))
}

fn read(path: &Path) -> Result<zeroize::Zeroizing<Vec<u8>>> {
    Ok(zeroize::Zeroizing::new(std::fs::read(path).context("cannot read the file")?))
}

fn add_keyfile(keys: &mut KeySet, path: &Path) -> Result<()> {
    for key in parse_extended(&read(path)?)? {
        if key.key_type == KeyType::RxkadKerberos5 {
            insert(keys, path, key.kvno, key.subtype as i32, key.secret.expose());
        }
    }
    Ok(())
}

fn add_keytab(keys: &mut KeySet, path: &Path) -> Result<()> {
    for entry in keytab::parse(&read(path)?)? {
        if entry.components.first().is_some_and(|first| first == "afs") {
            insert(keys, path, entry.kvno, entry.enctype, entry.secret.expose());
        }
    }
    Ok(())
}

fn insert(keys: &mut KeySet, path: &Path, kvno: u32, enctype: i32, bytes: &[u8]) {
    match ServiceKey::new(enctype, bytes) {
        Ok(key) => keys.insert(kvno, key),
        Err(error) => tracing::warn!(file = %path.display(), kvno, %error, "a key is left out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afs_format::keyfile::{Secret, TypedKey, write_extended};

    #[test]
    fn keys_are_read_and_an_empty_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("KeyFileExt");
        let key = TypedKey {
            key_type: KeyType::RxkadKerberos5,
            kvno: 3,
            subtype: 18,
            secret: Secret::new(&[7; 32]),
        };
        std::fs::write(&path, &*write_extended(&[key])).unwrap();
        assert_eq!(load(Some(&path), None).unwrap().versions().next().map(|(kvno, _)| kvno), Some(3));
        std::fs::write(&path, &*write_extended(&[])).unwrap();
        assert!(load(Some(&path), None).unwrap_err().to_string().contains("no rxkad key"));
        std::fs::write(&path, [1, 2, 3]).unwrap();
        assert!(format!("{:#}", load(Some(&path), None).unwrap_err()).contains("KeyFileExt"));
        assert!(load(None, None).is_err());
    }
}
