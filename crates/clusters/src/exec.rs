//! The tool in a pod: `pods/exec` over a WebSocket, without a shell and without standard input.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_sources::machine::{Tool, ToolError, ToolOutput};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::error::{ClusterError, shortened};

/// Bytes of standard error that are kept.
const STDERR_LEN_MAX: usize = 64 << 10;
/// Capacity of the client's pipes between socket and reader.
const PIPE_LEN: usize = 64 << 10;

/// A container with the tool.
#[derive(Debug, Clone)]
pub(crate) struct ExecTarget {
    pub(crate) pods: Api<Pod>,
    pub(crate) pod: Arc<str>,
    pub(crate) container: String,
}

/// The tool of a node, in whatever pod has it at the moment. Its runs block: they need a thread for blocking work.
pub(crate) struct PodTool {
    /// The tool and what comes before its arguments.
    command: Vec<String>,
    deadline: Duration,
    output_max: usize,
    runtime: Handle,
    cancel: CancellationToken,
    target: Mutex<Option<ExecTarget>>,
    /// Why the last run failed. A probe passes on only its text.
    failure: Mutex<Option<ClusterError>>,
}

impl PodTool {
    /// Of a runtime whose threads drive the connections.
    pub(crate) fn new(
        command: Vec<String>,
        deadline: Duration,
        output_max: usize,
        cancel: CancellationToken,
    ) -> Self {
        let runtime = Handle::current();
        let (target, failure) = (Mutex::default(), Mutex::default());
        Self { command, deadline, output_max, runtime, cancel, target, failure }
    }

    /// From now on it runs in this container.
    pub(crate) fn aim(&self, target: ExecTarget) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
        self.take_failure();
    }

    /// Why the last run failed, if it did.
    pub(crate) fn take_failure(&self) -> Option<ClusterError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn run_there(&self, args: &[&str], deadline: Duration) -> Result<ToolOutput, ClusterError> {
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(target) = target else { return Err(ClusterError::Stopped) };
        let command: Vec<&str> =
            self.command.iter().map(String::as_str).chain(args.iter().copied()).collect();
        tokio::select! {
            () = self.cancel.cancelled() => Err(ClusterError::Stopped),
            done = tokio::time::timeout(deadline, exec(&target, command, self.output_max)) => {
                done.unwrap_or(Err(ClusterError::TimedOut(self.deadline)))
            }
        }
    }
}

impl std::fmt::Debug for PodTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodTool").field("command", &self.command).finish_non_exhaustive()
    }
}

impl Tool for PodTool {
    fn run(&self, args: &[&str], deadline: Duration) -> Result<ToolOutput, ToolError> {
        self.runtime.block_on(self.run_there(args, deadline)).map_err(|error| {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
            let program = self.command.join(" ");
            match error {
                ClusterError::TimedOut(deadline) => ToolError::TimedOut { program, deadline },
                other => ToolError::Elsewhere { program, source: Box::new(other) },
            }
        })
    }

    fn patience(&self) -> Duration {
        self.deadline
    }
}

/// Runs a command in a container to its end.
async fn exec(
    target: &ExecTarget,
    command: Vec<&str>,
    output_max: usize,
) -> Result<ToolOutput, ClusterError> {
    let params = AttachParams {
        container: Some(target.container.clone()),
        stdin: false,
        stdout: true,
        stderr: true,
        tty: false,
        max_stdin_buf_size: None,
        max_stdout_buf_size: Some(PIPE_LEN),
        max_stderr_buf_size: Some(PIPE_LEN),
    };
    let mut process = target.pods.exec(&target.pod, command, &params).await.map_err(ClusterError::of)?;
    let (Some(stdout), Some(stderr), Some(status)) =
        (process.stdout(), process.stderr(), process.take_status())
    else {
        return Err(ClusterError::NoStatus);
    };
    // Both streams and the status at once: one that is not read stops the others. If the status never comes the streams may
    // not end either, so its absence ends the reading.
    let status = async { status.await.ok_or(ClusterError::NoStatus) };
    let done = tokio::try_join!(whole(stdout, output_max), begin(stderr, STDERR_LEN_MAX), status);
    match done {
        Ok((stdout, stderr, status)) => Ok(ToolOutput { code: Some(code_of(&status)?), stdout, stderr }),
        Err(ClusterError::NoStatus) => match process.join().await {
            Ok(()) => Err(ClusterError::NoStatus),
            Err(error) => Err(ClusterError::Broken(Arc::new(error))),
        },
        Err(other) => Err(other),
    }
}

/// Everything of a stream, unless it is too long.
async fn whole(stream: impl AsyncRead + Unpin, len_max: usize) -> Result<Vec<u8>, ClusterError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(len_max).unwrap_or(u64::MAX).saturating_add(1);
    // The pipe is memory and does not fail.
    let _read = stream.take(limit).read_to_end(&mut bytes).await;
    if bytes.len() > len_max { Err(ClusterError::TooLong(len_max)) } else { Ok(bytes) }
}

/// The begin of a stream; the rest is read and forgotten.
async fn begin(mut stream: impl AsyncRead + Unpin, len_max: usize) -> Result<Vec<u8>, ClusterError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(len_max).unwrap_or(u64::MAX);
    let _read = (&mut stream).take(limit).read_to_end(&mut bytes).await;
    let _forgotten = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    Ok(bytes)
}

/// The exit code in a status; an error if the tool did not run.
fn code_of(status: &Status) -> Result<i32, ClusterError> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.iter().filter_map(|details| details.causes.as_ref()).flatten();
    let code = causes
        .filter(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .find_map(|cause| cause.message.as_deref()?.parse().ok());
    if let (Some("NonZeroExitCode"), Some(code)) = (status.reason.as_deref(), code) {
        return Ok(code);
    }
    let message = shortened(status.message.as_deref().unwrap_or("it does not say why"));
    let is_missing = ["executable file not found", "no such file or directory"]
        .iter()
        .any(|words| message.contains(words));
    Err(if is_missing { ClusterError::NoTool(message) } else { ClusterError::NotRun(message) })
}
