//! The signed description of a version.

use crate::Digest;
use ed25519_dalek::{Signature, Signer, SigningKey as Secret, VerifyingKey};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Prefix of the signed bytes, so that signatures for other purposes are not valid for manifests.
const CONTEXT: &[u8] = b"Cellar promotion manifest 1\0";
/// Prefix of a key in text form.
const ALGORITHM: &str = "ed25519:";
const SECRET_PREFIX: &str = "ed25519-secret:";

/// Description of a promoted version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the volume.
    pub volume: String,
    /// Cell of the source volume.
    pub cell: String,
    /// Id of the volume in that cell.
    pub volume_id: u32,
    /// Counts the promotions of the volume, from 1.
    pub version: u32,
    /// Time of promotion in seconds since 1970, by the promoter's clock.
    pub promoted_at: u32,
    /// Time at which the volume was cloned, in seconds since 1970, by its server's clock.
    pub cloned_at: u32,
    /// Digest of the contents.
    pub contents: Digest,
    /// Name of the signing key.
    pub signer: String,
}

/// A manifest and its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedManifest {
    /// The manifest.
    pub manifest: Manifest,
    /// Ed25519 signature of [`Manifest::to_bytes`].
    #[serde(with = "hexadecimal")]
    pub signature: [u8; 64],
}

/// Why a manifest is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Disbelief {
    /// The cell does not trust the signer.
    #[error("{cell} does not trust the key `{signer}` that signed the manifest")]
    Unknown {
        /// Name of the key.
        signer: String,
        /// Cell that rejects it.
        cell: String,
    },
    /// The signature does not match the manifest and the key.
    #[error("the manifest is not signed by `{0}`: it was changed, or forged")]
    Forged(String),
    /// The manifest describes something else.
    #[error("the manifest is of {what} {got}; {expected} was expected")]
    Other {
        /// The field that differs.
        what: &'static str,
        /// Value of the field.
        got: String,
        /// Expected value.
        expected: String,
    },
}

/// A signing key.
pub struct SigningKey(Secret);

/// A verification key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// Why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not a key: expected `{expected}` and {digits} hexadecimal digits")]
pub struct KeyError {
    expected: &'static str,
    digits: usize,
}

impl SigningKey {
    /// Creates the key from 32 random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> SigningKey {
        SigningKey(Secret::from_bytes(seed))
    }

    /// Returns the key that verifies this key's signatures.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs a manifest.
    pub fn sign(&self, manifest: Manifest) -> SignedManifest {
        let signature = self.0.sign(&manifest.to_bytes()).to_bytes();
        SignedManifest { manifest, signature }
    }

    /// Returns the text of a key file, which is secret.
    pub fn to_text(&self) -> String {
        format!("{SECRET_PREFIX}{}", hexadecimal::encode(self.0.as_bytes()))
    }
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<SigningKey, KeyError> {
        let seed = parse(text, SECRET_PREFIX)?;
        Ok(SigningKey::from_seed(&seed))
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        let bytes = parse(text, ALGORITHM)?;
        let key = VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak());
        key.map(PublicKey).ok_or(KeyError { expected: ALGORITHM, digits: 64 })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", hexadecimal::encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn parse(text: &str, expected: &'static str) -> Result<[u8; 32], KeyError> {
    let digits = text.trim().strip_prefix(expected);
    digits.and_then(hexadecimal::decode).ok_or(KeyError { expected, digits: 64 })
}

impl Manifest {
    /// Returns the bytes to sign: every field, text or number, preceded by its length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let number = |number: u32| number.to_be_bytes().to_vec();
        let fields = [
            self.volume.clone().into_bytes(),
            self.cell.clone().into_bytes(),
            number(self.volume_id),
            number(self.version),
            number(self.promoted_at),
            number(self.cloned_at),
            self.contents.hash.to_vec(),
            self.contents.vnodes.to_be_bytes().to_vec(),
            self.contents.bytes.to_be_bytes().to_vec(),
            self.signer.clone().into_bytes(),
        ];
        let mut bytes = CONTEXT.to_vec();
        for field in fields {
            bytes.extend_from_slice(&(field.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&field);
        }
        bytes
    }
}

impl SignedManifest {
    /// Checks the manifest for a cell that trusts these keys, given by name.
    ///
    /// # Errors
    /// Why the manifest is rejected.
    pub fn verify<'a>(
        &self,
        cell: &str,
        trusted: impl IntoIterator<Item = (&'a str, &'a PublicKey)>,
    ) -> Result<(), Disbelief> {
        let signer = &self.manifest.signer;
        let key = trusted.into_iter().find(|(name, _)| name == signer).map(|(_, key)| key);
        let Some(key) = key else {
            return Err(Disbelief::Unknown { signer: signer.clone(), cell: cell.into() });
        };
        let signature = Signature::from_bytes(&self.signature);
        let verified = key.0.verify_strict(&self.manifest.to_bytes(), &signature);
        verified.map_err(|_| Disbelief::Forged(signer.clone()))
    }

    /// Checks that the manifest describes this version of this volume of this cell.
    ///
    /// # Errors
    /// The first difference.
    pub fn is_of(&self, volume: &str, cell: &str, version: u32) -> Result<(), Disbelief> {
        let manifest = &self.manifest;
        let pairs = [
            ("the volume", manifest.volume.clone(), volume.to_owned()),
            ("the cell", manifest.cell.clone(), cell.to_owned()),
            ("version", manifest.version.to_string(), version.to_string()),
        ];
        match pairs.into_iter().find(|(_, got, expected)| got != expected) {
            Some((what, got, expected)) => Err(Disbelief::Other { what, got, expected }),
            None => Ok(()),
        }
    }
}

/// Hexadecimal encoding.
pub(crate) mod hexadecimal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn encode(bytes: &[u8]) -> String {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        bytes.iter().flat_map(|byte| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)])).collect()
    }

    pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
        if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; N];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(bytes)
    }

    pub(crate) fn serialize<S: Serializer, const N: usize>(
        bytes: &[u8; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[u8; N], D::Error> {
        let text = String::deserialize(deserializer)?;
        decode(&text).ok_or_else(|| D::Error::custom(format!("expected {} hexadecimal digits", 2 * N)))
    }
}
