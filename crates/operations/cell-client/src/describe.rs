//! Descriptions of abort codes.

use base::AbortCode;

/// Describes an abort code, including its name for searching.
pub fn describe(code: AbortCode) -> String {
    let words = match widened(code) {
        AbortCode::RX_CALL_DEAD => "the server does not answer",
        AbortCode::RX_CALL_TIMEOUT => "the call took too long",
        // VRESTARTING is the same number.
        AbortCode::RX_RESTARTING => "the server restarts, or this machine has lost its address; try again",
        AbortCode::RX_INVALID_OPERATION => "the server does not know this service",
        AbortCode::RXGEN_OPCODE => "the server does not know this call",
        AbortCode::VNOVNODE | AbortCode::UAENOENT => "there is no such file or directory",
        AbortCode::VNOVOL => "the server has no such volume, or it is not online",
        AbortCode::VOFFLINE => "the volume is offline",
        AbortCode::VBUSY => "the volume is busy; try again",
        AbortCode::VDISKFULL | AbortCode::UAENOSPC => "the partition is full",
        AbortCode::VOVERQUOTA | AbortCode::UAEDQUOT => "the volume's quota is used up",
        AbortCode::UAEACCES | AbortCode::UAEPERM => "permission denied",
        AbortCode::UAEEXIST => "it exists already",
        AbortCode::UAENOTEMPTY => "the directory is not empty",
        AbortCode::UAEROFS => "the volume is read-only",
        AbortCode::VL_NOENT | AbortCode::VOLSERNOVOL => "there is no such volume",
        jobs::ENODEV => "the server has no such volume",
        AbortCode::VL_NAMEEXIST => "a volume of this name exists already",
        AbortCode::VL_IDEXIST => "a volume of this number exists already",
        AbortCode::VL_PERM | AbortCode::VOLSERBAD_ACCESS | AbortCode::PRPERM | AbortCode::BZACCESS => {
            "you are not authorised for this"
        }
        AbortCode::UNOQUORUM => "the database servers are electing a sync site; try again in a minute",
        AbortCode::UNOTSYNC => "this database server accepts no changes, and the sync site was not found",
        AbortCode::PRNOENT => "there is no such user or group",
        AbortCode::PREXIST => "a user or group of this name exists already",
        AbortCode::PRIDEXIST => "this number is already in use",
        AbortCode::PRBADNAM => "this name is not allowed",
        AbortCode::VL_ENTRYLOCKED => "another operation has locked the volume's entry",
        AbortCode::VVOLEXISTS => "the server has a volume of this number already",
        AbortCode::VOLSERVOLBUSY => "another operation has the volume",
        AbortCode::VOLSERBADNAME => "this volume name is not allowed",
        AbortCode::VOLSERREAD_DUMPERROR => "the dump is damaged, or cannot be read",
        AbortCode::VOLSERILLEGAL_PARTITION => "the server has no such partition",
        AbortCode::RXKADUNKNOWNKEY => "the server does not have the key of this ticket",
        AbortCode::RXKADEXPIRED => "the ticket has expired",
        AbortCode(number @ 1..=VNO_CODES_BEFORE) => {
            return std::io::Error::from_raw_os_error(number).to_string();
        }
        _ => return code.to_string(),
    };
    format!("{words} [{code}]")
}

/// The last code before the file server's own codes, which start with VSALVAGE.
const VNO_CODES_BEFORE: i32 = 100;

/// Converts a Linux errno to a universal error code. File servers send their system's errno to a client that
/// has not declared support for universal codes.
pub fn widened(code: AbortCode) -> AbortCode {
    match code.0 {
        1 => AbortCode::UAEPERM,
        2 => AbortCode::UAENOENT,
        13 => AbortCode::UAEACCES,
        17 => AbortCode::UAEEXIST,
        28 => AbortCode::UAENOSPC,
        30 => AbortCode::UAEROFS,
        39 => AbortCode::UAENOTEMPTY,
        122 => AbortCode::UAEDQUOT,
        _ => code,
    }
}

/// Returns a function that turns an abort code into an error with the failed action.
pub fn failed(doing: impl std::fmt::Display) -> impl FnOnce(AbortCode) -> anyhow::Error {
    move |code| anyhow::anyhow!("cannot {doing}: {}", describe(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_error_numbers_are_described_in_words() {
        for (number, words) in [(17, "it exists already [17]"), (13, "permission denied [13]")] {
            assert_eq!(describe(AbortCode(number)), words);
        }
        assert_eq!(describe(AbortCode::UAEEXIST), "it exists already [UAEEXIST (49733392)]");
        assert!(describe(AbortCode(22)).starts_with("Invalid argument"));
        assert_eq!(describe(AbortCode(4711)), "4711");
    }
}
