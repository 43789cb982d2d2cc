//! What strangers send to a service that more than this machine can reach: each is refused within the limits, and others are served
//! meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gpuvitals_core::clock;
use gpuvitals_rig::program::{Finished as _, Process};

use crate::access::token;
use crate::site::{Gateway, start_with};

/// Longest wait for the next bytes of an answer, however busy the machine is: far below the time for which the slow are waited for.
const PROMPTLY: Duration = Duration::from_secs(20);

/// A whole platform on all addresses, with a token that may read and one that may publish.
struct Target {
    gateway: Gateway,
    _broker: Process,
    /// Where it listens, on this machine.
    address: String,
    queue: String,
    reader: String,
    publisher: String,
    _folder: tempfile::TempDir,
}

impl Target {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let tokens = at("tokens");
        let [reader, publisher] =
            ["read", "publish"].map(|scope| token(&tokens, &format!("a-{scope}"), scope));
        let guard = ["--listen", "0.0.0.0", "--token-file", &tokens];
        let up = ["up", "--source", "simulated", "--gpus", "8", "--port", "0", "--data-dir", &at("data")];
        let gateway = Gateway::of(start_with(&[&up[..], &guard].concat(), &[]));
        let address = gateway.url.replace("http://", "").replace("0.0.0.0", "127.0.0.1");
        let broker = start_with(&[&["broker", "--port", "0"][..], &guard].concat(), &[]);
        let queue = broker.says("queue: http");
        let (_, queue) = queue.split_once("http://").unwrap();
        let queue = queue.split(['/', '"', ' ']).next().unwrap().replace("0.0.0.0", "127.0.0.1");
        Self { gateway, _broker: broker, address, queue, reader, publisher, _folder: folder }
    }

    fn connect(address: &str) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PROMPTLY)).unwrap();
        stream.set_write_timeout(Some(PROMPTLY)).unwrap();
        stream
    }

    /// Sends these bytes and says what comes back until the connection ends or an answer is there.
    fn raw(address: &str, bytes: &[u8]) -> String {
        let mut stream = Self::connect(address);
        // Who is refused early may find the connection closed.
        let _cut = stream.write_all(bytes);
        let mut said = Vec::new();
        let _reset = stream.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    }

    /// A request that ends its connection.
    fn request(&self, head: &str) -> String {
        let head = head.replace("TOKEN", &self.reader);
        Self::raw(&self.address, format!("{head}\r\nhost: h\r\nconnection: close\r\n\r\n").as_bytes())
    }

    /// Somebody else is served.
    fn serves(&self) {
        let said = self.request("GET /api/v1/gpus HTTP/1.1\r\nauthorization: Bearer TOKEN");
        assert_eq!(status(&said), 200, "{said}");
    }
}

