//! A broker that hangs: collector and streamers report it soon, and recover by themselves.

use std::time::Duration;

use gpuvitals_rig::port::Port;
use tokio::time::Instant;

use crate::process::{recording, start, until};

/// From the beginning of the hang until everybody reports it: five seconds, and as much again for a machine
/// with other work.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn a_broker_that_is_frozen_degrades_collector_and_streamers_soon() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = recording(folder.path(), 3_000);
    let data = folder.path().join("data");
    let [port, api, by_http, by_grpc] = [(); 4].map(|()| Port::new());
    let broker = start(&["broker", "--port", &port]);
    broker.says("queue: http");
    let urls = [format!("http://127.0.0.1:{port}"), format!("grpc://127.0.0.1:{port}")];
    let collector =
        start(&["collect", "--api-port", &api, "--mq-url", &urls[1], "--data-dir", data.to_str().unwrap()]);
    let csv = file.to_str().unwrap();
    let streamers = [(&urls[0], &by_http), (&urls[1], &by_grpc)].map(|(url, shown)| {
        start(&["stream", "--csv", csv, "--mq-url", url, "--metrics-port", shown, "--rate", "20"])
    });
    until(&api, "/stats", "rows", |stats| stats["total_processed"].as_u64() > Some(40));
    let everybody = [&api, &by_http, &by_grpc];
    for port in everybody {
        until(port, "/health", "health", |health| health["status"] == "healthy");
    }

    broker.signal("STOP");
    let began = Instant::now();
    let told =
        everybody.map(|port| until(port, "/health", "a hang", |health| health["status"] == "degraded"));
    assert!(began.elapsed() < NOTICED_WITHIN, "after {:?}: {told:?}", began.elapsed());
    // None of the reports is withdrawn while the broker accepts connections and answers none.
    assert!(told.iter().all(|health| health["reason"].as_str().unwrap().contains("127.0.0.1")), "{told:?}");

    broker.signal("CONT");
    for port in everybody {
        until(port, "/health", "health again", |health| health["status"] == "healthy");
    }
    for streamer in streamers {
        let (code, said) = streamer.terminated();
        assert_eq!(code, Some(0), "{said}");
    }
    let stats = until(&port, "/stats/gpu-telemetry", "the end", |stats| stats["messages"] == 0);
    assert_eq!(stats["dead"], 0, "{stats}");
    let (code, said) = collector.terminated();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("the queue is not reached").count(), 1, "once for all workers: {said}");
    assert!(!said.contains("h2 protocol error"), "{said}");
    assert_eq!(broker.terminated().0, Some(0));
}
