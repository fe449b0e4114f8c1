//! Writes numbers and addresses as text at the end of a line. A line has a dozen of them, and the standard
//! library's formatting is several times slower.

use afs_idl::common::Fid;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

/// Writes a number in decimal digits.
pub(crate) fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

pub(crate) fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => ipv4(out, address),
        // Writing to a vector cannot fail.
        IpAddr::V6(address) => _ = write!(out, "{address}"),
    }
}

pub(crate) fn ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    numbers(out, address.octets(), b'.');
}

/// Writes numbers separated by `between`.
pub(crate) fn numbers<T: itoa::Integer, const N: usize>(out: &mut Vec<u8>, numbers: [T; N], between: u8) {
    for (place, part) in numbers.into_iter().enumerate() {
        if place > 0 {
            out.push(between);
        }
        number(out, part);
    }
}

/// Writes six digits.
pub(crate) fn microseconds(out: &mut Vec<u8>, microseconds: u32) {
    let [high, middle, low] = [10_000, 100, 1].map(|power| PAIRS[(microseconds / power % 100) as usize]);
    out.extend_from_slice(&[high[0], high[1], middle[0], middle[1], low[0], low[1]]);
}

/// The two digits of each number below 100.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// A short text built from its end, like the digits of a number, and copied to a line as a whole. Pieces that
/// do not fit are omitted, so it is only for text of bounded length.
#[derive(Debug)]
pub(crate) struct Backwards {
    bytes: [u8; SHORT_BYTES],
    from: usize,
}

/// Size for a number of 64 bits, a FID, and some words.
const SHORT_BYTES: usize = 128;

impl Default for Backwards {
    fn default() -> Backwards {
        Backwards { bytes: [0; SHORT_BYTES], from: SHORT_BYTES }
    }
}

impl Backwards {
    #[inline]
    pub(crate) fn put<const N: usize>(&mut self, text: &[u8; N]) {
        if let Some(place) = self.bytes[..self.from].last_chunk_mut() {
            *place = *text;
            self.from -= N;
        }
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        // No number is long enough to wrap around, and the modulo saves a bounds check.
        self.from = (self.from - 1) % SHORT_BYTES;
        self.bytes[self.from] = byte;
    }

    /// Prepends a number in decimal digits.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) {
        let mut rest = number;
        while rest > u64::from(u32::MAX) {
            self.byte(b'0' + (rest % 10) as u8);
            rest /= 10;
        }
        let mut rest = rest as u32;
        while rest >= 10 {
            let [ten, one] = PAIRS[(rest % 100) as usize];
            self.byte(one);
            self.byte(ten);
            rest /= 100;
            if rest == 0 {
                return;
            }
        }
        self.byte(b'0' + rest as u8);
    }

    /// Prepends the numbers of a FID, separated by `between`.
    #[inline]
    pub(crate) fn fid(&mut self, fid: Fid, between: u8) {
        self.number(fid.unique.into());
        self.byte(between);
        self.number(fid.vnode.into());
        self.byte(between);
        self.number(fid.volume.into());
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(put: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn they_look_as_the_standard_library_has_them() {
        for address in ["0.0.0.0", "192.0.2.7", "255.255.255.255", "::1", "2001:db8::7", "::ffff:10.0.0.1"] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(text(|out| super::address(out, address)), address.to_string());
        }
        assert_eq!(text(|out| number(out, i64::MIN)), i64::MIN.to_string());
        assert_eq!(text(|out| numbers(out, [7, 0, u32::MAX], b':')), "7:0:4294967295");
        for (number, expected) in [(0, "000000"), (7, "000007"), (123_456, "123456"), (999_999, "999999")] {
            assert_eq!(text(|out| microseconds(out, number)), expected);
        }
    }

    #[test]
    fn numbers_are_put_together_from_their_ends() {
        let mut text = Backwards::default();
        let longest = Fid { volume: u32::MAX, vnode: u32::MAX, unique: u32::MAX };
        for (number, fid, expected) in [
            (0, Fid { volume: 9, vnode: 10, unique: 99 }, "0 9.10.99;"),
            (100, Fid { volume: 536_870_912, vnode: 1, unique: 1001 }, "100 536870912.1.1001;"),
            (u64::MAX, longest, "18446744073709551615 4294967295.4294967295.4294967295;"),
        ] {
            text.put(b";");
            text.fid(fid, b'.');
            text.put(b" ");
            text.number(number);
            assert_eq!(text.text(), expected.as_bytes());
            text = Backwards::default();
        }
    }
}
