//! Inputs that are made of several pieces: each piece behind its length in two bytes, big-endian.

/// Splits an input into its pieces; the last takes what is there.
pub fn frames(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (frame, rest) = rest.split_at(length.min(rest.len()));
        data = rest;
        Some(frame)
    })
}

/// Appends a piece, cut at 65,535 bytes.
pub fn push(out: &mut Vec<u8>, frame: &[u8]) {
    let frame = &frame[..frame.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(frame.len() as u16).to_be_bytes());
    out.extend_from_slice(frame);
}

/// Takes values off the front of a piece; zeros where it has ended.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let (head, rest) = self.0.split_at(N.min(self.0.len()));
        out[..head.len()].copy_from_slice(head);
        self.0 = rest;
        out
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    /// The next two bytes.
    pub fn half(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    /// The next four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// So many of the bytes that are left.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        head
    }
}
