//! The Rx protocol as a pure state machine: datagrams and the time in, datagrams and events out.
