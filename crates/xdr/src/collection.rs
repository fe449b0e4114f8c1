//! Lists of things: counted, chained, and of fixed length.

/// Counted lists: a length, then that many elements.
pub mod list {
    use crate::{Decode, Encode, Source, XdrError};

    /// Elements that are allocated for before the first has arrived.
    const RESERVED_ITEMS_MAX: usize = 16;

    /// Appends `items` behind their number.
    pub fn encode<T: Encode>(items: &[T], out: &mut Vec<u8>) {
        encode_with(items, out, T::encode);
    }

    /// Appends `items` behind their number, each by `encode_item`.
    pub fn encode_with<T>(items: &[T], out: &mut Vec<u8>, encode_item: impl Fn(&T, &mut Vec<u8>)) {
        (items.len() as u32).encode(out);
        items.iter().for_each(|item| encode_item(item, out));
    }

    /// Takes a list of at most `most` elements.
    pub fn decode<T: Decode, S: Source + ?Sized>(source: &mut S, most: u32) -> Result<Vec<T>, XdrError> {
        decode_with(source, most, T::decode)
    }

    /// Takes a list of at most `most` elements, each by `decode_item`.
    pub fn decode_with<T, S: Source + ?Sized>(
        source: &mut S,
        most: u32,
        mut decode_item: impl FnMut(&mut S) -> Result<T, XdrError>,
    ) -> Result<Vec<T>, XdrError> {
        let got = u32::decode(source)?;
        if got > most {
            return Err(XdrError::TooLong { got, most });
        }
        let mut items = Vec::with_capacity(RESERVED_ITEMS_MAX.min(got as usize));
        for _ in 0..got {
            items.push(decode_item(source)?);
        }
        Ok(items)
    }
}

/// Linked lists: before each element a 1, at the end a 0.
pub mod chain {
    use crate::{Decode, Encode, Source, XdrError};

    /// Appends `items`, each behind a 1, and a 0.
    pub fn encode<T: Encode>(items: &[T], out: &mut Vec<u8>) {
        for item in items {
            true.encode(out);
            item.encode(out);
        }
        false.encode(out);
    }

    /// Takes a linked list of at most `most` elements.
    pub fn decode<T: Decode, S: Source + ?Sized>(source: &mut S, most: u32) -> Result<Vec<T>, XdrError> {
        let mut items = Vec::new();
        while bool::decode(source)? {
            if items.len() == most as usize {
                return Err(XdrError::TooLong { got: most.saturating_add(1), most });
            }
            items.push(T::decode(source)?);
        }
        Ok(items)
    }
}

/// Arrays whose length the interface fixes, held in a `Vec` because they are long.
pub mod words {
    use crate::{Decode, Encode, Source, XdrError};

    /// Appends exactly `length` elements: those of `items`, cut off or filled up with the default.
    pub fn encode<T: Encode + Default>(items: &[T], out: &mut Vec<u8>, length: usize) {
        items.iter().take(length).for_each(|item| item.encode(out));
        (items.len()..length).for_each(|_| T::default().encode(out));
    }

    /// Takes exactly `length` elements; `length` is the interface's, not the peer's.
    pub fn decode<T: Decode, S: Source + ?Sized>(source: &mut S, length: usize) -> Result<Vec<T>, XdrError> {
        (0..length).map(|_| T::decode(source)).collect()
    }
}
