//! The volume location service (VL).
