//! Volume dump files: their contents, comparison, and extraction to a local disk.

pub mod compare;
pub mod contents;
pub mod extract;
#[cfg(test)]
pub(crate) mod tests;
