//! Translation of errors for old clients.

use base::AbortCode;

const UAE_FIRST: i32 = AbortCode::UAEPERM.0;
const UAE_LAST: i32 = AbortCode::UAEMEDIUMTYPE.0;

/// Returns the code for a client that does not translate errors (CLIENT_CAPABILITY_ERRORTRANS): Linux's errno
/// instead of the portable "unified" number.
pub(crate) fn untranslated(code: AbortCode) -> AbortCode {
    match code {
        AbortCode::UAEWOULDBLOCK => AbortCode(11),
        AbortCode(value @ UAE_FIRST..=UAE_LAST) => AbortCode(errno(value - UAE_FIRST + 1)),
        other => other,
    }
}

/// The unified codes follow Linux's errno, but omit 58 (EDEADLOCK).
fn errno(place: i32) -> i32 {
    const BAD_SLOT: i32 = 57;
    if place > BAD_SLOT { place + 1 } else { place }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_get_the_errno_of_linux() {
        let table = [
            (AbortCode::UAEPERM, 1),
            (AbortCode::UAEACCES, 13),
            (AbortCode::UAEEXIST, 17),
            (AbortCode::UAEAGAIN, 11),
            (AbortCode::UAEWOULDBLOCK, 11),
            (AbortCode::UAEROFS, 30),
            (AbortCode::UAELOOP, 40),
            (AbortCode::UAENOMSG, 42),
            (AbortCode::UAEBADSLT, 57),
            (AbortCode::UAEBFONT, 59),
            (AbortCode::UAECONNREFUSED, 111),
            (AbortCode::UAEDQUOT, 122),
            (AbortCode::VNOVNODE, 102),
            (AbortCode::RX_CALL_DEAD, -1),
        ];
        for (code, errno) in table {
            assert_eq!(untranslated(code).0, errno, "{code}");
        }
    }
}
