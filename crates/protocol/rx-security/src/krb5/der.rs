//! A minimal reader and writer of ASN.1 DER, limited to definite lengths and low tag numbers.
//!
//! The reader only returns slices of its input, so a claimed length costs nothing.

/// The reason why DER could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DerError(pub(crate) &'static str);

/// Tags of Kerberos messages.
pub(crate) mod tag {
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const BIT_STRING: u8 = 0x03;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const GENERAL_STRING: u8 = 0x1b;
    pub(crate) const SEQUENCE: u8 = 0x30;

    /// Returns the context tag `[number]`.
    pub(crate) const fn context(number: u8) -> u8 {
        0xa0 | number
    }

    /// Returns an application tag.
    pub(crate) const fn application(number: u8) -> u8 {
        0x60 | number
    }
}

/// Reads consecutive elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Whether everything has been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the contents of the next element, which must have this tag.
    pub(crate) fn element(&mut self, tag: u8) -> Result<&'a [u8], DerError> {
        if self.rest.first() != Some(&tag) {
            return Err(DerError("element is not of the expected kind"));
        }
        let (length, header) = length(&self.rest[1..])?;
        let body = &self.rest[1 + header..];
        let content = body.get(..length).ok_or(DerError("element is cut off"))?;
        self.rest = &body[length..];
        Ok(content)
    }

    /// Like [`Reader::element`], but returns a reader of the contents.
    pub(crate) fn inside(&mut self, tag: u8) -> Result<Reader<'a>, DerError> {
        self.element(tag).map(Reader::new)
    }

    /// Returns a reader of the next element's contents if it has this tag.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<Reader<'a>>, DerError> {
        if self.rest.first() == Some(&tag) { self.inside(tag).map(Some) } else { Ok(None) }
    }

    /// Reads an integer of at most eight bytes.
    pub(crate) fn integer(&mut self) -> Result<i64, DerError> {
        let bytes = self.element(tag::INTEGER)?;
        let (&first, len) = (bytes.first().ok_or(DerError("empty integer"))?, bytes.len());
        if len > 8 {
            return Err(DerError("integer is too long"));
        }
        let sign = i64::from(first as i8) >> 7;
        Ok(bytes.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte)))
    }

    /// Reads a signed 32-bit integer.
    pub(crate) fn int32(&mut self) -> Result<i32, DerError> {
        i32::try_from(self.integer()?).map_err(|_| DerError("integer does not fit 32 bits"))
    }

    /// Reads a time as seconds since 1970: `YYYYMMDDHHMMSSZ` (RFC 4120, 5.2.3). Times before 1970 become 0,
    /// and times after 2106 the last that AFS can represent.
    pub(crate) fn time(&mut self) -> Result<u32, DerError> {
        let text = self.element(tag::GENERALIZED_TIME)?;
        let bad = DerError("malformed time");
        if text.len() != 15 || text[14] != b'Z' || !text[..14].iter().all(u8::is_ascii_digit) {
            return Err(bad);
        }
        let number = |from: usize, to: usize| {
            text[from..to].iter().fold(0i64, |value, digit| value * 10 + i64::from(digit - b'0'))
        };
        let (month, day) = (number(4, 6), number(6, 8));
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(bad);
        }
        let clock = number(8, 10) * 3600 + number(10, 12) * 60 + number(12, 14);
        let seconds = days_since_1970(number(0, 4), month, day) * 86_400 + clock;
        Ok(u32::try_from(seconds.max(0)).unwrap_or(u32::MAX))
    }
}

