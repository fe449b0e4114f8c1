//! The real OpenAFS tools and the real kernel client against Cellar.
//!
//! The library starts cells (OpenAFS's or Cellar's) in namespaces of their own; the program runs the
//! tests.

pub mod cell;
pub mod databases;
pub mod ending;
pub mod hostile;
pub mod limited;
pub mod means;
pub mod normalise;
pub mod vm;
