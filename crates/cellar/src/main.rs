//! The cellar program.
fn main() {}
