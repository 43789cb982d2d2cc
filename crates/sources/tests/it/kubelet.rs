//! The kubelet's pod-resources socket, played by a real gRPC server.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use gpuvitals_rig::kubelet::field;
use gpuvitals_rig::waiting;
use gpuvitals_sources::attribution::kubelet::{Holders, Kubelet, KubeletError};
use gpuvitals_sources::attribution::{GpuName, Owner, Unresolved};
use gpuvitals_sources::machine::Machine;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

/// A raw protobuf message: the bytes are written by hand here, so that the client is not tested against its
/// own field numbers.
#[derive(Clone, Default, PartialEq)]
struct Raw(Vec<u8>);

impl prost::Message for Raw {
    fn encode_raw(&self, buffer: &mut impl prost::bytes::BufMut) {
        buffer.put_slice(&self.0);
    }
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: prost::encoding::WireType,
        buffer: &mut impl prost::bytes::Buf,
        context: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        prost::encoding::skip_field(wire_type, tag, buffer, context)
    }
    fn encoded_len(&self) -> usize {
        self.0.len()
    }
    fn clear(&mut self) {
        self.0.clear();
    }
}

fn devices(resource: &str, ids: &[&str]) -> Vec<u8> {
    let ids = ids.iter().flat_map(|id| field(2, id.as_bytes()));
    // Topology, which nobody asks for here: { nodes: [{ ID: 1 }] }.
    field(1, resource.as_bytes()).into_iter().chain(ids).chain(field(3, &field(1, &[8, 1]))).collect()
}

fn container(name: &str, all: &[Vec<u8>]) -> Vec<u8> {
    let all = all.iter().flat_map(|devices| field(2, devices));
    field(1, name.as_bytes()).into_iter().chain(all).collect()
}

fn pod(name: &str, namespace: &str, containers: &[Vec<u8>]) -> Vec<u8> {
    let containers = containers.iter().flat_map(|container| field(3, container));
    let inner: Vec<u8> = field(1, name.as_bytes())
        .into_iter()
        .chain(field(2, namespace.as_bytes()))
        .chain(containers)
        .collect();
    field(1, &inner)
}

fn owner(pod: &str, namespace: &str, container: &str) -> Owner {
    let text = |text: &str| Some(Arc::from(text));
    Owner { pod: text(pod), namespace: text(namespace), container: text(container), ..Owner::default() }
}

/// Answers every `List` with the same.
#[derive(Clone)]
struct Stub(Result<Raw, Code>);

impl Service<http::Request<Body>> for Stub {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.clone();
        Box::pin(async move {
            assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
            let answer = answer.map(Response::new).map_err(|code| Status::new(code, "as the test says"));
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Raw, Raw>::default());
            let answer = ListAnswer(answer);
            Ok(grpc.unary(answer, request).await)
        })
    }
}

struct ListAnswer(Result<Response<Raw>, Status>);

impl tonic::server::UnaryService<Raw> for ListAnswer {
    type Response = Raw;
    type Future = std::future::Ready<Result<Response<Raw>, Status>>;

    fn call(&mut self, _: Request<Raw>) -> Self::Future {
        std::future::ready(std::mem::replace(&mut self.0, Err(Status::internal("asked twice"))))
    }
}

/// A machine without GPUs of AMD: its partitions are none.
fn machine(sysfs: &Path) -> Machine {
    Machine { sysfs: sysfs.to_owned(), ..Machine::local("n1") }
}

/// What a kubelet answers.
async fn owners(kubelet: &Kubelet) -> Result<Holders, KubeletError> {
    waiting::soon("the kubelet's answer", kubelet.owners()).await
}

/// Serves as long as the runtime lives.
fn serve(path: &Path, answer: Result<Vec<u8>, Code>) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    let incoming = async_stream::stream! {
        loop {
            yield listener.accept().await.map(|(stream, _)| stream);
        }
    };
    let server = tonic::transport::Server::builder();
    let served = server.serve_with_incoming(Stub(answer.map(Raw)), incoming);
    tokio::spawn(async move { served.await.unwrap() })
}

#[tokio::test]
async fn containers_with_gpus_are_found_under_every_resource() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let answer = [
        pod(
            "train-0",
            "ml",
            &[
                container("main", &[devices("nvidia.com/gpu", &["GPU-b", "GPU-a::1", "GPU-a::2"])]),
                container("sidecar", &[devices("hugepages-2Mi", &["GPU-no"])]),
            ],
        ),
        pod("mig", "ml", &[container("c", &[devices("nvidia.com/mig-1g.10gb", &["MIG-1"])])]),
        pod("rocm", "hpc", &[container("c", &[devices("amd.com/gpu", &["0000:0C:00.0", "amdgpu_xcp_1"])])]),
        pod("idle", "web", &[]),
    ]
    .concat();
    let _server = serve(&path, Ok(answer));
    let kubelet = Kubelet::new(&path, &machine(dir.path())).unwrap();
    let held = owners(&kubelet).await.unwrap();
    let expected = [
        (GpuName::Pci("0000:0c:00.0".into()), owner("rocm", "hpc", "c")),
        (GpuName::Uuid("GPU-a".into()), owner("train-0", "ml", "main")),
        (GpuName::Uuid("GPU-b".into()), owner("train-0", "ml", "main")),
        (GpuName::Uuid("MIG-1".into()), owner("mig", "ml", "c")),
    ];
    assert_eq!(held.owners, expected);
    assert_eq!(held.unresolved, [(Unresolved::UnknownId, "amd.com/gpu amdgpu_xcp_1".to_owned())]);
}

