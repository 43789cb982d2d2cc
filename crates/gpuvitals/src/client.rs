//! The HTTP client of the program: how it checks a server's certificate, and shows its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_queue::link::Credentials;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use ureq::http::StatusCode;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::failure::{Exit, Failure};

/// How long a command waits for an answer; a replay of dead letters at a rate answers after twenty seconds with the number left.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The exit code of a command that was refused.
pub(crate) fn exit(status: StatusCode) -> Exit {
    match status.as_u16() {
        401 | 403 => Exit::Permission,
        404 => Exit::Data,
        500.. => Exit::Unavailable,
        _ => Exit::Usage,
    }
}

/// A client that follows no redirect, takes every status for an answer, and waits for it for `timeout` at most.
///
/// # Errors
/// When a file of the access cannot be used.
pub(crate) fn http_client(
    is_encrypted: bool,
    access: &Credentials,
    timeout: Duration,
) -> Result<ureq::Agent, Failure> {
    client(is_encrypted, access, (Some(timeout), None))
}

/// The same for answers that may be long and come over a slow line: it waits for each part of one for `timeout` at most.
///
/// # Errors
/// As [`http_client`].
pub(crate) fn reading_client(
    is_encrypted: bool,
    access: &Credentials,
    timeout: Duration,
) -> Result<ureq::Agent, Failure> {
    client(is_encrypted, access, (None, Some(timeout)))
}

fn client(
    is_encrypted: bool,
    access: &Credentials,
    (whole, part): (Option<Duration>, Option<Duration>),
) -> Result<ureq::Agent, Failure> {
    let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
    let mut config = config.timeout_global(whole).timeout_connect(part).timeout_per_read(part);
    if is_encrypted {
        config = config.tls_config(tls(access)?);
    }
    Ok(config.build().into())
}

/// How a client checks a server's certificate, and shows its own.
fn tls(access: &Credentials) -> Result<TlsConfig, Failure> {
    let roots: Vec<CertificateDer<'static>> = match &access.ca {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    if roots.is_empty() {
        let text = "this system has no list of authorities; ca, or --ca, names the one that signed the server's certificate";
        return Err(Failure::new(Exit::Config, text));
    }
    let provider = rustls::crypto::ring::default_provider();
    let identity = access.identity.as_ref().map(|(chain_path, key_path)| {
        let chain = certificates(chain_path)?;
        let pem = std::fs::read(key_path).map_err(|e| unusable(key_path, e))?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| unusable(key_path, e))?;
        // ureq panics at a pair that rustls refuses.
        CertifiedKey::from_der(chain.clone(), key, &provider).map_err(|e| unusable(chain_path, e))?;
        let chain: Vec<_> = chain.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
        let key = PrivateKey::from_pem(&pem).map_err(|e| unusable(key_path, e))?;
        Ok::<_, Failure>(ClientCert::new_with_certs(&chain, key))
    });
    let roots: Vec<_> = roots.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(identity.transpose()?)
        .unversioned_rustls_crypto_provider(Arc::new(provider))
        .build())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let all = CertificateDer::pem_file_iter(path).map_err(|e| unusable(path, e))?;
    all.collect::<Result<_, _>>().map_err(|e| unusable(path, e))
}

fn unusable(path: &Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::caused(Exit::Config, format!("cannot use {}", path.display()), error)
}
