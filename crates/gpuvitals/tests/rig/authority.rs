//! A certificate authority for a test, and its certificates.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Files of a certificate and its key.
pub(crate) struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate as a file.
    pub(crate) fn file(&self, path: PathBuf) -> PathBuf {
        std::fs::write(&path, self.0.as_ref().pem()).unwrap();
        path
    }

    /// A certificate for a name or address, with its key, in a folder.
    pub(crate) fn sign(&self, subject: &str, folder: &Path) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, subject);
        let cert = params.signed_by(&key, &self.0).unwrap();
        let pair =
            Pair { cert: folder.join(format!("{subject}.crt")), key: folder.join(format!("{subject}.key")) };
        std::fs::write(&pair.cert, cert.pem()).unwrap();
        std::fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }
}
