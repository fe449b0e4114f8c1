//! Rx on real sockets: lanes, call streams, worker pool, client connections.
