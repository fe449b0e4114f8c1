//! afsUUID: a DCE UUID whose parts are sent as separate words.

use base::HostUuid;
use xdr::{Decode, Encode, Source, XdrError, octets};

/// Appends a UUID: the time's three parts as a word each, then eight bytes as a word each.
pub fn encode(uuid: &HostUuid, out: &mut Vec<u8>) {
    let [t0, t1, t2, t3, m0, m1, h0, h1, rest @ ..] = uuid.0;
    u32::from_be_bytes([t0, t1, t2, t3]).encode(out);
    u32::from_be_bytes([0, 0, m0, m1]).encode(out);
    u32::from_be_bytes([0, 0, h0, h1]).encode(out);
    octets::encode(&rest, out);
}

/// Decodes a UUID. Peers with signed characters extend the sign of bytes; that is ignored.
pub fn decode<S: Source + ?Sized>(source: &mut S) -> Result<HostUuid, XdrError> {
    let [t0, t1, t2, t3] = u32::decode(source)?.to_be_bytes();
    let [_, _, m0, m1] = u32::decode(source)?.to_be_bytes();
    let [_, _, h0, h1] = u32::decode(source)?.to_be_bytes();
    let [r0, r1, r2, r3, r4, r5, r6, r7] = octets::decode(source)?;
    Ok(HostUuid([t0, t1, t2, t3, m0, m1, h0, h1, r0, r1, r2, r3, r4, r5, r6, r7]))
}
