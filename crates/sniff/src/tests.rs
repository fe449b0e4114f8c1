//! Exchanges whose every number is known, and seeded histories whose numbers the endpoints know.

mod exchange;
mod histories;
