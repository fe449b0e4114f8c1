//! Numbers, booleans, and arrays and pairs of them.

use crate::{Decode, Encode, Source, XdrError};

macro_rules! integers {
    ($($integer:ty: $bytes:literal),*) => {$(
        impl Encode for $integer {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }

        impl Decode for $integer {
            fn decode<S: Source + ?Sized>(source: &mut S) -> Result<$integer, XdrError> {
                let mut bytes = [0; $bytes];
                source.read_exact(&mut bytes)?;
                Ok(<$integer>::from_be_bytes(bytes))
            }
        }
    )*};
}

integers!(u32: 4, i32: 4, u64: 8, i64: 8);

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode(out);
    }
}

impl Decode for bool {
    /// Every number but 0 is true, as C programs read it.
    fn decode<S: Source + ?Sized>(source: &mut S) -> Result<bool, XdrError> {
        Ok(u32::decode(source)? != 0)
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.encode(out));
    }
}

impl<T: Decode + Default + Copy, const N: usize> Decode for [T; N] {
    fn decode<S: Source + ?Sized>(source: &mut S) -> Result<[T; N], XdrError> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::decode(source)?;
        }
        Ok(items)
    }
}
