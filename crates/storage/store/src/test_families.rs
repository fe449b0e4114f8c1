//! Families for tests: those of the contract of engines.

pub(crate) use crate::engines::contract::{FAMILIES as ALL, ITEMS, NAMES};
