//! The basic overseer service (BOZO), as far as tools ask for it.
