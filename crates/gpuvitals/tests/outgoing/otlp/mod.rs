//! Traces and metrics of real services, as a receiver of OTLP gets them.

mod process;
mod receiver;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpuvitals_rig::authority::CertificateAuthority;
use gpuvitals_rig::program::Finished as _;
use opentelemetry_proto::tonic::metrics::v1::metric;
use opentelemetry_proto::tonic::trace::v1::Span;

use process::{Service, agent, get, gpuvitals, value};
use receiver::{Received, Receiver, attribute, points, span_names};

const MESSAGE: &str =
    r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"gpu_id":1,"node":"n1","power_w":100}}"#;
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Often enough for a test.
fn sending(endpoint: &str) -> Vec<(&str, &str)> {
    vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), ("OTEL_METRIC_EXPORT_INTERVAL", "200")]
}

fn broker(environment: &[(&str, &str)]) -> (Service, String) {
    let broker = Service::start(environment, &["broker", "--port", "0"]);
    let http = format!("http{}", broker.says("queue: http"));
    (broker, http)
}

fn publish(http: &str) {
    let request = agent().post(format!("{http}/publish/t")).header("content-type", "application/json");
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let response = request.header("traceparent", parent).send(MESSAGE).unwrap();
    assert_eq!(response.status(), 200);
}

fn span<'a>(received: &'a Received, name: &str) -> &'a Span {
    let found = received.spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", span_names(received)))
}

