use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{StreamExt as _, stream};
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table};
use gpuvitals_flight::{FlightPlace, FlightSpan, FlightTerms};
use gpuvitals_listener::{Meter, Terms, refuse};
use gpuvitals_rig::waiting::soon;
use gpuvitals_settings::Section as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::doubles::NO_FILES;

/// What a gateway was sent: path and query, and the body.
type Sent = (String, Bytes);

/// A gateway whose streams begin with this event, and which is out of order when it is first told of an incident.
fn gateway(event: String) -> (String, mpsc::Receiver<Sent>) {
    let (sent, coming) = mpsc::channel(8);
    let take = move |uri: Uri, body: Bytes| {
        let sent = sent.clone();
        async move {
            sent.send((uri.path_and_query().unwrap().to_string(), body)).await.unwrap();
            Json(json!({"id": "20261130T031459Z-xid", "is_new": true})).into_response()
        }
    };
    let tries = Arc::new(AtomicU32::new(0));
    let told = {
        let take = take.clone();
        move |uri: Uri, body: Bytes| {
            let (is_first, take) = (tries.fetch_add(1, Ordering::Relaxed) == 0, take.clone());
            async move {
                if is_first {
                    return refuse(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "out of order");
                }
                take(uri, body).await
            }
        }
    };
    let events = move || {
        let first = stream::iter([Ok::<_, Infallible>(event.clone())]);
        let body = Body::from_stream(first.chain(stream::pending()));
        async { ([(CONTENT_TYPE, "text/event-stream")], body) }
    };
    let app = Router::new()
        .route(JOB_REQUESTS_PATH, get(events).post(told))
        .route("/api/v1/flight/incidents/{id}/nodes/{node}", post(take));
    let socket = gpuvitals_listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let terms = Terms::new(Arc::new(Meter::new("test")));
    tokio::spawn(gpuvitals_listener::serve(socket, app, terms, CancellationToken::new()));
    (url, coming)
}

fn recorder(directory: &std::path::Path, terms: FlightTerms) -> FlightRecorder {
    FlightRecorder::start(FlightPlace::take(directory).unwrap(), terms).unwrap()
}

#[tokio::test]
async fn a_gateway_is_told_of_incidents_and_gets_the_rows_that_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let terms = || FlightTerms::new(&FlightSettings::of(&[]).unwrap(), "n1", NO_FILES);
    let at_ns = clock::now_ns() - 100 * SECOND_NS;
    let before = recorder(folder.path(), terms());
    let mut rows = BatchBuilder::new(Table::GpuEvents);
    let gpu = rows.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
    for second in -90..90 {
        rows.row(at_ns + second * SECOND_NS, gpu);
    }
    before.take(&rows.finish(Origin::default(), 1).unwrap());
    before.finish(Duration::from_mins(1));

    let span = FlightSpan { from_ns: at_ns - 60 * SECOND_NS, to_ns: at_ns + 30 * SECOND_NS };
    let trigger =
        json!({"kind": "xid", "gpu": "GPU-9", "code": 79, "detail": "XID 79", "rule": null, "at_ns": at_ns});
    let id = "20261130T031459Z-xid";
    let asked =
        json!({"id": id, "part": "window", "asked": span, "trigger": trigger, "by": "n2", "sent_ns": 7});
    let (url, mut sent) = gateway(format!("event: request\nid: {id}/window\ndata: {asked}\n\n"));
    let settings = FlightSettings::of(&[("flight.gateway", json!(url))]).unwrap();
    let (beginning, begun) = sync_channel(8);
    let recorder = Arc::new(recorder(folder.path(), FlightTerms { begun: Some(beginning), ..terms() }));
    recorder.signal();
    let gateway = JobGateway::of(&settings).unwrap().unwrap();
    let windows = JobWindows::new(gateway, "n1".to_owned(), Arc::clone(&recorder), begun);
    let _running = AbortOnDropHandle::new(tokio::spawn(windows.run()));
    let (mut told, mut answered) = (None, None);
    while told.is_none() || answered.is_none() {
        let (path, body) = soon("what the node says", sent.recv()).await.unwrap();
        if path == JOB_REQUESTS_PATH { told = Some(body) } else { answered = Some((path, body)) }
    }
    let told: Value = serde_json::from_slice(&told.unwrap()).unwrap();
    assert_eq!((told["node"].as_str(), told["trigger"]["kind"].as_str()), (Some("n1"), Some("signal")));
    let (path, body) = answered.unwrap();
    let times = path
        .strip_prefix(&format!("/api/v1/flight/incidents/{id}/nodes/n1?part=window&times="))
        .unwrap_or_else(|| panic!("{path}"));
    let times: Vec<i64> = times.split(',').map(|time| time.parse().unwrap()).collect();
    // When the gateway asked, by its clock, and when the node heard that and answers, by its own.
    assert!(times.len() == 3 && times[0] == 7, "{times:?}");
    assert!((at_ns..=clock::now_ns()).contains(&times[1]) && times[1] <= times[2], "{times:?}");
    let kept = window(folder.path(), span, at_ns).unwrap();
    assert!(!kept.pieces.is_empty() && !kept.is_cut);
    assert_eq!(body, kept.pieces.concat());
}

