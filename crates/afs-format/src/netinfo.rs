//! NetInfo and NetRestrict: which of a server's addresses are announced.