fn figure(received: &Received, name: &str) -> Option<f64> {
    points(received.metrics.get(name)?).first().map(|(_, value)| *value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn a_brokers_metrics_are_those_of_its_page_and_its_spans_follow_the_publishers_trace() {
    let receiver = Receiver::start();
    let mut environment = sending(&receiver.url);
    environment.push(("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret,x-tenant=a"));
    environment.push(("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"));
    environment.push(("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:9/v1/metrics"));
    let (broker, http) = broker(&environment);
    publish(&http);
    publish(&http);
    let name = "gpuvitals_queue_published_messages_total";
    let received = receiver.until("the published messages", |received| figure(received, name) == Some(2.0));
    let page = get(&format!("{http}/metrics"));
    assert_eq!(value(&page, &format!("{name}{{topic=\"t\"}}")), 2.0);
    let metric = &received.metrics[name];
    assert_eq!(attribute(points(metric)[0].0, "topic"), Some("t"));
    assert!(matches!(metric.data.as_ref().unwrap(), metric::Data::Sum(sum) if sum.is_monotonic));
    let Some(metric::Data::Histogram(latency)) =
        &received.metrics["gpuvitals_queue_publish_duration_seconds"].data
    else {
        panic!("a histogram")
    };
    let by_http = latency.data_points.iter().find(|p| attribute(&p.attributes, "protocol") == Some("http"));
    assert_eq!(by_http.map(|point| (point.count, point.bucket_counts.iter().sum())), Some((2, 2)));
    // Every family of the page is exported under its name.
    for family in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let family = family.split(' ').next().unwrap();
        let has_series = page.lines().any(|line| line.starts_with(family));
        assert!(!has_series || received.metrics.contains_key(family), "{family} does not go out");
    }
    let resource = &received.resource.as_ref().unwrap().attributes;
    assert_eq!(attribute(resource, "service.name"), Some("gpuvitals-broker"));
    assert_eq!(attribute(resource, "service.version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(attribute(resource, "deployment.environment"), Some("test"));
    assert!(
        attribute(resource, "host.name").is_some() && attribute(resource, "service.instance.id").is_some()
    );

    let (code, log) = broker.process.terminated();
    assert_eq!(code, Some(0), "{log}");
    // The rest was sent before the end.
    let received = receiver.until("the spans", |received| span_names(received).contains(&"publish t"));
    let (request, publish) = (span(&received, "POST /publish/{topic}"), span(&received, "publish t"));
    assert_eq!(
        (hex(&request.trace_id), hex(&request.parent_span_id)),
        (TRACE.into(), "b7ad6b7169203331".into())
    );
    assert_eq!((&publish.trace_id, &publish.parent_span_id), (&request.trace_id, &request.span_id));
    assert!(publish.end_time_unix_nano >= publish.start_time_unix_nano);
    assert!(received.authorizations.iter().all(|header| header == "Bearer s3cret"), "{received:?}");
    assert!(log.contains("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") && log.contains("is not read"), "{log}");
    assert!(!log.contains("s3cret"));
}

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path).canonicalize().unwrap()
}

#[test]
fn an_agents_gpus_go_out_by_grpc_under_the_names_of_the_conventions() {
    let receiver = Receiver::start();
    let mut environment = sending(&receiver.url);
    environment.push(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"));
    environment.push(("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret"));
    let sysfs = fixture("amd/sysfs/vega56");
    let arguments =
        ["agent", "--node", "n1", "--port", "0", "--driver", "amd-sysfs", "--sysfs", sysfs.to_str().unwrap()];
    let agent = Service::start(&environment, &arguments);
    let url = agent.says("metrics: ");
    let received = receiver.until("a GPU's power", |received| received.metrics.contains_key("hw.power"));
    let page = get(&url);
    let (attributes, watts) = points(&received.metrics["hw.power"])[0];
    let id = attribute(attributes, "hw.id").unwrap();
    let series = page.lines().find(|line| line.starts_with("gpu_power_watts{") && line.contains(id)).unwrap();
    // The tree is a captured one: its power does not change.
    assert_eq!(series.rsplit(' ').next().unwrap().parse::<f64>().unwrap(), watts, "{series}");
    assert_eq!(attribute(attributes, "hw.type"), Some("gpu"));
    assert_eq!(attribute(attributes, "hw.vendor"), Some("amd"));
    assert_eq!(received.metrics["hw.power"].unit, "W");
    assert!(
        received.metrics.contains_key("hw.temperature")
            && received.metrics.contains_key("hw.gpu.memory.usage")
    );
    let resource = &received.resource.as_ref().unwrap().attributes;
    assert_eq!(attribute(resource, "host.name"), Some("n1"));
    assert!(received.authorizations.iter().all(|header| header == "Bearer s3cret"));
    let sent = "gpuvitals_otlp_points_sent_total";
    // Counts made after an answer are exported with the next request.
    receiver.until("a counted sending", |received| figure(received, sent).is_some_and(|count| count >= 1.0));
    assert_eq!(agent.terminate(), Some(0));
}

#[test]
fn a_batch_is_followed_from_its_receipt_to_its_acknowledgement_and_a_request_to_its_query() {
    let receiver = Receiver::start();
    let folder = tempfile::tempdir().unwrap();
    let mut environment = sending(&receiver.url);
    environment.extend([("GPUVITALS_BROKER_PORT", "0")]);
    let data = folder.path().to_str().unwrap();
    let arguments =
        ["up", "--port", "0", "--source", "simulated", "--gpus", "2", "--hosts", "1", "--data-dir", data];
    let up = Service::start(&environment, &arguments);
    let url = up.says("dashboard and API: ");
    let stored = "gpuvitals_collector_rows_stored_total";
    receiver.until("rows", |received| figure(received, stored).is_some_and(|rows| rows > 0.0));
    assert!(get(&format!("{url}api/v1/gpus")).contains("gpus"));
    assert!(value(&get(&format!("{url}metrics")), stored) > 0.0);
    assert_eq!(up.terminate(), Some(0));
    let received = receiver.until("the last spans", |received| span_names(received).contains(&"store.flush"));
    assert!(received.metrics.contains_key("gpuvitals_gateway_connections"), "the gateway's");
    assert!(received.metrics.contains_key("gpuvitals_queue_topics"), "the queue's");

    let ack = span(&received, "ack");
    let of_batch = |name: &str| {
        let child = received.spans.iter().find(|span| span.name == name && span.trace_id == ack.trace_id);
        child.unwrap_or_else(|| panic!("no {name} beside an ack"))
    };
    let batch = of_batch("collect");
    assert!(batch.parent_span_id.is_empty());
    for child in [of_batch("decode"), of_batch("store"), ack] {
        assert_eq!(child.parent_span_id, batch.span_id, "{}", child.name);
        assert!(batch.start_time_unix_nano <= child.start_time_unix_nano, "{}", child.name);
        assert!(child.end_time_unix_nano <= batch.end_time_unix_nano, "{}", child.name);
    }
    let (request, query) = (span(&received, "GET /api/v1/gpus"), span(&received, "query"));
    assert_eq!(query.parent_span_id, request.span_id);
    assert_eq!(attribute(&request.attributes, "http.route"), Some("/api/v1/gpus"));
    assert_eq!(attribute(&request.attributes, "gpuvitals.cache"), Some("miss"));
}

#[test]
fn a_frame_carries_its_trace_from_the_streamer_through_the_broker_to_the_collector() {
    let receiver = Receiver::start();
    let (broker, http) = broker(&sending(&receiver.url));
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("data.csv");
    std::fs::write(&csv, "timestamp,gpu_id,power_draw\n2026-01-01T00:00:00Z,0,100\n").unwrap();
    let data = folder.path().join("store");
    let collect = Service::start(
        &sending(&receiver.url),
        &["collect", "--api-port", "0", "--mq-url", &http, "--data-dir", data.to_str().unwrap()],
    );
    let consumers = "gpuvitals_queue_consumers";
    receiver.until("a consumer", |received| figure(received, consumers).is_some_and(|count| count >= 1.0));
    let stream = Service::start(
        &sending(&receiver.url),
        &["stream", "--csv", csv.to_str().unwrap(), "--once", "--mq-url", &http, "--metrics-port", "0"],
    );
    stream.says("sent 1 rows");
    assert_eq!(stream.ended(), Some(0));
    let stored = "gpuvitals_collector_rows_stored_total";
    receiver.until("the row", |received| figure(received, stored) == Some(1.0));
    assert_eq!(collect.terminate(), Some(0));
    assert_eq!(broker.terminate(), Some(0));
    let names = ["send", "publish gpu-telemetry", "collect"];
    let is_there = |received: &Received| names.iter().all(|name| span_names(received).contains(name));
    let received = receiver.until("the spans of all three", is_there);
    let [sent, published, collected] = names.map(|name| span(&received, name));
    for behind in [published, collected] {
        assert_eq!(
            (&behind.trace_id, &behind.parent_span_id),
            (&sent.trace_id, &sent.span_id),
            "{}",
            behind.name
        );
    }
    assert_eq!(figure(&received, "gpuvitals_source_rows_total"), Some(1.0));
}

#[test]
fn a_collectors_gpus_go_out_under_the_names_of_the_conventions_with_the_times_of_their_values() {
    let receiver = Receiver::start();
    let (broker, http) = broker(&[]);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let collect = Service::start(
        &sending(&receiver.url),
        &["collect", "--api-port", "0", "--mq-url", &http, "--data-dir", data],
    );
    collect.says("collector API");
    let at_ns = gpuvitals_core::clock::now_ns() / 1_000_000 * 1_000_000 - 2_000_000_000;
    let at = gpuvitals_core::time::format(at_ns);
    let message = format!(
        r#"{{"timestamp":"{at}","fields":{{"gpu_id":1,"uuid":"GPU-x","node":"n1","power_w":100.5}}}}"#
    );
    let post = agent().post(format!("{http}/publish/gpu-telemetry"));
    assert_eq!(post.header("content-type", "application/json").send(&message).unwrap().status(), 200);
    let received = receiver.until("a GPU's power", |received| received.metrics.contains_key("hw.power"));
    let Some(metric::Data::Gauge(gauge)) = &received.metrics["hw.power"].data else { panic!("a gauge") };
    let point = &gauge.data_points[0];
    assert_eq!(i64::try_from(point.time_unix_nano).unwrap(), at_ns);
    let attributes = &point.attributes;
    assert_eq!(
        (attribute(attributes, "hw.id"), attribute(attributes, "hw.type")),
        (Some("GPU-x"), Some("gpu"))
    );
    assert_eq!(points(&received.metrics["hw.power"])[0].1, 100.5);
    assert_eq!(collect.terminate(), Some(0));
    assert_eq!(broker.terminate(), Some(0));
}

#[test]
fn one_trace_follows_an_agents_rows_from_its_spool_through_the_broker_to_the_store() {
    let receiver = Receiver::start();
    let (broker, http) = broker(&sending(&receiver.url));
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let collect = Service::start(
        &sending(&receiver.url),
        &["collect", "--api-port", "0", "--mq-url", &http, "--data-dir", data],
    );
    let mut environment = sending(&receiver.url);
    environment.push(("GPUVITALS_AGENT_PUBLISH_INTERVAL", "200ms"));
    let arguments = ["agent", "--node", "n1", "--port", "0", "--driver", "simulated", "--mq-url", &http];
    let agent = Service::start(&environment, &arguments);
    let stored = "gpuvitals_collector_rows_stored_total";
    receiver.until("stored rows", |received| figure(received, stored).is_some_and(|rows| rows >= 8.0));
    for service in [agent, collect, broker] {
        assert_eq!(service.terminate(), Some(0));
    }
    let names = ["send", "publish gpu-telemetry", "collect", "decode", "store", "ack"];
    let whole = |received: &Received| {
        let has = |trace: &[u8], name: &&str| {
            received.spans.iter().any(|span| span.name == *name && span.trace_id == trace)
        };
        let sent = received
            .spans
            .iter()
            .find(|sent| sent.name == "send" && names.iter().all(|name| has(&sent.trace_id, name)));
        sent.cloned()
    };
    let received = receiver.until("a whole trace", |received| whole(received).is_some());
    let sent = whole(&received).unwrap();
    let of_trace = |name: &str| {
        received.spans.iter().find(|span| span.name == name && span.trace_id == sent.trace_id).unwrap()
    };
    assert!(sent.parent_span_id.is_empty(), "it begins where the agent sends");
    for behind in ["publish gpu-telemetry", "collect"] {
        assert_eq!(of_trace(behind).parent_span_id, sent.span_id, "{behind}");
    }
    for inside in ["decode", "store", "ack"] {
        assert_eq!(of_trace(inside).parent_span_id, of_trace("collect").span_id, "{inside}");
    }
    assert!(sent.start_time_unix_nano <= of_trace("store").end_time_unix_nano);
}

#[test]
fn nothing_waits_for_a_receiver_that_is_away_or_hangs() {
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (address, protocol) in
        [(hanging.local_addr().unwrap(), "http/protobuf"), (gone, "http/protobuf"), (gone, "grpc")]
    {
        let endpoint = format!("http://{address}");
        let mut environment = sending(&endpoint);
        environment.push(("OTEL_EXPORTER_OTLP_PROTOCOL", protocol));
        environment.push(("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"));
        let (broker, http) = broker(&environment);
        broker.says("the OTLP receiver does not accept data");
        let began = Instant::now();
        for _ in 0..20 {
            publish(&http);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "publishing does not wait");
        assert!(value(&get(&format!("{http}/metrics")), "gpuvitals_otlp_failures_total") >= 1.0);
        let began = Instant::now();
        assert_eq!(broker.terminate(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(10), "the end does not wait");
    }
}

#[test]
fn over_tls_the_authority_of_the_settings_is_believed_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, stranger) = (CertificateAuthority::new(), CertificateAuthority::new());
    let ca = authority.file(folder.path().join("ca.pem"));
    let other = stranger.file(folder.path().join("other.pem"));
    let receiver = Receiver::behind_tls(&authority.sign("127.0.0.1", folder.path()));
    for protocol in ["http/protobuf", "grpc"] {
        let start = |ca: &Path| {
            let mut environment = sending(&receiver.url);
            environment.push(("OTEL_EXPORTER_OTLP_PROTOCOL", protocol));
            environment.push(("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.to_str().unwrap()));
            environment.push(("OTEL_SERVICE_NAME", protocol));
            broker(&environment)
        };
        let (broker, _) = start(&ca);
        receiver.until(protocol, |received| {
            let resource = received.resource.as_ref().map(|resource| resource.attributes.as_slice());
            resource.and_then(|attributes| attribute(attributes, "service.name")) == Some(protocol)
        });
        assert_eq!(broker.terminate(), Some(0));
        let (broker, _) = start(&other);
        broker.says("the OTLP receiver does not accept data");
        assert_eq!(broker.terminate(), Some(0));
    }
}

#[test]
fn a_receiver_without_traces_gets_the_metrics() {
    let receiver = Receiver::start();
    receiver.refuse("/v1/traces", 404, None, 1_000);
    let (broker, http) = broker(&sending(&receiver.url));
    broker.says("queue: http");
    // A span waits whenever the metrics are due.
    for round in 1..=20 {
        publish(&http);
        let name = "gpuvitals_queue_published_messages_total";
        receiver.until("a new count", |received| figure(received, name) == Some(f64::from(round)));
    }
    receiver.until("dropped spans", |received| {
        let dropped = received.metrics.get("gpuvitals_otlp_spans_dropped_total").map(points);
        let not_taken = |(labels, spans)| attribute(labels, "reason") == Some("not_taken") && spans >= 1.0;
        dropped.into_iter().flatten().any(not_taken)
    });
    assert_eq!(broker.terminate(), Some(0));
    assert!(receiver.until("a try", |received| !received.requests.is_empty()).spans.is_empty());
}

#[test]
fn what_was_not_taken_comes_when_the_receiver_wants_it_with_all_values_of_the_time_between() {
    let receiver = Receiver::start();
    receiver.refuse("/v1/metrics", 429, Some(3), 1);
    receiver.refuse("/v1/traces", 429, Some(4), 1);
    let (broker, http) = broker(&sending(&receiver.url));
    publish(&http);
    let received =
        receiver.until("spans", |received| !received.spans.is_empty() && received.times.len() >= 10);
    for (path, wanted) in [("/v1/traces", 4), ("/v1/metrics", 3)] {
        let times: Vec<_> =
            received.requests.iter().filter(|(to, _)| *to == path).map(|(_, at)| *at).collect();
        assert!(times[1] - times[0] >= Duration::from_secs(wanted), "{path}: it asked for so much");
    }
    assert!(span_names(&received).contains(&"publish t"), "nothing is lost");
    // Of every interval, though none was taken for 3 s.
    let gaps = received.times.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0]));
    assert!(gaps.clone().all(|gap| gap < Duration::from_secs(2)), "{:?}", gaps.collect::<Vec<_>>());
    assert_eq!(broker.terminate(), Some(0));
}

