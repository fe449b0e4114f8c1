//! Ticket messages (RFC 4120, 5.3): the fields that rxkad reads, and the tickets that it writes for itself.

use zeroize::Zeroizing;

use super::der::{self, DerError, Reader, tag};

/// The sealed part of a ticket and its encryption (`EncryptedData`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed<'a> {
    /// Kerberos encryption type, supported or not.
    pub(crate) enctype: i32,
    /// Version of the service's key; 0 if absent.
    pub(crate) kvno: u32,
    pub(crate) ciphertext: &'a [u8],
}

impl<'a> Sealed<'a> {
    /// Decodes an `EncryptedData`.
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Sealed<'a>, DerError> {
        let mut fields = reader.inside(tag::SEQUENCE)?;
        let enctype = fields.inside(tag::context(0))?.int32()?;
        let kvno = match fields.optional(tag::context(1))? {
            Some(mut field) => key_version(field.integer()?)?,
            None => 0,
        };
        let ciphertext = fields.inside(tag::context(2))?.element(tag::OCTET_STRING)?;
        Ok(Sealed { enctype, kvno, ciphertext })
    }

    /// Encodes an `EncryptedData`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        der::group(
            tag::SEQUENCE,
            &[
                der::field(0, &der::integer(i64::from(self.enctype))),
                der::field(1, &der::integer(i64::from(self.kvno))),
                der::field(2, &der::element(tag::OCTET_STRING, self.ciphertext)),
            ],
        )
    }
}

/// Some issuers write versions of 2^31 and above as negative numbers.
fn key_version(number: i64) -> Result<u32, DerError> {
    u32::try_from(number)
        .or_else(|_| i32::try_from(number).map(|kvno| kvno as u32))
        .map_err(|_| DerError("key version does not fit 32 bits"))
}

/// Returns the sealed part of a complete `Ticket`. The other fields (except the version) are not
/// authenticated, so they are ignored.
pub(crate) fn sealed_part_of_ticket(ticket: &[u8]) -> Result<Sealed<'_>, DerError> {
    let mut fields = Reader::new(ticket).inside(tag::application(1))?.inside(tag::SEQUENCE)?;
    if fields.inside(tag::context(0))?.integer()? != 5 {
        return Err(DerError("ticket is not of version 5"));
    }
    fields.element(tag::context(1))?;
    fields.element(tag::context(2))?;
    Sealed::decode(&mut fields.inside(tag::context(3))?)
}

/// The decrypted part of a ticket (`EncTicketPart`), as far as rxkad uses it.
pub(crate) struct TicketBody {
    /// The "invalid" flag (bit 7): a postdated ticket that has not been validated.
    pub(crate) invalid: bool,
    /// Encryption type of the session key.
    pub(crate) session_enctype: i32,
    pub(crate) session_key: Zeroizing<Vec<u8>>,
    pub(crate) realm: Vec<u8>,
    /// The client's name, of one or more components.
    pub(crate) name: Vec<Vec<u8>>,
    /// The start time, or the time of the first authentication if there is none.
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Maximum number of name components read; rxkad can use at most two.
const COMPONENTS_MAX: usize = 8;

impl TicketBody {
    /// Decodes an `EncTicketPart`, ignoring trailing bytes (padding).
    pub(crate) fn decode(bytes: &[u8]) -> Result<TicketBody, DerError> {
        let mut fields = Reader::new(bytes).inside(tag::application(3))?.inside(tag::SEQUENCE)?;
        let flags = fields.inside(tag::context(0))?.element(tag::BIT_STRING)?;
        let mut key = fields.inside(tag::context(1))?.inside(tag::SEQUENCE)?;
        let session_enctype = key.inside(tag::context(0))?.int32()?;
        let session_key = key.inside(tag::context(1))?.element(tag::OCTET_STRING)?.to_vec();
        let realm = fields.inside(tag::context(2))?.element(tag::GENERAL_STRING)?.to_vec();
        let name = name(fields.inside(tag::context(3))?)?;
        fields.element(tag::context(4))?;
        let authenticated = fields.inside(tag::context(5))?.time()?;
        let start = fields.optional(tag::context(6))?.map(|mut field| field.time()).transpose()?;
        let end = fields.inside(tag::context(7))?.time()?;
        Ok(TicketBody {
            invalid: flags.get(1).is_some_and(|byte| byte & 1 != 0),
            session_enctype,
            session_key: Zeroizing::new(session_key),
            realm,
            name,
            start: start.unwrap_or(authenticated),
            end,
        })
    }

