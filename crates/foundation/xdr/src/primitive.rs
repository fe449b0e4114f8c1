//! Numbers and booleans.

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
    /// Treats every number but 0 as true, as C programs do.
    fn decode<S: Source + ?Sized>(source: &mut S) -> Result<bool, XdrError> {
        Ok(u32::decode(source)? != 0)
    }
}
