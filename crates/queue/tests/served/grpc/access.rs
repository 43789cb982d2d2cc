//! Who may come in: certificates and tokens.

use std::path::PathBuf;

use gpuvitals_listener::{Listener, PortKind, TokenScope, Tokens};
use gpuvitals_queue::link::{BearerToken, Credentials, GrpcConsumer, GrpcProducer, QueueUrl};
use gpuvitals_queue::{Consumer, ConsumerOptions, Producer, PublishError, ReceiveError};
use gpuvitals_settings::{Section, Value};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rig::{Rig, TOPIC, frame, in_time};

/// An authority with a server and a client, as files.
struct Papers {
    dir: TempDir,
}

impl Papers {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
        for (name, purpose) in
            [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            params.extended_key_usages = vec![purpose];
            let certificate = params.signed_by(&key, &authority).unwrap();
            std::fs::write(dir.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn serve(&self, client_ca: bool) -> Rig {
        let file = |name| Value::from(self.file(name).display().to_string());
        serve(&[
            ("listener.tls_cert", file("server.pem")),
            ("listener.tls_key", file("server.key")),
            ("listener.tls_client_ca", if client_ca { file("ca.pem") } else { "".into() }),
        ])
    }

    fn access(&self, with_identity: bool) -> Credentials {
        let identity = with_identity.then(|| (self.file("client.pem"), self.file("client.key")));
        Credentials { ca: Some(self.file("ca.pem")), identity, ..Credentials::default() }
    }
}

fn serve(settings: &[(&str, Value)]) -> Rig {
    let settings = Listener::of(settings).unwrap();
    let access = gpuvitals_listener::Access::load(&settings, PortKind::Service).unwrap();
    Rig::with(|_| {}, |config| config.access = access)
}

/// A server that asks for tokens, with their file and one token for each scope.
fn with_tokens<const N: usize>(scopes: [TokenScope; N]) -> (Rig, TempDir, [String; N]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let tokens =
        scopes.map(|scope| Tokens::create(&file, scope.as_str(), &[scope], "now".to_owned()).unwrap());
    (serve(&[("listener.token_file", file.display().to_string().into())]), dir, tokens)
}

fn secure(rig: &Rig) -> QueueUrl {
    format!("grpcs://{}", rig.address).parse().unwrap()
}

async fn publish(url: &QueueUrl, access: &Credentials) -> Result<(), PublishError> {
    let producer = GrpcProducer::new(url, access, TOPIC).unwrap();
    in_time(producer.publish(frame(1))).await.map(drop)
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_spoken_to_and_no_other() {
    let papers = Papers::new();
    let rig = papers.serve(false);
    publish(&secure(&rig), &papers.access(false)).await.unwrap();
    assert_eq!(rig.held(), 1);
    for access in [Papers::new().access(false), Credentials::default()] {
        let refused = publish(&secure(&rig), &access).await.unwrap_err().to_string();
        assert!(refused.contains("invalid peer certificate"), "{refused}");
    }
    let plain = publish(&rig.url(), &Credentials::default()).await.unwrap_err();
    assert!(plain.is_retryable(), "{plain}");
    rig.stop().await;
}

#[tokio::test]
async fn a_server_that_asks_for_clients_certificates_serves_no_others() {
    let papers = Papers::new();
    let rig = papers.serve(true);
    publish(&secure(&rig), &papers.access(true)).await.unwrap();
    assert!(publish(&secure(&rig), &papers.access(false)).await.is_err());
    assert_eq!(rig.held(), 1);
    let missing = Credentials { ca: Some("/nowhere/ca.pem".into()), ..Credentials::default() };
    let unread = GrpcProducer::new(&secure(&rig), &missing, TOPIC).unwrap_err();
    assert_eq!(unread.to_string(), "cannot read /nowhere/ca.pem");
    rig.stop().await;
}

#[tokio::test]
async fn a_token_permits_its_scopes_and_is_never_shown() {
    let (rig, _dir, [publisher, subscriber]) = with_tokens([TokenScope::Publish, TokenScope::Subscribe]);
    let access = |token: Option<&str>| Credentials {
        token: token.and_then(BearerToken::new),
        ..Credentials::default()
    };
    publish(&rig.url(), &access(Some(&publisher))).await.unwrap();
    for (token, reason) in [
        (None, "a token is needed: authorization: Bearer <token>"),
        (Some("gpv_other"), "the token is not known"),
        (Some(&*subscriber), "the token lacks the scope publish"),
    ] {
        let refused = publish(&rig.url(), &access(token)).await.unwrap_err();
        assert!(matches!(refused, PublishError::Denied { .. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains(reason) && !text.contains("gpv_"), "{text}");
    }
    let subscribe = |token: &str| {
        let (access, options) = (access(Some(token)), ConsumerOptions::default());
        GrpcConsumer::new(&rig.url(), &access, TOPIC, "g", &options).unwrap()
    };
    assert_eq!(in_time(subscribe(&subscriber).receive()).await.unwrap().len(), 1);
    let refused = in_time(subscribe(&publisher).receive()).await.unwrap_err();
    assert!(matches!(&refused, ReceiveError::Denied { reason } if reason.contains("lacks")), "{refused:?}");
    let shown = format!("{:?} {:?}", access(Some(&publisher)), subscribe(&subscriber));
    assert!(!shown.contains("gpv_"), "{shown}");
    rig.stop().await;
}

#[tokio::test]
async fn the_port_answers_http_and_grpc_and_asks_both_for_tokens() {
    let (rig, _dir, [publisher, reader]) = with_tokens([TokenScope::Publish, TokenScope::Read]);
    let access = Credentials { token: BearerToken::new(&publisher), ..Credentials::default() };
    publish(&rig.url(), &access).await.unwrap();
    for (path, header, status) in [
        ("/health", String::new(), "200 OK"),
        ("/stats", String::new(), "401 Unauthorized"),
        ("/stats", "authorization: Bearer q\r\n".to_owned(), "401 Unauthorized"),
        ("/stats", format!("authorization: Bearer {publisher}\r\n"), "403 Forbidden"),
        ("/stats", format!("authorization: Bearer {reader}\r\n"), "200 OK"),
    ] {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        in_time(stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{path} {header}: {answer}");
    }
    rig.stop().await;
}