    /// Encodes an `EncTicketPart` without addresses and authorization data.
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let flags = [0, u8::from(self.invalid), TRANSITED_POLICY_CHECKED, 0, 0];
        let key = [
            der::field(0, &der::integer(i64::from(self.session_enctype))),
            der::field(1, &der::element(tag::OCTET_STRING, &self.session_key)),
        ];
        let transited =
            [der::field(0, &der::integer(0)), der::field(1, &der::element(tag::OCTET_STRING, b""))];
        let fields = [
            der::field(0, &der::element(tag::BIT_STRING, &flags)),
            der::field(1, &der::group(tag::SEQUENCE, &key)),
            der::field(2, &der::element(tag::GENERAL_STRING, &self.realm)),
            der::field(3, &encode_name(&self.name)),
            der::field(4, &der::group(tag::SEQUENCE, &transited)),
            der::field(5, &der::time(self.start)),
            der::field(7, &der::time(self.end)),
        ];
        let sequence = der::group(tag::SEQUENCE, &fields);
        Zeroizing::new(der::element(tag::application(3), &sequence))
    }
}

/// Bit 12 of the flags, in the third byte of the bit string (the first counts unused bits).
const TRANSITED_POLICY_CHECKED: u8 = 0x08;
/// Name type KRB_NT_PRINCIPAL.
const NAME_TYPE_PRINCIPAL: i64 = 1;

fn name(mut field: Reader<'_>) -> Result<Vec<Vec<u8>>, DerError> {
    let mut parts = field.inside(tag::SEQUENCE)?;
    parts.inside(tag::context(0))?.integer()?;
    let mut strings = parts.inside(tag::context(1))?.inside(tag::SEQUENCE)?;
    let mut components = Vec::new();
    while !strings.is_empty() {
        if components.len() == COMPONENTS_MAX {
            return Err(DerError("name has too many components"));
        }
        components.push(strings.element(tag::GENERAL_STRING)?.to_vec());
    }
    Ok(components)
}

fn encode_name(components: &[Vec<u8>]) -> Vec<u8> {
    let strings: Vec<_> = components.iter().map(|part| der::element(tag::GENERAL_STRING, part)).collect();
    der::group(
        tag::SEQUENCE,
        &[
            der::field(0, &der::integer(NAME_TYPE_PRINCIPAL)),
            der::field(1, &der::group(tag::SEQUENCE, &strings)),
        ],
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encodes a complete `Ticket` around a sealed part, as a KDC issues it.
    pub(crate) fn encode_ticket(sealed: &Sealed<'_>, realm: &str, service: &[Vec<u8>]) -> Vec<u8> {
        let fields = [
            der::field(0, &der::integer(5)),
            der::field(1, &der::element(tag::GENERAL_STRING, realm.as_bytes())),
            der::field(2, &encode_name(service)),
            der::field(3, &sealed.encode()),
        ];
        der::element(tag::application(1), &der::group(tag::SEQUENCE, &fields))
    }

    pub(crate) fn body() -> TicketBody {
        TicketBody {
            invalid: false,
            session_enctype: 18,
            session_key: Zeroizing::new(vec![5; 32]),
            realm: b"TEST.EXAMPLE".to_vec(),
            name: vec![b"alice".to_vec(), b"admin".to_vec()],
            start: 1_700_000_000,
            end: 1_700_036_000,
        }
    }

    #[test]
    fn bodies_go_both_ways() {
        let mut encoded = body().encode().to_vec();
        encoded.extend_from_slice(&[0; 5]);
        let decoded = TicketBody::decode(&encoded).unwrap();
        assert_eq!(*decoded.encode(), *body().encode());
        assert_eq!(decoded.name, body().name);
        assert_eq!((decoded.start, decoded.end), (1_700_000_000, 1_700_036_000));
        let invalid = TicketBody { invalid: true, ..body() };
        assert!(TicketBody::decode(&invalid.encode()).unwrap().invalid);
    }

    #[test]
    fn tickets_give_their_sealed_part() {
        for kvno in [0, 1, 255, 0x8000_0001] {
            let sealed = Sealed { enctype: 18, kvno, ciphertext: b"sealed" };
            let ticket = encode_ticket(&sealed, "TEST.EXAMPLE", &[b"afs".to_vec()]);
            assert_eq!(sealed_part_of_ticket(&ticket), Ok(sealed));
        }
        assert_eq!(key_version(-1), Ok(u32::MAX));
        assert!(key_version(1 << 33).is_err());
    }

    #[test]
    fn names_are_bounded() {
        let long = TicketBody { name: vec![b"a".to_vec(); COMPONENTS_MAX + 1], ..body() };
        assert!(TicketBody::decode(&long.encode()).is_err());
    }
}
