//! Who may read: TLS, client certificates, tokens.

use std::os::unix::fs::PermissionsExt;

use gpuvitals_listener::{TokenScope, Tokens};
use gpuvitals_rig::authority::CertificateAuthority;
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;

use super::node::Node;
use super::process::curl;

#[test]
fn only_clients_with_certificate_and_token_read_the_metrics() {
    let node = Node::new();
    let (ours, others) = (CertificateAuthority::new(), CertificateAuthority::new());
    let ca = ours.file(node.path("ca.crt"));
    let server = ours.sign("127.0.0.1", &node.path(""));
    let client = ours.sign("prometheus", &node.path(""));
    let stranger = others.sign("stranger", &node.path(""));
    let tokens = node.path("tokens");
    let token = Tokens::create(&tokens, "prometheus", &[TokenScope::Read], "now".to_owned()).unwrap();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let agent = node.agent(&[
        "--tls-cert",
        &text(&server.cert),
        "--tls-key",
        &text(&server.key),
        "--tls-client-ca",
        &text(&ca),
        "--token-file",
        &text(&tokens),
    ]);
    assert!(agent.url.starts_with("https://"), "{}", agent.url);
    let (ca, cert, key) = (text(&ca), text(&client.cert), text(&client.key));
    let trust = ["--cacert", &ca];
    let shown = ["--cert", &cert, "--key", &key];
    let bearer = format!("authorization: Bearer {token}");
    let bearer = ["-H", &bearer];
    let login = format!("prometheus:{token}");
    let login = ["-u", &login];
    let get = |path: &str, arguments: &[&[&str]]| agent.get(path, &arguments.concat());

    let answer = get("/metrics", &[&trust, &shown, &login]);
    assert!(answer.status == 200 && answer.text().contains("gpu_up"), "{}", answer.status);
    assert_eq!(get("/metrics", &[&trust, &shown, &bearer]).status, 200);
    assert_eq!(get("/metrics", &[&trust, &login]).status, 403);
    let asked = get("/metrics", &[&trust, &shown]);
    assert_eq!(
        (asked.status, &*asked.headers["www-authenticate"]),
        (401, "Basic realm=\"gpuvitals\", charset=\"UTF-8\"")
    );
    assert_eq!(get("/metrics", &[&trust, &shown, &["-u", "prometheus:gpv_other"]]).status, 401);
    assert_eq!(get("/", &[&trust, &login]).status, 403);
    for probe in ["/healthz", "/readyz"] {
        let status = get(probe, &[&trust]).status;
        assert!(matches!(status, 200 | 503), "a probe brings nothing, and is answered: {probe} {status}");
    }
    // What is no TLS of ours is no HTTP either.
    let (cert, key) = (text(&stranger.cert), text(&stranger.key));
    assert!(curl(&agent.url, &["--cacert", &ca, "--cert", &cert, "--key", &key]).is_err());
    assert!(curl(&agent.url, &[]).is_err(), "the authority is not a known one");
    assert!(curl(&agent.url.replace("https", "http"), &[]).is_err());

    let text = get("/metrics", &[&trust, &shown, &login]).text().to_owned();
    assert!(text.contains("\ngpuvitals_agent_requests_denied_total 4\n"), "{text}");
    agent.process.signal("HUP");
    agent.logged("the configuration was reloaded");
    let (_, log) = agent.process.terminated();
    assert!(!log.contains("gpv_"), "a secret is in the log");
}

#[test]
fn files_that_cannot_be_used_are_said_before_anything_runs() {
    let node = Node::new();
    let authority = CertificateAuthority::new();
    let pair = authority.sign("127.0.0.1", &node.path(""));
    let other = authority.sign("localhost", &node.path(""));
    let open = node.write("open", "a:s3cret\n");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (cert, key) = (pair.cert.to_str().unwrap(), pair.key.to_str().unwrap());
    for (arguments, code, words) in [
        (&["--tls-cert", cert, "--tls-key", "/nowhere.key"][..], 78, "cannot read /nowhere.key"),
        (&["--tls-cert", key, "--tls-key", key], 78, "no certificate in it"),
        (&["--tls-cert", cert, "--tls-key", other.key.to_str().unwrap()], 78, "with its key"),
        (&["--tls-cert", cert], 64, "--tls-cert: listener.tls_cert: it needs listener.tls_key"),
        (&["--token-file", open.to_str().unwrap()], 78, "its mode is 0644"),
    ] {
        let output = gpuvitals!().args(["agent", "--port", "0"]).args(arguments).finished().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words) && !said.contains("s3cret"), "{said}");
    }
}
