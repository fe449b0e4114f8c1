//! The little of Kerberos 5 that rxkad needs: tickets' messages and the encryption around them.

pub(crate) mod cipher;
pub(crate) mod der;
pub(crate) mod derive;
pub(crate) mod des_key;
pub(crate) mod message;
pub(crate) mod modes;
