//! Pods that hold GPUs, from the pod-resources socket of the node's kubelet.
//!
//! gRPC over a Unix socket, service `v1.PodResourcesLister`, method `List`; the few messages are written here
//! by hand. The kubelet answers at most 100 times a second: ask every 10 to 30 s. It recreates the socket
//! when it restarts, so a container mounts the *folder*, and a broken connection is reopened at the next
//! request. Pods that have ended may stay in the list for a while.

use std::cell::LazyCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{Identity, IdentityColumn};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::{GpuName, Owner};
use crate::dialect::amd_sysfs::{self, Card};
use crate::machine::Machine;

/// Default path of the kubelet's socket.
pub const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

const LIST: &str = "/v1.PodResourcesLister/List";
/// Connecting and answering together.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest accepted answer; 250 pods with their devices are some 100 KiB.
const ANSWER_LEN_MAX: usize = 16 << 20;
/// Most records of one answer; a node has some hundred devices at most.
const RECORDS_MAX: usize = 8192;
/// Most DRM nodes of one device that are read; there are two.
const DRM_NODES_MAX: usize = 16;

/// A failed request to the kubelet.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// Nothing can connect to the socket's path.
    #[error("{} cannot be the path of a socket", .path.display())]
    Path {
        /// As given.
        path: PathBuf,
        /// Cause.
        #[source]
        source: tonic::transport::Error,
    },
    /// It refused or did not answer properly.
    #[error("the kubelet did not answer on {}: {message}", .path.display())]
    Refused {
        /// Its socket.
        path: PathBuf,
        /// gRPC's code: `Unavailable` when nobody listens, `PermissionDenied` …
        code: Code,
        /// Its message.
        message: String,
    },
    /// It did not answer in time.
    #[error("the kubelet did not answer on {} within {PATIENCE:?}", .path.display())]
    Late {
        /// Its socket.
        path: PathBuf,
    },
}

/// A client of the kubelet.
#[derive(Debug)]
pub struct Kubelet {
    path: PathBuf,
    machine: Machine,
    channel: Channel,
}

impl Kubelet {
    /// The kubelet behind a socket, for the GPUs of a machine. Connects with the first request, and again
    /// whenever the connection broke. Call it in an asynchronous runtime.
    ///
    /// # Errors
    /// If the path is not UTF-8.
    pub fn new(path: &Path, machine: &Machine) -> Result<Self, KubeletError> {
        let endpoint = Endpoint::from_shared(format!("unix:{}", path.display()))
            .map_err(|source| KubeletError::Path { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), machine: machine.clone(), channel: endpoint.connect_lazy() })
    }

    /// The containers that hold GPUs now, sorted, so that the same holders give the same answer.
    ///
    /// # Errors
    /// If the kubelet refuses, or does not answer within 5 s.
    pub async fn owners(&self) -> Result<Vec<(GpuName, Owner)>, KubeletError> {
        let asked = tokio::time::timeout(PATIENCE, async {
            let answer = match self.list().await {
                // Using a connection shows that the kubelet closed it when it restarted.
                Err(status) if matches!(status.code(), Code::Unavailable | Code::Unknown) => {
                    self.list().await
                }
                answer => answer,
            }?;
            let machine = self.machine.clone();
            // Partitions are looked up in files.
            let found = tokio::task::spawn_blocking(move || owners_in(answer, &machine)).await;
            found.map_err(|error| Status::internal(gpuvitals_core::causes(&error)))
        });
        match asked.await {
            Ok(Ok(owners)) => Ok(owners),
            Ok(Err(status)) => Err(KubeletError::Refused {
                path: self.path.clone(),
                code: status.code(),
                message: gpuvitals_core::causes(&status),
            }),
            Err(_) => Err(KubeletError::Late { path: self.path.clone() }),
        }
    }

    async fn list(&self) -> Result<message::ListPodResourcesResponse, Status> {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_LEN_MAX);
        client.ready().await.map_err(|error| Status::unavailable(gpuvitals_core::causes(&error)))?;
        let codec =
            ProstCodec::<message::ListPodResourcesRequest, message::ListPodResourcesResponse>::default();
        let request = Request::new(message::ListPodResourcesRequest {});
        Ok(client.unary(request, PathAndQuery::from_static(LIST), codec).await?.into_inner())
    }
}

