//! CellServDB, ThisCell and krb.conf.
