//! Who may read: TLS with or without client certificates, and basic authentication.
//!
//! Both come from files, so that no secret stands in a setting, a URL or a log.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use subtle::{Choice, ConstantTimeEq};

use super::settings::{Agent, TlsFiles};
use crate::failure::{Exit, Failure};

/// Longest `user:password`.
const LOGIN_LEN_MAX: usize = 256;
/// Most logins of a file.
const LOGINS_MAX: usize = 64;

/// A file's inode, and when it was last changed: by writing, or in its rights.
pub(crate) type Written = (u64, i64, i64);

/// What a request must bring.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// TLS, where it is on.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether a client must have shown a certificate.
    pub certificate: bool,
    logins: Option<Logins>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No certificate was shown.
    Certificate,
    /// No login that is known.
    Login,
}

impl Access {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// When a file cannot be read, is not what it should be, or can be read by everybody.
    pub(crate) fn load(settings: &Agent) -> Result<Self, Failure> {
        let tls = settings.tls();
        Ok(Self {
            tls: tls.map(server_config).transpose()?,
            certificate: tls.is_some_and(|files| files.client_ca.is_some()),
            logins: settings.basic_auth().map(Logins::load).transpose()?,
        })
    }

    /// Which files the settings name now, and when they or their rights were last changed; of one that cannot be looked at,
    /// nothing.
    pub(crate) fn written(settings: &Agent) -> Vec<Option<Written>> {
        let tls = settings
            .tls()
            .into_iter()
            .flat_map(|tls| [Some(tls.cert), Some(tls.key), tls.client_ca])
            .flatten();
        let files = tls.chain(settings.basic_auth());
        files
            .map(|path| std::fs::metadata(path).ok())
            .map(|file| file.map(|file| (file.ino(), file.ctime(), file.ctime_nsec())))
            .collect()
    }

    /// Whether anything is asked for.
    pub(crate) fn is_open(&self) -> bool {
        !self.certificate && self.logins.is_none()
    }

    /// Checks a request: whether its connection showed a certificate, and its `Authorization`.
    ///
    /// # Errors
    /// When something is missing or wrong.
    pub(crate) fn check(&self, has_certificate: bool, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        if self.certificate && !has_certificate {
            return Err(Refusal::Certificate);
        }
        match &self.logins {
            Some(logins) if !logins.know(authorization.unwrap_or_default()) => Err(Refusal::Login),
            _ => Ok(()),
        }
    }
}

