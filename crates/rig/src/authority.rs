//! A certificate authority for a test, and its certificates.

use std::fmt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// One that signs, and that nobody trusts until its file is named.
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

/// Files of a certificate and its key, in PEM.
#[derive(Debug)]
pub struct Pair {
    /// File of the certificate, in PEM.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority").finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// With a new key.
    #[expect(clippy::new_without_default, reason = "a test asks for a new key")]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate as a file.
    pub fn file(&self, path: PathBuf) -> PathBuf {
        std::fs::write(&path, self.0.as_ref().pem()).unwrap();
        path
    }

    /// A certificate for a name or address, with its key, in a folder.
    pub fn sign(&self, subject: &str, folder: &Path) -> Pair {
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
