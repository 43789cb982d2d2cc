//! Clusters that are read from outside, by gRPC.

use std::sync::Arc;

use gpuvitals_core::clusters::{ClusterState, NodeState};
use gpuvitals_listener::{Access, Meter, Terms};
use gpuvitals_remote::clusters_v1::clusters_client::ClustersClient;
use gpuvitals_remote::{clusters_v1 as v1, serve};
use gpuvitals_suite::clusters::{cluster, node};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::world::{Kept, endpoint};

const NOW_NS: i64 = 1_795_190_400_000_000_000;
const NAME: &str = "gpuvitals.clusters.v1.Clusters";

/// A service over a cluster of `nodes` nodes of which the last hangs, one without GPUs and one that refuses.
async fn service(nodes: usize, stop: &CancellationToken) -> (Channel, JoinHandle<()>) {
    let mut all: Vec<_> =
        (1..nodes).map(|at| node("east", &format!("n{at:03}"), NodeState::Ok, true, NOW_NS)).collect();
    all.push(node("east", "sick", NodeState::Failing, false, NOW_NS));
    let views = [
        cluster("east", ClusterState::Degraded, Some("sick: no answer within 10s"), all, NOW_NS),
        cluster("lab", ClusterState::NoGpu, None, vec![], NOW_NS),
        cluster("north", ClusterState::Unauthorized, Some("401"), vec![], NOW_NS),
    ];
    let views = views.map(Arc::new);
    let kept = Kept::new();
    let socket = gpuvitals_listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let terms = Terms { access: Access::open(), ..Terms::new(Arc::new(Meter::new("test"))) };
    let router = serve(Arc::new(kept.store.clone()), Some(Arc::new(move || views.to_vec())), stop).await;
    let serving = gpuvitals_listener::serve(socket, router, terms, stop.clone());
    let served = tokio::spawn(async move {
        let _kept = kept;
        serving.await.unwrap();
    });
    (endpoint(address).connect().await.unwrap(), served)
}

#[tokio::test]
async fn clusters_nodes_processes_and_summary_come_by_grpc() {
    let stop = CancellationToken::new();
    let (channel, served) = service(250, &stop).await;
    let mut client = ClustersClient::new(channel);
    let listed = client.list_clusters(v1::ListClustersRequest {}).await.unwrap().into_inner();
    let shown: Vec<_> =
        listed.clusters.iter().map(|it| (it.cluster_id.as_str(), it.state.as_str(), it.node_count)).collect();
    assert_eq!(
        shown,
        [("east", "degraded", Some(250)), ("lab", "no_gpu", None), ("north", "unauthorized", None)]
    );
    assert_eq!(
        listed.missing,
        ["cluster east: node sick: no answer within 10s", "cluster north: unauthorized: 401"]
    );

    let mut parts = client.list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner();
    let (mut nodes, mut sizes, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(part) = parts.message().await.unwrap() {
        sizes.push(part.nodes.len());
        nodes.extend(part.nodes);
        missing.extend(part.missing);
    }
    assert_eq!((sizes, missing), (vec![100, 100, 50], listed.missing));
    let (first, last) = (nodes.first().unwrap(), nodes.last().unwrap());
    assert_eq!((first.node_name.as_str(), first.gpus.len(), first.gpu_count), ("n001", 2, Some(2)));
    let gpu = &first.gpus[0];
    assert_eq!((gpu.temperature_celsius, gpu.fan_speed_percent), (Some(41.0), None));
    assert_eq!(gpu.processes[0].command.as_deref(), Some("python3"));
    assert_eq!(
        (last.state.as_str(), last.read_ns, last.error.as_deref()),
        ("failing", None, Some("no answer within 10s"))
    );

    let of = |cluster: &str, node: &str| v1::ListProcessesRequest {
        cluster_id: cluster.to_owned(),
        node_name: node.to_owned(),
    };
    let mut parts = client.list_processes(of("east", "n007")).await.unwrap().into_inner();
    let part = parts.message().await.unwrap().unwrap();
    assert_eq!((part.processes.len(), part.missing.len()), (1, 0));
    assert_eq!((part.processes[0].pid, part.processes[0].node_name.as_str()), (42, "n007"));
    assert!(parts.message().await.unwrap().is_none());
    // Nothing is an answer, too.
    let mut parts = client.list_processes(of("east", "sick")).await.unwrap().into_inner();
    let part = parts.message().await.unwrap().unwrap();
    assert_eq!((part.processes.len(), part.missing.len()), (0, 1));

    let summary =
        client.summarize(v1::SummarizeRequest { cluster_id: "east".to_owned() }).await.unwrap().into_inner();
    assert_eq!((summary.node_count, summary.gpu_count), (250, 498));
    assert_eq!((summary.cluster_id.as_deref(), summary.missing.len()), (Some("east"), 1));
    for (cluster, node, code) in [
        ("south", "", Code::NotFound),
        ("lab", "", Code::FailedPrecondition),
        ("east", "n999", Code::NotFound),
        ("north", "n001", Code::Unavailable),
    ] {
        let refused = client.list_processes(of(cluster, node)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{cluster} {node}: {refused}");
    }
    stop.cancel();
    drop(client);
    served.await.unwrap();
}

#[tokio::test]
async fn the_service_says_what_it_is_and_is_there_only_if_asked_for() {
    let stop = CancellationToken::new();
    let (channel, served) = service(2, &stop).await;
    let request = HealthCheckRequest { service: NAME.to_owned() };
    let health = HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let mut answers =
        reflection.server_reflection_info(futures_util::stream::iter([ask])).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list of services")
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&NAME) && names.contains(&"gpuvitals.history.v1.History"), "{names:?}");
    drop((reflection, answers));
    stop.cancel();
    served.await.unwrap();

    let kept = Kept::new();
    let without = crate::world::Service::new(Arc::new(kept.store.clone())).await;
    let channel = endpoint(without.address).connect().await.unwrap();
    let refused = ClustersClient::new(channel).list_clusters(v1::ListClustersRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    without.end().await;
}
