//! `pods/exec` over a WebSocket: a byte of channel before each frame, a status at the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::answers;
use super::reply::{Reply, failure, params, status};
use super::world::{Behaviour, NodeSpec, PodSpec, World};

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
/// Lengths of frames: a byte, odd ones, and one beyond the client's usual pipe.
const CUTS: [usize; 4] = [1, 13, 1021, 4099];

/// Execs that run now.
#[derive(Debug, Default)]
pub(super) struct RunningExecs(Mutex<ExecCounts>);

#[derive(Debug, Default)]
struct ExecCounts {
    by_pod: BTreeMap<String, usize>,
    /// Most at once: in one pod, and in all.
    most: (usize, usize),
}

impl RunningExecs {
    fn begin(&self, pod: &str) {
        let mut counts = self.0.lock().unwrap();
        let here = counts.by_pod.entry(pod.to_owned()).or_default();
        *here += 1;
        let here = *here;
        let all: usize = counts.by_pod.values().sum();
        counts.most = (counts.most.0.max(here), counts.most.1.max(all));
    }

    fn end(&self, pod: &str) {
        if let Some(count) = self.0.lock().unwrap().by_pod.get_mut(pod) {
            *count -= 1;
        }
    }

    /// In one pod, and in all.
    pub(super) fn most_at_once(&self) -> (usize, usize) {
        self.0.lock().unwrap().most
    }
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Refuses, or switches protocols and runs the exec beside.
pub(super) fn answer(world: &World, running: &Arc<RunningExecs>, request: Request<Incoming>) -> Reply {
    let path = request.uri().path();
    let pod = path.rsplit('/').nth(1).unwrap_or_default().to_owned();
    // Since 1.35 a WebSocket needs the right to get (its method) and to create (what it does).
    for verb in ["get", "create"] {
        if world.forbidden.contains(verb) {
            let message = format!(
                "pods \"{pod}\" is forbidden: User \"gpuvitals\" cannot {verb} resource \"pods/exec\""
            );
            return failure(403, "Forbidden", &message);
        }
    }
    let is_here = path == format!("{}/{pod}/exec", world.pods_path());
    let mut there = world.nodes.iter().filter(|spec| is_here && spec.behaviour != Behaviour::Gone);
    let found = there.find_map(|spec| Some((spec.clone(), spec.pods().find(|one| one.name == pod)?)));
    let Some((spec, PodSpec { container, .. })) = found else {
        return failure(404, "NotFound", &format!("pods \"{pod}\" not found"));
    };
    let params = params(request.uri().query().unwrap_or_default());
    let all = |name: &str| {
        params.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    if all("container").first().map(String::as_str) != Some(container) {
        return failure(400, "BadRequest", &format!("a container name must be specified for pod {pod}"));
    }
    let offered = header(&request, SEC_WEBSOCKET_PROTOCOL.as_str());
    let protocol =
        world.protocols.iter().find(|known| offered.split(',').any(|offer| offer.trim() == **known));
    let (Some(protocol), false) = (protocol, header(&request, SEC_WEBSOCKET_KEY.as_str()).is_empty()) else {
        return failure(400, "BadRequest", "unable to upgrade: no known subprotocol");
    };
    let accept = derive_accept_key(header(&request, SEC_WEBSOCKET_KEY.as_str()).as_bytes());
    let (running, command) = (Arc::clone(running), all("command"));
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            running.begin(&pod);
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            run(socket, &spec, &command).await;
            running.end(&pod);
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(UPGRADE, "websocket")
        .header(CONNECTION, "Upgrade")
        .header(SEC_WEBSOCKET_ACCEPT, accept)
        .header(SEC_WEBSOCKET_PROTOCOL, *protocol)
        .body(Full::new(Bytes::new()))
        .unwrap()
}

fn header(request: &Request<Incoming>, name: &str) -> String {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Runs until the answer is out or the client has gone.
async fn run(socket: Socket, spec: &NodeSpec, command: &[String]) {
    let (mut sink, mut stream) = socket.split();
    let talk = async {
        // A failure to send is a client that has gone.
        for channel in [STDOUT, STDERR] {
            sink.send(frame(channel, b"")).await?;
        }
        let (output, code) = answers::answer(spec, command);
        match spec.behaviour {
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Drip => {
                for byte in output.iter().cycle() {
                    sink.send(frame(STDOUT, &[*byte])).await?;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            Behaviour::Flood => {
                for _ in 0..64 {
                    sink.send(frame(STDOUT, &vec![b'x'; 64 << 10])).await?;
                }
            }
            Behaviour::Cut => {
                let (half, _) = output.split_at(output.len() / 2);
                return sink.send(frame(STDOUT, half)).await;
            }
            Behaviour::NoTool | Behaviour::Internal => {}
            _ => {
                let mut rest = output.as_slice();
                for len in CUTS.iter().cycle() {
                    let (piece, after) = rest.split_at((*len).min(rest.len()));
                    sink.send(frame(STDOUT, piece)).await?;
                    sink.send(frame(STDERR, b"a warning of the driver\n")).await?;
                    rest = after;
                    if rest.is_empty() {
                        break;
                    }
                }
            }
        }
        if spec.behaviour != Behaviour::NoStatus {
            let status = status_of(spec.behaviour, code).to_string();
            sink.send(frame(STATUS, status.as_bytes())).await?;
        }
        // As a server ends it: kubectl calls an end without a code an error.
        sink.send(Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))).await
    };
    tokio::select! {
        _ = talk => {}
        // The client says nothing; its end is the end.
        () = async { while stream.next().await.is_some_and(|message| message.is_ok()) {} } => {}
    }
}

fn frame(channel: u8, bytes: &[u8]) -> Message {
    let mut framed = vec![channel];
    framed.extend_from_slice(bytes);
    Message::binary(framed)
}

fn status_of(behaviour: Behaviour, code: i32) -> Value {
    let internal = |message: &str| status("Failure", "InternalError", message, 500);
    match (behaviour, code) {
        (Behaviour::NoTool, _) => internal(
            "error executing command in container: OCI runtime exec failed: exec failed: unable to start container process: exec: \"nvidia-smi\": executable file not found in $PATH",
        ),
        (Behaviour::Internal, _) => {
            internal("error executing command in container: container is not running")
        }
        (_, 0) => json!({"metadata": {}, "status": "Success"}),
        (_, code) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
    }
}
