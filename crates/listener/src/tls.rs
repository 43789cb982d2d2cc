//! The certificate of a listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::certificate::Certificate;
use crate::secret;
use crate::settings::Listener;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {}", path.display())]
    Pem {
        /// The file as the settings name it.
        path: PathBuf,
        /// What the library says of it.
        #[source]
        source: PemError,
    },
    /// A file without a certificate.
    #[error("{}: there is no certificate in it", path.display())]
    NoCertificate {
        /// The file as the settings name it.
        path: PathBuf,
    },
    /// Certificate and key cannot be used.
    #[error("cannot use certificate {} with its key", path.display())]
    Certificate {
        /// The file of the certificate, as `tls_cert` names it.
        path: PathBuf,
        /// What the library says of it.
        #[source]
        source: rustls::Error,
    },
    /// The authorities of clients cannot be used.
    #[error("cannot use the authorities of clients in {}", path.display())]
    Authorities {
        /// The file as the settings name it.
        path: PathBuf,
        /// What the library says of it.
        #[source]
        source: rustls::server::VerifierBuilderError,
    },
}

/// TLS 1.2 and 1.3 for HTTP/1.1 and HTTP/2, or none where the settings name no certificate. A client without a certificate
/// passes the handshake even if one is required, since probes have none; its other requests are refused.
pub(crate) fn config(settings: &Listener) -> Result<Option<(Arc<ServerConfig>, Certificate)>, TlsError> {
    let (Some(certificate), Some(key)) = (&settings.tls_cert, &settings.tls_key) else { return Ok(None) };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |source| TlsError::Certificate { path: certificate.clone(), source };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let builder = if let Some(path) = &settings.tls_client_ca {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            let unusable = |source| TlsError::Certificate { path: path.clone(), source };
            roots.add(certificate).map_err(unusable)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|source| TlsError::Authorities { path: path.clone(), source })?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let chain = certificates(certificate)?;
    let served = Certificate::new(certificate, chain.iter().map(AsRef::as_ref));
    secret::warn_of_key(key);
    let key =
        PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Pem { path: key.clone(), source })?;
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some((Arc::new(config), served)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unread = |source| TlsError::Pem { path: path.to_owned(), source };
    let all = CertificateDer::pem_file_iter(path).map_err(unread)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(unread)?;
    if all.is_empty() { Err(TlsError::NoCertificate { path: path.to_owned() }) } else { Ok(all) }
}
