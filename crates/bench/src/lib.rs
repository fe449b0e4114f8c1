//! Load generators and side-by-side measurements.
