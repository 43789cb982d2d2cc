//! Collectors and a queue that ask for TLS and a token.

use crate::authority::Authority;
use crate::port::Port;
use crate::program::gpuvitals;
use crate::site::{Gateway, start_with};

#[test]
fn collectors_with_certificates_and_tokens_are_asked_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let authority = Authority::new();
    let ca = authority.file(folder.path().join("ca.pem"));
    let pair = authority.sign("localhost", folder.path());
    let tokens = at("tokens");
    let made = gpuvitals()
        .args(["token", "create", "gateway", "--scope", "read,subscribe", "--token-file", &tokens])
        .output();
    let token = String::from_utf8(made.unwrap().stdout).unwrap();
    std::fs::write(at("token"), token.trim()).unwrap();
    std::fs::set_permissions(at("token"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (cert, key) = (pair.cert.to_str().unwrap(), pair.key.to_str().unwrap());
    let guard = ["--tls-cert", cert, "--tls-key", key, "--token-file", &tokens];

    let (queue, api) = (Port::new(), Port::new());
    let broker = start_with(&[&["broker", "--port", &queue][..], &guard].concat(), &[]);
    broker.says("queue: https");
    let url = format!("https://localhost:{queue}");
    let known = [
        ("GPUVITALS_MESSAGE_QUEUE_CA", ca.to_str().unwrap()),
        ("GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE", &at("token")),
        ("GPUVITALS_GATEWAY_CA", ca.to_str().unwrap()),
        ("GPUVITALS_GATEWAY_TOKEN_FILE", &at("token")),
    ];
    let collect = ["collect", "--api-port", &api, "--mq-url", &url, "--data-dir", &at("data")];
    let collector = start_with(&[&collect[..], &guard].concat(), &known);
    collector.says("collector API: https");
    let names = format!("https://localhost:{api}");
    let serve = ["serve", "--port", "0", "--collectors", &names, "--mq-url", &url];
    let stranger = Gateway::of(start_with(&serve, &known[..1]));
    let gateway = Gateway::of(start_with(&serve, &known));
    gateway.until("/api/v1/gpus", "an answer", |said| said.status == 200 && said.partial.is_none());
    gateway.until("/health", "queue and collector", |said| said.json["status"] == "healthy");
    stranger.until("/health", "no certificate, no token", |said| {
        let reason = |part: &str| said.json[part]["reason"].as_str().unwrap().to_owned();
        reason("collector").contains("UnknownIssuer") && reason("queue").contains("401")
    });
    let refused = stranger.ask("/api/v1/gpus");
    assert_eq!(refused.status, 503, "{}", refused.json);
    for process in [stranger.process, gateway.process] {
        let (code, said) = process.terminated();
        assert_eq!(code, Some(0), "{said}");
    }
}
