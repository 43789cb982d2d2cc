//! The server's certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

/// Where the server's certificate is.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain (PEM), the server's first.
    pub certificate: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
    /// Authorities (PEM) that sign the certificates of clients; with them, a client without one is refused.
    pub client_ca: Option<PathBuf>,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is no PEM.
    #[error("reading {}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: PemError,
    },
    /// A file without a certificate.
    #[error("{} has no certificate", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key cannot be used.
    #[error("certificate {} with its key", path.display())]
    Certificate {
        /// The certificate's file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: rustls::Error,
    },
    /// The authorities of clients cannot be used.
    #[error("authorities of clients in {}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: rustls::server::VerifierBuilderError,
    },
}

/// Reads the server's certificate; for HTTP/1.1 and HTTP/2, TLS 1.2 and 1.3.
///
/// # Errors
///
/// A file cannot be read, or what is in it cannot be used.
pub fn tls_config(files: &TlsFiles) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let bad = |source| TlsError::Certificate { path: files.certificate.clone(), source };
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(bad)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|source| TlsError::Certificate { path: path.clone(), source })?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|source| TlsError::Authorities { path: path.clone(), source })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|source| TlsError::Pem { path: files.key.clone(), source })?;
    let mut config = builder.with_single_cert(certificates(&files.certificate)?, key).map_err(bad)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unread = |source| TlsError::Pem { path: path.to_owned(), source };
    let all = CertificateDer::pem_file_iter(path).map_err(unread)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(unread)?;
    if all.is_empty() { Err(TlsError::NoCertificate { path: path.to_owned() }) } else { Ok(all) }
}