fn owners_in(answer: message::ListPodResourcesResponse, machine: &Machine) -> Vec<(GpuName, Owner)> {
    let cards = LazyCell::new(|| amd_sysfs::cards(machine));
    let platform = |device: &str| platform_partition(machine, &cards, device);
    let mut owners = Vec::new();
    for pod in answer.pod_resources {
        let (name, namespace) = (text(pod.name), text(pod.namespace));
        for container in pod.containers {
            let owner = Owner {
                pod: name.clone(),
                namespace: namespace.clone(),
                container: text(container.name),
                job: None,
            };
            let devices = container.devices.iter().filter(|devices| is_gpu(&devices.resource_name));
            let names =
                devices.flat_map(|devices| &devices.device_ids).filter_map(|id| gpu_name(id, platform));
            owners.extend(names.map(|gpu| (or_first_partition(gpu, &cards), owner.clone())));
        }
    }
    // Several slices of one GPU in one container are one record; among several holders the first counts,
    // always the same.
    owners.sort_by_cached_key(|(gpu, owner)| (format!("{gpu:?}"), order(owner)));
    owners.dedup();
    owners.truncate(RECORDS_MAX);
    owners
}

fn order(owner: &Owner) -> [Option<Arc<str>>; 3] {
    [owner.namespace.clone(), owner.pod.clone(), owner.container.clone()]
}

fn text(text: String) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

/// Whether the resource is a GPU or a part of one: `nvidia.com/gpu`, `nvidia.com/gpu.shared`, `nvidia.com/mig-1g.10gb`,
/// `amd.com/gpu`, and AMD's partitions such as `amd.com/cpx_nps4`.
fn is_gpu(resource: &str) -> bool {
    resource.starts_with("nvidia.com/gpu")
        || resource.starts_with("nvidia.com/mig-")
        || resource.starts_with("amd.com/")
}

/// The GPU of a device plugin's id: `GPU-…` or `MIG-…`, also as a slice of time (`GPU-…::3`); `nvidia0`,
/// `nvidia0/vgpu2` and `nvidia0/gi1` as GKE spells them; a PCI address; AMD's `amdgpu_xcp_3`, which
/// `platform` resolves. A MIG instance's old name (`MIG-GPU-…/1/0`) contains its GPU and number.
fn gpu_name(id: &str, platform: impl FnOnce(&str) -> Option<GpuName>) -> Option<GpuName> {
    let part = |whole, number: &str| Some(GpuName::Part(Box::new(whole), number.parse().ok()?));
    let whole = id.split_once("::").map_or(id, |(whole, _slice)| whole);
    if let Some(place) = whole.strip_prefix("MIG-").filter(|place| place.starts_with("GPU-")) {
        let (gpu, instances) = place.split_once('/')?;
        let (gpu_instance, _compute) = instances.split_once('/').unwrap_or((instances, ""));
        return part(GpuName::Uuid(gpu.into()), gpu_instance);
    }
    if ["GPU-", "MIG-"].iter().any(|prefix| whole.starts_with(prefix)) {
        return Some(GpuName::Uuid(whole.into()));
    }
    if let Some(rest) = whole.strip_prefix("nvidia") {
        let (index, slice) = rest.split_once('/').unwrap_or((rest, ""));
        let index = index.bytes().all(|b| b.is_ascii_digit()).then(|| index.parse().ok()).flatten();
        return match slice.strip_prefix("gi") {
            Some(gpu_instance) => part(GpuName::Index("nvidia", index?), gpu_instance),
            None => index.map(|index| GpuName::Index("nvidia", index)),
        };
    }
    if whole.starts_with("amdgpu_xcp_") {
        return platform(whole);
    }
    is_pci(whole).then_some(())?;
    let named = Identity::default().with(IdentityColumn::Pci, whole).ok()?;
    named.shared(IdentityColumn::Pci).map(|pci| GpuName::Pci(Arc::clone(pci)))
}

/// The partition behind a platform device of amdgpu: its render node equals that of a node of the compute
/// driver, whose address is the GPU's with the partition's number as function.
fn platform_partition(machine: &Machine, cards: &[Card], device: &str) -> Option<GpuName> {
    let number = device.strip_prefix("amdgpu_xcp_")?;
    number.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    let folder = machine.sysfs.join("devices/platform").join(device).join("drm");
    let mut nodes = std::fs::read_dir(folder).ok()?.flatten().take(DRM_NODES_MAX);
    let minor: u32 =
        nodes.find_map(|node| node.file_name().to_str()?.strip_prefix("renderD")?.parse().ok())?;
    cards.iter().find_map(|card| {
        let node = card.kfd.iter().find(|node| node.render_minor == Some(minor))?;
        let part = node.address.rsplit_once('.')?.1.parse().ok()?;
        Some(GpuName::Part(Box::new(GpuName::Pci(card.pci.as_deref()?.into())), part))
    })
}

/// A divided GPU's own address means its first partition; the others are platform devices.
fn or_first_partition(gpu: GpuName, cards: &[Card]) -> GpuName {
    match &gpu {
        GpuName::Pci(pci)
            if cards.iter().any(|card| card.pci.as_deref() == Some(pci) && card.kfd.len() > 1) =>
        {
            GpuName::Part(Box::new(gpu), 0)
        }
        _ => gpu,
    }
}