#[test]
fn a_gateway_gets_no_time_that_an_incident_cannot_have_and_keeps_none_of_long_ago() {
    let folder = tempfile::tempdir().unwrap();
    let terms = FlightTerms::new(&FlightSettings::of(&[]).unwrap(), "n1", NO_FILES);
    let (beginning, begun) = sync_channel(8);
    let terms = FlightTerms { begun: Some(beginning), ..terms };
    let recorder = Arc::new(recorder(folder.path(), terms));
    let settings = FlightSettings::of(&[("flight.gateway", json!("http://127.0.0.1:1"))]).unwrap();
    let gateway = JobGateway::of(&settings).unwrap().unwrap();
    let (_silent, nothing) = sync_channel(1);
    let mut windows = JobWindows::new(gateway, "n1".to_owned(), Arc::clone(&recorder), nothing);
    let now_ns = clock::now_ns();
    let mut ask = |number: usize, at_ns: i64, from_ns: i64| {
        let mut trigger = json!({"kind": "xid", "gpu": null, "code": null, "detail": "", "rule": null});
        trigger["at_ns"] = json!(at_ns);
        let span = FlightSpan { from_ns, to_ns: at_ns };
        let id = format!("20261130T031459Z-xid-{number}");
        let data = json!({"id": id, "part": "window", "asked": span, "trigger": trigger, "by": "n2"});
        windows.take(&ServerEvent { kind: "request".to_owned(), data: data.to_string() }, now_ns);
        windows.asked.len()
    };
    assert_eq!(ask(2, now_ns, i64::MIN), 0, "all that the ring has");
    let long_ago_ns = now_ns - 2 * HOUR_NS;
    assert_eq!(ask(3, long_ago_ns, long_ago_ns), 1, "it is answered: the node has no rows");
    assert_eq!(ask(4, now_ns, now_ns - MINUTE_NS), 2);
    recorder.finish(Duration::from_mins(1));
    let kept: Vec<Option<String>> = begun.try_iter().map(|(_, trigger)| trigger.rule).collect();
    assert_eq!(kept, [Some("20261130T031459Z-xid-4".to_owned())]);
}

#[test]
fn a_token_that_cannot_be_read_is_known_before_the_gateway_is_reached() {
    let given = [
        ("flight.gateway", json!("http://127.0.0.1:1")),
        ("flight.gateway_token_file", json!("/nowhere/token")),
    ];
    let refused = JobGateway::of(&FlightSettings::of(&given).unwrap()).unwrap_err();
    assert!(causes(&refused).contains("flight.gateway_token_file: /nowhere/token"), "{refused}");
    assert!(JobGateway::of(&FlightSettings::of(&[]).unwrap()).unwrap().is_none());
}
