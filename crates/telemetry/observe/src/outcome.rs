//! Maps abort codes to outcomes.

use base::AbortCode;
use events::catalogue::Outcome;

/// Returns the outcome for a service's result.
pub fn outcome(result: Result<(), AbortCode>) -> Outcome {
    match result {
        Ok(()) => Outcome::Good,
        Err(code) if code.is_of_rxkad() => Outcome::Denied,
        Err(code) => of_code(code),
    }
}

fn of_code(code: AbortCode) -> Outcome {
    match code {
        // EACCES, which clients that do not know UAEACCES receive in its place.
        AbortCode(13)
        | AbortCode::UAEACCES
        | AbortCode::UAEPERM
        | AbortCode::PRPERM
        | AbortCode::VL_PERM
        | AbortCode::VOLSERBAD_ACCESS
        | AbortCode::BZACCESS => Outcome::Denied,
        AbortCode::VNOVOL
        | AbortCode::VNOVNODE
        | AbortCode::UAENOENT
        | AbortCode::PRNOENT
        | AbortCode::VL_NOENT
        | AbortCode::VOLSERNOVOL
        | AbortCode::BZNOENT => Outcome::Missing,
        AbortCode::VBUSY
        | AbortCode::VRESTARTING
        | AbortCode::VMOVED
        | AbortCode::VOFFLINE
        | AbortCode::VNOSERVICE
        | AbortCode::VOLSERVOLBUSY
        | AbortCode::VL_ENTRYLOCKED
        | AbortCode::UAEBUSY
        | AbortCode::UAEAGAIN
        | AbortCode::UNOQUORUM
        | AbortCode::UNOTSYNC => Outcome::Retry,
        AbortCode::VDISKFULL | AbortCode::VOVERQUOTA => Outcome::Full,
        AbortCode::RXGEN_OPCODE
        | AbortCode::RXGEN_SS_UNMARSHAL
        | AbortCode::RX_INVALID_OPERATION
        | AbortCode::UAEINVAL
        | AbortCode::UAEEXIST
        | AbortCode::PRBADARG
        | AbortCode::PRBADNAM => Outcome::Invalid,
        AbortCode::RX_CALL_DEAD
        | AbortCode::RX_CALL_TIMEOUT
        | AbortCode::RX_CALL_IDLE
        | AbortCode::RX_USER_ABORT
        | AbortCode::RX_EOF
        | AbortCode::RX_PROTOCOL_ERROR => Outcome::Gone,
        AbortCode::UAEIO | AbortCode::VIO | AbortCode::VL_IO | AbortCode::PRDBFAIL | AbortCode::VSALVAGE => {
            Outcome::Fault
        }
        _ => Outcome::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_classes() {
        assert_eq!(outcome(Ok(())), Outcome::Good);
        for (code, expected) in [
            (AbortCode::UAEACCES, Outcome::Denied),
            (AbortCode(13), Outcome::Denied),
            (AbortCode::RXKADEXPIRED, Outcome::Denied),
            (AbortCode::VNOVNODE, Outcome::Missing),
            (AbortCode::VBUSY, Outcome::Retry),
            (AbortCode::VOVERQUOTA, Outcome::Full),
            (AbortCode::RXGEN_OPCODE, Outcome::Invalid),
            (AbortCode::RX_CALL_DEAD, Outcome::Gone),
            (AbortCode::UAEIO, Outcome::Fault),
            (AbortCode(12345), Outcome::Other),
        ] {
            assert_eq!(outcome(Err(code)), expected, "{code}");
        }
    }
}
