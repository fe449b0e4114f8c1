//! Formats of files and blobs that AFS clients and servers share. Parses and writes bytes, without I/O.

pub mod acl;
pub mod cellservdb;
pub mod contents;
pub mod directory;
pub mod dump;
pub mod keyfile;
pub mod keytab;
pub mod namei;
pub mod netinfo;
pub mod prdb;
pub mod sysid;
pub mod transfer;
pub mod ubik;
pub mod userlist;
pub mod vldb;
