//! Nodes, pods and statuses as the API spells them.

use serde_json::{Value, json};

use super::reply::{Reply, failure, json_reply};
use super::world::{NodeSpec, PodSpec, World};

pub(super) fn node(spec: &NodeSpec) -> Value {
    let mut labels = spec.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), spec.name.clone());
    let mut capacity = json!({"cpu": "64", "memory": "527956520Ki"});
    if let (Some(resource), Some(capacity)) = (spec.resource, capacity.as_object_mut()) {
        capacity.insert(resource.to_owned(), json!(spec.gpus.to_string()));
    }
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {}, "status": {"capacity": capacity, "allocatable": capacity},
    })
}

/// The pods of all nodes.
pub(super) fn pods(world: &World) -> Vec<Value> {
    let of_node = |node: &NodeSpec| node.pods().map(|spec| pod(world, node, &spec)).collect::<Vec<_>>();
    world.nodes.iter().flat_map(of_node).collect()
}

/// The pod at this path.
pub(super) fn pod_named(world: &World, path: &str) -> Reply {
    let name = path.strip_prefix(&format!("{}/", world.pods_path())).unwrap_or(path);
    match pods(world).into_iter().find(|pod| pod.pointer("/metadata/name").is_some_and(|of| of == name)) {
        Some(pod) => json_reply(200, &pod),
        None => failure(404, "NotFound", &format!("pods \"{name}\" not found")),
    }
}

/// What the server has, as kubectl asks for it first.
pub(super) fn discovery(path: &str) -> Value {
    let resource = |name: &str, kind: &str, is_namespaced: bool| json!({"name": name, "singularName": "", "namespaced": is_namespaced, "kind": kind, "verbs": ["get", "list"]});
    match path {
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
        _ => json!({
            "kind": "APIResourceList", "groupVersion": "v1",
            "resources": [resource("nodes", "Node", false), resource("pods", "Pod", true)],
        }),
    }
}

fn pod(world: &World, node: &NodeSpec, spec: &PodSpec) -> Value {
    let PodSpec { name, label, container, is_ready } = spec;
    let statuses = json!([{
        "name": container, "ready": is_ready, "restartCount": 0, "image": "", "imageID": "",
    }]);
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": world.namespace, "labels": {label.0: label.1}},
        "spec": {"nodeName": node.name, "containers": [{"name": container}, {"name": "another"}]},
        "status": {"phase": "Running", "containerStatuses": statuses},
    })
}

/// Whether an object has the labels and fields of the selectors. Only equality is known.
pub(super) fn matches(object: &Value, labels: &str, fields: &str) -> bool {
    let pairs = |selector: &str| -> Vec<(String, String)> {
        let parts = selector.split(',').filter(|part| !part.is_empty());
        parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.trim_start_matches('=').to_owned()))
            .collect()
    };
    let has_label = |(key, value): &(String, String)| {
        let found = object.pointer("/metadata/labels").and_then(|labels| labels.get(key));
        found.and_then(Value::as_str) == Some(value)
    };
    let has_field = |(key, value): &(String, String)| {
        let pointer = format!("/{}", key.replace('.', "/"));
        object.pointer(&pointer).and_then(Value::as_str) == Some(value)
    };
    pairs(labels).iter().all(has_label) && pairs(fields).iter().all(has_field)
}

pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "35", "gitVersion": "v1.35.0-double", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "",
    })
}
