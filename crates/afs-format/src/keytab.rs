//! Kerberos keytab files (rxkad.keytab).
