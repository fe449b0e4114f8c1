//! Client hosts, callback promises and file locks of a file server, as a pure state machine.
