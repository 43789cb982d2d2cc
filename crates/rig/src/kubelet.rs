//! A kubelet's pod-resources socket, as far as an agent asks it: pods, and the GPUs that they hold.
//!
//! gRPC as it is on the wire, and messages written by hand: so a client is not tested against code of its own kind.

use std::convert::Infallible;
use std::path::Path;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::sync::oneshot;

/// A pod with one container that holds devices.
#[derive(Debug, Clone, Copy)]
pub struct HoldingPod<'a> {
    /// Name of the pod.
    pub name: &'a str,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// What the device plugin calls its devices: `amd.com/gpu`.
    pub resource: &'a str,
    /// Ids of the devices that it holds.
    pub devices: &'a [&'a str],
}

/// A kubelet that answers every request with the same pods, until it is dropped.
#[derive(Debug)]
pub struct KubeletDouble {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KubeletDouble {
    /// Listens on a socket.
    pub fn serve(socket: &Path, pods: &[HoldingPod<'_>]) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(async { UnixListener::bind(socket) }).unwrap();
        let answer = framed(&pods.iter().flat_map(pod).collect::<Vec<_>>());
        let (end, ends) = oneshot::channel();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = listen(listener, answer) => {}
                    _dropped = ends => {}
                }
            });
        });
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for KubeletDouble {
    fn drop(&mut self) {
        drop(self.end.take());
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

async fn listen(listener: UnixListener, answer: Bytes) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let answer = answer.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
            std::future::ready(Ok::<_, Infallible>(response(answer.clone())))
        });
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service);
        // A client that goes away is none of its business.
        tokio::spawn(async move { drop(connection.await) });
    }
}

type Body = StreamBody<futures_util::stream::Iter<std::array::IntoIter<Result<Frame<Bytes>, Infallible>, 2>>>;

fn response(answer: Bytes) -> Response<Body> {
    let trailers =
        HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let frames = [Ok(Frame::data(answer)), Ok(Frame::trailers(trailers))];
    let response = Response::builder().header(http::header::CONTENT_TYPE, "application/grpc");
    response.body(StreamBody::new(futures_util::stream::iter(frames))).unwrap()
}

/// A message of gRPC: not compressed, its length, itself.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [0].into_iter().chain(length).chain(message.iter().copied()).collect()
}

/// `PodResources` in the answer.
fn pod(pod: &HoldingPod<'_>) -> Vec<u8> {
    let ids = pod.devices.iter().flat_map(|id| field(2, id.as_bytes()));
    let devices: Vec<u8> = field(1, pod.resource.as_bytes()).into_iter().chain(ids).collect();
    let container = [field(1, b"main"), field(2, &devices)].concat();
    field(
        1,
        &[field(1, pod.name.as_bytes()), field(2, pod.namespace.as_bytes()), field(3, &container)].concat(),
    )
}

/// A field of a message that is text or a message itself: tag, length, bytes.
pub fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes.extend_from_slice(content);
    bytes
}
