//! Tests of manifests, keys and digests.

use crate::manifest::{Disbelief, Manifest, PublicKey, SigningKey};
use crate::{Digest, digest};
use afs_format::dump::{
    DumpHeader, DumpVolume, DumpedVnode, VnodeAttributes, put_dump_header, put_end, put_vnode, put_volume,
};
use base::UnixTime;
use bytes::Bytes;
use proptest::prelude::*;
use std::convert::Infallible;

fn manifest() -> Manifest {
    Manifest {
        volume: "software".into(),
        cell: "a.example".into(),
        volume_id: 536_870_915,
        version: 7,
        promoted_at: 1_800_000_000,
        cloned_at: 1_799_999_990,
        contents: Digest { hash: [9; 32], vnodes: 3, bytes: 4000 },
        signer: "release".into(),
    }
}

fn verify(signed: &crate::SignedManifest, name: &str, key: PublicKey) -> Result<(), Disbelief> {
    signed.verify("b.example", [(name, &key)])
}

#[test]
fn manifests_bind_contents_and_signer() {
    let (key, other) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
    let signed = key.sign(manifest());
    assert_eq!(verify(&signed, "release", key.public()), Ok(()));
    assert_eq!(verify(&signed, "release", other.public()), Err(Disbelief::Forged("release".into())));
    assert!(matches!(verify(&signed, "other", key.public()), Err(Disbelief::Unknown { .. })));
    assert!(signed.is_of("software", "a.example", 7).is_ok());
    assert!(signed.is_of("software", "a.example", 8).is_err(), "no old one for a new one");
    assert!(signed.is_of("hardware", "a.example", 7).is_err());
    assert!(signed.is_of("software", "b.example", 7).is_err());
}

#[test]
fn every_field_is_signed() {
    let key = SigningKey::from_seed(&[1; 32]);
    let changes: [fn(&mut Manifest); 9] = [
        |m| m.volume.push('x'),
        |m| m.cell.push('x'),
        |m| m.volume_id += 1,
        |m| m.version += 1,
        |m| m.promoted_at += 1,
        |m| m.cloned_at += 1,
        |m| m.contents.hash[31] ^= 1,
        |m| m.contents.vnodes += 1,
        |m| m.contents.bytes += 1,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut signed = key.sign(manifest());
        change(&mut signed.manifest);
        assert!(verify(&signed, "release", key.public()).is_err(), "change {number}");
    }
    // Moving bytes from one field to the next invalidates the signature.
    let mut moved = key.sign(manifest());
    moved.manifest.volume = "softwar".into();
    moved.manifest.cell = "ea.example".into();
    assert!(verify(&moved, "release", key.public()).is_err());
}

#[test]
fn keys_and_manifests_survive_as_text() {
    let key = SigningKey::from_seed(&[3; 32]);
    let public = key.public();
    assert_eq!(public.to_string().parse(), Ok(public));
    assert_eq!(key.to_text().parse::<SigningKey>().unwrap().public(), public);
    for wrong in ["", "ed25519:", "ed25519:00", &key.to_text(), &format!("ed25519:{}", "0".repeat(64))] {
        assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
    }
    let signed = key.sign(manifest());
    let text = serde_json::to_string(&signed).unwrap();
    assert_eq!(serde_json::from_str::<crate::SignedManifest>(&text).unwrap(), signed);
}

/// Creates a dump of a file with this status and data; `since` as in an incremental dump.
fn dump(attributes: &VnodeAttributes, data: &[u8], since: u32, volume: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let dates = vec![(UnixTime(since), UnixTime(50))];
    put_dump_header(&mut bytes, &DumpHeader { volume, name: b"v".to_vec(), dates });
    put_volume(&mut bytes, &DumpVolume { id: volume, updated: UnixTime(volume), ..DumpVolume::default() });
    let length = Some(data.len() as u64);
    let attributes = Some(VnodeAttributes { length, ..attributes.clone() });
    put_vnode(&mut bytes, &DumpedVnode { vnode: 2, unique: 5, attributes });
    bytes.extend_from_slice(data);
    put_end(&mut bytes);
    bytes
}

fn digest_of(bytes: &[u8]) -> Option<Digest> {
    let mut rest = Bytes::copy_from_slice(bytes);
    digest::of_dump::<Infallible>(|most| Ok(rest.split_to(rest.len().min(most)))).ok()
}

#[test]
fn a_digest_covers_exactly_the_visible_contents() {
    let file = VnodeAttributes { kind: 1, links: 1, mode: 0o644, ..VnodeAttributes::default() };
    let plain = digest_of(&dump(&file, b"data", 0, 10)).unwrap();
    assert_eq!((plain.vnodes, plain.bytes), (1, 4));
    assert_eq!(digest_of(&dump(&file, b"data", 0, 11)), Some(plain), "of another volume");
    let touched = VnodeAttributes { server_modified: UnixTime(99), ..file.clone() };
    assert_eq!(digest_of(&dump(&touched, b"data", 0, 10)), Some(plain), "the server's own time");
    let different = [
        digest_of(&dump(&file, b"date", 0, 10)),
        digest_of(&dump(&VnodeAttributes { owner: 1, ..file.clone() }, b"data", 0, 10)),
        digest_of(&dump(&VnodeAttributes { mode: 0o600, ..file.clone() }, b"data", 0, 10)),
        digest_of(&dump(&VnodeAttributes { client_modified: UnixTime(1), ..file.clone() }, b"data", 0, 10)),
    ];
    assert!(different.iter().all(|digest| digest.is_some() && *digest != Some(plain)));
    assert_eq!(digest_of(&dump(&file, b"data", 9, 10)), None, "an incremental dump");
}

proptest! {
    #[test]
    fn arbitrary_and_damaged_bytes_are_no_dump_or_another(at in 0usize..400, bit in 0u8..8, junk: Vec<u8>) {
        let _ = digest_of(&junk);
        let file = VnodeAttributes { kind: 1, ..VnodeAttributes::default() };
        let mut bytes = dump(&file, &[7; 200], 0, 10);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let _ = digest_of(&bytes);
        prop_assert_eq!(digest_of(&bytes[..at]), None);
    }
}
