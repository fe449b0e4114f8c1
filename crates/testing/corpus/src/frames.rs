//! Inputs that consist of several pieces, each preceded by its length in two big-endian bytes.

/// Splits an input into its pieces; the last piece may be shorter than its length.
pub fn frames(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (frame, rest) = rest.split_at(length.min(rest.len()));
        data = rest;
        Some(frame)
    })
}

/// Appends a piece, truncated to 65,535 bytes.
pub fn push(out: &mut Vec<u8>, frame: &[u8]) {
    let frame = &frame[..frame.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(frame.len() as u16).to_be_bytes());
    out.extend_from_slice(frame);
}

/// Takes values from the start of a piece; returns zeros after its end.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Takes the next bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let (head, rest) = self.0.split_at(N.min(self.0.len()));
        out[..head.len()].copy_from_slice(head);
        self.0 = rest;
        out
    }

    /// Takes the next byte.
    pub fn byte(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    /// Takes the next two bytes as a number.
    pub fn half(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    /// Takes the next four bytes as a number.
    pub fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// Takes at most `most` of the remaining bytes.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        head
    }
}
