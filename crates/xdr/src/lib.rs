//! A bounded codec for XDR (RFC 4506) as Rx services use it.