/// `0000:0c:00.0`.
fn is_pci(text: &str) -> bool {
    let mut parts = text.split([':', '.']);
    let mut hex = |lengths: std::ops::RangeInclusive<usize>| {
        parts
            .next()
            .is_some_and(|part| lengths.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    hex(4..=8) && hex(2..=2) && hex(2..=2) && hex(1..=1) && parts.next().is_none()
}

/// The fields read here; `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ListPodResourcesRequest {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ListPodResourcesResponse {
        #[prost(message, repeated, tag = "1")]
        pub pod_resources: Vec<PodResources>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct PodResources {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub namespace: String,
        #[prost(message, repeated, tag = "3")]
        pub containers: Vec<ContainerResources>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ContainerResources {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(message, repeated, tag = "2")]
        pub devices: Vec<ContainerDevices>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ContainerDevices {
        #[prost(string, tag = "1")]
        pub resource_name: String,
        #[prost(string, repeated, tag = "2")]
        pub device_ids: Vec<String>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_plugin_s_spelling_names_a_gpu_or_nothing() {
        let uuid = |uuid: &str| Some(GpuName::Uuid(uuid.into()));
        let pci = |pci: &str| Some(GpuName::Pci(pci.into()));
        let part = |whole, number| Some(GpuName::Part(Box::new(whole), number));
        for (id, name) in [
            ("GPU-5fd4f087-86f3-7a43-b711-4771313afc50", uuid("GPU-5fd4f087-86f3-7a43-b711-4771313afc50")),
            ("GPU-5fd4f087::3", uuid("GPU-5fd4f087")),
            ("MIG-3c8a1b::7", uuid("MIG-3c8a1b")),
            ("MIG-GPU-5fd4/1/0", part(GpuName::Uuid("GPU-5fd4".into()), 1)),
            ("MIG-GPU-5fd4/1/0::2", part(GpuName::Uuid("GPU-5fd4".into()), 1)),
            ("MIG-GPU-5fd4", None),
            ("nvidia3", Some(GpuName::Index("nvidia", 3))),
            ("nvidia0/vgpu2", Some(GpuName::Index("nvidia", 0))),
            ("nvidia0/gi1", part(GpuName::Index("nvidia", 0), 1)),
            ("nvidia0/gi", None),
            ("nvidia/gi1", None),
            ("nvidia", None),
            ("0000:0C:00.0", pci("0000:0c:00.0")),
            ("00000000:0c:00.0", pci("0000:0c:00.0")),
            ("amdgpu_xcp_3", part(GpuName::Pci("platform".into()), 3)),
            ("0000:0c:00", None),
            ("", None),
            ("::", None),
        ] {
            let platform = |_: &str| part(GpuName::Pci("platform".into()), 3);
            assert_eq!(gpu_name(id, platform), name, "{id:?}");
        }
    }

    #[test]
    fn a_platform_device_is_a_partition_by_its_render_node() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let uevent = "DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:0c:00.0\n";
        write("class/drm/card1/device/uevent", uevent);
        for (node, minor, location) in [(2, 128, 0x0c00), (3, 129, 0x0c01), (4, 130, 0x0c02)] {
            let folder = format!("class/kfd/kfd/topology/nodes/{node}");
            let properties = format!(
                "simd_count 304\nvendor_id 4098\ndomain 0\nlocation_id {location}\ndrm_render_minor {minor}\n"
            );
            write(&format!("{folder}/gpu_id"), "1\n");
            write(&format!("{folder}/properties"), &properties);
        }
        write("devices/platform/amdgpu_xcp_1/drm/renderD130/dev", "226:130\n");
        write("devices/platform/amdgpu_xcp_1/drm/card9/dev", "226:9\n");
        write("devices/platform/amdgpu_xcp_7/drm/renderD199/dev", "226:199\n");
        let machine = Machine { sysfs: root.path().to_owned(), ..Machine::local("n1") };
        let cards = amd_sysfs::cards(&machine);
        let of = |device| platform_partition(&machine, &cards, device);
        let second = GpuName::Part(Box::new(GpuName::Pci("0000:0c:00.0".into())), 2);
        assert_eq!(of("amdgpu_xcp_1"), Some(second));
        for stranger in ["amdgpu_xcp_7", "amdgpu_xcp_2", "amdgpu_xcp_", "amdgpu_xcp_../x"] {
            assert_eq!(of(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn only_gpus_are_resources_of_ours() {
        for (resource, is) in [
            ("nvidia.com/gpu", true),
            ("nvidia.com/gpu.shared", true),
            ("nvidia.com/mig-1g.10gb", true),
            ("amd.com/gpu", true),
            ("amd.com/cpx_nps4", true),
            ("nvidia.com/hostdev", false),
            ("intel.com/sriov", false),
            ("hugepages-2Mi", false),
        ] {
            assert_eq!(is_gpu(resource), is, "{resource}");
        }
    }
}
