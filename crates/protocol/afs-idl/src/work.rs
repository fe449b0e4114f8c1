//! The work that a request announces, by facts in `idl/`.

/// Determines the cost of a call from the first packet of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A small call whose first argument is neither a FID nor a volume ID.
    Small,
    /// A small call whose first argument is a FID or a volume ID.
    OnVolume,
    /// Handles each FID of a list, which is the first argument.
    PerFid,
    /// Reads data of the file whose FID is the first argument.
    Read(Length),
    /// Writes data of the file whose FID is the first argument.
    Write(Length),
}

/// The position of a number of bytes in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Index of the first word, counting from the opcode.
    pub word: usize,
    /// Whether it has 64 bits.
    pub is_long: bool,
}