fn status(said: &str) -> u16 {
    said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

#[test]
fn who_has_no_token_or_the_wrong_one_gets_nothing() {
    let target = Target::new();
    for (head, expected) in [
        ("GET /api/v1/gpus HTTP/1.1", 401),
        ("GET /api/v1/gpus HTTP/1.1\r\nauthorization: Bearer wrong", 401),
        ("GET /api/v1/stream HTTP/1.1", 401),
        ("GET /stats HTTP/1.1", 401),
        ("DELETE /api/v1/analysis/silences?finding=x HTTP/1.1\r\nauthorization: Bearer TOKEN", 403),
        // Paths that lead out of the page's files, plain and written otherwise.
        ("GET /../../../../etc/passwd HTTP/1.1\r\nauthorization: Bearer TOKEN", 404),
        ("GET /%2e%2e/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nauthorization: Bearer TOKEN", 404),
        ("GET /assets/..%2f..%2f..%2fetc%2fpasswd HTTP/1.1\r\nauthorization: Bearer TOKEN", 404),
        ("GET /api/v1/gpus/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nauthorization: Bearer TOKEN", 404),
        // A line end in a name that an answer repeats must not become a header.
        ("GET /api/v1/gpus/a%0d%0aset-cookie:%20evil=1 HTTP/1.1\r\nauthorization: Bearer TOKEN", 404),
        ("GET /api/v1/gpus?sort=a%0d%0aset-cookie:%20evil=1 HTTP/1.1\r\nauthorization: Bearer TOKEN", 400),
        (
            "GET /api/v1/gpus HTTP/1.1\r\nauthorization: Bearer TOKEN\r\nx-request-id: a\x01set-cookie: evil=1",
            400,
        ),
    ] {
        let said = target.request(head);
        assert_eq!(status(&said), expected, "{head}: {said}");
        assert!(!said.contains("root:"), "{head}: {said}");
        let (headers, _) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
        assert!(!headers.to_ascii_lowercase().contains("set-cookie"), "{head}: {said}");
    }
    let head = format!("GET /api/v1/gpus HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "a".repeat(64 << 10));
    let said = Target::raw(&target.address, head.as_bytes());
    assert_eq!(status(&said), 431, "{said}");
    target.serves();
}

#[test]
fn who_sends_slowly_too_much_or_a_bomb_holds_up_nobody() {
    let target = Target::new();
    // Heads that never end, and a body that never does, in many connections.
    let mut slow: Vec<TcpStream> = Vec::new();
    for number in 0..500 {
        let address = if number % 2 == 0 { &target.address } else { &target.queue };
        let mut stream = Target::connect(address);
        stream.write_all(b"POST /api/v1/messages HTTP/1.1\r\nhost: h\r\nx-slow: a").unwrap();
        slow.push(stream);
    }
    target.serves();

    // A hundred megabytes, announced and in chunks: the answer comes before they do.
    let login = format!("authorization: Bearer {}\r\ncontent-type: application/json", target.publisher);
    let query =
        format!("authorization: Bearer {}\r\ncontent-type: application/x-www-form-urlencoded", target.reader);
    for (address, path, login) in [
        (&target.address, "/api/v1/prom/api/v1/query", &query),
        (&target.queue, "/publish/gpu-telemetry", &login),
    ] {
        let announced =
            format!("POST {path} HTTP/1.1\r\nhost: h\r\n{login}\r\ncontent-length: 104857600\r\n\r\n");
        let said = Target::raw(address, announced.as_bytes());
        assert_eq!(status(&said), 413, "{path}: {said}");
        let mut chunked =
            format!("POST {path} HTTP/1.1\r\nhost: h\r\n{login}\r\ntransfer-encoding: chunked\r\n\r\n")
                .into_bytes();
        let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 1 << 16], b"\r\n"].concat();
        (0..1_600).for_each(|_| chunked.extend_from_slice(&chunk));
        let said = Target::raw(address, &chunked);
        assert!(said.is_empty() || [400, 413].contains(&status(&said)), "{path}: {said}");
        target.serves();
    }

    // A hundred megabytes of blanks, packed to half of one.
    // A member of gzip follows another.
    let mut mebibyte = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    mebibyte.write_all(&vec![b' '; 1 << 20]).unwrap();
    let packed = mebibyte.finish().unwrap().repeat(100);
    let length = packed.len();
    let head = format!(
        "POST /publish/gpu-telemetry HTTP/1.1\r\nhost: h\r\n{login}\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    let said = Target::raw(&target.queue, &[head.as_bytes(), &packed].concat());
    assert_eq!(status(&said), 413, "{said}");

    // Queries that would take for ever.
    for bomb in
        ["sum_over_time(vector(1)[1000d:1s])", &"(".repeat(5_000), "max_over_time(gpu_power_watts[5m:0])"]
    {
        let bomb = bomb.replace('[', "%5B").replace(']', "%5D").replace('(', "%28").replace(')', "%29");
        let said = target.request(&format!(
            "GET /api/v1/prom/api/v1/query?query={bomb} HTTP/1.1\r\nauthorization: Bearer TOKEN"
        ));
        assert!([400, 422].contains(&status(&said)), "{said}");
    }
    target.serves();
    drop(slow);
    let (code, said) = target.gateway.process.terminated();
    assert_eq!(code, Some(0), "{said}");
}

/// The status of an answer to a request for a host, and its body; `is_h2`: over HTTP/2.
fn addressed(url: &str, host: &str, is_h2: bool, more: &[&str]) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "-w", "\n%{http_code}", "-H", &format!("host: {host}")]);
    curl.args(more).arg(url).args(is_h2.then_some("--http2-prior-knowledge"));
    let said = curl.finished().unwrap();
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// Where a service listens, by the line that says so.
fn served(process: &Process, words: &str) -> String {
    let line = process.says(words);
    let at = line.find("127.0.0.1:").unwrap();
    format!("http://{}", line[at..].split(['/', '"', ' ']).next().unwrap())
}

