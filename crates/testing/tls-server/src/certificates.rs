//! Certificates of servers, made when they are needed.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;

/// What a server shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A valid certificate of its authority, for 127.0.0.1.
    Good,
    /// One for `other.example`.
    OtherName,
    /// One that has expired.
    Expired,
    /// None: it answers in plain HTTP.
    None,
}

/// An authority that no system knows.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are valid");
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, key());
        Authority { issuer: issuer.expect("an authority can be made") }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns how a server speaks TLS, if it does.
    pub(crate) fn server(&self, identity: Identity) -> Option<Arc<ServerConfig>> {
        let name = match identity {
            Identity::Good | Identity::Expired => "127.0.0.1",
            Identity::OtherName => "other.example",
            Identity::None => return None,
        };
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("the name is valid");
        if identity == Identity::Expired {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let key = key();
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate can be made");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key can be read");
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("the provider has the usual versions")
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key)
                .expect("the key belongs to the certificate");
        Some(Arc::new(config))
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}
