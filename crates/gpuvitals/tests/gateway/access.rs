//! Collectors and a queue that ask for TLS and a token.

use gpuvitals_rig::authority::CertificateAuthority;
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::Finished as _;

use crate::site::{Gateway, start_with};

#[test]
fn collectors_with_certificates_and_tokens_are_asked_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let authority = CertificateAuthority::new();
    let ca = authority.file(folder.path().join("ca.pem"));
    let pair = authority.sign("localhost", folder.path());
    let tokens = at("tokens");
    let made = gpuvitals!()
        .args(["token", "create", "gateway", "--scope", "read,subscribe", "--token-file", &tokens])
        .finished();
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

/// A token with these scopes, added to a file.
pub(crate) fn token(file: &str, name: &str, scopes: &str) -> String {
    let made =
        gpuvitals!().args(["token", "create", name, "--scope", scopes, "--token-file", file]).finished();
    String::from_utf8(made.unwrap().stdout).unwrap().trim().to_owned()
}

/// The status of an answer, and its code if it refuses.
pub(crate) fn asked(method: &str, url: &str, token: Option<&str>) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut answer = agent.run(request.body(()).unwrap()).unwrap();
    let body: serde_json::Value =
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap_or_default();
    (answer.status().as_u16(), body["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn requests_to_the_queue_are_passed_on_with_the_clients_own_token() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (tokens, of_gateway) = (at("tokens"), at("gateway.token"));
    let own = token(&tokens, "gateway", "admin");
    std::fs::write(&of_gateway, own).unwrap();
    std::fs::set_permissions(&of_gateway, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let [reader, subscriber, admin] =
        ["read", "subscribe", "admin"].map(|scope| token(&tokens, &format!("a-{scope}"), scope));
    let queue = Port::new();
    let broker = start_with(&["broker", "--port", &queue, "--token-file", &tokens], &[]);
    broker.says("queue: http");
    let url = format!("http://127.0.0.1:{queue}");
    let known = [("GPUVITALS_MESSAGE_QUEUE_TOKEN_FILE", of_gateway.as_str())];
    let serve = ["serve", "--port", "0", "--collectors", "http://127.0.0.1:1", "--mq-url", &url];
    // Everyone may use this gateway, and it has a token for everything; still it passes on only what the client may do.
    let open = Gateway::of(start_with(&serve, &known));
    let closed = Gateway::of(start_with(&[&serve[..], &["--token-file", &tokens]].concat(), &known));
    let (stats, dead) = ("/api/v1/queue/stats", "/api/v1/queue/topics/t/dead");
    for gateway in [&open, &closed] {
        for (method, path, token, expected) in [
            ("GET", stats, None, (401, "unauthorized")),
            ("GET", stats, Some(&reader), (200, "")),
            ("GET", dead, Some(&reader), (403, "forbidden")),
            ("GET", dead, Some(&subscriber), (404, "unknown_topic")),
            ("DELETE", dead, Some(&subscriber), (403, "forbidden")),
            ("DELETE", dead, Some(&admin), (404, "unknown_topic")),
            ("DELETE", dead, None, (401, "unauthorized")),
        ] {
            let said = asked(method, &format!("{}{path}", gateway.url), token.map(String::as_str));
            assert_eq!((said.0, &*said.1), expected, "{method} {path} {token:?}");
        }
    }
    broker.terminated();
    let said = asked("GET", &format!("{}{stats}", open.url), Some(&reader));
    assert_eq!(said, (503, "unavailable".to_owned()));
}

#[test]
fn a_queue_that_is_no_broker_is_said_to_be_none() {
    let serve =
        ["serve", "--port", "0", "--collectors", "http://127.0.0.1:1", "--mq-url", "nats://127.0.0.1:1"];
    let gateway = Gateway::of(start_with(&serve, &[]));
    let said = gateway.ask("/api/v1/queue/stats");
    assert_eq!((said.status, &said.json["code"]), (501, &"no_broker".into()), "{}", said.json);
    assert!(said.json["message"].as_str().unwrap().contains("NATS"), "{}", said.json);
}
