//! Labels of pods, and how many GPUs they ask for, as rows of `jobs`: the agents that know which pod holds a GPU know neither.

use std::collections::BTreeMap;

use gpuvitals_core::batch::Value;
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::usage::hour_of;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Rows come again after so long, so that a lost one costs nothing.
const AGAIN_NS: i64 = 10 * MINUTE_NS;
/// Most rows of a batch; the rest comes with the next list.
const ROWS_MAX: usize = 5_000;
/// Phases of a pod whose containers do not run any more.
const OVER: [&str; 2] = ["Succeeded", "Failed"];

/// The resources of which one is a GPU, or a part of one. Others that begin so are memory and cores of a part: `nvidia.com/gpumem`.
const GPU_RESOURCES: [&str; 3] = ["nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu"];
/// What resources begin with that are instances of MIG.
const INSTANCES: &str = "nvidia.com/mig-";

/// A pod on a node, with those of its labels that are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelledPod {
    /// Namespace and name.
    key: (String, String),
    node: String,
    /// As rows have them, `KEY=VALUE` between commas; none: it has none of them.
    labels: Option<String>,
    /// The GPUs that its containers may have by their limits; none: no GPU.
    gpus_asked: Option<i64>,
}

/// The pods of a cluster, with the labels that were sent of each.
#[derive(Debug, Default)]
pub(crate) struct PodLabels {
    told: BTreeMap<(String, String), ToldPod>,
    batches: u64,
}

#[derive(Debug)]
struct ToldPod {
    pod: LabelledPod,
    /// When a row about it was made last, nanoseconds UTC since 1970; none: there is none yet.
    told_ns: Option<i64>,
}

impl LabelledPod {
    /// None of a pod that no node has, that is over, or that asks for no GPU and has none of these labels.
    pub(crate) fn of(pod: Pod, kept: &[String]) -> Option<Self> {
        let labels = pod.metadata.labels.unwrap_or_default();
        let pairs = kept.iter().filter_map(|key| Some(format!("{key}={}", labels.get(key)?)));
        let labels = Some(pairs.collect::<Vec<_>>().join(",")).filter(|labels| !labels.is_empty());
        let phase = pod.status.and_then(|status| status.phase);
        if phase.is_some_and(|phase| OVER.contains(&phase.as_str())) {
            return None;
        }
        let spec = pod.spec?;
        let gpus_asked = gpus_of(&spec);
        if labels.is_none() && gpus_asked.is_none() {
            return None;
        }
        let key = (pod.metadata.namespace?, pod.metadata.name?);
        Some(Self { key, node: spec.node_name?, labels, gpus_asked })
    }
}

/// The GPUs, and instances of MIG, that the containers of a pod may have by their limits. Kubernetes gives out whole numbers of them.
fn gpus_of(spec: &PodSpec) -> Option<i64> {
    let limits = spec.containers.iter().filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    let is_gpu = |name: &str| GPU_RESOURCES.contains(&name) || name.starts_with(INSTANCES);
    let gpus = limits.flatten().filter(|(name, _)| is_gpu(name));
    let counts = gpus.filter_map(|(_, quantity)| quantity.0.parse::<u32>().ok()).map(i64::from);
    Some(counts.sum::<i64>()).filter(|sum| *sum > 0)
}

impl PodLabels {
    /// The rows about the pods of a list: of those about which something is new, of those that have gone, of all others every ten minutes
    /// and in each hour.
    pub(crate) fn rows(
        &mut self,
        pods: Vec<LabelledPod>,
        cluster: &str,
        origin: &Origin,
        now_ns: i64,
    ) -> Option<Batch> {
        let mut gone = std::mem::take(&mut self.told);
        for pod in pods {
            // A list may have it twice: then it is known by the first.
            let known = gone.remove(&pod.key).or_else(|| self.told.remove(&pod.key));
            let before = known.filter(|before| before.pod == pod);
            let told_ns = before.and_then(|before| before.told_ns);
            self.told.insert(pod.key.clone(), ToldPod { pod, told_ns });
        }
        let mut builder = BatchBuilder::new(Table::Jobs);
        for told in gone.values().filter(|told| told.told_ns.is_some()) {
            told.pod.write(&mut builder, cluster, (now_ns, Some(now_ns)));
        }
        for told in self.told.values_mut() {
            let is_told = told.told_ns.is_some_and(|told_ns| {
                hour_of(told_ns) == hour_of(now_ns) && now_ns.saturating_sub(told_ns) < AGAIN_NS
            });
            if !is_told && builder.rows() < ROWS_MAX {
                told.told_ns = Some(now_ns);
                told.pod.write(&mut builder, cluster, (now_ns, None));
            }
        }
        self.batches += 1;
        if builder.rows() == 0 { None } else { builder.finish(origin.clone(), self.batches) }
    }
}

