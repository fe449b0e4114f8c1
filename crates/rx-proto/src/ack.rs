//! The body of ACK packets.