#[test]
fn a_request_that_a_receiver_will_never_take_is_dropped_and_counted() {
    let receiver = Receiver::start();
    receiver.refuse("/v1/metrics", 400, None, 1);
    let (broker, _) = broker(&sending(&receiver.url));
    receiver.until("dropped points", |received| {
        let dropped = received.metrics.get("gpuvitals_otlp_points_dropped_total").map(points);
        let not_taken = |(labels, count)| attribute(labels, "reason") == Some("not_taken") && count >= 1.0;
        dropped.into_iter().flatten().any(not_taken)
    });
    assert_eq!(broker.terminate(), Some(0));
}

#[test]
fn scrapes_and_the_collectors_requests_are_part_of_the_trace_they_name() {
    let receiver = Receiver::start();
    let folder = tempfile::tempdir().unwrap();
    let (sysfs, data) = (fixture("amd/sysfs/vega56"), folder.path().to_str().unwrap().to_owned());
    let long = "x".repeat(2_000);
    let nobody = "grpc://127.0.0.1:1";
    let scraped = ["agent", "--port", "0", "--driver", "amd-sysfs", "--sysfs", sysfs.to_str().unwrap()];
    let collector = ["collect", "--api-port", "0", "--mq-url", nobody, "--data-dir", &data];
    for (arguments, beginning, path, name) in [
        (&scraped, "metrics: ", "", "GET /metrics"),
        (&collector, "collector API: ", "stats", "GET /stats"),
        (&collector, "collector API: ", &long, "GET"),
    ] {
        let service = Service::start(&sending(&receiver.url), arguments);
        let url = service.says(beginning) + path;
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let status = agent().get(&url).header("traceparent", parent).call().unwrap().status().as_u16();
        assert_eq!(service.terminate(), Some(0));
        let received = receiver.until(name, |received| span_names(received).contains(&name));
        let request = span(&received, name);
        assert_eq!(
            (hex(&request.trace_id), hex(&request.parent_span_id)),
            (TRACE.into(), "b7ad6b7169203331".into())
        );
        let asked = attribute(&request.attributes, "url.path").unwrap();
        assert!(asked.starts_with('/') && asked.len() <= 256, "{asked}");
        assert_eq!(status, if name == "GET" { 404 } else { 200 });
    }
}

