//! Cells on a virtual network with virtual time: seeded histories against the protocol core.
