//! Profiles of the running process.

use crate::AdminServer;
use afs_idl::cellar::{
    FetchProfileReply, FetchProfileRequest, GetProfileReply, GetProfileRequest, StartProfileReply,
    StartProfileRequest, StopProfileReply, StopProfileRequest,
};
use base::{AbortCode, Caller};
use profile::{Document, Kind, Refusal, Request, Stage};

/// Numbers of the kinds of profiles, as in `idl/cellar.idl`.
pub mod profile_kinds {
    /// Samples of the code that runs on the processors.
    pub const CPU: u32 = 1;
    /// Waiting times of calls.
    pub const WAITS: u32 = 2;
}

/// Numbers of the stages of a profile, as in `idl/cellar.idl`.
pub mod profile_stages {
    /// The profile is being recorded.
    pub const RUNS: u32 = 1;
    /// The documents are available.
    pub const DONE: u32 = 2;
    /// Recording failed.
    pub const FAILED: u32 = 3;
}

/// Maximum size of one piece of a document in bytes.
const PIECE_BYTES_MAX: usize = 65_536;

impl AdminServer {
    /// StartProfile (opcode 520).
    pub(crate) fn start_profile(
        &self,
        caller: &Caller,
        request: StartProfileRequest,
    ) -> Result<StartProfileReply, AbortCode> {
        self.administer(caller, "StartProfile")?;
        let kind = match request.kind {
            profile_kinds::CPU => Kind::Cpu,
            profile_kinds::WAITS => Kind::Waits,
            _ => return Err(AbortCode::UAEINVAL),
        };
        let wanted = Request { kind, seconds: request.seconds, hz: request.hz };
        let profile = profile::start(wanted).map_err(|refusal| code(&refusal))?;
        Ok(StartProfileReply { profile })
    }

    /// GetProfile (opcode 521). Since programs poll it, the audit log only records rejected callers.
    pub(crate) fn get_profile(
        &self,
        caller: &Caller,
        request: GetProfileRequest,
    ) -> Result<GetProfileReply, AbortCode> {
        self.let_profile(caller, "GetProfile")?;
        match profile::state(request.profile) {
            Ok(state) => Ok(GetProfileReply {
                stage: match state.stage {
                    Stage::Runs => profile_stages::RUNS,
                    Stage::Done => profile_stages::DONE,
                },
                elapsed_ms: u64::try_from(state.elapsed.as_millis()).unwrap_or(u64::MAX),
                samples: state.samples,
                lost: state.lost,
                ..GetProfileReply::default()
            }),
            Err(Refusal::Failed(error)) => {
                let error: String = error.chars().take(1000).collect();
                let stage = profile_stages::FAILED;
                Ok(GetProfileReply { stage, error: error.as_str().into(), ..GetProfileReply::default() })
            }
            Err(refusal) => Err(code(&refusal)),
        }
    }

    /// StopProfile (opcode 522).
    pub(crate) fn stop_profile(
        &self,
        caller: &Caller,
        request: StopProfileRequest,
    ) -> Result<StopProfileReply, AbortCode> {
        self.administer(caller, "StopProfile")?;
        profile::stop(request.profile).map_err(|refusal| code(&refusal))?;
        Ok(StopProfileReply)
    }

    /// FetchProfile (opcode 523).
    pub(crate) fn fetch_profile(
        &self,
        caller: &Caller,
        request: FetchProfileRequest,
    ) -> Result<FetchProfileReply, AbortCode> {
        self.let_profile(caller, "FetchProfile")?;
        let document = Document::ALL.into_iter().find(|document| document.number() == request.document);
        let document = document.ok_or(AbortCode::UAEINVAL)?;
        let text = profile::document(request.profile, document).map_err(|refusal| code(&refusal))?;
        let bytes = text.as_bytes();
        let from = usize::try_from(request.offset).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(PIECE_BYTES_MAX).min(bytes.len());
        Ok(FetchProfileReply { length: bytes.len() as u64, piece: bytes[from..to].to_vec() })
    }

    fn let_profile(&self, caller: &Caller, what: &str) -> Result<(), AbortCode> {
        if self.parts.authority.is_superuser(caller) { Ok(()) } else { self.administer(caller, what) }
    }
}

fn code(refusal: &Refusal) -> AbortCode {
    match refusal {
        Refusal::Busy { .. } => AbortCode::UAEBUSY,
        Refusal::Bounds { .. } => AbortCode::UAEINVAL,
        Refusal::Unknown(_) => AbortCode::UAENOENT,
        Refusal::NotYet => AbortCode::UAEAGAIN,
        Refusal::Failed(_) => AbortCode::UAEIO,
    }
}

#[cfg(test)]
mod tests;