#[tokio::test]
async fn a_claim_is_resolved_where_the_kubelet_says_enough() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let information = dir.path().join("driver/nvidia/gpus/0000:1c:00.0/information");
    std::fs::create_dir_all(information.parent().unwrap()).unwrap();
    std::fs::write(information, "Device Minor: \t 3\n").unwrap();
    let claim = |driver: &str, device: &str| {
        let claimed = [field(2, driver.as_bytes()), field(3, b"n1"), field(4, device.as_bytes())].concat();
        field(5, &[field(2, b"claim"), field(3, b"ml"), field(4, &claimed)].concat())
    };
    let of = |name: &str, claims: &[Vec<u8>]| [field(1, name.as_bytes()), claims.concat()].concat();
    let containers = [
        of("whole", &[claim("gpu.nvidia.com", "gpu-3"), claim("dra.net", "eth1")]),
        of("part", &[claim("gpu.nvidia.com", "gpu-3-mig-9-4-4")]),
    ];
    let _server = serve(&path, Ok(pod("train-0", "ml", &containers)));
    let machine = Machine { procfs: dir.path().to_owned(), ..machine(dir.path()) };
    let held = owners(&Kubelet::new(&path, &machine).unwrap()).await.unwrap();
    assert_eq!(held.owners, [(GpuName::Pci("0000:1c:00.0".into()), owner("train-0", "ml", "whole"))]);
    assert_eq!(held.unresolved, [(Unresolved::Claim, "gpu.nvidia.com gpu-3-mig-9-4-4".to_owned())]);
}

#[tokio::test]
async fn the_address_of_a_divided_gpu_is_its_first_partition() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // The first of two GPUs is divided in two.
    for (card, bus, nodes) in [(0, 0x0c, 2), (1, 0x0d, 1)] {
        let uevent = format!("DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:{bus:02x}:00.0\n");
        write(&format!("class/drm/card{card}/device/uevent"), &uevent);
        for function in 0..nodes {
            let folder = format!("class/kfd/kfd/topology/nodes/{}", 1 + 2 * card + function);
            let location = (bus << 8) + function;
            let properties = format!("simd_count 304\nvendor_id 4098\ndomain 0\nlocation_id {location}\n");
            write(&format!("{folder}/properties"), &properties);
        }
    }
    let path = dir.path().join("kubelet.sock");
    let held = devices("amd.com/gpu", &["0000:0c:00.0", "0000:0d:00.0"]);
    let _server = serve(&path, Ok(pod("rocm", "hpc", &[container("c", &[held])])));
    let held = owners(&Kubelet::new(&path, &machine(dir.path())).unwrap()).await.unwrap();
    let names: Vec<_> = held.owners.into_iter().map(|(gpu, _)| gpu).collect();
    let address = |pci: &str| GpuName::Pci(pci.into());
    let first = GpuName::Part(Box::new(address("0000:0c:00.0")), 0);
    assert_eq!(names, [first, address("0000:0d:00.0")]);
}

#[tokio::test]
async fn a_kubelet_that_restarts_is_asked_again_on_its_new_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let kubelet = Kubelet::new(&path, &machine(dir.path())).unwrap();
    let Err(KubeletError::Refused { code: Code::Unavailable, .. }) = owners(&kubelet).await else {
        panic!("nobody listens yet");
    };
    let answer =
        |name: &str| Ok(pod(name, "ml", &[container("c", &[devices("nvidia.com/gpu", &["GPU-a"])])]));
    let kubelet_process = tokio::runtime::Runtime::new().unwrap();
    {
        let _inside = kubelet_process.enter();
        let _server = serve(&path, answer("before"));
    }
    assert_eq!(owners(&kubelet).await.unwrap().owners[0].1.pod.as_deref(), Some("before"));
    // With the runtime all its connections end, as with a process.
    kubelet_process.shutdown_background();
    std::fs::remove_file(&path).unwrap();
    let _second = serve(&path, answer("after"));
    assert_eq!(owners(&kubelet).await.unwrap().owners[0].1.pod.as_deref(), Some("after"));
}

#[tokio::test]
async fn refusals_and_malformed_answers_are_errors_that_say_so() {
    let dir = tempfile::tempdir().unwrap();
    for (name, answer, code, words) in [
        ("denied", Err(Code::PermissionDenied), Code::PermissionDenied, "as the test says"),
        ("cut", Ok(vec![0x0a, 0x7f, 0x0a]), Code::Internal, "decode"),
        ("not-text", Ok(field(1, &field(1, &[0xff, 0xfe]))), Code::Internal, "UTF-8"),
    ] {
        let path = dir.path().join(name);
        let _server = serve(&path, answer);
        let error = owners(&Kubelet::new(&path, &machine(dir.path())).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains(words), "{name}: {error}");
        let KubeletError::Refused { code: found, .. } = error else { panic!("{name}: {error}") };
        assert_eq!(found, code, "{name}");
    }
}
