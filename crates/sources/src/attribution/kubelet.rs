//! Pods that hold GPUs, from the pod-resources socket of the node's kubelet.
//!
//! gRPC over a Unix socket, service `v1.PodResourcesLister`, method `List`; the few messages are written here
//! by hand. The kubelet answers at most 100 times a second: ask every 10 to 30 s. It recreates the socket
//! when it restarts, so a container mounts the *folder*, and a broken connection is reopened at the next
//! request. Pods that have ended may stay in the list for a while.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::{Identity, IdentityColumn};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::{GpuName, Owner, Unresolved};
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
/// Most GPUs of NVIDIA's driver that are looked at for their minor numbers.
const MINORS_MAX: usize = 256;

/// The holders of GPUs, and the allocations that name none.
#[derive(Debug, Default)]
pub struct Holders {
    /// The GPUs that containers hold, sorted, so that the same holders give the same answer.
    pub owners: Vec<(GpuName, Owner)>,
    /// What containers hold and is no GPU that can be told: why, and the resource with the device.
    pub unresolved: Vec<(Unresolved, String)>,
}

/// A failed request to the kubelet.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// Nothing can connect to the socket's path.
    #[error("{} cannot be the path of a socket", .path.display())]
    Path {
        /// The path that was configured.
        path: PathBuf,
        /// What the transport finds wrong with it.
        #[source]
        source: tonic::transport::Error,
    },
    /// It refused or did not answer properly.
    #[error("the kubelet did not answer on {}: {message}", .path.display())]
    Refused {
        /// The socket that was asked.
        path: PathBuf,
        /// gRPC's code: `Unavailable` when nobody listens, `PermissionDenied` …
        code: Code,
        /// What it said, or what was wrong with its answer.
        message: String,
    },
    /// It did not answer in time.
    #[error("the kubelet did not answer on {} within {PATIENCE:?}", .path.display())]
    Late {
        /// The socket that was asked.
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

    /// The containers that hold GPUs now.
    ///
    /// # Errors
    /// If the kubelet refuses, or does not answer within 5 s.
    pub async fn owners(&self) -> Result<Holders, KubeletError> {
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

fn owners_in(answer: message::ListPodResourcesResponse, machine: &Machine) -> Holders {
    let devices = Devices::new(machine);
    let mut held = Holders::default();
    for pod in answer.pod_resources {
        let (name, namespace) = (text(pod.name), text(pod.namespace));
        for container in pod.containers {
            let owner = Owner {
                pod: name.clone(),
                namespace: namespace.clone(),
                container: text(container.name),
                ..Owner::default()
            };
            let by_plugins = container.devices.iter().flat_map(|devices| {
                devices.device_ids.iter().map(|id| (devices.resource_name.as_str(), id.as_str()))
            });
            for (resource, id) in by_plugins {
                match devices.gpu(resource, id) {
                    Some(gpu) => {
                        let owner = Owner { is_part: is_replica(id), ..owner.clone() };
                        held.owners.push((devices.or_first_partition(gpu), owner));
                    }
                    None if is_gpu(resource) && held.unresolved.len() < RECORDS_MAX => {
                        held.unresolved.push((Unresolved::UnknownId, format!("{resource} {id}")));
                    }
                    None => {}
                }
            }
            let claims = container.dynamic_resources.iter().flat_map(|claim| &claim.claim_resources);
            for claimed in claims.filter(|claimed| is_gpu_driver(&claimed.driver_name)) {
                match devices.claimed(&claimed.driver_name, &claimed.device_name) {
                    Some(gpu) => held.owners.push((devices.or_first_partition(gpu), owner.clone())),
                    None if held.unresolved.len() < RECORDS_MAX => {
                        let device = format!("{} {}", claimed.driver_name, claimed.device_name);
                        held.unresolved.push((Unresolved::Claim, device));
                    }
                    None => {}
                }
            }
        }
    }
    // Several slices of one GPU in one container are one record; among several holders the first counts,
    // always the same.
    held.owners.sort_by_cached_key(|(gpu, owner)| (format!("{gpu:?}"), order(owner)));
    held.owners.dedup();
    held.owners.truncate(RECORDS_MAX);
    held
}

fn order(owner: &Owner) -> [Option<Arc<str>>; 3] {
    [owner.namespace.clone(), owner.pod.clone(), owner.container.clone()]
}

fn text(text: String) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

/// Whether the resource is a GPU or a part of one, by its name: `nvidia.com/gpu`, `nvidia.com/gpu.shared`,
/// `nvidia.com/mig-1g.10gb`, `amd.com/gpu`, AMD's partitions such as `amd.com/cpx_nps4`, and what others call so
/// (`volcano.sh/vgpu-number`). A renamed one may be called anything; then its device ids tell.
fn is_gpu(resource: &str) -> bool {
    resource.starts_with("nvidia.com/mig-") || resource.starts_with("amd.com/") || resource.contains("gpu")
}

/// Whether a driver of dynamic resource allocation has GPUs: `gpu.nvidia.com`, `gpu.amd.com`.
fn is_gpu_driver(driver: &str) -> bool {
    driver.starts_with("gpu.")
}

/// The GPUs of this machine by what device plugins and drivers of claims call them, looked up when one is asked for.
pub(super) struct Devices<'a> {
    machine: &'a Machine,
    cards: OnceCell<Vec<Card>>,
    minors: OnceCell<Vec<(u32, String)>>,
}

impl<'a> Devices<'a> {
    pub(super) fn new(machine: &'a Machine) -> Self {
        Self { machine, cards: OnceCell::new(), minors: OnceCell::new() }
    }

    fn cards(&self) -> &[Card] {
        self.cards.get_or_init(|| amd_sysfs::cards(self.machine))
    }

    /// The GPU of a device plugin's id, of any resource if only a GPU has such an id: `GPU-…` or `MIG-…`, also as a slice of
    /// time (`GPU-…::3`) or a replica of HAMi and its kin (`GPU-…-3`); `nvidia0`, `nvidia0/vgpu2` and `nvidia0/gi1` as GKE
    /// spells them, by the minor number; a PCI address; AMD's `amdgpu_xcp_3`, and its DRM nodes. A MIG instance's old name
    /// (`MIG-GPU-…/1/0`) contains its GPU and number.
    fn gpu(&self, resource: &str, id: &str) -> Option<GpuName> {
        let is_gpu = is_gpu(resource);
        if let Some(uuid) = uuid_of(id) {
            return Some(GpuName::Uuid(uuid.into()));
        }
        let whole = id.split_once("::").map_or(id, |(whole, _slice)| whole);
        if is_pci(whole) {
            let named = Identity::default().with(IdentityColumn::Pci, whole).ok()?;
            let pci = named.get(IdentityColumn::Pci)?;
            let is_card = || self.cards().iter().any(|card| card.pci.as_deref() == Some(pci));
            return (is_gpu || is_card()).then(|| GpuName::Pci(pci.into()));
        }
        if !is_gpu {
            return None;
        }
        let part = |whole, number: &str| Some(GpuName::Part(Box::new(whole), number.parse().ok()?));
        if let Some(place) = whole.strip_prefix("MIG-").filter(|place| place.starts_with("GPU-")) {
            let (gpu, instances) = place.split_once('/')?;
            let (gpu_instance, _compute) = instances.split_once('/').unwrap_or((instances, ""));
            return part(GpuName::Uuid(gpu.into()), gpu_instance);
        }
        if ["GPU-", "MIG-"].iter().any(|prefix| whole.starts_with(prefix)) {
            return Some(GpuName::Uuid(whole.into()));
        }
        if let Some(rest) = whole.strip_prefix("nvidia") {
            let (minor, slice) = rest.split_once('/').unwrap_or((rest, ""));
            let gpu = self.by_minor(number(minor)?);
            return match slice.strip_prefix("gi") {
                Some(gpu_instance) => part(gpu, gpu_instance),
                None => Some(gpu),
            };
        }
        if whole.starts_with("amdgpu_xcp_") {
            return platform_partition(self.machine, self.cards(), whole);
        }
        self.by_node(whole)
    }

    /// The GPU of a device of a claim: `gpu-0` by NVIDIA's driver, where the number is the minor one, and `gpu-1-129` by AMD's,
    /// of card and render node. A MIG instance is called by its place, which nothing here tells.
    fn claimed(&self, driver: &str, device: &str) -> Option<GpuName> {
        // A device of a claim is called in small letters.
        if let Some(uuid) = uuid_of(&device.replacen("gpu-", "GPU-", 1)) {
            return Some(GpuName::Uuid(uuid.into()));
        }
        let rest = device.strip_prefix("gpu-")?;
        match (driver, rest.split_once('-')) {
            ("gpu.nvidia.com", None) => Some(self.by_minor(number(rest)?)),
            ("gpu.amd.com", Some((_card, render))) => self.by_node(&format!("renderD{}", number(render)?)),
            _ => None,
        }
    }

    /// The GPU of a minor number of NVIDIA's driver: `/dev/nvidia0`. Where the driver does not list them, the index.
    pub(super) fn by_minor(&self, minor: u32) -> GpuName {
        let known =
            self.minors.get_or_init(|| minors(self.machine)).iter().find(|(known, _)| *known == minor);
        known.map_or_else(
            || GpuName::Index("nvidia", i32::try_from(minor).unwrap_or(i32::MAX)),
            |(_, pci)| GpuName::Pci(pci.as_str().into()),
        )
    }

    /// The GPU of a DRM node of amdgpu: `card1`, `renderD128`.
    pub(super) fn by_node(&self, node: &str) -> Option<GpuName> {
        let render = node.strip_prefix("renderD").and_then(number);
        self.cards().iter().find_map(|card| {
            let pci: Arc<str> = card.pci.as_deref()?.into();
            let of_compute = card.kfd.iter().find(|it| render.is_some() && it.render_minor == render);
            if card.kfd.len() > 1
                && let Some(part) = of_compute.and_then(|it| number(it.address.rsplit_once('.')?.1))
            {
                return Some(GpuName::Part(Box::new(GpuName::Pci(pci)), part));
            }
            let has_node = || {
                render.is_some() && card.render_nodes(self.machine).iter().any(|path| path.ends_with(node))
            };
            (card.name == node || of_compute.is_some() || has_node()).then_some(GpuName::Pci(pci))
        })
    }

    /// A divided GPU's own address means its first partition; the others are platform devices.
    fn or_first_partition(&self, gpu: GpuName) -> GpuName {
        match &gpu {
            GpuName::Pci(pci)
                if self.cards().iter().any(|card| card.pci.as_deref() == Some(pci) && card.kfd.len() > 1) =>
            {
                GpuName::Part(Box::new(gpu), 0)
            }
            _ => gpu,
        }
    }
}

/// `GPU-` or `MIG-` and a UUID at the beginning of a device id; behind it may be the number of a replica, after any sign.
fn uuid_of(id: &str) -> Option<&str> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let bare = ["GPU-", "MIG-"].iter().find_map(|prefix| id.strip_prefix(prefix))?;
    let uuid = bare.get(..36)?;
    let mut groups = uuid.split('-');
    let is_uuid = GROUPS.iter().all(|&len| {
        groups.next().is_some_and(|group| group.len() == len && group.bytes().all(|b| b.is_ascii_hexdigit()))
    });
    let ends = bare.get(36..)?.bytes().next().is_none_or(|b| !b.is_ascii_alphanumeric());
    (is_uuid && ends).then(|| id.get(..id.len() - bare.len() + 36)).flatten()
}

