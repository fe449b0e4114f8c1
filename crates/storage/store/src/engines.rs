//! The engines that store metadata, one module each.

pub mod rocks;
