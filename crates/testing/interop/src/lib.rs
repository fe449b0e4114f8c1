//! Support for running the real OpenAFS tools and the real kernel client against Cellar.
//!
//! The library starts OpenAFS or Cellar cells in separate namespaces; the program runs the tests.

pub mod cell;
pub mod cluster;
pub mod databases;
pub mod ending;
pub mod hostile;
pub mod jobs;
pub mod limited;
pub mod means;
pub mod normalise;
pub mod seaweed;
pub mod vm;
