//! What strangers send to a service that more than this machine can reach: each is refused within the limits, and others are served
//! meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::access::token;
use crate::program::Process;
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
        ("DELETE /api/v1/analysis/acknowledgements?finding=x HTTP/1.1\r\nauthorization: Bearer TOKEN", 403),
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
