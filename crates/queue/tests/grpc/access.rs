//! Who may come in: certificates and tokens.

use std::path::PathBuf;

use gpuvitals_queue::link::{Access, GrpcConsumer, GrpcProducer, QueueUrl, Token};
use gpuvitals_queue::server::{TlsFiles, Tokens, tls_config};
use gpuvitals_queue::{
    Clock, Consumer, ConsumerOptions, Producer, PublishError, Queue, QueueConfig, ReceiveError,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{Rig, TOPIC, frame, in_time};

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
        let client_ca = client_ca.then(|| self.file("ca.pem"));
        let files =
            TlsFiles { certificate: self.file("server.pem"), key: self.file("server.key"), client_ca };
        Rig::with(|_| {}, |config| config.tls = Some(tls_config(&files).unwrap()))
    }

    fn access(&self, with_identity: bool) -> Access {
        let identity = with_identity.then(|| (self.file("client.pem"), self.file("client.key")));
        Access { ca: Some(self.file("ca.pem")), identity, ..Access::default() }
    }
}

fn secure(rig: &Rig) -> QueueUrl {
    format!("grpcs://{}", rig.address).parse().unwrap()
}

async fn publish(url: &QueueUrl, access: &Access) -> Result<(), PublishError> {
    let producer = GrpcProducer::new(url, access, TOPIC).unwrap();
    in_time(producer.publish(frame(1))).await.map(drop)
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_spoken_to_and_no_other() {
    let papers = Papers::new();
    let rig = papers.serve(false);
    publish(&secure(&rig), &papers.access(false)).await.unwrap();
    assert_eq!(rig.held(), 1);
    for access in [Papers::new().access(false), Access::default()] {
        let refused = publish(&secure(&rig), &access).await.unwrap_err().to_string();
        assert!(refused.contains("invalid peer certificate"), "{refused}");
    }
    let plain = publish(&rig.url(), &Access::default()).await.unwrap_err();
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
    let missing = Access { ca: Some("/nowhere/ca.pem".into()), ..Access::default() };
    let unread = GrpcProducer::new(&secure(&rig), &missing, TOPIC).unwrap_err();
    assert_eq!(unread.to_string(), "reading /nowhere/ca.pem");
    rig.stop().await;
}

#[tokio::test]
async fn a_token_lets_in_for_what_it_is_and_is_never_shown() {
    let tokens = Tokens {
        publish: vec![Token::new("secret-p")],
        subscribe: vec![Token::new("secret-s")],
        ..Tokens::default()
    };
    let rig = Rig::with(|_| {}, |config| config.tokens = Some(tokens));
    let access = |token: Option<&str>| Access { token: token.map(Token::new), ..Access::default() };
    publish(&rig.url(), &access(Some("secret-p"))).await.unwrap();
    for (token, reason) in [
        (None, "a token is needed: authorization: Bearer <token>"),
        (Some("secret-q"), "the token is not known"),
        (Some("secret-s"), "the token may not do this"),
    ] {
        let refused = publish(&rig.url(), &access(token)).await.unwrap_err();
        assert!(matches!(refused, PublishError::Denied { .. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains(reason) && !text.contains("secret"), "{text}");
    }
    let subscribe = |token| {
        let (access, options) = (access(Some(token)), ConsumerOptions::default());
        GrpcConsumer::new(&rig.url(), &access, TOPIC, "g", &options).unwrap()
    };
    assert_eq!(in_time(subscribe("secret-s").receive()).await.unwrap().len(), 1);
    let refused = in_time(subscribe("secret-p").receive()).await.unwrap_err();
    assert!(matches!(&refused, ReceiveError::Denied { reason } if reason.contains("may not")), "{refused:?}");
    let shown = format!("{:?} {:?}", access(Some("secret-p")), subscribe("secret-s"));
    assert!(!shown.contains("secret"), "{shown}");
    rig.stop().await;
}

#[tokio::test]
async fn the_port_for_people_answers_http_and_grpc_and_asks_for_tokens_too() {
    let tokens = Tokens { publish: vec![Token::new("p")], ..Tokens::default() };
    let queue = Queue::in_process(QueueConfig::default(), Clock::system());
    let rig = Rig::people(queue, |config| config.tokens = Some(tokens));
    let url: QueueUrl = format!("grpc://{}", rig.address).parse().unwrap();
    let access = Access { token: Some(Token::new("p")), ..Access::default() };
    publish(&url, &access).await.unwrap();
    for (path, header, status) in [
        ("/health", "", "200 OK"),
        ("/stats", "", "401 Unauthorized"),
        ("/stats", "authorization: Bearer q\r\n", "401 Unauthorized"),
        ("/stats", "authorization: Bearer p\r\n", "200 OK"),
    ] {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: q\r\nconnection: close\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        in_time(stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{path} {header}: {answer}");
    }
    rig.stop().await;
}
