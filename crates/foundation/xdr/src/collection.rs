//! Lists: counted, chained, and of fixed length. Each function takes the codec of one element as an argument,
//! since elements may be strings with their own bounds.

/// Counted lists: a length, then that many elements.
pub mod list {
    use crate::{Decode, Encode, Source, XdrError};

    /// Number of elements to allocate before the first has arrived.
    const RESERVED_ITEMS_MAX: usize = 16;

    /// Appends the number of `items`, and the items.
    pub fn encode<T>(items: &[T], out: &mut Vec<u8>, encode_item: impl Fn(&T, &mut Vec<u8>)) {
        (items.len() as u32).encode(out);
        for item in items {
            encode_item(item, out);
        }
    }

    /// Decodes a list of at most `most` elements.
    pub fn decode<T, S: Source + ?Sized>(
        source: &mut S,
        most: usize,
        mut decode_item: impl FnMut(&mut S) -> Result<T, XdrError>,
    ) -> Result<Vec<T>, XdrError> {
        let got = u32::decode(source)? as usize;
        if got > most {
            return Err(XdrError::TooLong { got, most });
        }
        let mut items = Vec::with_capacity(RESERVED_ITEMS_MAX.min(got));
        for _ in 0..got {
            items.push(decode_item(source)?);
        }
        Ok(items)
    }
}

/// Linked lists: a 1 before each element, and a 0 at the end.
pub mod chain {
    use crate::{Decode, Encode, Source, XdrError};

    /// Appends `items`, each after a 1, and a final 0.
    pub fn encode<T>(items: &[T], out: &mut Vec<u8>, encode_item: impl Fn(&T, &mut Vec<u8>)) {
        for item in items {
            true.encode(out);
            encode_item(item, out);
        }
        false.encode(out);
    }

    /// Decodes a linked list of at most `most` elements.
    pub fn decode<T, S: Source + ?Sized>(
        source: &mut S,
        most: usize,
        mut decode_item: impl FnMut(&mut S) -> Result<T, XdrError>,
    ) -> Result<Vec<T>, XdrError> {
        let mut items = Vec::new();
        while bool::decode(source)? {
            if items.len() == most {
                return Err(XdrError::TooLong { got: most.saturating_add(1), most });
            }
            items.push(decode_item(source)?);
        }
        Ok(items)
    }
}

/// Arrays of a fixed length.
pub mod array {
    use crate::{Source, XdrError};

    /// Appends the elements.
    pub fn encode<T>(items: &[T], out: &mut Vec<u8>, encode_item: impl Fn(&T, &mut Vec<u8>)) {
        for item in items {
            encode_item(item, out);
        }
    }

    /// Decodes `N` elements.
    pub fn decode<T: Default, const N: usize, S: Source + ?Sized>(
        source: &mut S,
        mut decode_item: impl FnMut(&mut S) -> Result<T, XdrError>,
    ) -> Result<[T; N], XdrError> {
        let mut items = std::array::from_fn(|_| T::default());
        for item in &mut items {
            *item = decode_item(source)?;
        }
        Ok(items)
    }
}

/// Arrays of a fixed length that are kept in a `Vec` because they are long.
pub mod long_array {
    use crate::{Source, XdrError};

    /// Appends exactly `length` elements: `items`, truncated or padded with the default.
    pub fn encode<T: Default>(
        items: &[T],
        out: &mut Vec<u8>,
        length: usize,
        encode_item: impl Fn(&T, &mut Vec<u8>),
    ) {
        for item in items.iter().take(length) {
            encode_item(item, out);
        }
        for _ in items.len()..length {
            encode_item(&T::default(), out);
        }
    }

    /// Decodes exactly `length` elements; `length` comes from the interface, not from the peer.
    pub fn decode<T, S: Source + ?Sized>(
        source: &mut S,
        length: usize,
        mut decode_item: impl FnMut(&mut S) -> Result<T, XdrError>,
    ) -> Result<Vec<T>, XdrError> {
        (0..length).map(|_| decode_item(source)).collect()
    }
}
