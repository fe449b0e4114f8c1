//! Single Rx datagrams, as built by an attacker.

use rx_proto::{Flags, Header, PacketType};

/// An epoch with the high bit set, so that the address does not matter for finding the connection.
pub const ANY_ADDRESS_EPOCH: u32 = 0x8000_0000;

/// Returns the header of the first packet of a connection's first call. Connection ids differ by `number`.
pub fn first(service_id: u16, number: u32) -> Header {
    Header {
        epoch: ANY_ADDRESS_EPOCH | ((number >> 20) + 1),
        cid: number << 2,
        call_number: 1,
        sequence: 1,
        serial: 1,
        kind: PacketType::Data,
        flags: Flags::CLIENT_INITIATED.with(Flags::LAST_PACKET),
        user_status: 0,
        security_index: 0,
        checksum: 0,
        service_id,
    }
}

/// Encodes a header and body.
pub fn datagram(header: &Header, body: &[u8]) -> Vec<u8> {
    [&header.encode()[..], body].concat()
}

/// Returns an anonymous call that fits in one packet, on a new connection.
pub fn call(service_id: u16, number: u32, opcode: u32, arguments: &[u8]) -> Vec<u8> {
    datagram(&first(service_id, number), &request(opcode, arguments))
}

/// Returns the first packet of an rxkad connection that is not authenticated yet.
pub fn rxkad_call(service_id: u16, number: u32) -> Vec<u8> {
    datagram(&Header { security_index: 2, ..first(service_id, number) }, &[0; 4])
}

/// Returns an opcode and its encoded arguments.
pub fn request(opcode: u32, arguments: &[u8]) -> Vec<u8> {
    [&opcode.to_be_bytes()[..], arguments].concat()
}

/// Returns an ABORT with this code. Call number 0 means the whole connection.
pub fn abort(of: &Header, call_number: u32, code: i32) -> Vec<u8> {
    let header = Header {
        kind: PacketType::Abort,
        call_number,
        sequence: 0,
        flags: of.flags.without(Flags::LAST_PACKET),
        ..*of
    };
    datagram(&header, &code.to_be_bytes())
}

/// Returns an acknowledgement of all packets below `first`, and of none after that.
pub fn acknowledge(of: &Header, first: u32, reason: u8) -> Vec<u8> {
    let header =
        Header { kind: PacketType::Ack, sequence: 0, flags: of.flags.without(Flags::LAST_PACKET), ..*of };
    // Buffer space, maximum skew, first packet, previous packet, serial, reason, number of packets (0).
    let mut body = vec![0, 0, 0, 0];
    body.extend([first, first.wrapping_sub(1), of.serial].iter().flat_map(|word| word.to_be_bytes()));
    body.extend([reason, 0, 0, 0, 0]);
    // Largest packet, natural packet, window, packets per datagram.
    body.extend([65_535_u32, 1, 1, 1].iter().flat_map(|word| word.to_be_bytes()));
    datagram(&header, &body)
}
