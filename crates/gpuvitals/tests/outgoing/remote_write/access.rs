//! TLS and secrets.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gpuvitals_rig::authority::CertificateAuthority;
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;

use super::Agent;
use super::receiver::Receiver;

fn secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn over_tls_both_show_certificates_and_the_token_is_that_of_its_file_now() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (CertificateAuthority::new(), CertificateAuthority::new());
    let at = |name: &str| folder.path().join(name);
    let ca = ours.file(at("ca.pem"));
    let stranger = others.file(at("other.pem"));
    let receiver = Receiver::behind_tls(&ours.sign("127.0.0.1", folder.path()), &ca);
    let client = ours.sign("n1", folder.path());
    let (token, headers) = (at("token"), at("headers"));
    secret(&token, "s3cret-1\n");
    secret(&headers, "X-Scope-OrgID: team-a\n");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (cert, key) = (text(&client.cert), text(&client.key));
    let (token_file, headers_file) = (text(&token), text(&headers));
    let of = |ca: &Path| {
        let ca = text(ca);
        let environment = [
            ("GPUVITALS_REMOTE_WRITE_CA", ca.as_str()),
            ("GPUVITALS_REMOTE_WRITE_CLIENT_CERT", &cert),
            ("GPUVITALS_REMOTE_WRITE_CLIENT_KEY", &key),
            ("GPUVITALS_REMOTE_WRITE_TOKEN_FILE", &token_file),
            ("GPUVITALS_REMOTE_WRITE_HEADERS_FILE", &headers_file),
        ];
        Agent::sending(&receiver.url, &environment)
    };
    let agent = of(&ca);
    receiver.until("the token", |got| {
        got.iter().any(|got| got.authorization.as_deref() == Some("Bearer s3cret-1"))
    });
    secret(&token, "s3cret-2\n");
    let got = receiver.until("the new token", |got| {
        got.iter().any(|got| got.authorization.as_deref() == Some("Bearer s3cret-2"))
    });
    assert!(got.iter().all(|got| got.tenant.as_deref() == Some("team-a")));
    let (code, log) = agent.process.terminated();
    assert_eq!(code, Some(0));
    assert!(!log.contains("s3cret") && !log.contains("team-a"), "{log}");
    let agent = of(&stranger);
    agent.process.says("the receiver of remote write takes nothing");
    assert_eq!(agent.process.terminated().0, Some(0));
}

#[test]
fn a_user_has_a_password() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    secret(&password, "open sesame\n");
    let receiver = Receiver::start();
    let environment = [
        ("GPUVITALS_REMOTE_WRITE_USERNAME", "Aladdin"),
        ("GPUVITALS_REMOTE_WRITE_PASSWORD_FILE", password.to_str().unwrap()),
    ];
    let agent = Agent::sending(&format!("{}?key=s3cret", receiver.url), &environment);
    let got = receiver.until("a request", |got| !got.is_empty());
    // "Aladdin:open sesame", as RFC 7617 has it.
    assert_eq!(got[0].authorization.as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    let (code, log) = agent.process.terminated();
    assert_eq!(code, Some(0));
    assert!(log.contains(&receiver.url) && !log.contains("s3cret") && !log.contains("sesame"), "{log}");
}

#[test]
fn files_that_cannot_be_used_are_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("token");
    std::fs::write(&open, "s3cret").unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    for (variable, value, code, words) in [
        ("TOKEN_FILE", open.to_str().unwrap(), 78, "its mode is 0644"),
        ("CA", "/nowhere.pem", 78, "remote_write: cannot use /nowhere.pem"),
        ("URL", "http://u:s3cret@127.0.0.1/", 78, "a secret does not stand in a URL"),
        ("USERNAME", "u", 78, "password_file"),
    ] {
        let mut command = gpuvitals!();
        command.args(["agent", "--port", "0", "--driver", "simulated"]);
        command.env("GPUVITALS_REMOTE_WRITE_URL", "https://127.0.0.1:9/");
        command.env(format!("GPUVITALS_REMOTE_WRITE_{variable}"), value);
        let output = command.finished().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{variable}: {said}");
        assert!(said.contains(words) && !said.contains("s3cret"), "{said}");
    }
}
