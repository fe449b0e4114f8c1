//! The key of the page: a random file that only the server's own user can read. Its readers create codes with
//! which a browser can sign in once.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// Length of the key in bytes.
const KEY_BYTES: usize = 32;
/// Maximum length of the key file.
const FILE_BYTES_MAX: u64 = 4096;
/// Lengths of a code's nonce, expiry time and proof.
const NONCE_BYTES: usize = 16;
const EXPIRY_BYTES: usize = 8;
const PROOF_BYTES: usize = 32;
/// Total length of a code.
const CODE_BYTES: usize = NONCE_BYTES + EXPIRY_BYTES + PROOF_BYTES;

/// Time during which a code can be used.
pub const CODE_LIFETIME: Duration = Duration::from_secs(300);

/// Makes a code unique.
pub(crate) type Nonce = [u8; NONCE_BYTES];

/// The key of the page.
pub struct Key(Zeroizing<[u8; KEY_BYTES]>);

/// Reason why a file contains no usable key.
#[derive(Debug)]
pub enum KeyError {
    /// The file cannot be read or created.
    Io(PathBuf, io::Error),
    /// Users other than its owner can read the file.
    Open(PathBuf, u32),
    /// The file does not contain 64 hexadecimal digits.
    Malformed(PathBuf),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Io(path, error) => write!(f, "the page's key in {}: {error}", path.display()),
            KeyError::Open(path, mode) => write!(
                f,
                "the page's key in {0} can be read by others (mode {mode:o}): run `chmod 600 {0}`",
                path.display()
            ),
            KeyError::Malformed(path) => {
                write!(f, "{} does not hold a key: 64 hexadecimal digits", path.display())
            }
        }
    }
}

impl std::error::Error for KeyError {}

impl Key {
    /// Loads the key from a file, creating it if it does not exist.
    pub fn load_or_make(path: &Path) -> Result<Key, KeyError> {
        match Key::load(path) {
            Err(KeyError::Io(_, error)) if error.kind() == ErrorKind::NotFound => {
                make(path).map_err(|error| KeyError::Io(path.to_owned(), error))?;
                Key::load(path)
            }
            other => other,
        }
    }

    /// Loads the key from a file.
    pub fn load(path: &Path) -> Result<Key, KeyError> {
        let failed = |error| KeyError::Io(path.to_owned(), error);
        let metadata = std::fs::metadata(path).map_err(failed)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Open(path.to_owned(), mode));
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(KeyError::Malformed(path.to_owned()));
        }
        let text = Zeroizing::new(std::fs::read_to_string(path).map_err(failed)?);
        let bytes = from_hex(text.trim()).ok_or_else(|| KeyError::Malformed(path.to_owned()))?;
        Ok(Key(Zeroizing::new(bytes)))
    }

    /// Creates a code with which a browser can sign in, once, within [`CODE_LIFETIME`].
    pub fn code(&self, now: Duration) -> String {
        let nonce: Nonce = rand::random();
        let expiry = (now + CODE_LIFETIME).as_secs().to_be_bytes();
        to_hex(&[&nonce[..], &expiry, self.proof(&nonce, expiry).as_bytes()].concat())
    }

    /// Returns a code's nonce and its expiry time in seconds since 1970; `None` if it was not made with this
    /// key, or has expired.
    pub(crate) fn check(&self, code: &str, now: Duration) -> Option<(Nonce, u64)> {
        let bytes: [u8; CODE_BYTES] = from_hex(code)?;
        let nonce: Nonce = bytes[..NONCE_BYTES].try_into().ok()?;
        let expiry: [u8; EXPIRY_BYTES] = bytes[NONCE_BYTES..NONCE_BYTES + EXPIRY_BYTES].try_into().ok()?;
        let proof: [u8; PROOF_BYTES] = bytes[NONCE_BYTES + EXPIRY_BYTES..].try_into().ok()?;
        // Compared in constant time, as blake3 does with its hashes.
        let is_ours = self.proof(&nonce, expiry) == proof;
        let expiry = u64::from_be_bytes(expiry);
        (is_ours && expiry >= now.as_secs()).then_some((nonce, expiry))
    }

    /// Whether this is the key itself in the form of its file, as sent by programs.
    pub(crate) fn is(&self, text: &str) -> bool {
        let reported = Zeroizing::new(from_hex::<KEY_BYTES>(text).unwrap_or_default());
        // An all-zero key cannot result from random generation.
        blake3::keyed_hash(&self.0, &reported[..]) == blake3::keyed_hash(&self.0, &self.0[..])
            && reported[..] != [0; KEY_BYTES]
    }

    fn proof(&self, nonce: &Nonce, expiry: [u8; EXPIRY_BYTES]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, &[&b"cellar web login"[..], nonce, &expiry].concat())
    }
}

/// Created with permissions that never let anyone but its owner read it.
fn make(path: &Path) -> io::Result<()> {
    use std::io::Write;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let key = Zeroizing::new(rand::random::<[u8; KEY_BYTES]>());
    let text = Zeroizing::new(to_hex(&key[..]) + "\n");
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Parses exactly `2 * N` hexadecimal digits.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000_000);

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/web-key");
        assert!(Key::load(&path).is_err());
        let made = Key::load_or_make(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(*Key::load_or_make(&path).unwrap().0 == *made.0);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(made.is(text.trim()) && !made.is("") && !made.is(&"0".repeat(64)));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Key::load(&path), Err(KeyError::Open(_, 0o640))));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short").unwrap();
        assert!(matches!(Key::load(&path), Err(KeyError::Malformed(_))));
    }

    #[test]
    fn codes_are_of_one_key_and_end() {
        let (key, other) = (Key(Zeroizing::new([1; 32])), Key(Zeroizing::new([2; 32])));
        let code = key.code(NOW);
        assert!(key.check(&code, NOW).is_some() && key.check(&code, NOW + CODE_LIFETIME).is_some());
        assert!(key.check(&code, NOW + CODE_LIFETIME + Duration::from_secs(1)).is_none());
        assert!(other.check(&code, NOW).is_none());
        for place in 0..code.len() {
            let mut changed = code.clone().into_bytes();
            changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
            assert!(key.check(std::str::from_utf8(&changed).unwrap(), NOW).is_none(), "{place}");
        }
        for text in ["", "0", "é", &code[1..], &format!("{code}0")] {
            assert!(key.check(text, NOW).is_none());
        }
    }
}
