//! Decodes keys from terminal input.

/// A recognised key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Interrupt,
}

/// Decodes bytes that were read together.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut rest = bytes;
    let mut keys = Vec::new();
    while let Some((first, behind)) = rest.split_first() {
        let (key, used) = match first {
            0x1b => escape(behind),
            b'\r' | b'\n' => (Some(Key::Enter), 0),
            b'\t' => (Some(Key::Tab), 0),
            0x03 => (Some(Key::Interrupt), 0),
            0x08 | 0x7f => (Some(Key::Backspace), 0),
            b' '..=b'~' => (Some(Key::Char(char::from(*first))), 0),
            _ => (None, 0),
        };
        keys.extend(key);
        rest = &behind[used..];
    }
    keys
}

/// Decodes the bytes after an escape. The final byte ends the sequence even if it is unknown.
fn escape(behind: &[u8]) -> (Option<Key>, usize) {
    let (Some(b'[' | b'O'), sequence) = (behind.first(), behind.get(1..).unwrap_or_default()) else {
        return (Some(Key::Escape), 0);
    };
    let Some(last) = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
        return (None, behind.len());
    };
    let key = match &sequence[..=last] {
        b"A" => Some(Key::Up),
        b"B" => Some(Key::Down),
        b"C" => Some(Key::Right),
        b"D" => Some(Key::Left),
        b"Z" => Some(Key::BackTab),
        b"5~" => Some(Key::PageUp),
        b"6~" => Some(Key::PageDown),
        _ => None,
    };
    (key, last + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequences_are_keys() {
        let found = keys(b"q\x1b[A\x1b[Z\x1b[6~/\x7f\x1b[200~x\x1bOB\x1b");
        let expected = [
            Key::Char('q'),
            Key::Up,
            Key::BackTab,
            Key::PageDown,
            Key::Char('/'),
            Key::Backspace,
            Key::Char('x'),
            Key::Down,
            Key::Escape,
        ];
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(keys(&bytes).len() <= bytes.len());
        }
    }
}
