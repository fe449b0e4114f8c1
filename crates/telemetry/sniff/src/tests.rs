//! Exchanges with known counts, and seeded histories whose counts the endpoints know.

mod exchange;
mod histories;
