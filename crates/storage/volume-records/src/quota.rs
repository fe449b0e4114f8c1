//! Accounts for space in blocks of 1 KiB, as OpenAFS does.

/// Returns the blocks that a vnode of `length` bytes counts for: at least one (nBlocks of OpenAFS).
pub fn blocks(length: u64) -> u64 {
    length.div_ceil(1024).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_as_openafs_does() {
        for (length, expected) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (2048, 2), (1 << 32, 1 << 22)] {
            assert_eq!(blocks(length), expected, "{length}");
        }
    }
}
