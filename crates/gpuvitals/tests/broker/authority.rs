//! A certificate authority for a test, and what it signs.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

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

    /// A certificate for a name or address and its key, as files in a folder.
    pub(crate) fn sign(&self, subject: &str, folder: &Path) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, subject);
        let signed = params.signed_by(&key, &self.0).unwrap();
        let files = (folder.join(format!("{subject}.crt")), folder.join(format!("{subject}.key")));
        std::fs::write(&files.0, signed.pem()).unwrap();
        std::fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }
}
