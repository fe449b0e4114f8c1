//! Tests of the generated code.

mod accounts;
mod calls;
mod golden;
mod rooms;
mod survival;

use std::fmt::Debug;
use xdr::{Decode, Encode};

/// A check for every message. It is not generic over the message, so that the generated list can call it
/// through a reference.
pub(crate) trait Check {
    /// Returns bytes to decode a message from.
    fn input(&mut self) -> Vec<u8>;

    /// Receives the number of bytes that the message called `name` consumed; `None` if they were rejected.
    fn outcome(&mut self, name: &str, consumed: Option<usize>);
}

/// Decodes a message, and checks that encoding and decoding it again returns the same.
pub(crate) fn check<T: Encode + Decode + PartialEq + Debug>(check: &mut dyn Check) {
    let input = check.input();
    let mut source = xdr::SliceSource::new(&input);
    let consumed = T::decode(&mut source).ok().map(|value| {
        let wire = xdr::to_vec(&value);
        assert_eq!(xdr::from_slice::<T>(&wire).as_ref(), Ok(&value));
        assert_eq!(wire.len() % 4, 0);
        input.len() - source.remaining()
    });
    check.outcome(std::any::type_name::<T>(), consumed);
}

/// Returns the wire form of these words.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
