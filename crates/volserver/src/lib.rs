//! The volume service (AFSVol).
