//! Numbers and addresses as text, at the end of a line. A line has a dozen of them, and the standard library's
//! formatting costs several times what they are worth.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

/// In decimal digits.
pub(crate) fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

pub(crate) fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => ipv4(out, address),
        // A vector takes everything.
        IpAddr::V6(address) => _ = write!(out, "{address}"),
    }
}

pub(crate) fn ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    numbers(out, address.octets(), b'.');
}

/// Numbers with something between them.
pub(crate) fn numbers<T: itoa::Integer, const N: usize>(out: &mut Vec<u8>, numbers: [T; N], between: u8) {
    for (place, part) in numbers.into_iter().enumerate() {
        if place > 0 {
            out.push(between);
        }
        number(out, part);
    }
}

/// Six digits.
pub(crate) fn microseconds(out: &mut Vec<u8>, microseconds: u32) {
    let mut digits = itoa::Buffer::new();
    // A one before them, so that zeros stay.
    let with_one = digits.format(microseconds % 1_000_000 + 1_000_000);
    out.extend_from_slice(&with_one.as_bytes()[1..]);
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
}
