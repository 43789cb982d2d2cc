//! Attribution of GPUs.

use std::os::unix::fs::symlink;

use gpuvitals_rig::kubelet::{HoldingPod, KubeletDouble};

use super::node::{Node, RX580, VEGA56};

#[test]
fn the_job_on_a_gpu_is_named_and_forgotten_when_it_ends() {
    let node = Node::new();
    node.write("proc/77/comm", "python\n");
    node.write("proc/77/cgroup", "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n");
    node.write(
        "proc/77/fdinfo/5",
        "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t30\ndrm-pdev:\t0000:09:00.0\ndrm-memory-vram:\t1024 KiB\n",
    );
    std::fs::create_dir(node.path("proc/77/fd")).unwrap();
    symlink("/dev/dri/renderD128", node.path("proc/77/fd/5")).unwrap();
    // Slurm is seen by its cgroups.
    std::fs::create_dir_all(node.path("sys/fs/cgroup/system.slice/slurmstepd.scope")).unwrap();
    let agent = node.agent(&[]);
    let held = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("gpu_attribution_info{"));
        line.map(|line| (line.contains(RX580), line.contains("job=\"4711\"")))
    };
    let text = agent.until("the job", |text| held(text) == Some((true, true)));
    assert!(text.contains("gpuvitals_attribution_up{source=\"slurm\"} 1\n"), "{text}");
    std::fs::remove_dir_all(node.path("proc/77")).unwrap();
    agent.until("the end of the job", |text| held(text).is_none());
}

#[test]
fn each_pod_that_shares_a_gpu_has_a_series() {
    let node = Node::new();
    let socket = node.path("kubelet.sock");
    let pod = |name, devices| HoldingPod { name, namespace: "ml", resource: "amd.com/gpu", devices };
    let pods = [
        pod("train-0", &["0000:09:00.0::0"][..]),
        pod("train-1", &["0000:09:00.0::1"]),
        pod("alone", &["0000:0b:00.0"]),
    ];
    let _kubelet = KubeletDouble::serve(&socket, &pods);
    let agent = node.agent_in(&[], &[("GPUVITALS_ATTRIBUTION_POD_RESOURCES", socket.to_str().unwrap())]);
    let held = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("gpu_attribution_info{"));
        let named = |line: &str, label: &str| {
            let (_, rest) = line.split_once(&format!("{label}=\"")).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        let mut held: Vec<_> = lines.map(|line| [named(line, "uuid"), named(line, "pod")]).collect();
        held.sort();
        held
    };
    let wanted = [[RX580, "train-0"], [RX580, "train-1"], [VEGA56, "alone"]];
    agent.until("all pods", |text| held(text) == wanted.map(|names| names.map(str::to_owned)));
}

#[test]
fn a_kubelet_that_is_not_there_is_said_and_costs_nothing_else() {
    let node = Node::new();
    let socket = node.path("kubelet.sock");
    let agent = node.agent_in(&[], &[("GPUVITALS_ATTRIBUTION_POD_RESOURCES", socket.to_str().unwrap())]);
    let said = agent.logged("cannot determine the owners of the GPUs");
    assert!(said["error"].as_str().unwrap().contains("kubelet.sock"), "{said}");
    let text = agent.until("both GPUs", |text| text.matches("\ngpu_up{").count() == 2);
    assert!(text.contains("gpuvitals_attribution_up{source=\"kubelet\"} 0\n"), "{text}");
}

#[test]
fn the_cluster_that_is_set_is_in_every_identity() {
    let node = Node::new();
    let agent = node.agent(&["--cluster", "east-1"]);
    let named = |text: &str| {
        let infos: Vec<&str> = text.lines().filter(|line| line.starts_with("gpu_info{")).collect();
        infos.len() == 2 && infos.iter().all(|line| line.contains("cluster=\"east-1\""))
    };
    agent.until("both GPUs with their cluster", named);
}