#[test]
fn spans_beyond_the_bound_are_dropped_and_counted() {
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", hanging.local_addr().unwrap());
    let (broker, http) = broker(&sending(&endpoint));
    let dropped = "gpuvitals_otlp_spans_dropped_total{reason=\"no_room\"}";
    let client = agent();
    let page = || client.get(format!("{http}/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    // Each request is a span, and none is exported.
    let text = (0..5_000).map(|_| page()).find(|text| value(text, dropped) > 0.0).unwrap();
    assert!(value(&text, "gpuvitals_otlp_spans_waiting") <= 2048.0, "{text}");
    drop(broker);
}

#[test]
fn nothing_is_sent_unless_asked_for() {
    let receiver = Receiver::start();
    for (name, text) in [("OTEL_SDK_DISABLED", "true"), ("GPUVITALS_OTLP_ENDPOINT", "")] {
        let mut environment = sending(&receiver.url);
        environment.push((name, text));
        let (broker, http) = broker(&environment);
        publish(&http);
        assert!(!get(&format!("{http}/metrics")).contains("otlp"), "{name}");
        assert_eq!(broker.terminate(), Some(0));
    }
    let mut environment = sending(&receiver.url);
    environment
        .extend([("OTEL_TRACES_SAMPLER", "always_off"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=q")]);
    let (broker, http) = broker(&environment);
    publish(&http);
    assert_eq!(broker.terminate(), Some(0));
    let received = receiver.until("the last metrics", |received| !received.metrics.is_empty());
    assert_eq!(span_names(&received), [""; 0]);
    assert_eq!(attribute(&received.resource.unwrap().attributes, "service.name"), Some("q"));
}

#[test]
fn what_cannot_be_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("headers");
    std::fs::write(&open, "authorization: Bearer s3cret\n").unwrap();
    let file = open.to_str().unwrap();
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    for (environment, words) in [
        (vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")], "otlp.endpoint: \"localhost:4317\""),
        (vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:s3cret@h:4318")], "a secret does not stand in a URL"),
        (vec![("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")], "\"http/json\" is none of http/protobuf, grpc"),
        (vec![("OTEL_TRACES_SAMPLER_ARG", "1.5")], "otlp.sampler_arg: 1.5 is out of range"),
        (vec![("OTEL_TRACES_SAMPLER", "sometimes")], "\"sometimes\" is none of always_on"),
        (vec![("OTEL_RESOURCE_ATTRIBUTES", "team")], "otlp.resource_attributes: \"team\" is no pair"),
        (vec![endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")], "write NAME=VALUE"),
        (vec![endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cret")], "is no header"),
        (vec![endpoint, ("GPUVITALS_OTLP_HEADERS_FILE", file)], "others could read the secret"),
    ] {
        let output = gpuvitals(&environment, &["broker", "--port", "0"]).finished().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{environment:?}: {text}");
        assert!(text.contains(words), "{environment:?}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
