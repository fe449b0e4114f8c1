//! rxkad, Rx's security class 2: Kerberos tickets, sessions encrypted with fcrypt.
//!
//! The client holds a ticket that the cell's key decrypts, and the session key that it contains. The server
//! sends a challenge with a nonce. The client answers with the ticket and, sealed under the session key, the
//! nonce plus one, the connection's endpoint and the channels' call numbers. From then on each packet carries
//! a 16-bit checksum of its header, and depending on the level its first block (integrity) or all of it
//! (confidentiality) is encrypted.
//!
//! Of the two existing versions of the challenge only version 2 is supported. The older one does not bind the
//! response to the connection, so that an eavesdropper on one response could take over the client's identity.
//! All clients of the last twenty years send packet checksums and therefore receive, and can answer, version
//! 2.
//!
//! Sources: OpenAFS, doc/protocol and src/rxkad; draft-kaduk-afs3-rxkad-k5-kdf for session keys other than
//! DES.

mod client;
#[doc(hidden)]
pub mod fuzzing;
mod kdf;
mod krb4;
mod local;
mod names;
mod packet;
mod response;
mod server;
mod session;
mod ticket;
mod ticket5;
mod times;

pub use client::RxkadClient;
pub use local::{LOCAL_TICKET_END_MAX, forge_local_ticket};
pub use names::LocalRealms;
pub use server::RxkadServer;
pub use session::SessionKey;
pub use ticket::Ticket;

/// Number of the class in packet headers.
pub const RXKAD_INDEX: u8 = 2;

/// Kvno field of a response with a Kerberos 5 ticket.
pub const KVNO_KERBEROS_5: u32 = 256;
/// Kvno field of a response with only the sealed part of a Kerberos 5 ticket.
pub const KVNO_KERBEROS_5_SEALED_PART: u32 = 213;
/// Kvno fields up to this one (except [`KVNO_KERBEROS_5_SEALED_PART`]) are the version of the DES key of a
/// Kerberos 4 ticket.
const KVNO_KERBEROS_4_MAX: u32 = 255;

/// Minimum and maximum length of a ticket in bytes (`MINKTCTICKETLEN`, `MAXKTCTICKETLEN`).
const TICKET_BYTES_MIN: usize = 32;
const TICKET_BYTES_MAX: usize = 12_000;

/// Time that means "never ends".
const NEVER: u32 = u32::MAX;

#[cfg(test)]
mod tests;
