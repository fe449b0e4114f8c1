//! What a person can do with `cellar` besides serving.

pub mod context;
pub mod cp;
pub mod protection;
pub mod store;
pub mod volume;

pub use context::Context;