const GRPC: &[&str] = &["-X", "POST", "-H", "content-type: application/grpc", "-H", "te: trailers"];

/// A request: its URL, and the options that curl needs for it.
type Request = (String, &'static [&'static str]);

/// One of each service that is not `up`, with these settings, and requests that each of them answers.
fn services(folder: &Path, environment: &[(&str, &str)]) -> (Vec<Process>, Vec<Request>) {
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let start = |arguments: &[&str]| start_with(arguments, environment);
    let broker = start(&["broker", "--port", "0"]);
    let queue = served(&broker, "queue: http");
    let sysfs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/amd/sysfs/vega56");
    let agent = start(&["agent", "--driver", "amd-sysfs", "--sysfs", sysfs, "--port", "0"]);
    let collect = start(&["collect", "--api-port", "0", "--mq-url", &queue, "--data-dir", &at("collect")]);
    let collector = served(&collect, "collector API: http");
    std::fs::write(at("rows.csv"), "timestamp,gpu_id,temperature\n2026-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    let stream = start(&["stream", "--metrics-port", "0", "--mq-url", &queue, "--csv", &at("rows.csv")]);
    let serve = start(&["serve", "--port", "0", "--collectors", &collector, "--mq-url", &queue]);
    let serve = Gateway::of(serve);
    serve.until("/api/v1/gpus", "the collector's GPU", |said| said.json["total"] == 1);
    let mut asked = Vec::new();
    let mut ask = |url: &str, paths: &[&str], more: &'static [&'static str]| {
        asked.extend(paths.iter().map(|path| (format!("{url}{path}"), more)));
    };
    ask(&queue, &["/stats", "/metrics", "/healthz"], &[]);
    ask(&queue, &["/gpuvitals.queue.v1.Queue/Publish"], GRPC);
    ask(&served(&agent, "metrics: http"), &["/metrics", "/health"], &[]);
    ask(&collector, &["/telemetry/gpu_0", "/stats", "/metrics", "/healthz"], &[]);
    ask(&collector, &["/gpuvitals.history.v1.History/Fleet"], GRPC);
    ask(&served(&stream, "metrics: http"), &["/metrics", "/healthz"], &[]);
    ask(&serve.url, &["/", "/api/v1/gpus", "/api/v1/stream", "/metrics", "/readyz"], &[]);
    (vec![broker, agent, collect, stream, serve.process], asked)
}

