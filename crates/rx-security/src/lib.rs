//! Rx security classes: null and rxkad (with Kerberos 5 tickets), as pure functions.
