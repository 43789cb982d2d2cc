//! Users with a JWT and a key, as `nsc` makes them.

use std::fs;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use gpuvitals_queue::link::Credentials;
use gpuvitals_queue::{Producer, PublishError};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Nats;
use crate::behaviour::{Place, credits, frame, receive_one};
use crate::server::Server;

/// A key of NATS: operator, account or user.
struct Key {
    pair: KeyPair,
    prefix: u8,
}

impl Key {
    fn new(prefix: u8) -> Self {
        Self { pair: KeyPair::generate_for(&PKCS_ED25519).unwrap(), prefix: prefix << 3 }
    }

    fn public(&self) -> String {
        checked_text([&[self.prefix], self.pair.der_bytes()].concat())
    }

    fn seed(&self) -> String {
        // PKCS #8 of Ed25519: the seed follows 16 bytes that are always the same.
        let seed = &self.pair.serialized_der()[16..48];
        checked_text([&[(18 << 3) | (self.prefix >> 5), (self.prefix & 31) << 3], seed].concat())
    }

    /// What this key says of `subject`.
    fn claim(&self, subject: &Key, nats: &Value) -> String {
        let text = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let body = json!({ "jti": "1", "iat": 1, "iss": self.public(), "name": "n", "sub": subject.public(), "nats": nats });
        let signed = format!("{}.{}", text(json!({ "typ": "JWT", "alg": "ed25519-nkey" })), text(body));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()).unwrap());
        format!("{signed}.{signature}")
    }
}

/// Base 32 of the bytes and their CRC-16.
fn checked_text(mut bytes: Vec<u8>) -> String {
    let mut crc = 0_u16;
    for byte in &bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    bytes.extend(crc.to_le_bytes());
    let bits: Vec<u8> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| (byte >> bit) & 1)).collect();
    let digit = |five: &[u8]| (0..5).fold(0, |digit, at| digit * 2 + five.get(at).copied().unwrap_or(0));
    bits.chunks(5)
        .map(|five| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[usize::from(digit(five))]))
        .collect()
}

#[tokio::test]
async fn a_credentials_file_opens() {
    let folder = TempDir::new().unwrap();
    let (operator, account, user, stranger) = (Key::new(14), Key::new(0), Key::new(20), Key::new(0));
    let limits = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1 });
    // With operators, JetStream wants an account for the servers themselves.
    let servers = Key::new(0);
    let claims = |limits: &Value| json!({ "type": "account", "version": 2, "limits": limits });
    let config = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{ {}: {}\n {}: {}\n }}\n\
         jetstream {{ store_dir: \"{}\" }}\n",
        operator.claim(&operator, &json!({ "type": "operator", "version": 2 })),
        servers.public(),
        servers.public(),
        operator.claim(&servers, &claims(&json!({}))),
        account.public(),
        operator.claim(&account, &claims(&limits)),
        folder.path().display()
    );
    let server = Server::start_with(&config).await;
    let mut place = Nats::at(server.url());
    let path = folder.path().join("user.creds");
    place.access = Credentials { credentials: Some(path.clone()), ..Credentials::default() };
    let missing = place.producer("t").publish(frame(1)).await;
    let Err(PublishError::Refused { reason }) = missing else { panic!("{missing:?}") };
    assert!(reason.starts_with("cannot use credentials ") && reason.contains("user.creds"), "{reason}");

    for (issuer, is_known) in [(&stranger, false), (&account, true)] {
        let claims = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
        let credentials = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            issuer.claim(&user, &claims),
            user.seed()
        );
        fs::write(&path, credentials).unwrap();
        let published = place.producer("t").publish(frame(1)).await;
        assert_eq!(published.is_ok(), is_known, "{published:?}\n{}", server.log());
        assert!(!format!("{published:?}").contains(&user.seed()), "a secret in an error");
    }
    receive_one(&mut place.consumer("t", "g", &credits(1)).await).await;
}
