//! Volume dumps in files: what stands in them, how two differ, and their files on a local disk.

pub mod compare;
pub mod contents;
pub mod extract;
#[cfg(test)]
pub(crate) mod tests;
