//! Hooks of Slurm tell the agent of jobs.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;

use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::{gpuvitals, waiting};

use super::node::{Node, RX580, VEGA56};
use super::process::{Agent, value};
use super::queue::{Rows, TestQueue};

/// What Slurm 22.05.8 gives its Prolog, with the last two to its Epilog.
pub(crate) const ENVIRONMENT: [(&str, &str); 8] = [
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_JOB_UID", "65534"),
    ("SLURM_JOB_USER", "nobody"),
    ("SLURM_JOB_PARTITION", "gpu"),
    ("SLURM_JOB_GPUS", "1"),
    ("CUDA_VISIBLE_DEVICES", "1"),
    ("SLURM_JOB_EXIT_CODE", "0"),
    ("SLURM_JOB_EXIT_CODE2", "0:0"),
];

fn agent(node: &Node, more: &[&str]) -> Agent {
    let socket = node.path("agent.sock");
    let brisk = ("GPUVITALS_AGENT_PUBLISH_INTERVAL", "200ms");
    node.agent_in(more, &[("GPUVITALS_AGENT_SOCKET", socket.to_str().unwrap()), brisk])
}

/// What a hook says on standard error. It always ends with 0.
pub(crate) fn hook(socket: &Path, name: &str, environment: &[(&str, &str)]) -> String {
    let output = gpuvitals!()
        .args(["jobs", "hook", name, "--socket", socket.to_str().unwrap()])
        .envs(environment.iter().copied())
        .finished()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().count() <= 1, "{said}");
    said
}

/// The answer to bytes that no hook would send.
fn answer(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    // An agent that has read enough does not read on.
    let _cut_off = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    waiting::within("the answer", move || {
        let mut answer = String::new();
        let _cut_off = stream.read_to_string(&mut answer);
        answer
    })
}

fn messages(text: &str, result: &str) -> Option<f64> {
    value(text, &format!("gpuvitals_job_messages_total{{result=\"{result}\"}} "))
}

#[test]
fn a_job_holds_its_gpus_from_prolog_to_epilog_without_a_process() {
    let node = Node::new();
    let (agent, socket) = (agent(&node, &[]), node.path("agent.sock"));
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let held = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("gpu_attribution_info{"));
        lines.map(|line| [RX580, VEGA56, "job=\"4711\""].map(|part| line.contains(part))).collect::<Vec<_>>()
    };
    agent.until("both GPUs", |text| text.matches("\ngpu_up{").count() == 2);
    assert_eq!(hook(&socket, "prolog", &ENVIRONMENT), "");
    let text = agent.until("the job", |text| held(text) == [[false, true, true]]);
    assert_eq!(value(&text, "gpuvitals_jobs_running "), Some(1.0));
    assert_eq!(hook(&socket, "epilog", &ENVIRONMENT), "");
    let text = agent.until("the end of the job", |text| held(text).is_empty());
    assert_eq!(messages(&text, "taken"), Some(2.0));
    assert_eq!(agent.terminate(), Some(0));
    assert!(!socket.exists(), "it takes its socket away");
}

#[test]
fn a_job_holds_its_gpus_though_the_agent_is_killed_and_starts_again() {
    let node = Node::new();
    let (socket, state) = (node.path("agent.sock"), node.path("state"));
    let environment =
        [("GPUVITALS_AGENT_SOCKET", socket.to_str().unwrap()), ("STATE_DIRECTORY", state.to_str().unwrap())];
    let start = || node.agent_in(&["--flight-dir", "off"], &environment);
    let running = |text: &str| value(text, "gpuvitals_jobs_running ");
    let holds = |text: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with("gpu_attribution_info{"));
        lines.any(|line| line.contains(VEGA56) && line.contains("job=\"4711\""))
    };
    let first = start();
    assert_eq!(hook(&socket, "prolog", &ENVIRONMENT), "");
    let kept = || std::fs::read_to_string(state.join("jobs/told")).unwrap_or_default();
    waiting::until("the job to be kept", kept, |kept| kept.contains("SLURM_JOB_ID=4711\0"));
    first.process.kill();
    let second = start();
    let text = second.until("the job's GPU", holds);
    assert_eq!((running(&text), messages(&text, "taken")), (Some(1.0), Some(0.0)));
    assert_eq!(hook(&socket, "epilog", &ENVIRONMENT), "");
    second.until("the end of the job", |text| !holds(text));
    assert_eq!(second.terminate(), Some(0));
    let third = start();
    let text = third.until("both GPUs", |text| text.matches("\ngpu_up{").count() == 2);
    assert_eq!(running(&text), Some(0.0), "it is over");
}

