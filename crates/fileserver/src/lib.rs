//! The file service (RXAFS).