/// Returns the value of a length field and its size in bytes.
fn length(bytes: &[u8]) -> Result<(usize, usize), DerError> {
    let first = *bytes.first().ok_or(DerError("length is missing"))?;
    if first < 0x80 {
        return Ok((usize::from(first), 1));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return Err(DerError("length is indefinite or too long"));
    }
    let digits = bytes.get(1..=count).ok_or(DerError("length is cut off"))?;
    let value = digits.iter().fold(0usize, |value, byte| value << 8 | usize::from(*byte));
    Ok((value, 1 + count))
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar, counted in years that start in March
/// so that a leap day is a year's last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_in_years = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    days_in_years + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// Encodes an element with its tag and length.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = (content.len() as u32).to_be_bytes();
    if content.len() < 0x80 {
        out.push(length[3]);
    } else {
        let skip = length.iter().take_while(|byte| **byte == 0).count();
        out.push(0x80 | (4 - skip) as u8);
        out.extend_from_slice(&length[skip..]);
    }
    out.extend_from_slice(content);
    out
}

/// Encodes an element that contains other elements.
pub(crate) fn group(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    element(tag, &parts.concat())
}

/// Encodes an element inside a context tag.
pub(crate) fn field(number: u8, inner: &[u8]) -> Vec<u8> {
    element(tag::context(number), inner)
}

/// Encodes an integer in the minimum number of bytes.
pub(crate) fn integer(value: i64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let redundant = |pair: &[u8]| match pair[0] {
        0 => pair[1] < 0x80,
        0xff => pair[1] >= 0x80,
        _ => false,
    };
    let skip = bytes.windows(2).take_while(|pair| redundant(pair)).count();
    element(tag::INTEGER, &bytes[skip..])
}

/// Encodes a time, the reverse of [`Reader::time`].
pub(crate) fn time(seconds: u32) -> Vec<u8> {
    let (days, clock) = (i64::from(seconds / 86_400), seconds % 86_400);
    let year = (1970..=2106).take_while(|year| days_since_1970(*year, 1, 1) <= days).last();
    let year = year.unwrap_or(1970);
    let month = (1..=12).take_while(|month| days_since_1970(year, *month, 1) <= days).last();
    let month = month.unwrap_or(1);
    let day = days - days_since_1970(year, month, 1) + 1;
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    let text = format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    element(tag::GENERALIZED_TIME, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        for (seconds, text) in [
            (0, "19700101000000Z"),
            (951_782_399, "20000228235959Z"),
            (951_782_400, "20000229000000Z"),
            (1_709_251_199, "20240229235959Z"),
            (0x7fff_ffff, "20380119031407Z"),
            (u32::MAX, "21060207062815Z"),
        ] {
            let encoded = time(seconds);
            assert_eq!(&encoded[2..], text.as_bytes());
            assert_eq!(Reader::new(&encoded).time(), Ok(seconds));
        }
        let late = element(tag::GENERALIZED_TIME, b"99991231235959Z");
        assert_eq!(Reader::new(&late).time(), Ok(u32::MAX));
        for bad in ["2024022923595Z", "20241329235959Z", "20240200235959Z", "20240229235959+"] {
            let bad = element(tag::GENERALIZED_TIME, bad.as_bytes());
            assert!(Reader::new(&bad).time().is_err());
        }
    }

    #[test]
    fn integers_and_lengths_go_both_ways() {
        for value in [0, 1, 127, 128, -1, -128, -129, 256, 1 << 31, i64::MAX, i64::MIN] {
            assert_eq!(Reader::new(&integer(value)).integer(), Ok(value));
        }
        assert_eq!(integer(128), [2, 2, 0, 128]);
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; length];
            let encoded = element(tag::OCTET_STRING, &content);
            assert_eq!(Reader::new(&encoded).element(tag::OCTET_STRING), Ok(&content[..]));
        }
    }

    #[test]
    fn damage_is_an_error() {
        for bytes in [&[][..], &[4], &[4, 5, 1], &[4, 0x80, 0, 0], &[4, 0x85, 1, 1, 1, 1, 1]] {
            assert!(Reader::new(bytes).element(tag::OCTET_STRING).is_err(), "{bytes:?}");
        }
        assert!(Reader::new(&[4, 0x84, 255, 255, 255, 255, 0]).element(4).is_err());
    }
}