/// Whether a device id is that of a replica of HAMi and its kin: `GPU-…-3`.
fn is_replica(id: &str) -> bool {
    let behind = uuid_of(id).and_then(|uuid| id.strip_prefix(uuid));
    behind.is_some_and(|behind| behind.starts_with('-'))
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Minor numbers of NVIDIA's GPUs with their addresses, from `/proc/driver/nvidia/gpus/<address>/information`.
fn minors(machine: &Machine) -> Vec<(u32, String)> {
    let folders =
        std::fs::read_dir(machine.procfs.join("driver/nvidia/gpus")).into_iter().flatten().flatten();
    let mut minors: Vec<(u32, String)> = folders
        .take(MINORS_MAX)
        .filter_map(|folder| {
            let address = folder.file_name().to_str()?.to_ascii_lowercase();
            let text = std::fs::read_to_string(folder.path().join("information")).ok()?;
            let minor = text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
            Some((number(minor.trim())?, address))
        })
        .collect();
    minors.sort_unstable();
    minors
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

/// Whether it is a PCI address such as `0000:0c:00.0`.
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
        #[prost(message, repeated, tag = "5")]
        pub dynamic_resources: Vec<DynamicResource>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct DynamicResource {
        #[prost(message, repeated, tag = "4")]
        pub claim_resources: Vec<ClaimResource>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ClaimResource {
        #[prost(string, tag = "2")]
        pub driver_name: String,
        #[prost(string, tag = "4")]
        pub device_name: String,
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
    fn a_replica_of_hami_is_a_part_and_a_slice_of_time_is_none() {
        let uuid = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50";
        for (behind, is_part) in [("", false), ("-0", true), ("-_-7", true), ("::3", false)] {
            assert_eq!(is_replica(&format!("{uuid}{behind}")), is_part, "{behind}");
        }
        assert!(!is_replica("0000:0c:00.0"));
    }

    #[test]
    fn every_device_plugin_s_spelling_names_a_gpu_or_nothing() {
        const UUID: &str = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50";
        let root = tempfile::tempdir().unwrap();
        // The driver numbers its devices in another order than their addresses.
        for (minor, address) in [(1, "0000:0C:00.0"), (0, "0000:1c:00.0")] {
            let folder = root.path().join("driver/nvidia/gpus").join(address);
            std::fs::create_dir_all(&folder).unwrap();
            let text = format!("Model: \t\t NVIDIA L4\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n");
            std::fs::write(folder.join("information"), text).unwrap();
        }
        let machine =
            Machine { sysfs: root.path().to_owned(), procfs: root.path().to_owned(), ..Machine::local("n1") };
        let devices = Devices::new(&machine);
        let uuid = |uuid: &str| Some(GpuName::Uuid(uuid.into()));
        let pci = |pci: &str| Some(GpuName::Pci(pci.into()));
        let part = |whole, number| Some(GpuName::Part(Box::new(whole), number));
        for (id, name) in [
            (UUID, uuid(UUID)),
            ("GPU-5fd4f087-86f3-7a43-b711-4771313afc50-0", uuid(UUID)),
            ("GPU-5fd4f087-86f3-7a43-b711-4771313afc50-12", uuid(UUID)),
            ("GPU-5fd4f087-86f3-7a43-b711-4771313afc50-_-7", uuid(UUID)),
            ("GPU-5fd4f087-86f3-7a43-b711-4771313afc50::3", uuid(UUID)),
            ("MIG-5fd4f087-86f3-7a43-b711-4771313afc50-1", uuid("MIG-5fd4f087-86f3-7a43-b711-4771313afc50")),
            ("GPU-5fd4f087::3", uuid("GPU-5fd4f087")),
            ("MIG-3c8a1b::7", uuid("MIG-3c8a1b")),
            ("MIG-GPU-5fd4/1/0", part(GpuName::Uuid("GPU-5fd4".into()), 1)),
            ("MIG-GPU-5fd4/1/0::2", part(GpuName::Uuid("GPU-5fd4".into()), 1)),
            ("MIG-GPU-5fd4", None),
            ("nvidia0", pci("0000:1c:00.0")),
            ("nvidia1/vgpu2", pci("0000:0c:00.0")),
            ("nvidia1/gi1", part(GpuName::Pci("0000:0c:00.0".into()), 1)),
            ("nvidia3", Some(GpuName::Index("nvidia", 3))),
            ("nvidia0/gi", None),
            ("nvidia/gi1", None),
            ("nvidia", None),
            ("0000:0C:00.0", pci("0000:0c:00.0")),
            ("00000000:0c:00.0", pci("0000:0c:00.0")),
            ("0000:0c:00", None),
            ("amdgpu_xcp_3", None),
            ("renderD128", None),
            ("", None),
            ("::", None),
        ] {
            assert_eq!(devices.gpu("nvidia.com/gpu", id), name, "{id:?}");
        }
        // A renamed resource: what only a GPU is called is one. A network card has an address, too.
        for (resource, id, name) in [
            ("example.com/a100", "GPU-5fd4f087-86f3-7a43-b711-4771313afc50::1", uuid(UUID)),
            ("example.com/sriov", "0000:0c:00.0", None),
            ("hugepages-2Mi", "GPU-no", None),
        ] {
            assert_eq!(devices.gpu(resource, id), name, "{resource} {id}");
        }
        for (driver, device, name) in [
            ("gpu.nvidia.com", "gpu-1", pci("0000:0c:00.0")),
            ("gpu.nvidia.com", "gpu-1-mig-9-4-4", None),
            ("gpu.nvidia.com", "gpu-5fd4f087-86f3-7a43-b711-4771313afc50", uuid(UUID)),
            ("gpu.amd.com", "gpu-1-129", None),
        ] {
            assert_eq!(devices.claimed(driver, device), name, "{driver} {device}");
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
            ("nvidia.com/a100", false),
            ("volcano.sh/vgpu-number", true),
            ("nvidia.com/hostdev", false),
            ("intel.com/sriov", false),
            ("hugepages-2Mi", false),
        ] {
            assert_eq!(is_gpu(resource), is, "{resource}");
        }
    }
}
