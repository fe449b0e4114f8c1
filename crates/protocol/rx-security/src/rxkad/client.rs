//! The client's end of rxkad.

use std::sync::Arc;

use base::SecurityLevel;

use super::packet::RxkadProtection;
use super::response::{self, Challenge, Claims};
use super::{RXKAD_INDEX, TICKET_BYTES_MAX, TICKET_BYTES_MIN, Ticket};
use crate::{ClientHandshake, ClientSecurity, ConnectionFacts, PacketProtection, SecurityError};

/// Opens connections with a ticket.
#[derive(Clone, Debug)]
pub struct RxkadClient {
    ticket: Arc<Ticket>,
    level: SecurityLevel,
}

impl RxkadClient {
    /// Creates a client with this ticket that protects packets at this level.
    pub fn from_ticket(ticket: Ticket, level: SecurityLevel) -> Result<RxkadClient, SecurityError> {
        let (min, max, got) = (TICKET_BYTES_MIN, TICKET_BYTES_MAX, ticket.bytes.len());
        if !(min..=max).contains(&got) {
            return Err(SecurityError::TicketLength { min, max, got });
        }
        Ok(RxkadClient { ticket: Arc::new(ticket), level })
    }

    /// Returns the ticket.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

impl ClientSecurity for RxkadClient {
    fn index(&self) -> u8 {
        RXKAD_INDEX
    }

    fn start(&self, connection: ConnectionFacts) -> Result<Box<dyn ClientHandshake>, SecurityError> {
        Ok(Box::new(RxkadConnect { client: self.clone(), connection }))
    }
}

/// The client's end of one connection.
struct RxkadConnect {
    client: RxkadClient,
    connection: ConnectionFacts,
}

impl ClientHandshake for RxkadConnect {
    fn protection(&self) -> Box<dyn PacketProtection> {
        let RxkadClient { ticket, level } = &self.client;
        Box::new(RxkadProtection::new(self.connection, &ticket.session_key, *level))
    }

    fn respond(&mut self, challenge: &[u8], call_numbers: [u32; 4]) -> Result<Vec<u8>, SecurityError> {
        let challenge = Challenge::decode(challenge)?;
        let level = self.client.level as u32;
        if challenge.level > level {
            return Err(SecurityError::LevelTooLow { expected: challenge.level, got: level });
        }
        if call_numbers.iter().any(|number| *number > i32::MAX as u32) {
            return Err(SecurityError::Inconsistent("call number does not fit 31 bits"));
        }
        let claims = Claims { call_numbers, nonce: challenge.nonce.wrapping_add(1), level };
        let Ticket { kvno, bytes, session_key, .. } = &*self.client.ticket;
        Ok(response::encode(self.connection, claims, session_key, *kvno, bytes))
    }
}
