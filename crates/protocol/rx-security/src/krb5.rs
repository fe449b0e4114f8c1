//! The parts of Kerberos 5 that rxkad needs: ticket messages and their encryption.

pub(crate) mod cipher;
pub(crate) mod der;
pub(crate) mod derive;
pub(crate) mod des_key;
pub(crate) mod message;
pub(crate) mod modes;
