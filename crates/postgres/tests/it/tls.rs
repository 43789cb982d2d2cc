//! Connections with TLS.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};

use gpuvitals_core::Status;
use gpuvitals_core::ports::Sink;
use gpuvitals_rig::authority::CertificateAuthority;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::postgres::NOBODY;

use crate::server::Server;
use crate::{cancels_what_is_dropped, open, power, powers};

#[tokio::test]
async fn the_certificate_is_checked_as_far_as_sslmode_asks_for_it() {
    let server = Server::start("fsync = off");
    let (right, wrong) = (CertificateAuthority::new(), CertificateAuthority::new());
    let (trusted, foreign) = (right.file(server.path("right.pem")), wrong.file(server.path("wrong.pem")));
    let pair = right.sign("localhost", &server.path(""));
    fs::set_permissions(&pair.key, Permissions::from_mode(0o600)).unwrap();
    for file in [&pair.cert, &pair.key] {
        chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let port = Port::new();
    server.configure(&format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'",
        pair.cert.display(),
        pair.key.display()
    ));
    fs::write(server.path("data/pg_hba.conf"), "local all all trust\nhostssl all all all trust\n").unwrap();
    server.kill();
    server.begin();
    let (trusted, foreign) = (trusted.to_str().unwrap(), foreign.to_str().unwrap());
    let settings = |host, sslmode, authorities| {
        let given = [
            ("database.host", host),
            ("database.sslmode", sslmode),
            ("database.sslrootcert", authorities),
            ("database.connections", "2"),
        ];
        server.settings("postgres", &given)
    };
    let refused = [
        ("127.0.0.1", "verify-full", trusted, "not valid for name"),
        ("localhost", "verify-full", foreign, "invalid peer certificate"),
        ("localhost", "verify-ca", foreign, "invalid peer certificate"),
        ("localhost", "require", foreign, "invalid peer certificate"),
        // The server takes none without TLS from the network.
        ("localhost", "disable", "", "no pg_hba.conf entry"),
    ];
    for (host, sslmode, authorities, why) in refused {
        let postgres = open(&settings(host, sslmode, authorities)).await;
        let health = Sink::health(&postgres);
        assert!(health.status == Status::Degraded && health.reason.contains(why), "{why}: {}", health.reason);
        assert!(postgres.accept(vec![power(1, 1.0)]).await.is_err());
    }
    let taken = [
        ("localhost", "verify-full", trusted),
        ("127.0.0.1", "verify-ca", trusted),
        ("127.0.0.1", "require", ""),
        ("127.0.0.1", "prefer", ""),
    ];
    for (time_ns, (host, sslmode, authorities)) in (1..).zip(taken) {
        let postgres = open(&settings(host, sslmode, authorities)).await;
        postgres.accept(vec![power(time_ns, 1.0)]).await.unwrap();
        assert!(powers(&postgres).await.contains(&(time_ns, Some(1.0))), "{host} {sslmode}");
    }
    cancels_what_is_dropped(&server, &settings("localhost", "verify-full", trusted)).await;
}