/// TLS 1.2 and 1.3 with what the files hold. A client without a certificate is let into TLS even where one is asked for: the
/// kubelet's probes have none. [`Access::check`] refuses it everything else.
fn server_config(files: TlsFiles<'_>) -> Result<Arc<ServerConfig>, Failure> {
    let wrong = |key: &str, path: &Path, error: Box<dyn std::error::Error + Send + Sync>| {
        Failure::caused(Exit::Config, format!("configuration: agent.{key}: {}", path.display()), error)
    };
    let chain = certificates(files.cert).map_err(|e| wrong("tls_cert", files.cert, e))?;
    let key = PrivateKeyDer::from_pem_file(files.key).map_err(|e| wrong("tls_key", files.key, e.into()))?;
    gpuvitals_listener::secret::warn_of_key(files.key);
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Failure::caused(Exit::Bug, "TLS has no protocol versions", e))?;
    let builder = match files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path).map_err(|e| wrong("tls_client_ca", path, e))? {
                roots.add(certificate).map_err(|e| wrong("tls_client_ca", path, e.into()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|e| wrong("tls_client_ca", path, e.into()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|e| wrong("tls_cert", files.cert, e.into()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, Box<dyn std::error::Error + Send + Sync>> {
    let chain = CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>()?;
    if chain.is_empty() { Err("there is no certificate in it".into()) } else { Ok(chain) }
}

/// Users with their passwords, each filled up with zeros, so that comparing takes the same time whatever is wrong.
struct Logins(Vec<[u8; LOGIN_LEN_MAX]>);

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logins({})", self.0.len())
    }
}

impl Logins {
    fn load(path: &Path) -> Result<Self, Failure> {
        let wrong = |text: String| {
            Failure::new(
                Exit::Config,
                format!("configuration: agent.basic_auth_file: {}: {text}", path.display()),
            )
        };
        let text = crate::secret::read(path, "agent.basic_auth_file")?;
        Self::parse(&text).map_err(wrong)
    }

    /// `user:password` lines; empty lines and those that begin with `#` are none. Errors never hold what a line says.
    fn parse(text: &str) -> Result<Self, String> {
        let mut logins = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let number = number + 1;
            match line.split_once(':') {
                Some((user, password)) if !user.is_empty() && !password.is_empty() => {}
                _ => return Err(format!("line {number} is not user:password")),
            }
            logins.push(padded(line.as_bytes()).ok_or_else(|| {
                format!("line {number} is longer than {LOGIN_LEN_MAX} bytes or has a zero byte")
            })?);
        }
        match logins.len() {
            0 => Err("there is no user:password line in it".to_owned()),
            1..=LOGINS_MAX => Ok(Self(logins)),
            more => Err(format!("{more} lines; {LOGINS_MAX} are the most")),
        }
    }

    fn know(&self, authorization: &[u8]) -> bool {
        let (scheme, encoded) = authorization.split_at_checked(6).unwrap_or_default();
        let decoded = BASE64_STANDARD.decode(encoded.trim_ascii()).ok();
        let Some(given) = decoded.filter(|_| scheme.eq_ignore_ascii_case(b"basic ")).and_then(|d| padded(&d))
        else {
            return false;
        };
        // All are looked at, so that time does not tell which one it was.
        let known = self.0.iter().fold(Choice::from(0), |known, login| known | login.ct_eq(&given));
        known.into()
    }
}

fn padded(login: &[u8]) -> Option<[u8; LOGIN_LEN_MAX]> {
    let mut padded = [0; LOGIN_LEN_MAX];
    if login.contains(&0) {
        return None;
    }
    padded.get_mut(..login.len())?.copy_from_slice(login);
    Some(padded)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::Layers;

    #[test]
    fn a_file_whose_rights_were_put_right_counts_as_written_anew() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = vec![("agent.basic_auth_file", file.path().to_str().unwrap().into())];
        let settings = Layers::of(set).check().unwrap().agent;
        std::fs::write(file.path(), "prometheus:s3cret\n").unwrap();
        set_permissions(file.path(), Permissions::from_mode(0o644)).unwrap();
        let before = Access::written(&settings);
        assert!(Access::load(&settings).is_err());
        // Clocks of file systems step by some milliseconds.
        for _ in 0..1_000_000 {
            set_permissions(file.path(), Permissions::from_mode(0o600)).unwrap();
            if Access::written(&settings) != before {
                break;
            }
        }
        assert_ne!(Access::written(&settings), before);
        assert!(Access::load(&settings).is_ok());
    }

    #[test]
    fn only_a_known_login_is_let_in() {
        let logins = Logins::parse("# who\n\nprometheus:s3cret\nops:a:b\n").unwrap();
        let basic = |login: &str| format!("Basic {}", BASE64_STANDARD.encode(login));
        for (authorization, known) in [
            (basic("prometheus:s3cret"), true),
            (basic("ops:a:b"), true),
            (basic("prometheus:s3cre"), false),
            (basic("prometheus:s3cret\0"), false),
            (basic("prometheus:s3crets"), false),
            (basic("prometheus"), false),
            (basic(""), false),
            (basic(&"x".repeat(5000)), false),
            (basic("prometheus:s3cret").replace("Basic", "bAsIc"), true),
            (basic("prometheus:s3cret").replace("Basic", "Bearer"), false),
            ("Basic".to_owned(), false),
            ("Basic !!!".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(logins.know(authorization.as_bytes()), known, "{authorization}");
        }
        assert_eq!(format!("{logins:?}"), "Logins(2)");
    }

    #[test]
    fn a_file_that_is_none_is_refused_without_its_content() {
        for text in
            ["", "# nobody\n", "s3cret\n", ":s3cret\n", "s3cret:\n", &format!("a:{}\n", "s3cret".repeat(99))]
        {
            let error = Logins::parse(text).err().unwrap();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a:b\n").unwrap();
        for (mode, fine) in [(0o600, true), (0o400, true), (0o440, true), (0o644, false), (0o660, false)] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Logins::load(file.path()).is_ok(), fine, "{mode:o}");
        }
    }
}