#[test]
fn what_hooks_tell_and_what_an_idle_job_holds_are_rows_on_the_queue() {
    let (node, mut queue) = (Node::new(), TestQueue::listening());
    let (agent, socket) = (agent(&node, &["--mq-url", &queue.url()]), node.path("agent.sock"));
    agent.until("both GPUs", |text| text.matches("\ngpu_up{").count() == 2);
    let of = |rows: &Rows, name: &str| -> u32 {
        rows.iter().filter(|((key, _), _)| key == name).map(|(_, times)| *times).sum()
    };
    assert_eq!(hook(&socket, "prolog", &ENVIRONMENT), "");
    let held = format!("gpu_usage {VEGA56} job:4711");
    let rows = queue.rows(|rows| of(rows, "jobs n1") >= 1 && of(rows, &held) >= 1);
    assert_eq!(of(&rows, &format!("gpu_usage {RX580} job:4711")), 0);
    assert_eq!(hook(&socket, "controller", &ENVIRONMENT), "");
    assert_eq!(hook(&socket, "epilog", &ENVIRONMENT), "");
    queue.rows(|rows| of(rows, "jobs n1") >= 2);
    assert_eq!(agent.terminate(), Some(0));
}

#[test]
fn a_recording_holds_its_gpus_until_its_command_ends() {
    let node = Node::new();
    let (agent, socket) = (agent(&node, &[]), node.path("agent.sock"));
    let held = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("gpu_attribution_info{"));
        lines.filter(|line| line.contains("job=\"run:train\"")).count()
    };
    agent.until("both GPUs", |text| text.matches("\ngpu_up{").count() == 2);
    let mut recorder = gpuvitals!()
        .args(["record", "--node", "n1", "--quiet", "--sysfs"])
        .arg(node.path("sys"))
        .arg("--procfs")
        .arg(node.path("proc"))
        .arg("--output")
        .arg(node.path("train"))
        .arg("--agent")
        .arg(&socket)
        .args(["--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    agent.until("the run", |text| held(text) == 2);
    drop(recorder.stdin.take());
    let status = waiting::within("the end of the recording", move || recorder.wait().unwrap());
    assert!(status.success(), "{status}");
    let text = agent.until("the end of the run", |text| held(text) == 0);
    assert_eq!(value(&text, "gpuvitals_jobs_running "), Some(0.0), "it is no job");
}

#[test]
fn what_is_no_message_is_refused_counted_and_said() {
    let node = Node::new();
    let (agent, socket) = (agent(&node, &[]), node.path("agent.sock"));
    for (bytes, words) in [
        (b"garbage".to_vec(), "no end"),
        (b"HOOK=prolog\0SLURM_JOB_ID=1;rm\0".to_vec(), "no number"),
        (vec![b'A'; 1 << 20], "longer than 65536 bytes"),
    ] {
        let answer = answer(&socket, &bytes);
        assert!(answer.contains(words) || answer.is_empty() && bytes.len() > 65_536, "{answer:?}");
    }
    agent.logged("a hook's message was not taken");
    let text = agent.until("the counts", |text| messages(text, "malformed") == Some(3.0));
    assert_eq!(messages(&text, "taken"), Some(0.0));
    assert_eq!(value(&text, "gpuvitals_jobs_running "), Some(0.0));
}

#[test]
fn connections_that_tell_nothing_keep_no_hook_out() {
    let node = Node::new();
    let (agent, socket) = (agent(&node, &[]), node.path("agent.sock"));
    let silent: Vec<UnixStream> = (0..400).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(hook(&socket, "prolog", &ENVIRONMENT), "");
    let text = agent.until("all that were silent", |text| messages(text, "late") >= Some(400.0));
    assert_eq!(messages(&text, "taken"), Some(1.0));
    drop(silent);
}

#[test]
fn a_hook_ends_with_0_where_no_agent_answers_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent.sock");
    let said = hook(&socket, "prolog", &ENVIRONMENT);
    assert!(said.contains("jobs hook: failed to reach the agent") && said.contains("agent.sock"), "{said}");
    let _silent = UnixListener::bind(&socket).unwrap();
    let said = hook(&socket, "epilog", &ENVIRONMENT);
    assert!(said.contains("within a second"), "{said}");
    let said = hook(&socket, "controller", &[]);
    assert!(said.contains("SLURM_JOB_ID is not set"), "{said}");
}

#[test]
fn a_socket_is_one_agents_and_one_that_was_left_behind_is_taken() {
    let node = Node::new();
    let (first, socket) = (agent(&node, &[]), node.path("agent.sock"));
    let second = gpuvitals!()
        .args(["agent", "--port", "0"])
        .env("GPUVITALS_AGENT_SOCKET", &socket)
        .finished()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(74), "{said}");
    assert!(said.contains("agent.socket: ") && said.contains("another process listens there"), "{said}");
    assert_eq!(hook(&socket, "prolog", &ENVIRONMENT), "", "the first one still listens");
    first.process.kill();
    assert!(socket.exists());
    let _third = agent(&node, &[]);
    assert_eq!(hook(&socket, "prolog", &ENVIRONMENT), "");
}