impl LabelledPod {
    /// Writes its row: as of when, and when it ended. One whose names no row can have is left out.
    fn write(&self, builder: &mut BatchBuilder, cluster: &str, (as_of_ns, end_ns): (i64, Option<i64>)) {
        let Self { key: (namespace, name), node, labels, gpus_asked } = self;
        let id = format!("pod:{namespace}/{name}");
        let texts = [
            (IdentityColumn::Cluster, cluster),
            (IdentityColumn::Node, node.as_str()),
            (IdentityColumn::Namespace, namespace.as_str()),
            (IdentityColumn::Pod, name.as_str()),
            (IdentityColumn::Job, id.as_str()),
        ];
        let mut identity = Identity::default();
        if texts.into_iter().any(|(column, text)| identity.set(column, text).is_err()) {
            return;
        }
        let identity = builder.intern(&identity);
        let row = builder.row(hour_of(as_of_ns), identity);
        let state = if end_ns.is_some() { "ended" } else { "running" };
        for (column, text) in [
            ("job_id", Some(id.as_str())),
            ("step", Some("whole")),
            ("told_by", Some("kubernetes")),
            ("state", Some(state)),
            ("labels", labels.as_deref()),
        ] {
            if let Some(text) = text {
                // A value that the table refuses is left out: the rest is worth more.
                let _refused = builder.set_extra_text(row, column, text);
            }
        }
        let numbers = [("as_of_ns", Some(as_of_ns)), ("end_ns", end_ns), ("gpus_asked", *gpus_asked)];
        for (column, number) in numbers {
            if let Some(number) = number {
                let _refused = builder.set_extra(row, column, Value::Int(number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::batch::numbers;
    use gpuvitals_core::time::HOUR_NS;
    use k8s_openapi::api::core::v1::Container;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    const NOW_NS: i64 = 1_000 * HOUR_NS;

    fn pod(name: &str, node: Option<&str>, phase: &str, labels: &[(&str, &str)]) -> Option<LabelledPod> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = Some("research".to_owned());
        pod.metadata.labels = Some(labels.collect());
        pod.spec.get_or_insert_default().node_name = node.map(str::to_owned);
        pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        LabelledPod::of(pod, &["team".to_owned(), "phase".to_owned()])
    }

    /// Job and state of each row.
    fn told(batch: Option<Batch>) -> Vec<(String, bool)> {
        let Some(batch) = batch else { return Vec::new() };
        let row = |row| {
            let identity = batch.identity(row);
            let is_over = batch
                .records()
                .column_by_name("end_ns")
                .and_then(numbers)
                .is_some_and(|ends| ends.value(row).is_some());
            (identity.get(IdentityColumn::Job).unwrap().to_owned(), is_over)
        };
        (0..batch.rows()).map(row).collect()
    }

    #[test]
    fn a_pod_is_told_of_when_it_is_new_has_changed_or_gone_and_once_in_ten_minutes() {
        let mut labels = PodLabels::default();
        let pod_of = |team: &str| {
            let pod = pod("a", Some("n1"), "Running", &[("team", team)]);
            pod.into_iter().collect::<Vec<_>>()
        };
        let mut rows = |pods: Vec<LabelledPod>, minute: i64| {
            told(labels.rows(pods, "east", &Origin::default(), NOW_NS + minute * MINUTE_NS))
        };
        let of = |is_over| vec![("pod:research/a".to_owned(), is_over)];
        assert_eq!(rows(pod_of("nlp"), 0), of(false));
        assert_eq!(rows(pod_of("nlp"), 1), []);
        assert_eq!(rows(pod_of("vision"), 2), of(false));
        assert_eq!(rows(pod_of("vision"), 12), of(false));
        assert_eq!(rows([pod_of("vision"), pod_of("vision")].concat(), 12), []);
        assert_eq!(rows(Vec::new(), 13), of(true));
        assert_eq!(rows(Vec::new(), 14), []);
    }

    #[test]
    fn a_pod_without_a_node_or_the_labels_or_that_is_over_has_no_row() {
        let labels: &[(&str, &str)] = &[("phase", "2"), ("other", "x"), ("team", "nlp")];
        let kept = pod("a", Some("n1"), "Running", labels).unwrap();
        assert_eq!(kept.labels.as_deref(), Some("team=nlp,phase=2"));
        assert_eq!(pod("a", None, "Pending", labels), None);
        assert_eq!(pod("a", Some("n1"), "Succeeded", labels), None);
        assert_eq!(pod("a", Some("n1"), "Running", &[("other", "x")]), None);
    }

    #[test]
    fn a_pod_asks_for_the_gpus_that_the_limits_of_its_containers_name() {
        let container = |limits: &[(&str, &str)]| {
            let limits =
                limits.iter().map(|(name, count)| ((*name).to_owned(), Quantity((*count).to_owned())));
            let mut container = Container::default();
            container.resources.get_or_insert_default().limits = Some(limits.collect());
            container
        };
        let asked = |containers: Vec<Container>| {
            let mut pod = Pod::default();
            pod.metadata.name = Some("a".to_owned());
            pod.metadata.namespace = Some("research".to_owned());
            pod.spec = Some(PodSpec { containers, node_name: Some("n1".to_owned()), ..PodSpec::default() });
            LabelledPod::of(pod, &[])
        };
        let gpus = |limits: &[(&str, &str)]| asked(vec![container(limits)])?.gpus_asked;
        assert_eq!(gpus(&[("nvidia.com/gpu", "2"), ("cpu", "8")]), Some(2));
        assert_eq!(gpus(&[("nvidia.com/mig-1g.10gb", "3")]), Some(3));
        assert_eq!(gpus(&[("amd.com/gpu", "1")]), Some(1));
        assert_eq!(gpus(&[("nvidia.com/gpumem", "3000"), ("nvidia.com/gpucores", "30")]), None);
        assert_eq!(gpus(&[("nvidia.com/gpu", "0")]), None);
        let two = asked(vec![container(&[("nvidia.com/gpu", "1")]), container(&[("nvidia.com/gpu", "3")])]);
        let mut labels = PodLabels::default();
        let rows = labels.rows(two.into_iter().collect(), "east", &Origin::default(), NOW_NS).unwrap();
        let asked = numbers(rows.records().column_by_name("gpus_asked").unwrap()).unwrap();
        assert_eq!(asked.value(0), Some(Value::Int(4)));
        assert!(rows.records().column_by_name("labels").is_none(), "it has none that is kept");
    }
}