#[test]
fn who_points_a_name_at_loopback_gets_nothing_from_any_service() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let environment =
        [("GPUVITALS_LISTENER_HOSTS", "gpu.example.org,other.example"), ("GPUVITALS_BROKER_PORT", "0")];
    let up =
        ["up", "--source", "simulated", "--gpus", "2", "--port", "0", "--data-dir", data.to_str().unwrap()];
    let gateway = Gateway::of(start_with(&up, &environment));
    let (_services, mut asked) = services(folder.path(), &environment);
    let beside = served(&gateway.process, "the queue is served");
    let paths =
        ["/", "/api/v1/gpus", "/api/v1/stream", "/api/v1/queue/stats", "/metrics", "/health", "/readyz"];
    asked.extend(paths.map(|path| (format!("{}{path}", gateway.url), &[][..])));
    asked.push((format!("{}/gpuvitals.history.v1.History/Fleet", gateway.url), GRPC));
    asked.extend(["/stats", "/metrics", "/healthz"].map(|path| (format!("{beside}{path}"), &[][..])));
    asked.push((format!("{beside}/gpuvitals.queue.v1.Queue/Publish"), GRPC));
    for (url, more) in &asked {
        for host in ["evil.example", "localhost.evil.example:8081", "127.0.0.1.evil.example"] {
            for is_h2 in [false, true] {
                let (status, body) = addressed(url, host, is_h2 || more.len() > 1, more);
                assert_eq!(status, 421, "{url} for {host}: {body}");
                assert!(!more.is_empty() || body.contains("listener.hosts"), "{url}: {body}");
            }
        }
        let name = url.trim_start_matches("http://").split('/').next().unwrap();
        for host in [name, "localhost", "a.localhost:1", "[::1]", "gpu.example.org", "OTHER.example.:8081"] {
            if !url.ends_with("/stream") {
                let (status, body) = addressed(url, host, !more.is_empty(), more);
                assert_eq!(status, 200, "{url} for {host}: {body}");
            }
        }
    }
    let address = gateway.url.trim_start_matches("http://");
    for hosts in ["", "host: localhost\r\nhost: localhost\r\n", "host:\r\n"] {
        let said = Target::raw(
            address,
            format!("GET /api/v1/gpus HTTP/1.1\r\n{hosts}connection: close\r\n\r\n").as_bytes(),
        );
        assert_eq!(status(&said), 400, "{hosts}: {said}");
    }
    // Beyond the name of the header, the target of the request counts.
    let said = Target::raw(
        address,
        b"GET http://evil.example/api/v1/gpus HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(status(&said), 421, "{said}");
}

#[test]
fn who_sends_patterns_that_grow_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up =
        ["up", "--source", "simulated", "--gpus", "2", "--port", "0", "--data-dir", data.to_str().unwrap()];
    let gateway = Gateway::of(start_with(&up, &[("GPUVITALS_BROKER_PORT", "0")]));
    let address = gateway.url.trim_start_matches("http://");
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let form = |path: &str, body: &str| {
        let length = body.len();
        let kind = "application/x-www-form-urlencoded";
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    let many = |count: usize| vec!["pod=~.{0,300}"; count].join(";");
    let selector = format!("gpu_power_watts{{{}}}", vec!["pod=~\".{0,300}\""; 60].join(","));
    let prom = "/api/v1/prom/api/v1";
    let hostile = [
        // More than there may be; as many; and one that grows by itself.
        get(&format!("/api/v1/gpus?where={}", many(620))),
        get(&format!("/api/v1/gpus?where={}", many(32))),
        get(&format!("/api/v1/query?metrics=power_w&where={}", many(32))),
        get(&format!("/api/v1/telemetry?where={}", many(32))),
        get("/api/v1/gpus?where=pod=~((a{100}){100}){100}"),
        form(
            &format!("{prom}/query"),
            &format!("query={}", selector.replace('{', "%7B").replace('}', "%7D")),
        ),
        form(&format!("{prom}/series"), &format!("match[]={selector}&").repeat(50)),
    ];
    for request in &hostile {
        let said = Target::raw(address, request.as_bytes());
        assert!([400, 422].contains(&status(&said)), "{request}: {said}");
    }
    std::thread::scope(|scope| {
        let senders = [0; 8].map(|_| {
            scope.spawn(|| {
                for request in hostile.iter().take(4) {
                    let said = Target::raw(address, request.as_bytes());
                    assert!([400, 422].contains(&status(&said)), "{request}: {said}");
                }
            })
        });
        while senders.iter().any(|sender| !sender.is_finished()) {
            let asked = clock::instant();
            let said = Target::raw(address, get("/healthz").as_bytes());
            assert_eq!(status(&said), 200, "{said}");
            assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        }
    });
    // What a question usually asks for is answered.
    for usual in ["pod=~train-.*;namespace!~kube-.*|default", r"node=~sim-node-\d+;model=~.*(?:H100|MI300).*"]
    {
        let said = Target::raw(
            address,
            get(&format!("/api/v1/gpus?where={}", usual.replace('\\', "%5C"))).as_bytes(),
        );
        assert_eq!(status(&said), 200, "{usual}: {said}");
    }
}
